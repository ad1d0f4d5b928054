"""bert_tools/budget.py: the steps that it measures, and the plan that it makes of them."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
from transformers import BertConfig

import run_pretraining
from bert_tools import budget
from bert_training.inputs.flags.phases import phases_of
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.masking import check_masking
from tokenization import build_tokenizer

FLAGS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
HOUR = ["--hours", "1", "--"]
FACTS = {
    "device": "cpu",
    "processes": 2,
    "mixed_precision": "no",
    "parameters": 110_000_000,
    "flags": {"config_name": "base"},
}


def records(**seconds):
    """The records of three timed steps of each length, after one that does not count."""
    return [
        {"max_seq_length": int(length[1:]), "seconds_per_step": s, "tokens_per_second": 100.0}
        for length, each in seconds.items()
        for s in (99.0, each, each, 10 * each)
    ]


def test_the_number_of_steps_that_fit_into_the_time():
    """9 of 10 steps take 1 s and one takes 2 s, which is 1.1 s on average. 3 % of the time is kept in reserve."""
    phases = phases_of(FLAGS | {"phases": "128:0.9:32,512:0.1:8x4"})
    text = budget.plan_text(6, phases, records(_128=1.0, _512=2.0), {"peak_memory_gb": 3.21}, FACTS)
    total = int(6 * 3600 * 0.97 / 1.1)
    assert f"In 6 hours: {total:,} steps ({round(0.9 * total):,} steps of 64 x 128" in text
    assert f"= {64 * total:,} sequences" in text
    assert "peak memory 3.2 GB" in text
    assert f"--config_name base --max_steps {total} --phases 128:0.9:32x1,512:0.1:8x4" in text


def test_a_plan_to_adapt_a_model_names_it(tmp_path):
    phases, facts = phases_of(FLAGS | {"phases": "128:1:32"}), FACTS | {"flags": {"config_name": str(tmp_path)}}
    text = budget.plan_text(2, phases, records(_128=1.0), {"peak_memory_gb": 1}, facts, "adapt")
    steps = int(2 * 3600 * 0.97)
    flags = next(line for line in text.splitlines() if line.startswith("Flags: "))
    assert flags == f"Flags: --model_name_or_path {tmp_path} --max_steps {steps} --phases 128:1:32x1 --recipe adapt"


@pytest.mark.parametrize(
    ("flags", "phases"),
    [
        ([], "128:0.500000000:8x1,512:0.500000000:8x1"),
        (["--recipe", "fast"], "32:0.333333333:64x1,64:0.333333333:64x1,128:0.333333333:64x1"),
        (["--recipe", "fast", "--phases", "64:1:4"], "64:1.000000000:4x1"),
        (["--recipe", "adapt"], "128:1.000000000:32x1"),
    ],
)
def test_a_plan_with_a_recipe_times_the_steps_of_the_recipe(flags, phases):
    """Its lengths, its batches, and the network that it trains."""
    started = []

    def start(words, launcher):
        started.extend(words)
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        budget.main(["--hours", "1", "--vocab_size", "50", *flags], start)
    adapts = "adapt" in flags  # timed with new weights
    assert started[:2] == ["--recipe", "paper" if adapts or not flags else "fast"]
    assert (started[2:4] == ["--objective", "mlm"]) == adapts
    assert started[started.index("--phases") + 1] == phases


@pytest.fixture
def shape(tmp_path) -> str:
    config = BertConfig(
        vocab_size=500, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    config.save_pretrained(tmp_path / "shape")
    return str(tmp_path / "shape")


@pytest.fixture
def vocabulary(tmp_path) -> str:
    """The folder of a tokenizer of 21 rows."""
    build_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"αβγδεζηθικλμνξοπ"]).save_pretrained(
        tmp_path / "vocabulary"
    )
    return str(tmp_path / "vocabulary")


def timed(flags: list[str]) -> tuple[list[str], int | None, set[str]]:
    """The flags of the timed run of a plan, the rows of its own vocabulary and the words of its text."""
    seen: list[tuple[list[str], int | None, set[str]]] = []

    def start(words, launcher):
        folder = Path(words[words.index("--output_dir") + 1]).parent
        own = folder / "vocabulary"
        rows = len(load_tokenizer(str(own), quiet=True)) if own.is_dir() else None
        seen.append((words, rows, set((folder / "text.txt").read_text(encoding="utf-8").split())))
        (folder / "run").mkdir()
        lengths = [int(phase.split(":")[0]) for phase in words[words.index("--phases") + 1].split(",")]
        events = [event | {"event": "train"} for length in lengths for event in records(**{f"_{length}": 1.0})]
        (folder / "run" / "metrics.jsonl").write_text("\n".join(map(json.dumps, events)))
        (folder / "run" / "all_results.json").write_text('{"peak_memory_gb": 1}')
        (folder / "run" / "run.json").write_text(json.dumps(FACTS))

    budget.main(flags, start)
    return seen[0]


@pytest.mark.parametrize(
    ("flags", "rows", "printed"),
    [
        ([], 30522, True),
        (["--config_name", "SHAPE"], 500, True),
        (["--config_name", "SHAPE", "--vocab_size", "70"], 70, True),
        (["--config_name", "SHAPE", "--recipe", "adapt"], 500, False),
        (["--config_name", "SHAPE", "--", "--tokenizer_name", "VOCABULARY"], 21, False),
        (["--vocab_size", "70", "--", "--tokenizer-name=VOCABULARY"], 70, False),
    ],
)
def test_the_timed_vocabulary_is_as_large_as_that_of_the_training(shape, vocabulary, capsys, flags, rows, printed):
    """Otherwise the embeddings and the matrix before the loss would have another size, and the plan another speed."""
    flags = [flag.replace("SHAPE", shape).replace("VOCABULARY", vocabulary) for flag in flags]
    words, found, _ = timed(["--hours", "1", *flags])
    assert found == rows and words.count("--tokenizer_name") == 1
    text = capsys.readouterr().out
    assert f"parameters, with a vocabulary of {rows:,} rows; peak memory 1.0 GB" in text
    assert (f"--vocab_size {rows} " in text) == printed


def test_the_made_up_vocabulary_has_pieces_for_whole_words(tmp_path):
    assert len(budget.write_vocabulary(tmp_path, 50)) == 44
    check_masking(load_tokenizer(str(tmp_path / "vocabulary")), whole_word_mask=True)


def test_flags_of_the_text_are_printed_and_not_timed(capsys):
    """The made-up text is no mixture, has no columns and is held out as a whole; the timed run is not published."""
    left_out = "--train_file a.jsonl b.jsonl --mixture 0.9 0.1 --text_column body --validation_split 0.1"
    left_out += " --do_lower_case=false --extend-vocab 2000 --push_to_hub --report_to tensorboard"
    words, *_ = timed(["--hours", "1", "--vocab_size", "50", "--", *left_out.split(), "--whole_word_mask", "--seed=3"])
    assert words[: words.index("--output_dir")] == ["--recipe", "paper", "--whole_word_mask", "--seed=3"]
    names = {word.partition("=")[0] for word in words}
    assert not names & {"--mixture", "--text_column", "--validation_split", "--do_lower_case", "--push_to_hub"}
    assert words.count("--train_file") == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith(f" {left_out} --whole_word_mask --seed=3")


def test_every_flag_that_is_left_out_or_refused_is_one_of_the_script():
    known = {field.name for field in dataclasses.fields(PretrainingArguments)}
    assert {*budget.UNTIMED, *budget.OWN, *budget.NOT_PLANNED} <= known
    plan = {action.dest for action in budget._parser()._actions}
    assert set(budget.OWN) == plan & known


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.slow
def test_real_steps_of_each_phase_are_measured(shape, capsys, monkeypatch):
    """The script really runs, in this process."""
    started = []

    def start(flags, launcher):
        assert launcher == ["python", "-u"]
        started.extend(flags)
        run_pretraining.main(flags)

    flags = ["--config_name", shape, "--hours", "1", "--vocab_size", "500", "--phases", "32:0.5:4x2,64:0.5:2"]
    budget.main([*flags, "--launcher", "python -u", "--", "--seed", "3", "--warmup_steps", "10000"], start)
    text = capsys.readouterr().out
    assert started[:4] == ["--recipe", "paper", "--seed", "3"]
    assert re.search(
        r"^Flags: --config_name \S+ --vocab_size 500 --max_steps .* --seed 3 --warmup_steps 10000$", text, re.M
    )
    rows = re.findall(r"^ +(32|64) +(\d+ x \d+) +([\d.]+) +([\d,]+)$", text, re.MULTILINE)
    assert [row[:2] for row in rows] == [("32", "8 x 32"), ("64", "2 x 64")]
    steps = int(re.search(r"In 1 hours: ([\d,]+) steps", text).group(1).replace(",", ""))
    seconds = [float(row[2]) for row in rows]
    assert steps == pytest.approx(3600 * 0.97 / (sum(seconds) / 2), rel=0.2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([*HOUR, "--max_steps", "9"], "--max_steps stands after --, but the plan sets it; leave it out, or give it"),
        (["--hours", "1", "--phases", "128:1@1:1"], "no mixture changes the time of a step"),
    ],
)
def test_wrong_arguments_are_refused(flags, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        budget.main(flags)
    assert message in capsys.readouterr().err


def test_the_error_of_the_script_is_found_before_that_of_its_launcher():
    words = "import sys; print('run_pretraining.py: error: unknown flag\\n' + '=' * 60, file=sys.stderr); sys.exit(1)"
    with pytest.raises(ValueError, match=r"ended with status 1: run_pretraining.py: error: unknown flag$"):
        budget.run_script(["--nonsense"], [sys.executable, "-c", words])
