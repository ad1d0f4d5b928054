"""bert_training/engine/run.py: a finished run that is started again is not changed."""

import dataclasses
import json
from pathlib import Path

import pytest

from bert_training.engine import run as run_module
from bert_training.engine.errors import report_errors
from bert_training.files import processes as locks
from bert_training.inputs.flags.fine_tuning import SquadArguments, SwagArguments
from tests.helpers import short_runs

AUTO = ("--resume_from_checkpoint", "auto")

pytestmark = pytest.mark.usefixtures("no_pictures")


def content(folder: Path) -> dict:
    """For every file, its bytes and the time at which they were written."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_a_finished_run_is_left_alone(pretrained, short_data, tmp_path, capsys, script):
    folder = tmp_path / "run"

    def start(*more: str) -> int:
        return report_errors(
            lambda: short_runs.start(script, short_runs.flags(script, short_data, folder, pretrained, *more))
        )

    assert start() == 0  # No checkpoint is kept.
    before = content(folder)
    assert {"model.safetensors", "metrics.jsonl", "run.json", "all_results.json"} <= before.keys()
    capsys.readouterr()
    assert start(*AUTO) == 0
    assert capsys.readouterr().out == (
        f"{folder}: this run is finished (all_results.json); nothing is trained, no file is changed\n"
    )
    assert start(*AUTO, "--logging_steps", "7") == 0  # This flag does not change the result.
    assert start(*AUTO, "--max_steps", "4", "--learning_rate", "3e-3") == 2
    said = capsys.readouterr().err
    assert "holds a finished run with other flags (" in said and "max_steps 2 -> 4" in said and "learning_rate " in said
    assert f"give another --output_dir; with --model_name_or_path {folder} that run starts from these weights" in said
    assert start() == 2
    assert content(folder) == before


def test_the_finished_run_of_another_script_is_refused(make_run):
    run = make_run(resume_from_checkpoint="auto")
    given = {"output_dir": str(run.output_dir), "resume_from_checkpoint": "auto", "model_name_or_path": "x"}
    ours = SquadArguments(**given)
    (run.output_dir / "run.json").write_text(
        json.dumps({"format": 1, "flags": dataclasses.asdict(ours), "script": "run_squad.py"})
    )
    (run.output_dir / "all_results.json").write_text("{}")
    assert run_module.is_finished(ours)
    with pytest.raises(ValueError, match=r"holds a finished run of run_squad\.py; give another --output_dir"):
        run_module.is_finished(SwagArguments(**given))


@pytest.mark.parametrize("script", ["run_pretraining", "run_glue"])
def test_a_refused_start_changes_no_file(pretrained, short_data, tmp_path, script):
    """run.json goes on saying what the checkpoints were trained with."""
    folder = tmp_path / "run"
    given = short_runs.flags(script, short_data, folder, pretrained, "--save_steps", "1")
    short_runs.start(script, given)
    (folder / "all_results.json").unlink()  # The run then looks as if it had been killed before its end.
    before = content(folder)
    with pytest.raises(
        ValueError, match=r"checkpoint-\d+ belongs to a run with other settings \(learning_rate .* -> 0\.5"
    ):
        short_runs.start(script, [*given, *AUTO, "--learning_rate", "0.5"])
    locks.release_all()  # as the end of the process does
    assert content(folder) == before
    short_runs.start(script, [*given, *AUTO])
    facts = json.loads((folder / "run.json").read_text())
    assert len(facts["earlier"]) == 1 and facts["flags"]["learning_rate"] != 0.5
    assert facts["earlier"][0]["mixed_precision"] == "no"


@pytest.mark.slow
def test_a_finished_run_with_checkpoints_is_left_alone(pretrained, short_data, tmp_path):
    script, folder = "run_glue", tmp_path / "run"
    given = short_runs.flags(script, short_data, folder, pretrained, "--save_steps", "1")
    short_runs.start(script, given)
    before = content(folder)
    assert "checkpoint-1/manifest.json" in before
    short_runs.start(script, [*given, *AUTO])
    with pytest.raises(
        ValueError,
        match=r"finished run, which is not trained again from a checkpoint; give --resume_from_checkpoint auto",
    ):
        short_runs.start(script, [*given, "--resume_from_checkpoint", str(folder / "checkpoint-1")])
    assert content(folder) == before
    elsewhere = short_runs.flags(script, short_data, tmp_path / "other", pretrained, "--save_steps", "1")
    short_runs.start(script, [*elsewhere, "--resume_from_checkpoint", str(folder / "checkpoint-1")])
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "other")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("series", [False, True])
def test_what_a_kill_after_the_results_left_is_removed(pretrained, short_data, tmp_path, capsys, series):
    more = ("--seeds", "2") if series else AUTO
    flags = short_runs.flags("run_glue", short_data, tmp_path / "run", pretrained, *more)
    short_runs.start("run_glue", flags)
    folder = tmp_path / "run" / "seed-42" if series else tmp_path / "run"
    before = content(tmp_path)
    for name in ("checkpoint-best-2", "checkpoint-best-1.old.incomplete"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text("{}")
    capsys.readouterr()
    short_runs.start("run_glue", flags)
    assert f"{folder}/checkpoint-best-2: removed, as the run is finished" in capsys.readouterr().out
    assert content(tmp_path) == before
