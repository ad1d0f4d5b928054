"""Find out why the loss of a pre-training run does not fall.

    bert-repro doctor RUN_FOLDER

run_pretraining.py gives the same diagnosis after each evaluation.

A model that knows only how often each piece occurs has a loss equal to the unigram entropy of the text, called the line
here. Counted initial weights usually begin below it; then the line is their loss at the first step. A run is on the
line if, after the warm-up, neither its last held-out loss nor the mean of its training losses (of the masked LM) over a
window is at least 0.25 nats below the line. The window is the last tenth of the steps, with at least 5 records. The
margin is needed because a model also learns from positions and lengths: models that do not use context yet reach about
0.25 nats below the line.
"""

from pathlib import Path

from bert_training.cards.probes import not_more_useful
from bert_training.files.records import read_events
from bert_training.inputs.flags.parsing import command_parser
from bert_training.pretraining.corpora import open_training_corpora
from bert_training.pretraining.plateau import diagnosis
from bert_training.tools.audit import read_pretraining_facts


def main(argv: list[str] | None = None) -> None:
    """Print the diagnosis; a folder that is not a pre-training run ends it with status 2 and one line on stderr."""
    parser = command_parser("doctor", __doc__)
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER", help="an output folder of run_pretraining.py")
    folder = parser.parse_args(argv).folder
    facts = read_pretraining_facts(folder)
    corpora = open_training_corpora(folder, facts["flags"], verify=False)
    events = read_events(folder / "metrics.jsonl")
    text = diagnosis(facts, events, *corpora) or not_more_useful(events, facts.get("probes", {}))
    print(text or "the loss is below that of a model without context, or there are too few steps yet to tell")
