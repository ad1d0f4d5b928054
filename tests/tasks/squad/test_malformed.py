"""Of 80 damaged SQuAD files, each is read as JSON reads it, or refused in one line that names file and place."""

import copy
import json
import random
import re

import pytest

from bert_training.tasks.squad.questions import read_squad
from tokenization.errors import UserError

WORDS = ["red", "house", "caf\u00e9", "e\u0301", "\u4e2d\u6587", "\u200b", "\U0001f642", '"', "\u2028", "[SEP]", "'s"]
VALUES = [None, True, 0, 7, -1, 1e300, "", "x", [], {}, [[]], [None], {"text": "x"}, "\ud800", "9" * 40]


def document(rng: random.Random) -> dict:
    articles = []
    for a in range(3):
        paragraphs = []
        for p in range(2):
            words = rng.choices(WORDS, k=12)
            qas = []
            for q in range(2):
                place = rng.randrange(11)
                start = len(" ".join(["", *words[:place]]))
                answers = [{"text": " ".join(words[place : place + 2]), "answer_start": start}]
                if not " ".join(words[place : place + 2]).strip():
                    answers = [{"text": words[0], "answer_start": 0}]
                qas.append({"id": f"{a}-{p}-{q}", "question": f"what {rng.choice(WORDS)} ?", "answers": answers})
            paragraphs.append({"context": " ".join(words), "qas": qas})
        articles.append({"title": f"t{a}", "paragraphs": paragraphs})
    return {"version": "1.1", "data": articles}


def places(node, path=()) -> list[tuple]:
    """The path of every value in the document."""
    found = [path] if path else []
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        found += places(child, (*path, key))
    return found


def spoiled(rng: random.Random, content: dict) -> dict:
    """A copy of the document in which one value was replaced, removed, doubled, renamed or moved."""
    content = copy.deepcopy(content)
    path = rng.choice(places(content))
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    key, kind = path[-1], rng.randrange(5)
    if kind == 0 or isinstance(holder[key], int):
        holder[key] = rng.choice(VALUES) if rng.random() < 0.7 else rng.randrange(-3, 60)
    elif kind == 1:
        del holder[key]
    elif kind == 2 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    elif kind == 3 and isinstance(holder, dict):
        holder[key + "_"] = holder.pop(key)
    elif isinstance(holder[key], str):
        cut = rng.randrange(len(holder[key]) + 1)
        holder[key] = holder[key][:cut] + rng.choice(WORDS) + holder[key][cut:]
    else:
        holder[key] = rng.choice(VALUES)
    return content


def damaged(rng: random.Random, content: bytes) -> bytes:
    """The bytes after some of them were changed, removed or inserted, or after the end was cut off."""
    place = rng.randrange(len(content))
    new = rng.choice(
        [b"", b'"', b"}", b",", b"\x00", b"\xff", b"\xe2\x80", b"\\", b"\n", b"NaN", bytes([rng.randrange(256)])]
    )
    if rng.random() < 0.2:
        return content[:place]
    return content[:place] + new + content[place + rng.randrange(0, 4) :]


def text(value: object) -> object:
    """A number or a boolean as JSON spells it, which is how a cell of a table is read."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def expected(content: bytes, negative: bool) -> list[tuple]:
    """All questions of the file in their order, read with nothing but the json module."""
    return [
        (
            text(qa["id"]),
            text(qa["question"]),
            text(part["context"]),
            tuple((a["text"], a["answer_start"]) for a in qa["answers"]),
        )
        for article in next(part for part in json.loads(content.decode("utf-8-sig")).values() if isinstance(part, list))
        for part in article["paragraphs"]
        for qa in part["qas"]
    ]


@pytest.mark.parametrize("negative", [False, True])
def test_80_malformed_files_are_read_or_refused(tmp_path, negative):
    refused = 0
    for seed in range(80):
        rng = random.Random(seed)
        content = document(rng)
        if seed % 2:
            raw = json.dumps(spoiled(rng, content), indent=rng.choice([None, 1])).encode("utf-8", "surrogatepass")
        else:
            raw = damaged(rng, json.dumps(content, ensure_ascii=seed % 4 == 0, indent=1).encode())
        path = tmp_path / f"{seed}.json"
        path.write_bytes(raw)
        try:
            found = read_squad(path, negative)
        except UserError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1, str(error)
            assert re.match(rf".*/{seed}\.json(:\d+|, (article|question|row|line) .+)?: .*", str(error)), str(error)
        else:
            assert [(q.id, q.text, q.context, q.answers) for q in found] == expected(raw, negative)
            assert all(q.context[start : start + len(text)] == text for q in found for text, start in q.answers)
            assert len({q.id for q in found}) == len(found)
    assert 40 < refused < 78
