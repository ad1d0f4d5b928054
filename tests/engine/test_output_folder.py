"""training/engine/output_folder.py: a folder that holds a run, or a model, is not overwritten."""

import pytest

from training.engine.output_folder import check_output_dir


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
