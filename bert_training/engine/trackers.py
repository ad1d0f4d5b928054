"""Where the records of a run go besides metrics.jsonl: the trackers of Accelerate that --report_to names.

TensorBoard's files are in the output folder. Every other tracker writes to the place, offline or to a server, that its
own environment variables or log-in choose (``MLFLOW_TRACKING_URI``, ``TRACKIO_DIR``, ``WANDB_MODE``). It gets the name
of the output folder as the name of the run, and the flags, whose paths lose their folders as in an upload.
"""

from typing import Any

from accelerate import Accelerator
from accelerate.tracking import TensorBoardTracker

from bert_training.engine.run import Run
from bert_training.files.publishing import published
from bert_training.inputs.flags.shared import NONE, SharedArguments
from tokenization.errors import UserError

TENSORBOARD = "tensorboard"
FOLDER = "runs"  # TensorBoard's folder in the output folder
PROJECT = "bert-repro"
# How a tracker calls the name of a run.
NAME_OF_RUN = {"wandb": "name", "trackio": "name", "mlflow": "run_name", "swanlab": "experiment_name"}


def trackers_of(args: SharedArguments) -> dict[str, Any]:
    """The options of ``Accelerator`` for --report_to; {} without trackers."""
    if args.report_to == [NONE]:
        return {}
    chosen = [TensorBoardTracker(FOLDER, args.output_dir) if name == TENSORBOARD else name for name in args.report_to]
    return {"log_with": chosen, "project_dir": args.output_dir}


def start_trackers(accelerator: Accelerator, run: Run[SharedArguments]) -> None:
    """Begin a run in every tracker, with the flags of the run.

    Raises:
        ValueError: a tracker cannot begin, because for example its server cannot be reached.
    """
    name = run.output_dir.resolve().name
    shown = published(run.facts)["flags"]
    flags = {
        flag: value if isinstance(value, bool | int | float | str) else str(value) for flag, value in shown.items()
    }
    try:
        accelerator.init_trackers(PROJECT, init_kwargs={tracker: {key: name} for tracker, key in NAME_OF_RUN.items()})
        for tracker in accelerator.trackers:
            if tracker.name != TENSORBOARD and run.is_main:
                tracker.store_init_configuration(flags)
    except Exception as error:  # whatever the packages of other people raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"--report_to {' '.join(run.args.report_to)}: cannot start ({first}); correct the settings of the tracker, "
            "or leave it out"
        ) from error
