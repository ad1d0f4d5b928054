"""bert_training/engine/launch.py and --report_to: every tracker that is installed gets the numbers and the flags."""

import sqlite3

import accelerate.tracking
import pytest

from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import parse_arguments
from tests.helpers import short_runs
from tests.helpers.records import events

# Trackers, and what they import, warn of each other and leave files and loops open.
pytestmark = pytest.mark.filterwarnings("ignore")


class Told(accelerate.tracking.GeneralTracker):
    """A tracker that remembers what it is told."""

    name, requires_logging_directory, seen = "told", False, []

    def __init__(self, project, **options):
        super().__init__()
        self.seen.append(("begin", project, options))

    tracker = None

    def store_init_configuration(self, values):
        self.seen.append(("flags", values))

    def log(self, values, step=None):
        self.seen.append(("log", step, values))

    def finish(self):
        self.seen.append(("end",))


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "told", Told)
    monkeypatch.setattr(accelerate.tracking, "_available_trackers", ["told", "tensorboard"])
    monkeypatch.setattr(Told, "seen", [])
    return Told.seen


def start(short_data, pretrained, folder, *trackers):
    more = ("--learning_rate", "5e-5", "--report_to", *trackers)
    short_runs.start("run_glue", short_runs.flags("run_glue", short_data, folder, pretrained, *more))
    return events(folder, "train")


def test_several_trackers_get_all_numbers_and_the_flags_without_folders(
    told, short_data, pretrained, tmp_path, no_pictures
):
    pytest.importorskip("tensorboard")
    train = start(short_data, pretrained, tmp_path / "mails", "told", "tensorboard")
    logged = {step: values["loss"] for kind, step, values in (one for one in told if len(one) == 3) if kind == "log"
              and "learning_rate" in values}  # fmt: skip
    assert told[0] == ("begin", "bert-repro", {}) and told[-1] == ("end",)
    assert logged == {event["step"]: event["loss"] for event in train} and len(logged) == 2
    flags = next(values for kind, *rest in told if kind == "flags" for values in rest)
    assert flags["train_file"] == "run_glue.csv" and flags["learning_rate"] == 5e-5
    assert list((tmp_path / "mails" / "runs").glob("events.*"))


def test_mlflow_writes_to_a_folder(short_data, pretrained, tmp_path, no_pictures, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    train = start(short_data, pretrained, tmp_path / "mails", "mlflow")
    (found,) = mlflow.MlflowClient().search_runs(mlflow.get_experiment_by_name("bert-repro").experiment_id)
    assert found.info.run_name == "mails" and found.info.status == "FINISHED"
    assert found.data.params["train_file"] == "run_glue.csv"
    history = mlflow.MlflowClient().get_metric_history(found.info.run_id, "learning_rate")
    assert [one.value for one in history] == [event["learning_rate"] for event in train]


def test_trackio_writes_to_a_folder(short_data, pretrained, tmp_path, no_pictures, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    start(short_data, pretrained, tmp_path / "mails", "trackio")
    (file,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(file) as database:
        rows = database.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert {name for name, _, _ in rows} == {"mails"} and any("learning_rate" in str(values) for _, _, values in rows)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("wandb", "--report_to wandb: not installed; pip install wandb, or leave it out (installed: "),
        ("weights", "--report_to weights: expected none or trackers out of aim, clearml"),
        ("none told", "--report_to none told: expected none alone, or every tracker once"),
        ("told told", "expected none alone, or every tracker once"),
    ],
)
def test_what_cannot_be_tracked_is_refused_before_any_work(told, words, expected, capsys):
    with pytest.raises(SystemExit):
        parse_arguments(GlueArguments, f"--output_dir x --model_name_or_path m --report_to {words}".split())
    assert expected in capsys.readouterr().err.splitlines()[-1]


def test_a_tracker_that_cannot_start_is_one_error(told, short_data, pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(Told, "start", lambda self: 1 / 0)
    with pytest.raises(ValueError, match=r"--report_to told: cannot start \(division by zero\); correct the settings"):
        start(short_data, pretrained, tmp_path / "mails", "told")
    assert not (tmp_path / "mails" / "run.json").exists()
