"""Score a file of answers with the official SQuAD metrics.

bert-repro score DATA.json PREDICTIONS.json [--version_2_with_negative] [--na_prob_file ODDS.json]
"""

import json

from bert_training.inputs.flags.parsing import command_parser
from bert_training.tasks.squad.metrics import read_numbers, read_predictions, score
from bert_training.tasks.squad.questions import read_squad


def main(argv: list[str] | None = None) -> None:
    """Print the official scores as one JSON object.

    Raises:
        ValueError: a file has unexpected content, or has changed since the finished run in its folder wrote it.
    """
    parser = command_parser("score", __doc__)
    parser.add_argument("data", help="a SQuAD JSON file with the gold answers")
    parser.add_argument("predictions", help="a JSON object with an answer text for every question id")
    parser.add_argument("--version_2_with_negative", action="store_true", help="use the rules of SQuAD 2.0")
    parser.add_argument(
        "--na_prob_file",
        help="for SQuAD 2.0: a JSON object with a number for every question id, the higher the more likely the "
        "question has no answer",
    )
    parser.add_argument(
        "--na_prob_thresh",
        type=float,
        help="for SQuAD 2.0: answers whose number is above this count as empty (default 1.0)",
    )
    args = parser.parse_args(argv)
    questions = read_squad(args.data, args.version_2_with_negative)
    gold = {question.id: [text for text, _ in question.answers] for question in questions}
    predictions = read_predictions(args.predictions)
    odds = read_numbers(args.na_prob_file) if args.na_prob_file else None
    threshold = args.na_prob_thresh
    if threshold is None and odds:
        threshold = 1.0  # the default of the official script
    print(json.dumps(score(gold, predictions, args.version_2_with_negative, odds, threshold), indent=2))
