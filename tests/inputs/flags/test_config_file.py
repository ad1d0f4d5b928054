"""--config is the same as the flags on the command line, and says what is wrong."""

import hashlib
from pathlib import Path

import pytest

from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments
from bert_training.inputs.flags.parsing import config_facts, parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments

YAML = """# the mails
output_dir: x
model-name-or-path: "m"
mixed_precision: no
learning_rate: 5e-5
max_steps: -1
calibrate: temperature
load_best_model_at_end: false
text_column: [subject, body]
train_file: t.csv
validation_file: v.csv
"""
WORDS = (
    "--output_dir x --model_name_or_path m --mixed_precision no --learning_rate 5e-5 --max_steps -1 --calibrate "
    "--load_best_model_at_end false --text_column subject body --train_file t.csv --validation_file v.csv"
)


@pytest.fixture
def config(tmp_path):
    """A function that writes a file for --config and returns its path."""

    def write(text: str, name: str = "run.yaml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_the_file_is_the_same_as_the_flags_and_flags_win(config):
    as_json = '{"output_dir": "x", "model_name_or_path": "m", "mixed_precision": "no", "learning_rate": 5e-5, '
    as_json += '"max_steps": -1, "calibrate": "temperature", "load_best_model_at_end": false, '
    as_json += '"text_column": ["subject", "body"], "train_file": "t.csv", "validation_file": "v.csv"}'
    expected = vars(parse_arguments(GlueArguments, WORDS.split()))
    for path in (config(YAML), config(as_json, "run.json"), config(YAML, "other.yml")):
        assert vars(parse_arguments(GlueArguments, ["--config", path])) == expected | {"config": path}
        more = ["--seed", "7", f"--config={path}", "--load-best-model-at-end", "--text_column", "a"]
        changed = {"config": path, "seed": 7, "load_best_model_at_end": True, "text_column": ["a"]}
        assert vars(parse_arguments(GlueArguments, more)) == expected | changed
    for_features = config("model_name_or_path: m\ninput_file: i\noutput_file: o\nlayers: -1,-2\n", "features.yaml")
    assert parse_arguments(FeatureArguments, ["--config", for_features]).layers == "-1,-2"
    assert parse_arguments(GlueArguments, [*WORDS.split(), "--config", config("", "empty.yaml")])
    mixed = config("recipe: adapt\nmodel_name_or_path: m\ntrain_file: [t, u]\nmixture: []\n", "mixed.yaml")
    assert parse_arguments(PretrainingArguments, ["--output_dir", "x", "--config", mixed]).mixture == [0.9, 0.1]
    facts = {"file": "mixed.yaml", "sha256": hashlib.sha256(Path(mixed).read_bytes()).hexdigest()}
    assert config_facts(mixed) == {"config_file": facts} and config_facts(None) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed: 1\nlearning-rat: 1\n", "unknown argument --learning-rat=1; did you mean --learning_rate?"),
        ("seed: one", "--seed must be a whole number, got 'one'; correct it"),
        ("seed:\n  a: 1\n", "--seed must be a whole number, got \"{'a': '1'}\"; correct it"),
        ("- seed\n", "expected a flag on each line, such as learning_rate: 5e-5"),
        ("seed: [1", "while parsing a flow sequence"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(config, text, expected, capsys):
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(NerArguments, ["--output_dir", "x", "--model_name_or_path", "m", "--config", config(text)])
    assert expected in capsys.readouterr().err.splitlines()[-1]
