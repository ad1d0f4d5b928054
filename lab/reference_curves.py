"""Put the loss curve of a pre-training run into bert_training/cards/reference_curves.json.

python lab/reference_curves.py RUN_FOLDER NAME
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bert_tools.inspect_run import read_pretraining_facts
from bert_training.cards.curves import MARGIN, curve_of
from bert_training.cards.reference_curves import FILE, references, settings_of
from bert_training.engine.errors import report_errors
from bert_training.files.atomic import write_json
from bert_training.inputs.records import read_events
from bert_training.pretraining.plateau import line_of
from tokenization.errors import UserError


def make_reference(folder: Path, name: str) -> None:
    """Put the curve of the run in `folder` into reference_curves.json under `name`.

    Raises:
        ValueError: the folder holds no pre-training run, or one that did not leave the line in its first phase.
    """
    facts = read_pretraining_facts(folder)
    events = read_events(folder / "metrics.jsonl")
    entropy = next(event["unigram_entropy"] for event in events if event["event"] == "corpus")
    steps, losses = curve_of(events, "train", "mlm_loss")
    # A centred mean, because a mean over the past alone would lag behind where the curve is steep.
    windows = [losses[max(0, place - 2) : place + 3] for place in range(len(losses))]
    smooth = [sum(window) / len(window) for window in windows]
    every = max(1, len(steps) // 100)
    held_out_steps, held_out_losses = curve_of(events, "eval", "eval_mlm_loss")
    settings, line = settings_of(facts, entropy), line_of(facts["flags"], events, entropy)
    below = [step for step, loss in zip(held_out_steps, held_out_losses) if loss <= line - MARGIN]
    if not below or below[0] > settings["comparable_steps"]:
        raise UserError(f"{folder}: a reference must have left the line, {line:.2f} nats, in its first phase")
    made = {"started": facts["started"], "device": facts["device"], "versions": facts["versions"]}
    text = {"train_file": [Path(file).name for file in facts["flags"]["train_file"]], **facts["corpus"]}
    reference = {
        "settings": settings | {"line": line, "text": text, "parameters": facts["parameters"], "made": made},
        "train": {"steps": steps[::every], "mlm_loss": [round(loss, 3) for loss in smooth[::every]]},
        "held_out": {"steps": held_out_steps, "mlm_loss": [round(loss, 3) for loss in held_out_losses]},
    }
    write_json(FILE, (references() if FILE.exists() else {}) | {name: reference})


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an output folder of run_pretraining.py")
    parser.add_argument("name", help="the name of the curve")
    arguments = parser.parse_args(argv)
    make_reference(arguments.folder, arguments.name)


if __name__ == "__main__":
    sys.exit(report_errors(main))
