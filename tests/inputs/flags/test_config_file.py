"""--config is the same as the flags on the command line, and says what is wrong."""

import hashlib
import json
from pathlib import Path

import pytest

from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from tests.helpers import short_runs
from tests.helpers.records import read
from tests.helpers.same_runs import check_same

YAML = """# the mails
output_dir: x
model-name-or-path: "m"
mixed_precision: no
learning_rate: 5e-5
max_steps: -1
calibrate: true
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
    as_json += '"max_steps": -1, "calibrate": true, "load_best_model_at_end": false, '
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


def test_recipes_and_models_see_its_values_as_given_flags(config):
    """A recipe's learning rate gives way to that of the file, and the defaults of a model are found by its name."""
    words = "--output_dir x --recipe fast --config_name tiny --train_file t".split()
    own = parse_arguments(PretrainingArguments, words)
    mixed = config("config_name: tiny\ntrain_file: [t, u]\nmixture: [3, 1]\n", "mixed.yaml")
    assert parse_arguments(PretrainingArguments, ["--output_dir", "x", "--config", mixed]).mixture == [3.0, 1.0]
    mixed = config("recipe: adapt\nmodel_name_or_path: m\ntrain_file: [t, u]\nmixture: []\n", "mixed.yaml")
    assert parse_arguments(PretrainingArguments, ["--output_dir", "x", "--config", mixed]).recipe == "adapt"
    path = config("recipe: fast\nlearning_rate: 0.5\nconfig_name: tiny\ntrain_file: t\n")
    found = parse_arguments(PretrainingArguments, ["--output_dir", "x", "--config", path])
    assert vars(found) == vars(own) | {"config": path, "learning_rate": 0.5} and own.learning_rate != 0.5
    seen = []
    parse_arguments(GlueArguments, ["--config", config(YAML)], lambda cls, given: seen.append(given) or {})
    assert seen[0]["model_name_or_path"] == "m" and seen[0]["calibrate"] is True and "seed" not in seen[0]


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


def test_a_run_with_a_file_is_the_run_with_its_flags_and_resumes(
    config, short_data, pretrained, tmp_path, no_pictures, capsys
):
    words = short_runs.flags("run_ner", short_data, tmp_path / "words", pretrained, "--save_steps", "1")
    short_runs.start("run_ner", words)
    pairs = dict(zip((word[2:] for word in words[::2]), words[1::2])) | {"output_dir": str(tmp_path / "file")}
    path = config(json.dumps({name: str(value) for name, value in pairs.items()}), "run.json")
    short_runs.start("run_ner", ["--config", path])
    facts = read(tmp_path / "file", "run.json")
    assert facts["config_file"] == {"file": "run.json", "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
    check_same(tmp_path / "words", tmp_path / "file")
    short_runs.start("run_ner", ["--config", path, "--resume_from_checkpoint", "auto"])
    assert "this run is finished" in capsys.readouterr().out
