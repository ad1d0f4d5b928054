"""Questions about contexts: SQuAD's JSON, in which a paragraph has a context and questions, or rows with one each.

    {"data": [{"title": "Travel", "paragraphs": [{
        "context": "the man went to the store and bought a gallon of milk",
        "qas": [{"id": "q1", "question": "what did he buy",
                 "answers": [{"text": "a gallon of milk", "answer_start": 37}]}]
    }]}]}

becomes one row with these columns, which other files and the data sets of the Hub have already:

    id   title    context                   question          answers
    q1   Travel   the man went to the ...   what did he buy   {"text": ["a gallon of milk"], "answer_start": [37]}
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_training.inputs.reading import kind_of
from bert_training.inputs.rows import ANSWER, Column, Rows, json_rows, object_rows, read_rows
from tokenization.errors import UserError

# Files of columns have no lists, so a column of that name in them has something else than answers.
WITHOUT_ANSWERS = (
    *(Column(name, (name,)) for name in ("question", "context")),
    *(Column(name, (name,), needed=False) for name in ("id", "title", "is_impossible")),
)
QUESTIONS = (*WITHOUT_ANSWERS, Column("answers", ("answers",), needed=False, answers=True))


def read_questions(path: str | Path) -> Rows:
    """The questions of a file: ``.json`` in SQuAD's form, or a table, JSON or Parquet with a question a row.

    Raises:
        UserError: as ``read_rows`` does; or the JSON has neither form.
    """
    if kind_of(path) != ".json":
        return read_rows(path, WITHOUT_ANSWERS if kind_of(path) in (".csv", ".tsv") else QUESTIONS)
    objects = json_rows(str(path))
    flat = any("question" in row for row in objects[:1])
    return object_rows(objects, QUESTIONS, str(path)) if flat else squad_rows(objects, str(path))


def squad_rows(articles: Sequence[dict[str, Any]], source: str) -> Rows:
    """The questions of the articles of SQuAD's JSON, the list ``data``. UserError names the article or the question."""
    return object_rows([*_flat(articles, source)], QUESTIONS, source)


def _flat(articles: Sequence[dict[str, Any]], source: str) -> Iterator[dict[str, Any]]:
    place = ""
    try:
        for number, article in enumerate(articles):
            place = f"article {number}"
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    place = f"question {entry['id']!r:.60}"
                    row = {"title": article.get("title", ""), "context": paragraph["context"], **entry}
                    if row.get("answers") is not None:
                        answers = row["answers"]
                        row["answers"] = {name: [one[name] for one in answers] for name in ANSWER}
                    yield row
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{source}, {place}: expected SQuAD's form, articles with paragraphs, a context in each, and qas with id, "
            f"question and answers; got {type(error).__name__}: {error}; correct it"
        ) from None
