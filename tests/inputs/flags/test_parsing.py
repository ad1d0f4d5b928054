"""bert_training/inputs/flags/parsing.py: flags are read in both spellings, and a mistake is one line and status 2."""

import re
import subprocess
import sys
from dataclasses import fields

import pytest

from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.scripts import SCRIPTS
from tests.helpers.repository import ROOT


@pytest.mark.parametrize("spelling", ["--per_device_train_batch_size", "--per-device-train-batch-size"])
def test_both_spellings_of_a_flag_are_accepted(spelling):
    args = parse_arguments(PretrainingArguments, ["--output_dir", "x", spelling, "7"])
    assert args.per_device_train_batch_size == 7


def last_line_of_the_refusal(cls, flags, capsys) -> str:
    with pytest.raises(SystemExit) as stop:
        parse_arguments(cls, flags)
    assert stop.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_all_mistakes_in_words_and_values_are_said_at_once(capsys):
    words = "--learning-rte=1 --sed 3 --max_steps 0 --logging_steps x --objective gpt".split()
    last_line_of_the_refusal(PretrainingArguments, words, capsys)
    with pytest.raises(SystemExit):
        parse_arguments(PretrainingArguments, words)
    told = [line.partition("error: ")[2] for line in capsys.readouterr().err.splitlines()[1:]]
    assert told == [
        "unknown argument --learning-rte=1; did you mean --learning_rate?",
        "unknown argument --sed 3; did you mean --seed?",
        "--max_steps must be at least 1; got 0",
        "--logging_steps must be a whole number, got 'x'; correct it",
        "--objective must be one of mlm_nsp, mlm, ltr, mlm_sop; got 'gpt'",
        "--output_dir is required; give it",
    ]


def test_defaults_for_the_given_flags_are_asked_once_the_words_are_right(capsys):
    """A name on the Hub need not be looked up for a value out of range."""
    asked = []

    def defaults(cls, given):
        asked.append(given)
        return {"max_seq_length": 64}

    with pytest.raises(SystemExit):
        parse_arguments(GlueArguments, ["--output_dir=x", "--model_name_or_path=m", "--seed=-1"], defaults)
    assert asked == []
    args = parse_arguments(GlueArguments, ["--output_dir=x", "--model_name_or_path=m"], defaults)
    assert args.max_seq_length == 64 and asked == [{"output_dir": "x", "model_name_or_path": "m"}]


@pytest.mark.parametrize("script", [*SCRIPTS, "extract_features.py"])
def test_a_mistake_is_said_before_torch_and_transformers_are_imported(script):
    """In two seconds of the processor, as which a quarter is usual."""
    slow = "import sys; sys.modules.update(torch=None, transformers=None, accelerate=None)\n"
    run = f"import runpy; runpy.run_path({str(ROOT / script)!r}, run_name='__main__')"
    code = f"{slow}sys.argv[1:] = ['--learning_rat', '1']; {run}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "unknown argument --learning_rat 1" in done.stderr, done.stderr


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
    assert "(default: None)" not in text and "(default: 0.01)" in text and "(default: repro)" in text


@pytest.mark.parametrize("cls", [script.arguments for script in SCRIPTS.values()])
def test_the_help_names_every_flag_once_and_ten_of_them_first(cls, capsys):
    with pytest.raises(SystemExit):
        parse_arguments(cls, ["--help"])
    shown = re.findall(r"^  --(\w+)", capsys.readouterr().out, re.MULTILINE)
    assert tuple(shown[:10]) == cls.FIRST and sorted(shown) == sorted(field.name for field in fields(cls))
