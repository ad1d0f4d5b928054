"""bert_training/engine/launch.py and --report_to: every tracker that is installed gets the numbers and the flags."""

import accelerate.tracking
import pytest
from accelerate.utils import LoggerType

from tests.helpers import short_runs
from tests.helpers.records import events

# Trackers, and what they import, warn of each other and leave files and loops open.
pytestmark = pytest.mark.filterwarnings("ignore")


class Told(accelerate.tracking.GeneralTracker):
    """Remembers what it is told. It stands for a tracker that Accelerate knows, as 1.10 takes no others."""

    name, requires_logging_directory, seen = "aim", False, []

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
    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "aim", Told)
    monkeypatch.setattr(accelerate.tracking, "_available_trackers", [LoggerType.AIM, LoggerType.TENSORBOARD])
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
    train = start(short_data, pretrained, tmp_path / "mails", "aim", "tensorboard")
    logged = {step: values["loss"] for kind, step, values in (one for one in told if len(one) == 3) if kind == "log"
              and "learning_rate" in values}  # fmt: skip
    assert told[0] == ("begin", "bert-repro", {}) and told[-1] == ("end",)
    assert logged == {event["step"]: event["loss"] for event in train} and len(logged) == 2
    flags = next(values for kind, *rest in told if kind == "flags" for values in rest)
    assert flags["train_file"] == "run_glue.csv" and flags["learning_rate"] == 5e-5
    assert list((tmp_path / "mails" / "runs").glob("events.*"))
