"""List the rows of a data set whose labels are probably wrong, the most doubtful first, as CSV.

    python run_glue.py ... --train_file rows.csv --folds 5 --output_dir runs/folds      # or run_ner.py
    bert-repro doubts runs/folds > doubts.csv
    bert-repro doubts runs/one        # the validation data of a single run

Every row is judged by a model that has not seen it: with --folds that of the fold that held it out. cleanlab compares
its probabilities with the given labels by confident learning (Northcutt, Jiang and Chuang 2021, arXiv:1911.00068),
which takes into account that the model is surer of some classes than of others. Of several labels a text, each is a
question of its own, with the answers "film" and "not film"; of tagged words, each word is a row. Read what is listed
before you change it: a doubt is a hint, and not a correction.
"""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.reading import numbered_lines
from bert_training.record import SUMMARY, Record
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.scored_rows import read_rows
from tokenization.errors import UserError


class Judged(NamedTuple):
    """A label that was given, and what a model that has not seen it finds.

    Attributes:
        place: the id of the row; of a tagged word, the place of its sentence, and its number, counted from 1.
        text: the text or the pair, "" where the data of the run is not at hand; of tagged words, the word.
        shares: the probability of each label.
    """

    place: str
    text: str
    given: str
    shares: dict[str, float]


class Doubt(NamedTuple):
    """A line of the table; ``probable`` says whether the given label is probably wrong, ``doubt`` how much (0 to 1)."""

    judged: Judged
    likely: str
    doubt: float
    probable: bool

    def cells(self) -> list[Any]:
        """Those below HEAD."""
        place, text, given, shares = self.judged
        return [place, text, given, self.likely, shares[given], shares[self.likely], round(self.doubt, 6)]


HEAD = ("id", "text", "given", "likely", "p_given", "p_likely", "doubt")


def judged_labels(folder: Path) -> list[list[Judged]]:
    """What is given and what was predicted for the held-out rows of a run, or of the folds of a series.

    Returns:
        One list or, of several labels a text, one for each label.
    """
    folds = sorted(folder.glob("fold-*"))
    if folds and not (folder / SUMMARY).is_file():
        raise UserError(f"{folder}: expected a finished series, found no {SUMMARY}; let it end first")
    runs = folds or [folder]
    if rows := [one for run in runs for one in _tagged_words(run)]:
        return [rows]
    pairs = [
        pair
        for run in runs
        for pair in zip(_json_lines(run / "predictions_validation.jsonl"), read_rows(run, "validation"))
    ]
    if not pairs or "probabilities" not in pairs[0][0]:
        raise UserError(
            f"{folder}: expected a finished run of run_glue.py on your own classes, or of run_ner.py, with held-out "
            "rows"
        )
    texts = _texts(runs[0])
    if not isinstance(pairs[0][1]["true"], list):
        return [[Judged(row["id"], texts.get(row["id"], ""), one["true"], row["probabilities"]) for row, one in pairs]]
    return [
        [
            Judged(
                row["id"],
                texts.get(row["id"], ""),
                name if name in scored["true"] else f"not {name}",
                {name: row["probabilities"][name], f"not {name}": 1 - row["probabilities"][name]},
            )
            for row, scored in pairs
        ]
        for name in pairs[0][0]["probabilities"]
    ]


def _texts(run: Path) -> dict[str, str]:
    """The texts of the rows of a run, by their ids, from where the run has read them; {} if they are gone or others."""
    try:
        record = Record.read(run)
        names = {one.name for one in fields(GlueArguments)}
        args = GlueArguments(**{name: value for name, value in record.flags.items() if name in names})
        held_out = load_data(args).splits["train" if args.folds or args.validation_split else "validation"]
    except (OSError, KeyError, UserError):
        return {}
    before = record.facts["data"]["splits"]["validation"]
    if held_out.facts.get("sha256") not in (before.get("sha256"), before.get("file_sha256")):
        return {}
    return dict(zip(held_out.index, map(" | ".join, zip(*held_out.texts))))


def _tagged_words(run: Path) -> Iterator[Judged]:
    """Those of the two files that run_ner.py writes for tagged validation data."""
    path = run / "validation_predictions.txt"
    lines = [line.rstrip("\n").split("\t") for _, line in numbered_lines(path)] if path.is_file() else []
    sentences = [[*words] for there, words in groupby(lines, lambda cells: len(cells) > 1) if there]
    for words, row in zip(sentences, _json_lines(path.with_suffix(".jsonl"))):
        for number, (cells, shares) in enumerate(zip(words, row["probabilities"], strict=True), 1):
            if len(cells) == 3 and cells[1] in shares:  # a tag that the model does not know says nothing
                yield Judged(f"{row['place']}, word {number}", cells[0], cells[1], shares)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for _, line in numbered_lines(path)] if path.is_file() else []


def doubts(rows: Sequence[Judged]) -> list[Doubt]:
    """A doubt for each row, the greatest first, those that are probably wrong before all others."""
    import cleanlab  # it takes a second

    names = [*rows[0].shares]
    shares = np.array([[row.shares[name] for name in names] for row in rows])
    shares /= shares.sum(axis=1, keepdims=True)  # the files have seven digits
    labels = np.array([names.index(row.given) for row in rows])
    probable = cleanlab.filter.find_label_issues(labels, shares, n_jobs=1)
    quality = cleanlab.rank.get_label_quality_scores(labels, shares)  # the probability of the given label
    others = np.where(np.arange(len(names)) == labels[:, None], -1, shares).argmax(axis=1)
    found = [
        Doubt(row, names[other], 1 - float(q), bool(wrong))
        for row, other, q, wrong in zip(rows, others, quality, probable)
    ]
    return sorted(found, key=lambda one: (not one.probable, -one.doubt))


def main(argv: list[str] | None = None) -> None:
    """Print the table. Raises ValueError for a folder without such predictions."""
    parser = command_parser("doubts", __doc__)
    parser.add_argument("folder", type=Path, help="a finished run with validation data, or a series of --folds")
    parser.add_argument("--all", action="store_true", help="rank all labels, not only those that are probably wrong")
    args = parser.parse_args(argv)
    found: list[Doubt] = []
    for rows in judged_labels(args.folder):
        if len({row.given for row in rows}) > 1:
            found += doubts(rows)
        else:
            print(f"warning: all rows are {rows[0].given!r}, so this label cannot be judged", file=sys.stderr)
    shown = sorted((one for one in found if args.all or one.probable), key=lambda one: (not one.probable, -one.doubt))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(one.cells() for one in shown)
    wrong = sum(one.probable for one in found)
    print(f"{wrong:,} of {len(found):,} labels are probably wrong", file=sys.stderr)
