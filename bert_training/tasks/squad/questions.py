"""The questions of SQuAD 1.1 and 2.0, and of other files in this form: reading and checking them.

An article has paragraphs, and a paragraph has a context and questions about it. An answer is a part of the context:

    {"data": [{"title": "Travel", "paragraphs": [{
        "context": "the man went to the store and bought a gallon of milk",
        "qas": [{"id": "q1", "question": "what did he buy",
                 "answers": [{"text": "a gallon of milk", "answer_start": 37}]}]
    }]}]}

``bert_training.tasks.squad.sources`` says which questions a run has, and ``bert_training.tasks.squad.windows`` makes
inputs of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bert_training.files.compressed_files import read_text
from bert_training.files.json_files import parse_file
from tokenization.errors import UserError

Value = TypeVar("Value")

EXPECTED = (
    'write {"data": and } around a list of articles, and give rows with a question each, as `datasets` writes them, as '
    "train.json and validation.json in a --dataset_name FOLDER, or for new questions as --test_file FILE.jsonl"
)


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
    """The questions of a SQuAD JSON file (.json, .json.xz, .json.gz), in file order.

    Raises:
        ValueError: the file cannot be read, or violates a rule of ``parse_squad``.
    """
    document = parse_file(path, read_text(path), EXPECTED)
    return parse_squad(document, str(path), version_2_with_negative)


def parse_squad(
    document: object, source: str, version_2_with_negative: bool = False, without_answers: bool = False
) -> list[Question]:
    """The questions of a SQuAD object, {data: [{paragraphs: [{context, qas: [{id, question, answers}]}]}]}.

    Args:
        source: the name of the document in error messages, usually a file name.
        without_answers: leave out the gold answers, which need not be there.

    Raises:
        ValueError: a field is missing or of another type, an id occurs twice, an answer is not the text at
            its place in the context, a question has no answer (allowed in version 2, where ``is_impossible``
            must agree), or there is no question at all. The first wrong question is named, and all are counted.
    """
    questions, wrong = dict[str, Question](), list[UserError]()
    for entry, title, context, place in entries_of(document, source):
        try:
            question = _question(entry, title, context, source, place, without_answers)
            here = f"{source}, question {question.id!r}"
            if question.id in questions:
                raise UserError(f"{here}: this id occurs twice; predictions are stored by id, make it unique")
            if not without_answers:
                _check(question, entry.get("is_impossible"), here, version_2_with_negative)
            questions[question.id] = question
        except UserError as error:
            wrong.append(error)
    if wrong:
        count = f"{len(wrong):,} of {len(wrong) + len(questions):,} questions"
        raise UserError(f"{wrong[0]}{f' ({count} have such mistakes)' if len(wrong) > 1 else ''}")
    if not questions:
        raise UserError(f"{source}: expected questions, got none")
    return [*questions.values()]


def entries_of(document: object, source: str) -> Iterator[tuple[dict[str, Any], str, str, str]]:
    """Yield every question as it is in the document, with its title, its context, and its place for error messages."""
    for article_number, article in enumerate(_get(document, "data", list, source, f"; {EXPECTED}")):
        place = f"{source}, article {article_number}"
        title = _get(article, "title", str, place) if isinstance(article, dict) and "title" in article else ""
        for number, paragraph in enumerate(_get(article, "paragraphs", list, place)):
            place = f"{source}, article {article_number} ({title!r}), paragraph {number}"
            context = _get(paragraph, "context", str, place)
            for position, entry in enumerate(_get(paragraph, "qas", list, place)):
                yield entry, title, context, f"{place}, question {position}"


def _question(entry: Any, title: str, context: str, source: str, place: str, without_answers: bool) -> Question:
    if isinstance(entry, dict) and type(entry.get("id")) is int:  # some tools number the questions
        entry = entry | {"id": str(entry["id"])}
    id_ = _get(entry, "id", str, place)
    here = f"{source}, question {id_!r}"
    text = _get(entry, "question", str, here)
    gold = [] if without_answers else _get(entry, "answers", list, here, "; --test_file takes questions without them")
    answers = [(_get(answer, "text", str, here), _get(answer, "answer_start", int, here)) for answer in gold]
    question = Question(id_, text, context, tuple(answers), title)
    _check_text(question, here)
    return question


def _get(holder: object, key: str, kind: type[Value], place: str, remedy: str = "") -> Value:
    if not isinstance(holder, dict):
        raise UserError(f"{place}: expected an object with {key!r}, got {_short(holder)}{remedy}")
    if key not in holder:
        raise UserError(f"{place}: lacks {key!r}; it has {sorted(map(str, holder))}{remedy}")
    # type() instead of isinstance(), because JSON's true is a bool, which is an int in Python
    value = holder[key]
    if type(value) is not kind:
        raise UserError(f"{place}: {key!r} must be of type {kind.__name__}, got {_short(value)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_text(question: Question, here: str) -> None:
    texts = {"question": question.text, "context": question.context, "id": question.id, "title": question.title}
    for name, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{here}: half a surrogate pair in its {name} at character {error.start}") from error


def _check(question: Question, is_impossible: object, here: str, version_2_with_negative: bool) -> None:
    if is_impossible is not None and is_impossible is not (not question.answers):  # JSON's 0 is not its false
        raise UserError(
            f"{here}: 'is_impossible' is {_short(is_impossible)} but there are {len(question.answers)} answers; it "
            "must be true if there is no answer, and only then (--test_file takes questions whose answers were removed)"
        )
    if not question.answers and not version_2_with_negative:
        raise UserError(f"{here}: has no answer; for data with unanswerable questions give --version_2_with_negative")
    for text, start in question.answers:
        end = start + len(text)
        if not text.strip():
            raise UserError(f"{here}: has an empty answer; leave 'answers' empty for an unanswerable question")
        if start < 0 or end > len(question.context):
            raise UserError(
                f"{here}: answer {_short(text)} at characters {start} to {end} lies outside its context of "
                f"{len(question.context)} characters; correct 'answer_start'"
            )
        if question.context[start:end] != text:
            place = question.context.find(text)
            hint = f"it occurs at {place}" if place >= 0 else "it does not occur in the context"
            raise UserError(
                f"{here}: expected answer {_short(text)} at character {start}, the context has "
                f"{_short(question.context[start:end])} there; {hint}; correct 'answer_start' or the text"
            )
