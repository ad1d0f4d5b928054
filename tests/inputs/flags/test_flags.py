"""bert_training/inputs/flags: the flags, their checks, and that every flag is read."""

import ast
import dataclasses
import functools
from pathlib import Path

import pytest

from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.pretraining.instances import SETTINGS
from tests.helpers.repository import ROOT, sources

SHARED_FLAGS = (  # Other people's scripts rely on these flags.
    "output_dir seed num_train_epochs max_steps per_device_train_batch_size per_device_eval_batch_size "
    "gradient_accumulation_steps learning_rate weight_decay warmup_steps max_grad_norm mixed_precision "
    "logging_steps eval_steps save_steps save_total_limit resume_from_checkpoint report_to dataloader_num_workers "
    "torch_compile model_impl push_to_hub hub_model_id"
).split()


def test_the_shared_flags_are_all_there():
    assert {field.name for field in dataclasses.fields(SharedArguments)} >= set(SHARED_FLAGS)


def test_the_threshold_is_zero_unless_a_model_is_only_evaluated_on_squad_2():
    """Then it is None, for the one that the model stores. So run.json of a training says 0, as it always did."""

    def threshold(*more: str) -> float | None:
        args = parse_arguments(SquadArguments, ["--output_dir", "x", "--model_name_or_path", "m", *more])
        assert dataclasses.replace(args, save_steps=7).null_score_diff_threshold == args.null_score_diff_threshold
        return args.null_score_diff_threshold

    alone, version_2 = ("--validation_file", "v"), "--version_2_with_negative"
    assert threshold(*alone) == threshold(version_2) == threshold(*alone, "--train_file", "t", version_2) == 0.0
    assert threshold(version_2, "--dataset_name", "d") == 0.0
    assert threshold(*alone, version_2) is None
    assert threshold(*alone, version_2, "--null_score_diff_threshold", "0") == 0.0
    assert threshold("--null_score_diff_threshold", "0") == 0.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--learn", "1"], "unknown argument --learn 1"),  # Flags cannot be abbreviated.
        (["stray"], "unknown argument stray; --help lists the flags"),
        (["--mlm_probability", "1.5"], "--mlm_probability must be above 0 and at most 1; got 1.5"),
        (["--mask_replace_prob", "0.9", "--random_replace_prob", "0.2"], "add up to more than 1"),
        (["--max_seq_length", "4"], "at least 8"),
        (["--num_train_epochs", "0"], "--num_train_epochs must be above 0"),
        (["--push_to_hub"], "needs --hub_model_id"),
        (["--train_file", "a", "--dataset_name", "b"], "--dataset_name and --train_file exclude each other"),
        (["--config_name", "mini", "--model_name_or_path", "b"], "exclude each other"),
        (["--max_train_documents", "-1"], "--max_train_documents must be at least 1; got -1"),
        (["--validation_split", "0"], "--validation_split must be above 0 and below 1; got 0.0"),
        (["--streaming"], "--streaming needs --dataset_name; give that, or leave --streaming out"),
        (["--tokenizer_name", "t", "--vocab_size", "100"], "--vocab_size and --tokenizer_name exclude each other"),
        (
            ["--model_name_or_path", "m", "--do_lower_case=no"],
            "--do_lower_case and --model_name_or_path exclude each other",
        ),
        (["--validation_file", "v", "--validation_split", "0.5"], "--validation_split and --validation_file exclude"),
        (["--objective", "ltr", "--whole_word_mask"], "--whole_word_mask and --objective ltr exclude each"),
        (["--objective", "ltr", "--mlm_probability", "0.2"], "--mlm_probability and --objective ltr exclude each"),
    ],
)
def test_refusals_are_one_line_and_status_2(flags, message, capsys):
    with pytest.raises(SystemExit) as stop:
        parse_arguments(PretrainingArguments, ["--output_dir", "x", *flags])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


def imported_files(path: Path, found: set[Path]) -> set[Path]:
    """Add the file, the modules of ``bert_training`` that it imports, and the modules that these import."""
    found.add(path)
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bert_training"):
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for file in [ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names]:
                if file.is_file() and file not in found:
                    imported_files(file, found)
    return found


# Properties of the flags, with the flags that they read.
PROPERTIES = {
    "hub_repository": {"push_to_hub", "hub_model_id"},
    "num_folds": {"folds"},
    "fold": {"folds"},
    "kept_layers": {"keep_layers"},
}


def flags_read(path: Path) -> set[str]:
    """The names after ``args.`` and ``run.args.``, and in ``getattr(args, "...")``."""
    names = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
            holder, name = node.args[0], getattr(node.args[1], "value", "")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            holder, name = node.value, node.attr
        else:
            continue
        if getattr(holder, "id", getattr(holder, "attr", "")) == "args":
            names |= PROPERTIES.get(name, {name})
    return names


@pytest.mark.parametrize(
    ("script", "cls"),
    [
        ("run_pretraining.py", PretrainingArguments),
        ("run_glue.py", GlueArguments),
        ("run_squad.py", SquadArguments),
        ("run_ner.py", NerArguments),
        ("run_swag.py", SwagArguments),
        ("extract_features.py", FeatureArguments),
    ],
)
def test_a_script_accepts_no_flag_that_it_never_reads(script, cls):
    files = imported_files(ROOT / script, set()) - set((ROOT / "bert_training" / "inputs" / "flags").glob("*.py"))
    read = set().union(*map(flags_read, files))
    if ROOT / "bert_training" / "pretraining" / "instances.py" in files:
        # They are read there by that name; tests/pretraining/test_data.py tests that they arrive.
        read |= set(SETTINGS)
    read.add("config")  # by parse_arguments
    assert {field.name for field in dataclasses.fields(cls)} - read == set()


@pytest.mark.parametrize("script", SCRIPTS.values())
def test_a_script_has_at_most_62_flags(script):
    assert len(dataclasses.fields(script.arguments)) <= 62


def test_nobody_changes_the_flags_once_they_are_parsed():
    """run.json, a series and a resumed run compare the flags. dataclasses.replace makes changed copies."""
    changed = []
    for path in sources():
        for node in nodes_of(path):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            written = [ast.unparse(target) for target in targets if isinstance(target, ast.Attribute)]
            changed += [(path.name, text) for text in written if text.startswith(("args.", "run.args.", "self.args."))]
    assert changed == []


def test_squad_defaults_are_those_of_the_paper():
    args = parse_arguments(SquadArguments, ["--output_dir", "x", "--model_name_or_path", "m"])
    assert (args.max_seq_length, args.doc_stride, args.max_query_length) == (384, 128, 64)
    assert (args.max_answer_length, args.n_best_size, args.null_score_diff_threshold) == (30, 20, 0.0)
