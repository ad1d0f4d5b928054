"""A damaged file of examples is read as an independent reader reads it, or refused with its name and line."""

import json
import random
import re
from collections.abc import Callable

import pytest

from bert_training.tasks.classification.sources import load_data
from tests.helpers.official_files import glue_arguments, own
from tokenization.errors import UserError

ROWS = 30
WORDS = ["red", "-", '" open', "中文", "a\u2028b", "e\u0301", "a\x85", "it 's", "\\n", "tab less", "🙂", "'"]


def tsv_lines(rng: random.Random) -> list[bytes]:
    rows = [f"{rng.choice(WORDS)} {n}\t{rng.choice(WORDS)}\t{n % 2}" for n in range(ROWS)]
    return [row.encode() for row in ["sentence1\tsentence2\tlabel", *rows]]


def jsonl_lines(rng: random.Random) -> list[bytes]:
    rows = [
        {"sentence1": f"{rng.choice(WORDS)} {n}", "sentence2": rng.choice(WORDS), "label": n % 2} for n in range(ROWS)
    ]
    return [json.dumps(row, ensure_ascii=bool(n % 2)).encode() for n, row in enumerate(rows)]


def at_random(change: Callable[[random.Random, bytes], bytes]):
    """A function that changes one random line of a file."""

    def apply(rng: random.Random, lines: list[bytes]) -> bytes:
        place = rng.randrange(len(lines))
        return b"\n".join([*lines[:place], change(rng, lines[place]), *lines[place + 1 :]]) + b"\n"

    return apply


def spliced(rng: random.Random, line: bytes, new: bytes) -> bytes:
    place = rng.randrange(len(line) + 1)
    return line[:place] + new + line[place:]


def without(rng: random.Random, line: bytes) -> bytes:
    place = rng.randrange(len(line))
    return line[:place] + line[place + rng.randrange(1, 12) :]


INSERTED = [
    b"\t",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b'"',
    b"\x00",
    b"\xff",
    b"\xe2\x80",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
]
OF_ANY = [
    *[at_random(lambda rng, line, new=new: spliced(rng, line, new)) for new in INSERTED],
    *[at_random(lambda rng, line: spliced(rng, line, bytes([rng.randrange(256)])))] * 2,
    *[at_random(without)] * 3,
    at_random(lambda rng, line: b""),
    at_random(lambda rng, line: line + line),
    at_random(lambda rng, line: line + b"\n" + line),
    at_random(lambda rng, line: line[::-1]),
    lambda rng, lines: b"\n".join(lines)[: rng.randrange(1, 900)],
    lambda rng, lines: b"\r".join(lines),
    lambda rng, lines: b"\r\n".join(lines),
    lambda rng, lines: b"\xef\xbb\xbf" + b"\n".join(lines),
    lambda rng, lines: b"\n".join(lines).decode().encode("utf-16"),
    lambda rng, lines: b"\n".join(lines) + b"\n\n\n",
    lambda rng, lines: b"",
]
OF_TSV = [
    at_random(lambda rng, line: line.replace(b"\t", rng.choice([b" ", b",", b"\t\t"]), 1)),
    at_random(lambda rng, line: line.rpartition(b"\t")[0]),
    at_random(lambda rng, line: line.rpartition(b"\t")[0] + b"\t" + rng.choice([b"", b"2", b"x", b" 1", b"1.0"])),
]
VALUES = [b"null", b"NaN", b"[]", b"{}", b"1e999", b"true", b'"\\ud800"', b"7" * 5000, b"[" * 5000, b'""', b"-0", b"x"]
OF_JSONL = [
    *[
        at_random(lambda rng, line, new=new: re.sub(rb": [^,}]*", lambda _: b": " + new, line, count=1))
        for new in VALUES
    ],
    *[at_random(lambda rng, line, new=new: re.sub(rb"[01]}$", lambda _: new + b"}", line)) for new in VALUES],
    at_random(lambda rng, line: line.replace(b'"sentence2"', b'"sentence1"')),
    at_random(lambda rng, line: line.replace(b'"label"', b'"lable"')),
    at_random(lambda rng, line: line + b" " + line),
    at_random(lambda rng, line: b"[" + line + b"]"),
    at_random(lambda rng, line: line.replace(b"}", b",}")),
]


def expected_tsv(content: bytes) -> list[tuple]:
    """Read the file as the format says.

    It is UTF-8; lines end at a line feed, a carriage return or both, fields at a tab; quotation marks are text.
    """
    lines = re.split(r"[\r\n]+", content.decode("utf-8-sig").strip("\r\n"))
    header, *rows = [line.split("\t") for line in lines]
    places = [header.index(name) for name in ("sentence1", "sentence2", "label")]
    return [tuple(row[place] for place in places) for row in rows]


def expected_jsonl(content: bytes) -> list[tuple]:
    rows = [json.loads(line) for line in content.decode("utf-8-sig").split("\n") if line.strip()]
    texts = [[row[name] for name in ("sentence1", "sentence2")] for row in rows]
    spelled = [[text if isinstance(text, str) else json.dumps(text) for text in both] for both in texts]
    return [(*both, str(row["label"]).lower()) for both, row in zip(spelled, rows)]


def read(path: str) -> list[tuple]:
    data = load_data(glue_arguments(train_file=path, validation_file=path))
    examples = data.splits["train"]
    names = [data.task.labels[n] if data.task.labels else n for n in examples.labels]
    return list(zip(*examples.texts, names))


@pytest.mark.parametrize(
    ("kind", "lines", "changes", "expected"),
    [("tsv", tsv_lines, OF_ANY + OF_TSV, expected_tsv), ("jsonl", jsonl_lines, OF_ANY + OF_JSONL, expected_jsonl)],
)
def test_100_malformed_files_are_read_or_refused(tmp_path, kind, lines, changes, expected):
    refused = 0
    for seed in range(100):
        rng = random.Random(seed)
        change = changes[seed % len(changes)]
        content = change(rng, lines(rng))
        path = own(tmp_path, content, f"{seed}.{kind}")
        try:
            found = read(path)
        except UserError as error:
            refused += 1
            text = str(error)
            assert "\n" not in text
            whole_file = (
                "got none",
                "expected at least two labels",
                "expected a column",
                "expected a header",
                "may be a class",
                "UTF-16",
            )
            assert re.search(rf"/{seed}\.{kind}.*([Rr]ow|line) #?\d", text) or any(
                map(text.__contains__, whole_file)
            ), text
        else:
            wanted = expected(content)
            assert [row[:2] for row in found] == [row[:2] for row in wanted], (seed, content)
            for row, other in zip(found, wanted):
                assert str(row[2]) == other[2] or float(row[2]) == float(other[2])
    assert 40 < refused < 95
