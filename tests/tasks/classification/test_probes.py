"""Probes of a pre-training: their tables, their scores, and that they change nothing."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel, AutoTokenizer

import run_pretraining
from bert_training.pretraining.plateau import not_more_useful
from bert_training.tasks.classification import probes
from tests.helpers.records import events
from tokenization.errors import UserError

pytestmark = pytest.mark.usefixtures("no_pictures")
ANIMALS, TOOLS = ("the cat sleeps", "a dog runs", "the bird sings"), ("the saw cuts", "a drill turns", "the file rasps")


def table(path, rows=30, header="text,label"):
    kinds = [("animal", ANIMALS), ("tool", TOOLS)]
    lines = [f"{texts[n % 3]} {n},{label}" for n in range(rows // 2) for label, texts in kinds]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory, text_file, tokenizer_folder, network_shape):
    """Runs with and without a probe, and its table."""
    place = tmp_path_factory.mktemp("probes")
    file = table(place / "animals.csv")
    common = (
        f"--train_file {text_file} --validation_split 0.2 --tokenizer_name {tokenizer_folder} --config_name "
        f"{network_shape} --max_seq_length 32 --per_device_train_batch_size 8 --max_steps 6 --eval_steps 2 "
        "--save_steps 4 --max_eval_instances 8 --learning_rate 1e-2"
    )
    for name, more in (("with", f"--probe {file}"), ("without", "")):
        run_pretraining.main(f"{common} {more} --output_dir {place / name}".split())
    return place


def test_scores_are_those_of_scikit_learn_on_the_vectors_of_transformers(runs):
    folder, file = runs / "with", runs / "animals.csv"
    results = json.loads((folder / "all_results.json").read_text())
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    (probe,) = probes.tokenised(probes.read_tables([str(file)]), tokenizer)
    cls, mean = [], []
    for row in probe.rows.columns["input_ids"]:
        states = encoder(input_ids=torch.tensor([list(row)])).last_hidden_state[0].detach().numpy()
        cls.append(states[0])
        mean.append(states.mean(0))
    for view, vectors in (("cls", cls), ("mean", mean)):
        fit = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
        fit.fit(np.float64(vectors[: probe.train_rows]), probe.labels[: probe.train_rows])
        expected = fit.score(np.float64(vectors[probe.train_rows :]), probe.labels[probe.train_rows :])
        assert results[f"eval_probe_animals_{view}"] == pytest.approx(expected, abs=1e-9)
    assert probe.majority == 0.5 and len(probe.labels) - probe.train_rows == 6


def test_probes_change_no_weight(runs):
    weights = [(runs / name / "model.safetensors").read_bytes() for name in ("with", "without")]
    assert weights[0] == weights[1]


def test_every_evaluation_has_scores_from_the_first_weights_on(runs):
    found = events(runs / "with", "probe")
    assert [event["step"] for event in found] == [0, 2, 4, 6]
    facts = json.loads((runs / "with" / "run.json").read_text())["probes"]
    assert facts["animals"]["held_out"] == 6
    assert "| Probe animals, cls: accuracy on frozen vectors | " in (runs / "with" / "README.md").read_text()


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (
            lambda path: path.write_text("text,label\n" + "a b,one\n" * 30),
            "have the label 'one'",
        ),
        (lambda path: path.write_text("text,label\na b,one\nc d,two\n"), "expected at least 2 rows of each class"),
        (lambda path: table(path, header="id,stars"), "--probe .*text"),
        (lambda path: path.write_text("text,label\n" + "".join(f"a {n},{n}.5\n" for n in range(30))), "one class"),
    ],
    ids=["one class", "no test rows", "no text", "scores"],
)
def test_what_is_no_probe(tmp_path, write, expected):
    write(tmp_path / "bad.csv")
    with pytest.raises(UserError, match=expected):
        probes.read_tables([str(tmp_path / "bad.csv")])


def test_two_probes_of_one_name(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        table(tmp_path / place / "x.csv")
    with pytest.raises(UserError, match="two probes would be called 'x'"):
        probes.read_tables([str(tmp_path / place / "x.csv") for place in ("a", "b")])


def test_large_tables_are_read_in_part(tmp_path, monkeypatch, tokenizer_folder):
    monkeypatch.setattr(probes, "MOST_ROWS", 20)
    monkeypatch.setattr(probes, "MOST_HELD_OUT", 4)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    (probe,) = probes.tokenised(probes.read_tables([str(table(tmp_path / "a.csv", rows=60))]), tokenizer)
    assert (probe.train_rows, len(probe.labels), probe.facts["rows"]) == (16, 20, 60)


def test_rows_are_no_longer_than_the_network_can_read(tmp_path, text_file, tokenizer_folder, network_shape):
    """A tokenizer may allow more."""
    config = json.loads((network_shape / "config.json").read_text()) | {"max_position_embeddings": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    lines = [f"{('red', 'blue')[number % 2]} {'the old house ' * 5},{'xy'[number % 2]}" for number in range(30)]
    (tmp_path / "long.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    run_pretraining.main(
        f"--train_file {text_file} --validation_split 0.2 --tokenizer_name {tokenizer_folder} --config_name {tmp_path} "
        f"--max_seq_length 8 --max_steps 1 --save_steps 0 --output_dir {tmp_path / 'run'} "
        f"--probe {tmp_path / 'long.csv'}".split()
    )
    assert "eval_probe_long_cls" in json.loads((tmp_path / "run/all_results.json").read_text())


def test_builtin_probes_are_the_tasks_of_the_documentation(monkeypatch):
    monkeypatch.setattr(probes, "load_data", lambda args: args.task_name)
    monkeypatch.setattr(probes, "divided", lambda data, args: data)
    assert probes.read_tables(["builtin"]) == [(name, name) for name in ("builtin_pair", "builtin_classification")]


def test_a_falling_loss_without_use_is_said():
    losses = [{"event": "eval", "step": s, "eval_mlm_loss": 3.0 - s / 10} for s in (2, 4, 6)]
    facts = {"law": {"held_out": 100}}

    def probed(*values):
        return [
            {"event": "probe", "step": 2 * n, "eval_probe_law_cls": 0.3, "eval_probe_law_mean": value}
            for n, value in enumerate(values)
        ]

    assert "no probe has risen" in not_more_useful(losses + probed(0.5, 0.5, 0.54), facts)
    assert not_more_useful(losses + probed(0.5, 0.5, 0.56), facts) is None  # the standard error is 0.05
    assert not_more_useful(losses[:1] + probed(0.5, 0.5, 0.5), facts) is None  # the loss has not fallen
    assert not_more_useful(losses + probed(0.5, 0.5), facts) is None  # too few evaluations
    assert not_more_useful(losses, {}) is None
    scores = {"eval_probe_law_cls": 0.5, "eval_probe_law_mean": 0.9, "eval_mlm_loss": 1.0}
    assert probes.scores_text(scores, facts) == "law, cls 50.0% ± 5.0%; law, mean 90.0% ± 3.0%"
    assert not_more_useful(losses + probed(1.0, 1.0, 1.0), facts) is None  # it cannot rise
    assert not_more_useful(losses + probed(0.5, 0.5, 0.5), {"other": facts["law"]}) is None


def test_a_resumed_run_has_the_tables_with_which_it_began(tmp_path):
    path = table(tmp_path / "law.csv")
    before = probes.read_tables([str(path)])
    begun = {"probes": {"law": {"sha256": before[0][1].splits["train"].facts["sha256"]}}}
    for earlier in (begun, {}, {"probes": {"law": {}}}):
        probes.check_unchanged(before, earlier)
    with pytest.raises(UserError, match="the table 'law' has changed since"):
        probes.check_unchanged(probes.read_tables([str(table(path, rows=60))]), begun)


def test_a_rare_class_is_among_the_rows_that_are_read(tmp_path, monkeypatch, tokenizer_folder):
    monkeypatch.setattr(probes, "MOST_ROWS", 20)
    monkeypatch.setattr(probes, "MOST_HELD_OUT", 4)
    rows = "".join(f"{ANIMALS[row % 3]},{'rare' if 100 < row < 120 else 'usual'}\n" for row in range(2000))
    (tmp_path / "a.csv").write_text("text,label\n" + rows)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    (probe,) = probes.tokenised(probes.read_tables([str(tmp_path / "a.csv")]), tokenizer)
    assert set(probe.labels[: probe.train_rows].tolist()) == {0, 1} and len(probe.labels) <= 20


class Rows:
    """As much of a table as is asked for."""

    def __init__(self, classes: str):
        self.labels = [*classes]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: list[int]) -> list[str]:
        return [self.labels[row] for row in rows]


def test_a_class_at_the_edge_of_a_sorted_table_is_kept():
    found = probes._spread(Rows("a" * 10 + "b" * 4 + "c" * 600), 40)
    assert set(found) == {"a", "b", "c"} and len(found) == 40
    assert probes._spread(Rows("abcdef"), 4) == [*"abcd"]
