"""Malformed questions of SQuAD, and what an independent reader finds in them."""

import json
import random
from pathlib import Path

from bert_training.tasks.squad.questions import read_squad
from lab.tests.helpers.malformed import parsed, require
from lab.tests.helpers.mutations import damaged_bytes, damaged_json, damaged_lines
from tests.helpers.squad_examples import squad_content


def document(content: bytes, strict: bool = True) -> object:
    """The JSON of a file; unless ``strict``, NaN is allowed, and of two fields with one name the last counts."""
    text = content.decode("utf-8-sig")
    if strict:
        return parsed(text)
    return json.loads(text)


def damaged_document(draw: random.Random, tree: object) -> bytes:
    """A document with a fault in its values or, sometimes, in its text."""
    options = draw.choice([{}, {"indent": 1}, {"ensure_ascii": False}])
    if draw.random() < 0.75:
        return damaged_json(draw, tree, **options)
    content = json.dumps(tree, **options).encode()
    return damaged_bytes(draw, content) if draw.random() < 0.5 else damaged_lines(draw, content)


def squad_oracle(content: bytes, negative: bool) -> list[tuple]:
    """(id, question, context, answers, title) of every question."""
    rows = []
    for article in document(content, strict=False)["data"]:
        title = article.get("title", "")
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                answers = tuple((answer["text"], answer["answer_start"]) for answer in entry["answers"])
                row = (entry["id"], entry["question"], paragraph["context"], answers, title)
                require(all(type(part) is str for part in (*row[:3], title)), "text")
                "".join((*row[:3], title)).encode()
                for text, start in answers:
                    require(type(text) is str and type(start) is int and start >= 0 and text.strip(), "answer")
                    require(row[2][start:].startswith(text), "place")
                impossible = entry.get("is_impossible")
                require(impossible is None or impossible is (not answers), "is_impossible")
                require(answers or negative, "no answer")
                rows.append(row)
            require(isinstance(paragraph["qas"], list) and isinstance(paragraph["context"], str), "lists")
        require(isinstance(article["paragraphs"], list) and isinstance(title, str), "lists")
    require(rows and len({row[0] for row in rows}) == len(rows), "ids")
    return rows


def squad_rows(path: Path, negative: bool) -> list[tuple]:
    return [(row.id, row.text, row.context, row.answers, row.title) for row in read_squad(path, negative)]


def articles(draw: random.Random, negative: bool) -> dict:
    """A document of three articles with questions."""
    content = squad_content(9, negative)
    paragraphs = content["data"][0]["paragraphs"]
    if negative:
        for paragraph in paragraphs:
            for entry in paragraph["qas"]:
                entry["is_impossible"] = not entry["answers"]
    data = [{"title": f"Ärticle {at}", "paragraphs": paragraphs[at::3]} for at in range(3)]
    return {"version": "v2.0" if negative else "1.1", "data": data[: draw.choice((1, 3))]}
