"""Questions to answer, of --test_file: SQuAD JSON, with or without gold answers, or a table of questions.

A table (.jsonl, .csv, .tsv) has the columns question and context. The column id is optional: without it, questions are
numbered by row. In JSON lines, answers may be there in the form of data sets of the Hub.
"""

from pathlib import Path
from typing import Any

from bert_training.files.compressed_files import kind_of, read_text
from bert_training.files.json_files import parse_file
from bert_training.files.tables import read_table
from bert_training.tasks.prediction_files import as_ids, check_ids
from bert_training.tasks.squad.questions import EXPECTED, Question, entries_of, parse_squad
from tokenization.errors import UserError

NEEDED = ("question", "context")


def read_new_questions(path: str | Path, version_2_with_negative: bool = False) -> tuple[list[Question], bool]:
    """The questions of a file, and whether every one has gold answers, by which they are scored.

    In SQuAD 1.1 an empty list of answers counts as none; in SQuAD 2.0 it says that there is no answer, unless that is
    so for all questions and none is marked with ``is_impossible``: then the answers were removed.

    Raises:
        ValueError: the file cannot be read, violates a rule of ``parse_squad``, or only some questions have answers.
    """
    document = parse_file(path, read_text(path), EXPECTED) if kind_of(path) == ".json" else _from_table(path)
    entries = [entry for entry, *_ in entries_of(document, str(path)) if isinstance(entry, dict)]
    without: tuple[object, ...] = (None,) if version_2_with_negative else (None, [])
    given = [entry.get("answers") not in without for entry in entries]
    if any(given) and not all(given):
        odd = entries[given.index(False)]
        remedy = "give answers to all questions, or to none"
        if odd.get("answers") == []:
            remedy += "; for data with unanswerable questions give --version_2_with_negative"
        raise UserError(
            f"{path}, question {str(odd.get('id'))[:60]!r}: expected gold answers as other questions of the file have "
            f"them, got none, as of {given.count(False):,} of {len(given):,} questions; {remedy}"
        )
    scored = any(entry.get("answers") or entry.get("is_impossible") for entry in entries) and all(given)
    return parse_squad(document, str(path), version_2_with_negative, without_answers=not scored), scored


def _from_table(path: str | Path) -> dict[str, Any]:
    """A SQuAD object with the questions of a table."""

    def choose(header: list[str]) -> list[str]:
        if not {*NEEDED} <= {*header}:
            raise UserError(f"expected the columns question and context, got {header}; rename them")
        return [*NEEDED, *(name for name in ("id", "answers") if name in header and (name == "id" or is_json))]

    is_json = kind_of(path) == ".jsonl"
    table = read_table(path, choose, may_be_null=("answers",), has_flag=False)
    ids = as_ids(table.columns.get("id") or range(len(table)))
    check_ids(ids, table.where, "id" if "id" in table.columns else None, in_columns=False)
    given = table.columns.get("answers") or [None] * len(table)
    paragraphs = []
    for row, (id_, question, context) in enumerate(zip(ids, *(table.columns[name] for name in NEEDED))):
        if not isinstance(question, str) or not isinstance(context, str):
            raise UserError(
                f"{table.where(row)}: expected texts as question and context, got another value; correct it"
            )
        entry = {"id": id_, "question": question}
        if (answers := given[row]) is not None:
            entry["answers"] = gold_answers(answers, table.where(row))
        paragraphs.append({"context": context, "qas": [entry]})
    return {"data": [{"title": "", "paragraphs": paragraphs}]}


def gold_answers(answers: object, where: str) -> list[dict[str, Any]]:
    """The answers of a row in the form of SQuAD's JSON, from that of data sets of the Hub."""
    found = answers if isinstance(answers, dict) else {}
    texts, starts = found.get("text"), found.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise UserError(
            f"{where}: expected answers as SQuAD has them, lists 'text' and 'answer_start' of one "
            f"length, got {answers!r:.60}; a question without an answer has empty lists"
        )
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts)]
