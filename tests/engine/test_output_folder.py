"""bert_training/engine/run.py: a folder that holds a run, or a model, is not overwritten."""

import re

import pytest

from bert_training.engine.run import WRITTEN, check_output_dir
from bert_training.tasks.classification.glue import GLUE_TASKS
from modeling_bert_repro.pretrained import CODE_FILES


def test_a_folder_that_holds_a_run_is_not_overwritten(make_run):
    run = make_run()
    check_output_dir(run.args)
    (run.output_dir / "notes.txt").write_text("mine")
    check_output_dir(run.args)
    for name in ("run.json", "config.json", "model.safetensors"):
        (run.output_dir / name).write_text("{}")
        way = "--resume_from_checkpoint auto" if name == "run.json" else "as it has no run.json"
        with pytest.raises(ValueError, match=f"already holds a run or a model .{name}.*{way}"):
            check_output_dir(run.args)
        (run.output_dir / name).unlink()


def test_every_file_that_a_run_writes_is_taken_for_one():
    names = {*CODE_FILES, "MNLI-m.tsv", "MNLI-mm.tsv", "tokenizer_config.json", "all_results.json", "hashes.json"}
    names |= {"predictions.json", "nbest_predictions.json", "span_predictions.json", "null_odds.json"}
    names |= {"validation_predictions.txt", "test_predictions.csv", "training_curves.png"}
    names |= {"lstm_heads.py", "checkpoint-500", "checkpoint-best-3", "model-00001-of-00002.safetensors"}
    # A new task needs its name in WRITTEN.
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
    with pytest.raises(ValueError, match=f"already holds .* .{name}.*give another folder, as it has no run.json"):
        check_output_dir(run.args)
    (run.output_dir / "run.json").write_text("{}")
    check_output_dir(run.args)
