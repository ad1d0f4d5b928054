"""bert_training/inputs/flags/parsing.py: flags are read in both spellings, and a mistake is one line and status 2."""

import pytest

from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments


@pytest.mark.parametrize("spelling", ["--per_device_train_batch_size", "--per-device-train-batch-size"])
def test_both_spellings_of_a_flag_are_accepted(spelling):
    args = parse_arguments(PretrainingArguments, ["--output_dir", "x", spelling, "7"])
    assert args.per_device_train_batch_size == 7


def test_a_stray_args_file_is_not_read(tmp_path, monkeypatch):
    """HfArgumentParser reads a file SCRIPT.args beside the script unless it is told not to."""
    (tmp_path / "run.args").write_text("--seed 99")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "run.py"), "--output_dir", "x"])
    assert parse_arguments(PretrainingArguments).seed == 42


def test_the_command_line_is_read_if_no_flags_are_given(monkeypatch):
    monkeypatch.setattr("sys.argv", ["run.py", "--output_dir", "x", "--seed", "7"])
    assert parse_arguments(PretrainingArguments).seed == 7


def last_line_of_the_refusal(cls, flags, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        parse_arguments(cls, flags)
    assert stop.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_an_unknown_flag_is_refused_with_the_nearest_known_one(capsys):
    line = last_line_of_the_refusal(PretrainingArguments, ["--output_dir", "x", "--learning-rte=1"], capsys)
    assert line.endswith("error: unknown argument --learning-rte=1; did you mean --learning_rate?")
    line = last_line_of_the_refusal(PretrainingArguments, ["--output_dir", "x", "--zzz", "1"], capsys)
    assert line.endswith("error: unknown argument --zzz 1; --help lists the flags")


def test_the_usage_names_the_flags_that_are_required(capsys):
    with pytest.raises(SystemExit):
        parse_arguments(FeatureArguments, [])
    usage = capsys.readouterr().err
    assert "--input_file FILE" in usage and "--seed" not in usage


@pytest.mark.parametrize("cls", [PretrainingArguments, GlueArguments])
def test_help_shows_every_default_but_none(cls, capsys):
    """None says nothing; where another value takes its place, the help of the flag names it."""
    with pytest.raises(SystemExit, match="0"):
        parse_arguments(cls, ["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: None)" not in text and "(default: 0.01)" in text and "(default: auto)" in text
