"""training/tools/doctor.py: when the doctor speaks, what it says, and the reference curves that it compares with."""

import json

import numpy as np
import pytest
from transformers import BertTokenizer

from training.engine.errors import report_errors
from training.pretraining.build_corpus import build_corpus
from training.records.curves import draw_curves
from training.records.reference_curves import comparable, references, settings_of
from training.tools import doctor
from training.tools.audit import SETTINGS

WORDS = [f"word{number}" for number in range(50)]
FLAGS = {
    "seed": 1,
    "config_name": "mini",
    "model_name_or_path": None,
    "objective": "mlm_nsp",
    "mlm_probability": 0.15,
    "max_seq_length": 128,
    "per_device_train_batch_size": 32,
    "gradient_accumulation_steps": 1,
    "learning_rate": 1e-3,
    "weight_decay": 0.01,
    "warmup_steps": 300,
}
FACTS = {"flags": FLAGS, "processes": 1, "parameters": 11_000_000, "total_steps": 10_000}
LINE = 3.9  # about log(50), which is the entropy of the corpus in this file


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(names)})
    rng = np.random.default_rng(0)
    texts = [[" ".join(rng.choice(WORDS, 12)) for _ in range(5)] for _ in range(200)]
    return build_corpus(texts, tokenizer, tmp_path_factory.mktemp("c") / "c")


def run_of(loss, stop, every=20, held_out=None):
    """The records of a training whose masked-LM loss is `loss(step)`."""
    events = [{"event": "train", "step": s, "loss": loss(s) + 0.7, "mlm_loss": loss(s)} for s in range(1, stop, every)]
    if held_out is not None:
        events.append({"event": "eval", "step": stop, "eval_mlm_loss": held_out})
    return events


@pytest.mark.parametrize(
    ("loss", "stop", "held_out", "speaks"),
    [
        (LINE, 1000, LINE, True),
        (LINE, 1000, None, True),
        (LINE + 2.0, 1000, LINE + 2.0, True),  # Not even the frequencies of the tokens are learnt.
        (LINE - 0.2, 1000, LINE - 0.2, True),
        (LINE - 0.3, 1000, LINE - 0.3, False),  # The margin is 0.25.
        (LINE, 1000, LINE - 0.3, False),  # The training loss is noisy, so the held-out loss decides.
        (LINE, 380, LINE, False),  # There are only 4 records since the warm-up.
        (LINE, 250, LINE, False),  # The warm-up is not over.
    ],
)
def test_when_a_run_sits_on_the_line(loss, stop, held_out, speaks):
    assert (doctor.find_plateau(run_of(lambda step: loss, stop, held_out=held_out), LINE, 300) is not None) == speaks


def test_the_window_is_the_last_tenth():
    falling = run_of(lambda step: LINE + 1 if step <= 900 else LINE - 1, 1000)
    assert doctor.find_plateau(falling, LINE, 300) is None
    last, window, mean = doctor.find_plateau(run_of(lambda step: LINE + (step > 900), 1000), LINE, 300)
    assert (last, window, mean) == (981, 81, pytest.approx(LINE + 1))


def test_runs_without_pairs_log_one_loss_only():
    events = [{"event": "train", "step": step, "loss": LINE} for step in range(1, 1000, 20)]
    assert doctor.find_plateau(events, LINE, 300) is not None


@pytest.mark.parametrize(
    ("changes", "step", "repeated", "named"),
    [
        ({}, 9000, (0.0, 0.0), set()),
        ({}, 9000, (0.02, 0.0), {"duplicates"}),
        ({}, 9000, (0.0, 0.06), {"duplicates"}),
        ({"mlm_probability": 0.05}, 9000, (0.0, 0.0), {"mask rate"}),
        ({"mlm_probability": 0.6}, 9000, (0.0, 0.0), {"mask rate"}),
        ({"learning_rate": 1e-5}, 9000, (0.0, 0.0), {"learning rate"}),
        ({"learning_rate": 1e-2}, 9000, (0.0, 0.0), {"learning rate"}),
        ({"warmup_steps": 0}, 9000, (0.0, 0.0), {"warm-up"}),
        ({"warmup_steps": 0.005}, 9000, (0.0, 0.0), {"warm-up"}),
        ({"per_device_train_batch_size": 8}, 9999, (0.0, 0.0), {"batch"}),
        ({"phases": "64:0.9:16,128:0.1:32"}, 8000, (0.0, 0.0), {"batch"}),
        ({}, 400, (0.0, 0.0), {"too few steps"}),
    ],
)
def test_the_causes_that_the_flags_and_the_data_show(changes, step, repeated, named):
    facts = FACTS | {"flags": FLAGS | changes}
    assert {line.name for line in doctor.check_causes(facts, step, repeated) if not line.good} == named


def test_large_networks_want_smaller_rates():
    facts = FACTS | {"parameters": 110_000_000}
    assert {line.name for line in doctor.check_causes(facts, 9000, (0.0, 0.0)) if not line.good} == {"learning rate"}
    facts["flags"] = FLAGS | {"learning_rate": 1e-4}
    assert all(line.good for line in doctor.check_causes(facts, 9000, (0.0, 0.0)))


def test_the_diagnosis_names_the_line_and_the_likely_causes(corpus):
    assert corpus.unigram_entropy() == pytest.approx(LINE, abs=0.05)
    stuck = run_of(lambda step: LINE, 9000, held_out=LINE)
    assert doctor.diagnosis(FACTS, run_of(lambda step: 1.0, 9000), corpus) is None
    text = doctor.diagnosis(FACTS | {"flags": FLAGS | {"learning_rate": 1e-6}}, stuck, corpus)
    assert "stays at 3.90" in text and "gives 3.9" in text and "--learning_rate 1e-06 is outside" in text
    assert "checked and fine: duplicates, mask rate, warm-up, batch, too few steps" in text
    assert "none of the usual causes applies" in doctor.diagnosis(FACTS, stuck, corpus)


def test_the_diagnosis_is_repeated_only_when_the_run_is_twice_as_old(corpus, make_run, capsys):
    run = make_run()
    run.facts |= FACTS
    metrics = run.output_dir / "metrics.jsonl"
    spoken = []
    for stop in range(1000, 5001, 500):
        lines = sorted([*spoken, *run_of(lambda step: LINE, stop, held_out=LINE)], key=lambda line: line["step"])
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        doctor.log_diagnosis(run, corpus)
        spoken = [line for line in map(json.loads, metrics.read_text().splitlines()) if line["event"] == "doctor"]
    assert [line["step"] for line in spoken] == [1000, 2000, 4000]
    assert capsys.readouterr().out.count("doctor: the masked-LM loss stays at") == 3


# --- Reference curves ---------------------------------------------------------------------------------------


def test_every_reference_curve_left_the_line():
    for name, reference in references().items():
        settings, train, held_out = (reference[part] for part in ("settings", "train", "held_out"))
        assert settings["config_name"] == name
        assert len(train["steps"]) == len(train["mlm_loss"]) <= 200
        assert held_out["steps"] == sorted(held_out["steps"])
        assert held_out["mlm_loss"][-1] < settings["unigram_entropy"] - doctor.MARGIN
        assert doctor.tokens_to_leave_plateau(name)[0] == name
        assert 0 < doctor.tokens_to_leave_plateau(name)[1] < 20e6


def test_a_run_is_compared_only_with_a_reference_of_the_same_settings():
    settings = references()["mini"]["settings"]
    entropy = settings["unigram_entropy"]
    assert comparable(FACTS, entropy)[0] == "mini"
    assert comparable(FACTS, entropy - 0.31) is None
    assert comparable(FACTS | {"processes": 2}, entropy) is None
    for changes in ({"config_name": "base"}, {"max_seq_length": 64}, {"mlm_probability": 0.4}, {"objective": "mlm"}):
        assert comparable(FACTS | {"flags": FLAGS | changes}, entropy) is None
    assert comparable({"flags": {"task_name": "rte"}}, entropy) is None
    tiny = FACTS | {"flags": FLAGS | {"config_name": "tiny"}}
    assert comparable(tiny, entropy)[0] == "tiny"
    assert comparable(tiny, entropy + 0.31) is None


def test_the_reference_is_drawn_and_a_reference_can_be_made(tmp_path, monkeypatch, corpus):
    entropy = references()["mini"]["settings"]["unigram_entropy"]
    made = {"started": "", "device": "cpu", "versions": {}, "corpus": {"documents": 1, "tokens": 1}}
    facts = FACTS | made | {"flags": dict.fromkeys(SETTINGS) | FLAGS | {"train_file": ["/data/a.txt"]}}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    events = [{"event": "corpus", "unigram_entropy": entropy}, *run_of(lambda step: 7 - step / 1000, 1000)]
    events.append({"event": "eval", "step": 1000, "eval_mlm_loss": 6.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    drawn = []
    monkeypatch.setattr("training.records.curves.label_ends", lambda axis, ends: drawn.extend(end[2] for end in ends))
    draw_curves(tmp_path)
    assert "reference mini" in drawn
    monkeypatch.setattr(doctor, "FILE", tmp_path / "references.json")
    doctor.main([str(tmp_path), "--make_reference", "again"])
    again = json.loads((tmp_path / "references.json").read_text())["again"]
    assert again["settings"] | settings_of(facts, entropy) == again["settings"]
    assert again["held_out"] == {"steps": [1000], "mlm_loss": [6.0]}
    assert again["train"]["steps"] == list(range(1, 1000, 20))


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no run.json"), ('{"flags": {"task_name": "rte"}}', "expected a pre-training run")]
)
def test_mistakes_of_the_command_are_refused(tmp_path, capsys, content, message):
    if content:
        (tmp_path / "run.json").write_text(content)
    assert report_errors(lambda: doctor.main([str(tmp_path)])) == 2
    assert message in capsys.readouterr().err
