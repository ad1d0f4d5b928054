"""Find out why the loss of a pre-training run does not fall.

    bert-repro doctor RUN_FOLDER
    bert-repro doctor RUN_FOLDER --make_reference mini   # put its curve into reference_curves.json instead

run_pretraining.py gives the same diagnosis after each evaluation.

A model that knows only how often each piece occurs has a loss equal to the unigram entropy of the text, called the line
here. Counted initial weights usually begin below it; then the line is their loss at the first step. A run is on the
line if, after the warm-up, neither its last held-out loss nor the mean of its training losses (of the masked LM) over a
window is at least 0.25 nats below the line. The window is the last tenth of the steps, with at least 5 records. The
margin is needed because a model also learns from positions and lengths: models that do not use context yet reach about
0.25 nats below the line.
"""

from pathlib import Path

from bert_training.cards.curves import MARGIN, curve_of
from bert_training.cards.reference_curves import FILE, references, settings_of
from bert_training.files.atomic import write_json
from bert_training.files.records import read_events
from bert_training.flags.parsing import command_parser
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.plateau import diagnosis, line_of
from bert_training.tools.audit import read_pretraining_facts
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
    """Print the diagnosis; a folder that is not a pre-training run ends it with status 2 and one line on stderr."""
    parser = command_parser("doctor", __doc__)
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="an output folder of run_pretraining.py")
    parser.add_argument("--make_reference", metavar="NAME", help="store the curve of this run as a reference")
    arguments = parser.parse_args(argv)
    folder = arguments.folder
    facts = read_pretraining_facts(folder)
    if arguments.make_reference:
        make_reference(folder, arguments.make_reference)
        return
    corpus = Corpus.open(folder / "corpus" / "train", verify=False)
    text = diagnosis(facts, read_events(folder / "metrics.jsonl"), corpus)
    print(text or "the loss is below that of a model without context, or there are too few steps yet to tell")
