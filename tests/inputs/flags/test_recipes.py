"""bert_training/inputs/flags/recipes.py: what each recipe chooses, and that every flag that is given wins."""

import dataclasses
import json

import pytest

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.recipes import adapt_rate, initial_range, peak_rate, recipe_text, short_to_long


def parse(*flags: str) -> PretrainingArguments:
    return parse_arguments(PretrainingArguments, ["--output_dir", "x", *flags])


def fast(*flags: str) -> PretrainingArguments:
    return parse("--recipe", "fast", *flags)


def test_without_a_recipe_every_default_is_that_of_its_flag():
    defaults = {one.name: one.default for one in dataclasses.fields(PretrainingArguments)}
    for args in (parse(), parse("--recipe", "paper")):
        changed = {name: value for name, value in vars(args).items() if value != defaults[name]}
        assert changed == {
            "output_dir": "x",
            "report_to": ["none"],
            "train_file": [],
            "validation_file": [],
            "max_seq_length": 128,
        }
        assert args.choices_of_recipe() == {}
    assert (parse().learning_rate, parse().warmup_steps, parse().per_device_train_batch_size) == (1e-4, 0.01, 32)


def test_the_fast_recipe_of_the_default_size():
    """BERT-Mini has 4 layers of 256 units: 0.02 * sqrt(3) = 0.0346, and 0.512 / 1024 = 0.0005."""
    args = fast()
    assert (args.dropout, args.initializer_range, args.learning_rate) == (0.0, 0.0346, 5e-4)
    assert (args.warmup_steps, args.per_device_train_batch_size) == (0.1, 64)
    assert (args.phases, args.max_seq_length) == ("32:0.4,64:0.4,128:0.2", 128)
    assert (args.initial_weights, parse().initial_weights) == ("counted", "random")


def test_the_recipe_to_adapt_a_model(tmp_path):
    """5e-5 at 768 units, and in inverse proportion to them: 1e-4 at 384."""
    assert [adapt_rate(size) for size in (768, 384, 1024, 128, 4096)] == [5e-5, 1e-4, 3.75e-5, 2e-4, 2e-5]
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 384}))
    args = parse("--recipe", "adapt", "--model_name_or_path", str(tmp_path))
    assert (args.objective, args.whole_word_mask, args.warmup_steps, args.learning_rate) == ("mlm", True, 0.06, 1e-4)
    assert args.dropout is None
    google = tmp_path / "google"  # whose checkpoints are named by the folder or by the beginning of the files
    google.mkdir()
    (google / "bert_config.json").write_text(json.dumps({"hidden_size": 128}))
    (google / "bert_model.ckpt.index").touch()
    for name in (google, google / "bert_model.ckpt", google / "bert_config.json"):
        assert parse("--recipe", "adapt", "--model_name_or_path", str(name)).learning_rate == 2e-4
    given = parse("--recipe", "adapt", "--model_name_or_path", "on/hub", "--objective", "mlm_nsp")
    assert (given.objective, given.learning_rate) == ("mlm_nsp", 5e-5)
    unmasked = parse("--recipe", "adapt", "--model_name_or_path", "on/hub", "--objective", "ltr")
    assert not unmasked.whole_word_mask and "whole_word_mask" not in unmasked.choices_of_recipe()


def test_a_mixture_without_numbers_is_a_tenth_of_general_text(capsys):
    files = ["--train_file", "law.txt", "wiki.txt", "books.txt", "--mixture"]
    adapts = ["--recipe", "adapt", "--model_name_or_path", "on/hub"]
    assert parse(*adapts, *files).mixture == [0.9, 0.05, 0.05]
    for flags in (files, [*adapts, "--train_file", "law.txt", "--mixture"]):
        with pytest.raises(SystemExit):
            parse(*flags)
        assert "--mixture without numbers needs --recipe adapt and at least two files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("layers", "hidden_size", "deviation", "rate"),
    [
        (12, 768, 0.02, 1e-4),  # 0.512 / 9216 is less than the paper's rate
        (2, 128, 0.049, 2e-3),
        (4, 256, 0.0346, 5e-4),
        (4, 512, 0.0245, 2.5e-4),
        (24, 1024, 0.0173, 1e-4),
        (1, 64, 0.0693, 2e-3),
    ],
)
def test_the_formulas_by_size_worked_by_hand(layers, hidden_size, deviation, rate):
    assert (initial_range(hidden_size), peak_rate(layers, hidden_size)) == (deviation, rate)


@pytest.mark.parametrize(
    ("longest", "steps", "phases"),
    [
        (128, 1000, "32:0.4,64:0.4,128:0.2"),
        (128, -1, "32:0.4,64:0.4,128:0.2"),
        (512, 1000, "32:0.4,64:0.3,128:0.2,512:0.1"),
        (64, 1000, "32:0.4,64:0.6"),
        (100, 1000, "32:0.4,100:0.6"),  # 64 is more than half of it.
        (63, 1000, None),
        (32, 1000, None),
        (128, 3, "32:0.4,64:0.4,128:0.2"),
        (128, 2, "64:0.4,128:0.6"),  # One step each: the third length would have none.
        (128, 1, None),
    ],
)
def test_phases_suit_the_longest_length_and_the_steps(longest, steps, phases):
    assert short_to_long(longest, steps) == phases
    args = fast("--max_seq_length", str(longest), "--max_steps", str(steps))
    assert (args.phases, args.max_seq_length) == (phases, longest)


GIVEN = {
    "dropout": (0.2, {}),
    "initializer_range": (0.03, {}),
    "learning_rate": (6e-4, {}),
    "initial_weights": ("random", {}),
    "warmup_steps": (7.0, {}),
    "per_device_train_batch_size": (4, {}),
    "phases": ("16:0.5,48:0.5", {"max_seq_length": 48}),
}


@pytest.mark.parametrize("name", GIVEN)
def test_every_flag_that_is_given_wins(name):
    """Also the value that is the paper's default. Everything else stays as the recipe has it."""
    value, consequences = GIVEN[name]
    chosen, args = vars(fast()), vars(fast(f"--{name}", str(value)))
    assert args[name] == value != chosen[name]
    changed = {other: args[other] for other in args if args[other] != chosen[other]}
    assert changed == {name: value} | consequences
    assert fast("--learning_rate", "1e-4", "--warmup_steps=0.01").learning_rate == 1e-4


def test_a_folder_with_a_config_decides_by_its_width(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"hidden_size": 128, "num_hidden_layers": 2}))
    assert (fast("--config_name", str(tmp_path)).initializer_range, parse().initializer_range) == (0.049, None)
    assert fast("--config_name", str(tmp_path)).learning_rate == 2e-3
    path.write_text(json.dumps({"hidden_size": 128, "num_hidden_layers": 2, "initializer_range": 0.07}))
    assert fast("--config_name", str(tmp_path)).initializer_range is None  # The folder has chosen its own.
    # The script reports these when it makes the network.
    for content in ("[]", "{", '{"hidden_size": "wide", "num_hidden_layers": 0}'):
        path.write_text(content)
        assert fast("--config_name", str(tmp_path)).learning_rate == peak_rate(12, 768) == 1e-4


def test_the_choices_can_be_told_from_the_flags_alone():
    """So they are recorded equally by a run and by the run that resumes it, and copies of the flags keep them."""
    args = fast("--max_seq_length", "64", "--dropout", "0.2")
    chosen = args.choices_of_recipe()
    untouched = vars(fast("--max_seq_length", "64"))
    assert chosen == {name: untouched[name] for name in GIVEN}
    assert dataclasses.replace(args, seed=3).choices_of_recipe() == chosen
    assert vars(dataclasses.replace(args, seed=3)) == vars(args) | {"seed": 3}
    words = recipe_text(chosen, vars(args))
    assert words.startswith("per_device_train_batch_size 64, warmup_steps 0.1, phases 32:0.4,64:0.6, learning_rate")
    assert words.endswith("; given instead: dropout 0.2")
    assert recipe_text(chosen, vars(fast("--max_seq_length", "64"))).count("given") == 0
