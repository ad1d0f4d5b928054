"""bert_training/tools/budget.py: the steps that it measures, and the plan that it makes of them."""

import re
import sys

import pytest
from transformers import BertConfig

import run_pretraining
from bert_training.engine.errors import report_errors
from bert_training.flags.phases import phases_of
from bert_training.tools import budget

FLAGS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
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
        {"max_seq_length": int(length[1:]), "seconds_per_step": s, "tokens_per_second": 100.0, "mfu": 0.25}
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
    assert "peak memory 3.2 GB" in text and "25.0%" in text
    assert f"--config_name base --max_steps {total} --phases 128:0.9:32x1,512:0.1:8x4" in text


@pytest.mark.parametrize(
    ("recipe", "hours", "proposed"), [("paper", 6, True), ("paper", 200, False), ("fast", 6, False)]
)
def test_the_fast_recipe_is_proposed_where_the_hours_are_short(recipe, hours, proposed):
    """A second for 64 sequences: 6 hours are 0.5 % of the published 256 million sequences, 200 hours are 17 %."""
    phases = phases_of(FLAGS | {"phases": "128:1:32"})
    facts = FACTS | {"flags": {"config_name": "base"}}
    text = budget.plan_text(hours, phases, records(_128=1.0), {"peak_memory_gb": 1}, facts, recipe)
    line = "This is less than 1% of the published training. --recipe fast is made for such short trainings"
    assert (line in text) == proposed
    flags = next(line for line in text.splitlines() if line.startswith("Flags: "))
    assert flags.endswith("--recipe fast") == (recipe == "fast")


def test_a_plan_to_adapt_a_model_names_it_and_the_words_that_fit(tmp_path):
    """A second for 32 sequences of 128 pieces, 1.3 a word."""
    phases, facts = phases_of(FLAGS | {"phases": "128:1:32"}), FACTS | {"flags": {"config_name": str(tmp_path)}}
    text = budget.plan_text(2, phases, records(_128=1.0), {"peak_memory_gb": 1}, facts, "adapt")
    steps = int(2 * 3600 * 0.97)
    assert f"They hold about {round(steps * facts['processes'] * 32 * 128 / 1.3):,} words" in text
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


def test_too_little_time_is_refused():
    phases = phases_of(FLAGS | {"phases": "128:0.9,512:0.1"})
    with pytest.raises(ValueError, match=r"0\.001 hours suffice for 3 steps, too few for these phases"):
        budget.plan_text(0.001, phases, records(_128=1.0, _512=1.0), {"peak_memory_gb": 1}, FACTS)


@pytest.fixture
def shape(tmp_path) -> str:
    config = BertConfig(
        vocab_size=500, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    config.save_pretrained(tmp_path / "shape")
    return str(tmp_path / "shape")


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
    rows = re.findall(r"^ +(32|64) +(\d+ x \d+) +([\d.]+) +([\d,]+) +([\d.]+)%$", text, re.MULTILINE)
    assert [row[:2] for row in rows] == [("32", "8 x 32"), ("64", "2 x 64")]
    steps = int(re.search(r"In 1 hours: ([\d,]+) steps", text).group(1).replace(",", ""))
    seconds = [float(row[2]) for row in rows]
    assert steps == pytest.approx(3600 * 0.97 / (sum(seconds) / 2), rel=0.2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hours", "0"], "--hours is 0.0; expected above 0"),
        (["--hours", "1", "--vocab_size", "5"], "--vocab_size is 5; expected at least 16"),
        (["--hours", "1", "--phases", "128"], "is not a phase"),
    ],
)
def test_wrong_arguments_are_refused(flags, message, capsys):
    assert report_errors(lambda: budget.main(flags)) == 2
    assert message in capsys.readouterr().err


def test_the_error_of_the_script_is_passed_on():
    refusing = [sys.executable, "-c", "import sys; print('warning', file=sys.stderr); sys.exit('error: unknown flag')"]
    with pytest.raises(ValueError, match=r"ended with status 1: error: unknown flag"):
        budget.run_script(["--nonsense"], refusing)


def test_the_error_of_the_script_is_found_before_that_of_its_launcher():
    words = "import sys; print('run_pretraining.py: error: unknown flag\\n' + '=' * 60, file=sys.stderr); sys.exit(1)"
    with pytest.raises(ValueError, match=r"ended with status 1: run_pretraining.py: error: unknown flag$"):
        budget.run_script(["--nonsense"], [sys.executable, "-c", words])
