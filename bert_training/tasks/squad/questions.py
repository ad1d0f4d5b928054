"""The questions of SQuAD 1.1 and 2.0, and of other files and data sets in this form, with checked answers.

``bert_training.inputs.squad`` reads them, ``bert_training.tasks.squad.sources`` says which questions a run has, and
``bert_training.tasks.squad.windows`` makes inputs of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_training.inputs.rows import Rows
from bert_training.inputs.squad import read_questions
from tokenization.errors import UserError


@dataclass(frozen=True, slots=True)
class Question:
    """One question about one context.

    Attributes:
        answers: (text, first character in ``context``) of every gold answer; empty if there is none.
    """

    id: str
    text: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    title: str = ""


def read_squad(path: str | Path, version_2_with_negative: bool = False) -> list[Question]:
    """The questions of a file with their gold answers, in file order. Raises UserError as ``with_answers`` does."""
    return with_answers(read_questions(path), str(path), version_2_with_negative)


def read_new_questions(path: str | Path, version_2_with_negative: bool = False) -> tuple[list[Question], bool]:
    """The questions of a --test_file, and whether every one has gold answers, by which they are scored.

    In SQuAD 1.1 an empty list of answers counts as none; in SQuAD 2.0 it says that there is no answer, unless that is
    so for all questions and none is marked with ``is_impossible``: then the answers were removed.

    Raises:
        UserError: as ``with_answers`` does, or only some questions have answers.
    """
    rows = read_questions(path)
    columns = _columns(rows)
    texts = [gold and gold["text"] for gold in columns["answers"]]
    given = [found is not None and bool(found or version_2_with_negative) for found in texts]
    if any(given) and not all(given):
        raise UserError(
            f"{path}, question {columns['id'][given.index(False)]!r:.60}: expected gold answers as other questions of "
            f"the file have them, got none, as of {given.count(False):,} of {len(given):,}; give answers to all "
            "questions or to none; for data with unanswerable questions give --version_2_with_negative"
        )
    if all(given) and (any(texts) or "true" in columns["is_impossible"]):
        return with_answers(rows, str(path), version_2_with_negative), True
    return _questions(columns, str(path)), False


def with_answers(rows: Rows, source: str, version_2_with_negative: bool = False) -> list[Question]:
    """The questions of rows with their gold answers.

    Raises:
        UserError: an id occurs twice, an answer is not the text at its place in the context, or a question has no
            answer (allowed in version 2, where ``is_impossible`` must agree). The first wrong question is named, and
            all are counted.
    """
    columns = _columns(rows)
    questions = _questions(columns, source)
    problems = [
        (question.id, problem)
        for question, gold, impossible in zip(questions, columns["answers"], columns["is_impossible"])
        if (problem := _problem(question, gold is not None, impossible, version_2_with_negative))
    ]
    if problems:
        id_, problem = problems[0]
        count = f" ({len(problems):,} of {len(questions):,} questions have such mistakes)" if len(problems) > 1 else ""
        raise UserError(f"{source}, question {id_!r}: {problem}{count}")
    return questions


def _columns(rows: Rows) -> dict[str, list[Any]]:
    """The columns; one that is not there is empty, but for the ids, which are then the numbers of the rows."""
    columns = dict.fromkeys(("title", "answers", "is_impossible"), [None] * len(rows.data)) | rows.data.to_pydict()
    return {"id": [*map(str, range(len(rows.data)))]} | columns


def _questions(columns: dict[str, list[Any]], source: str) -> list[Question]:
    """The questions with their answers, if they have some. Predictions are stored by id, so two may not have one id."""
    shared: dict[str, str] = {}  # a context of many questions is in memory once
    questions: dict[str, Question] = {}
    for id_, text, context, gold, title in zip(
        *(columns[name] for name in ("id", "question", "context", "answers", "title"))
    ):
        if id_ is None or id_ in questions:
            raise UserError(f"{source}, question {id_!r}: expected an id of its own, got it twice or none; correct it")
        answers = tuple(zip(gold["text"], gold["answer_start"])) if gold else ()
        questions[id_] = Question(id_, text, shared.setdefault(context, context), answers, title or "")
    return [*questions.values()]


def _problem(question: Question, given: bool, is_impossible: str | None, version_2_with_negative: bool) -> str:
    """What is wrong with the gold answers of a question; "" if nothing is."""
    if not given:
        return "has no 'answers'; --test_file takes questions without them"
    if is_impossible is not None and (is_impossible == "true") != (not question.answers):
        return f"'is_impossible' is {is_impossible} but there are {len(question.answers)} answers; correct one of them"
    if not question.answers and not version_2_with_negative:
        return "has no answer; for data with unanswerable questions give --version_2_with_negative"
    for text, start in question.answers:
        found = question.context[max(start, 0) : start + len(text)]
        if not text.strip() or start < 0 or found != text:
            place = question.context.find(text)
            hint = f"it occurs at {place}" if place >= 0 else "it does not occur in the context"
            return (
                f"expected answer {text!r:.60} at character {start}, the context has {found!r:.60} there; {hint}; "
                "correct 'answer_start' or the text"
            )
    return ""
