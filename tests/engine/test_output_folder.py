"""bert_training/engine/output_folder.py: a folder that holds a run, or a model, is not overwritten."""

import os
import re

import pytest

from bert_training.engine.output_folder import WRITTEN, check_output_dir
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.early_checks import check_early
from bert_training.tasks.classification.glue import GLUE_TASKS
from bert_training.tasks.classification.submission import TEST_ROWS
from modeling_bert_repro.pretrained import FAST_FILES, PLAIN_FILES
from tests.helpers import short_runs


def test_a_folder_that_holds_a_run_is_not_overwritten(make_run):
    run = make_run()
    check_output_dir(run.args)
    (run.output_dir / "notes.txt").write_text("mine")
    check_output_dir(run.args)
    for name in ("run.json", "config.json", "model.safetensors"):
        (run.output_dir / name).write_text("{}")
        with pytest.raises(ValueError, match=f"already holds a run or a model .{name}.*--resume_from_checkpoint auto"):
            check_output_dir(run.args)
        (run.output_dir / name).unlink()
    run.args.output_dir = str(run.output_dir / "notes.txt")
    with pytest.raises(ValueError, match="is a file"):
        check_output_dir(run.args)


def test_every_file_that_a_run_writes_is_taken_for_one():
    names = {*PLAIN_FILES, *FAST_FILES, *TEST_ROWS, "tokenizer_config.json", "all_results.json", "hashes.json"}
    names |= {"predictions.json", "nbest_predictions.json", "span_predictions.json", "null_odds.json", "answers.html"}
    names |= {"validation_predictions.txt", "test_predictions.csv", "custom.tsv", "training_curves.png"}
    names |= {"lstm_heads.py", "checkpoint-500", "checkpoint-best-3", "model-00001-of-00002.safetensors"}
    # A new task needs its name in WRITTEN. The two halves of MNLI are in TEST_ROWS.
    names |= {f"{task.folder}.tsv" for task in GLUE_TASKS.values() if task.folder != "MNLI"}
    assert [name for name in sorted(names) if not re.fullmatch("|".join(WRITTEN), name)] == []
    for name in ("train.tsv", "test.txt", "predictions.py", "checkpoint-backup", "summary.log", "corpus"):
        assert not re.fullmatch("|".join(WRITTEN), name)


@pytest.mark.parametrize("more", [{}, {"resume_from_checkpoint": "auto"}])
@pytest.mark.parametrize("name", ["losses.py", "checkpoint-500"])
def test_code_and_checkpoints_of_others_are_not_overwritten(make_run, name, more):
    """A checkpoint of another program would be deleted by --save_total_limit."""
    run = make_run(**more)
    (run.output_dir / name).mkdir()
    with pytest.raises(ValueError, match=f"{name}.* overwrite"):
        check_output_dir(run.args)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "README.md", "vocab.txt"])
def test_resuming_overwrites_nothing_that_is_no_run(make_run, name):
    """--output_dir may be the folder of the pre-trained model, or one with a README.md of the user's."""
    run = make_run(resume_from_checkpoint="auto")
    check_output_dir(run.args)
    (run.output_dir / name).write_text("precious")
    with pytest.raises(ValueError, match=f"holds {name} but no run.json, so there is no run to continue"):
        check_output_dir(run.args)
    (run.output_dir / "run.json").write_text("{}")
    check_output_dir(run.args)


def _link(folder, target="nowhere"):
    (folder / "link").symlink_to(target)
    return "link"


def _below_a_file(folder):
    (folder / "file").write_text("mine")
    return "file/run"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_link, "is a link to nowhere, which is not there; make that folder"),
        (lambda folder: _link(folder, "link"), "is a link to link, which is not there"),
        (_below_a_file, "cannot be made, because .*/file is a file; give a folder"),
    ],
)
def test_a_place_where_no_folder_can_be_is_refused_at_once(make_run, tmp_path, make, says):
    run = make_run()
    run.args.output_dir = str(tmp_path / make(tmp_path))
    with pytest.raises(ValueError, match=says):
        check_output_dir(run.args)


def test_a_folder_without_permission_is_refused_at_once(make_run, monkeypatch):
    run = make_run()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(ValueError, match=r"you may not write into .*; give another folder"):
        check_output_dir(run.args)


def test_a_link_to_a_folder_is_a_folder(make_run, tmp_path):
    (tmp_path / "disk").mkdir()
    run = make_run()
    run.args.output_dir = str(tmp_path / _link(tmp_path, "disk"))
    check_output_dir(run.args)


@pytest.mark.parametrize(("script", "flag"), [("run_glue", "--train_file"), ("run_squad", "--validation_file")])
def test_a_data_set_in_place_of_a_file_is_named(short_data, pretrained, tmp_path, script, flag):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "dataset_dict.json").write_text("{}")
    given = short_runs.flags(script, short_data, tmp_path / "run", pretrained, flag, str(tmp_path / "saved"))
    with pytest.raises(ValueError, match=f"{flag} .*saved: expected a file, got a data set .* as --dataset_name"):
        short_runs.start(script, given)
    assert not (tmp_path / "run").exists()


def test_links_below_the_folder_are_refused_before_the_run_begins(make_run, tmp_path):
    """Where records are a link, and where a corpus that is still to be built would be written through one."""
    run = make_run(resume_from_checkpoint="auto")
    (tmp_path / "precious").mkdir()
    for name in ("metrics.jsonl", "corpus"):
        (run.output_dir / name).symlink_to(tmp_path / "precious")
        with pytest.raises(ValueError, match=rf"{name}: is a link to .*precious, and nothing is written through links"):
            check_output_dir(run.args)
            check_early(PretrainingArguments(train_file=["a"], output_dir=run.args.output_dir))
        (run.output_dir / name).unlink()
    (tmp_path / "precious/train").mkdir()
    (tmp_path / "precious/validation").mkdir()
    for name in ("train", "validation"):  # finished corpora elsewhere are only read
        (tmp_path / "precious" / name / "manifest.json").touch()
    (run.output_dir / "corpus").symlink_to(tmp_path / "precious")
    check_output_dir(run.args)
    check_early(PretrainingArguments(train_file=["a"], output_dir=run.args.output_dir))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"warmup_steps": 11.0}, "--warmup_steps 11 is more than the 10 steps of the run"),
        ({"phases": "64:0.99,128:0.01"}, "--phases: a share of 0.01 of 10 steps leaves none of length 128"),
    ],
)
def test_steps_that_do_not_fit_are_refused_before_the_text_is_read(tmp_path, flags, message):
    with pytest.raises(ValueError, match=message):
        check_early(PretrainingArguments(train_file=["none"], output_dir=str(tmp_path / "run"), max_steps=10, **flags))


def test_a_run_below_its_own_text_is_refused_before_it_has_written(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ValueError, match=r"lies within .*, where all files are read as text"):
        check_early(PretrainingArguments(train_file=[str(tmp_path)], output_dir=str(tmp_path / "run")))
