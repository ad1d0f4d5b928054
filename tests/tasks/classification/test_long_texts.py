"""bert_training/tasks/classification/long_texts.py: head and tail, and windows in training, evaluation and use."""

import random
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import modeling_bert_repro
import run_glue
from bert_training.engine.batches import step_batches
from bert_training.engine.checkpoint import UNKNOWN, TrainingState
from bert_training.engine.errors import report_errors
from bert_training.engine.loop import training_steps
from bert_training.engine.predict import predict
from bert_training.networks.control import control_of
from bert_training.tasks.classification.long_texts import Reading, WindowFeatures, pool_windows, read_texts, text_logits
from bert_training.tasks.squad.windows import window_starts
from tests.helpers.records import read
from tests.helpers.small_networks import small_config
from tests.helpers.torchrun import torchrun
from tests.helpers.words import WORDS
from tokenization import build_tokenizer
from tokenization.bert_tokenizer import TextEncoder

pytestmark = pytest.mark.usefixtures("no_pictures")
WINDOWS = ("--long_texts=windows:3", "--max_seq_length=12")
SMALL = Reading(12, "windows", 3)


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return build_tokenizer(vocab)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Texts of 4 to 40 words, some of which need more than three windows of ``WINDOWS``; and short ones."""
    generator, folder = random.Random(0), tmp_path_factory.mktemp("texts")
    for name, counts in (("long", (4, 40)), ("short", (1, 4))):
        rows = [(" ".join(generator.choices(WORDS, k=generator.randint(*counts))), row % 3) for row in range(24)]
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(f"{text},c{label}\n" for text, label in rows))
    return SimpleNamespace(long=folder / "long.csv", short=folder / "short.csv")


def command(model, data, folder, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(model), "--train_file", str(data), "--validation_file", str(data)),
        *("--output_dir", str(folder), "--max_steps=4", "--logging_steps=1", "--per_device_train_batch_size=4", *more),
    ]


@pytest.fixture(scope="module")
def windowed(tmp_path_factory, pretrained, files):
    """A finished run in windows, with a checkpoint in its middle."""
    folder = tmp_path_factory.mktemp("windowed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bert_training.tasks.fine_tuning.draw_curves", lambda folder: None)
        run_glue.main(command(pretrained, files.long, folder, *WINDOWS, "--save_steps=2", "--learning_rate=1e-2"))
    return folder


def evals(folder) -> dict:
    return {name: value for name, value in read(folder, "all_results.json").items() if name.startswith("eval_")}


# --- rows ------------------------------------------------------------------------------------------------


def read_as_lists(columns, tokenizer, reading):
    found = read_texts(columns, TextEncoder(tokenizer), reading)
    ids, types = ([[row.tolist() for row in rows] for rows in column] for column in found[:2])
    return found._replace(input_ids=ids, token_type_ids=types)


def test_the_paper_s_head_and_tail(tokenizer):
    """Sun et al.: of 510 tokens, the first 128 and the last 382; a text that fits is left alone."""
    words = random.Random(1).choices(WORDS, k=900)
    ids = tokenizer(" ".join(words), add_special_tokens=False)["input_ids"]
    texts = [" ".join(words), "the king"]
    found = read_as_lists([texts], tokenizer, Reading(512, "head_tail"))
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert found.input_ids == [[[cls, *ids[:128], *ids[-382:], sep]], [tokenizer(texts[1])["input_ids"]]]
    assert found.lost == [len(ids) - 510, 0] and found.lengths[0] == len(ids) + 2


def test_the_texts_of_a_pair_lose_their_middles(tokenizer):
    generator = random.Random(2)
    pairs = [[" ".join(generator.choices(WORDS, k=generator.randint(1, 30))) for _ in range(50)] for _ in range(2)]
    found, plain = (read_as_lists(pairs, tokenizer, Reading(20, how)) for how in ("head_tail", "cut"))
    assert found.lost == plain.lost and found.token_type_ids == plain.token_type_ids and any(found.lost)
    for texts, (row,), (types,) in zip(zip(*pairs), found.input_ids, found.token_type_ids):
        first = types.index(1)
        for text, part in zip(texts, (row[1 : first - 1], row[first:-1])):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            head = (len(part) + 2) // 4 if len(part) < len(ids) else len(part)
            assert part == ids[:head] + ids[len(ids) - (len(part) - head) :]


@pytest.mark.parametrize(("length", "stride"), [(12, 7), (7, 3), (30, 21), (3, 1)])
def test_windows_are_those_of_google(tokenizer, length, stride):
    """The independent source is the code for SQuAD, and for the counts, the tokens of the whole text."""
    generator = random.Random(3)
    texts = [" ".join(generator.choices(WORDS, k=count)) for count in range(1, 60)]
    found = read_as_lists([texts], tokenizer, Reading(length, "windows", 4))
    for number, text in enumerate(texts):
        cls, *ids, sep = tokenizer(text)["input_ids"]
        starts = window_starts(len(ids), length - 2, stride)
        assert found.input_ids[number] == [[cls, *ids[start : start + length - 2], sep] for start in starts[:4]]
        seen = {place for start in starts[:4] for place in range(start, min(start + length - 2, len(ids)))}
        assert found.lost[number] == len(ids) - len(seen) and found.lengths[number] == len(ids) + 2
        assert found.needed[number] == len(starts)


# --- losses and logits -----------------------------------------------------------------------------------


def features(problem: str = "single_label_classification") -> WindowFeatures:
    """16 texts of one to five windows with random tokens."""
    rng = np.random.default_rng(0)
    ids = [[rng.integers(5, 99, rng.integers(2, 9)).tolist() for _ in range(rng.integers(1, 6))] for _ in range(16)]
    types = [[[0] * len(window) for window in windows] for windows in ids]
    labels = {"regression": rng.random(16).tolist()}.get(problem, rng.integers(0, 3, 16).tolist())
    return WindowFeatures({"input_ids": ids, "token_type_ids": types, "labels": labels}, 0)


def network(problem: str, impl: str = "repro"):
    torch.manual_seed(0)
    fields = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 1}
    config = small_config(**fields, num_labels=1 if problem == "regression" else 3, problem_type=problem)
    model = modeling_bert_repro.BertForSequenceClassification(config)
    model = (control_of(model) if impl == "transformers" else model).double()
    pool_windows(model)
    return model


def by_hand(model, rows: WindowFeatures) -> torch.Tensor:
    """The logits of texts from single windows that are passed without padding, pooled by NumPy."""
    with torch.no_grad():
        every = [
            [model(input_ids=torch.tensor([window])).logits[0].numpy() for window in windows]
            for windows in rows.columns["input_ids"]
        ]
    return torch.from_numpy(np.stack([np.mean(np.stack(windows), axis=0) for windows in every]))


@pytest.mark.parametrize("impl", ["repro", "transformers"])
@pytest.mark.parametrize("problem", ["single_label_classification", "regression"])
def test_the_loss_is_that_of_pooled_logits_however_a_step_is_split(make_run, problem, impl):
    rows = features(problem)
    labels = torch.tensor(rows.columns["labels"])
    logits = by_hand(network(problem, impl), rows)
    loss = F.mse_loss(logits[:, 0], labels.double()) if problem == "regression" else F.cross_entropy(logits, labels)
    first = None
    for size, count in ((16, 1), (4, 4), (1, 16)):
        model = network(problem, impl)
        run = make_run(per_device_train_batch_size=size, gradient_accumulation_steps=count)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = TrainingState(model, optimizer, LambdaLR(optimizer, lambda step: 1.0), 1, UNKNOWN)
        (step,) = training_steps(run, state, step_batches(rows, run, 0, 1), max_grad_norm=1.0)
        assert step.loss == pytest.approx(float(loss), rel=1e-6) and step.counts.sequences == 16
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        first = weights if first is None else first
        torch.testing.assert_close(weights, first, rtol=0, atol=1e-7)


def test_an_evaluation_fills_its_batches_with_windows(make_run):
    """No batch has more than 6 of them, a text is in one batch, and the results are in the order of the texts."""
    rows, model = features(), network("single_label_classification")
    batches = rows.by_length(6)
    assert sorted(np.concatenate(batches).tolist()) == list(range(16)) and len(batches) < 16
    assert max(rows.num_windows[batch].sum() for batch in batches) <= 6
    found = predict(make_run(), model, rows, 6)
    torch.testing.assert_close(torch.from_numpy(found["logits"]), by_hand(model, rows).float(), rtol=1e-5, atol=1e-6)


# --- runs ------------------------------------------------------------------------------------------------


def test_windows_of_short_texts_are_the_plain_cut_to_the_bit(pretrained, files, tmp_path):
    for name, more in (("cut", ()), ("windows", ("--long_texts=windows",))):
        given = ("--max_seq_length=24", "--save_steps=0", *more)
        run_glue.main(command(pretrained, files.short, tmp_path / name, *given))
    cut, windows = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("cut", "windows"))
    assert cut == windows and evals(tmp_path / "cut") == evals(tmp_path / "windows")


def test_later_commands_read_in_windows_too(windowed, files, tmp_path, capsys):
    flags = ["--model_name_or_path", str(windowed), "--validation_file", str(files.long), "--test_file"]
    run_glue.main([*flags, str(files.long), "--output_dir", str(tmp_path / "again")])
    out = capsys.readouterr().out
    assert "long_texts windows:3" in out
    assert evals(tmp_path / "again") == evals(windowed)
    counts = read(windowed, "run.json")["cut_at_max_seq_length"]["train"]
    assert counts["in_several_windows"] > counts["cut"] > 0 and counts["windows"] <= 3 * 24
    assert f"warning: validation: {counts['cut']} of 24 examples" in out and "--long_texts windows:" in out
    # The flag of windows goes with them.
    given = ["--model_name_or_path", str(windowed), "--validation_file", str(files.long), "--output_dir"]
    run_glue.main([*given, str(tmp_path / "cut"), "--long_texts=cut"])
    out = capsys.readouterr().out
    assert "None" not in out and "but the model was fine-tuned with windows" in out


def test_plain_transformers_find_the_same_with_the_program_of_the_card(windowed, files, monkeypatch, capsys):
    """Also ``text_logits`` with the default reading."""
    texts = [line.split(",")[0] for line in files.long.read_text().splitlines()[1:]]
    model, tokenizer = (auto.from_pretrained(windowed) for auto in (AutoModelForSequenceClassification, AutoTokenizer))
    logits, _ = text_logits(model.eval(), tokenizer, [texts], batch_size=5)
    card = (windowed / "README.md").read_text()
    assert "in windows of that length" in card and "Not read, train: " in card
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(windowed.parent)
    for number in (0, 1, 2):
        names: dict = {}
        exec(program.replace("'Return the sum of the elements.'", repr(texts[number])), names)
        torch.testing.assert_close(names["logits"], torch.from_numpy(logits[number]), rtol=1e-4, atol=1e-5)
    assert len(capsys.readouterr().out.split()) == 3


@pytest.mark.slow
def test_two_processes_do_what_one_does(windowed, pretrained, files, tmp_path):
    more = (*WINDOWS, "--save_steps=0", "--learning_rate=1e-2", "--per_device_train_batch_size=2")
    torchrun("run_glue.py", command(pretrained, files.long, tmp_path / "run", *more))
    found, expected = evals(tmp_path / "run"), evals(windowed)
    assert found.pop("eval_by_class") == expected.pop("eval_by_class")
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("given", "message"), [
    (["--long_texts=head_tail", "--max_seq_length=5"], "no room for the beginning and the end of the text; give 6"),
    ([*WINDOWS, "--text_column", "text", "label", "--label_column=id"], "reads a single text, not pairs"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(pretrained, files, tmp_path, capsys, given, message):
    data = files.short
    if "id" in given[-1]:
        data = tmp_path / "pairs.csv"
        data.write_text("text,label,id\nthe king,the queen,a\nthe house,the river,b\n")
    with pytest.raises(SystemExit, match="2"):
        sys.exit(report_errors(lambda: run_glue.main(command(pretrained, data, tmp_path / "run", *given))))
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and not (tmp_path / "run").exists()
