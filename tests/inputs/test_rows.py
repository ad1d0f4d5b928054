"""Rows of tables: strings stay strings, rows are neither merged nor mended, and columns are named, not guessed."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pandas
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from bert_training.inputs.rows import Column, Layout, hub_rows, read_rows
from tokenization.errors import UserError

TEXT, LABEL = Column("text", ("text",), "--text_column"), Column("label", ("label",), "--label_column", lists=True)
UNLABELLED = LABEL._replace(needed=False)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "name, content, texts, labels",
    [
        ("a.csv", 'label,text\n1,"a, b"\n007,NA\n', ["a, b", "NA"], ["1", "007"]),
        ("a.csv", 'text,label\r\n"two\nlines",x\r\n,nan\r\n', ["two\nlines", ""], ["x", "nan"]),
        ("a.csv", '\ufeff"text",label\nU+2028 \u2028 and \u0085,x\n', ["U+2028 \u2028 and \u0085"], ["x"]),
        ("a.csv", 'text,label\r"a ""b""",x\r', ['a "b"'], ["x"]),
        ("a.tsv", 'text\tlabel\n"begins and never ends\t1\nb" c\t2\n', ['"begins and never ends', 'b" c'], ["1", "2"]),
        ("a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "label": "1"}\n', ["a", "b"], ["1", "1"]),
        ("a.json", '[{"text": "a", "label": true}, {"text": "b", "label": 1.0}]', ["a", "b"], ["true", "1.0"]),
        ("a.json", '{"version": 1, "data": [{"text": "a", "label": null}]}', ["a"], [None]),
        ("a.jsonl", '{"text": "a", "label": 1, "turns": [{"text": "b", "label": 2}]}', ["a"], ["1"]),
        ("a.json", '{"text": "a", "label": ["x", 2]}\n{"text": "b", "label": []}', ["a", "b"], [["x", "2"], []]),
    ],
)
def test_cells_are_what_the_file_says(tmp_path: Path, name: str, content: str, texts: list, labels: list) -> None:
    plain = read_rows(written(tmp_path, name, content), [TEXT, UNLABELLED]).data
    packed = read_rows(written(tmp_path, f"{name}.gz", gzip.compress(content.encode())), [TEXT, UNLABELLED]).data
    assert plain.to_pydict() == packed.to_pydict() == {"text": texts, "label": labels}


def test_tables_of_pandas_and_of_the_hub_have_the_same_rows(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"text": ["a", "b", "NA"], "label": ["no", "yes", "no"]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    classes = Features({"text": Value("string"), "label": ClassLabel(names=["yes", "no"])})
    hub = hub_rows(Dataset.from_dict(frame.to_dict("list"), features=classes), [TEXT, LABEL], "hub train")
    assert hub.data.to_pydict() == frame.to_dict("list")
    assert all(
        read_rows(tmp_path / f"a.{kind}", [TEXT, LABEL]).data.to_pydict() == hub.data.to_pydict()
        for kind in ("csv", "parquet")
    )
    hidden = Dataset.from_dict({"text": ["a"], "label": [-1]}, features=classes)
    assert hub_rows(hidden, [TEXT, UNLABELLED], "hub test").data["label"].to_pylist() == [None]


def test_a_column_has_the_first_of_its_names(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "sentence,text,gold\na,b,c\n")
    rows = read_rows(
        path, [Column("text", ("text", "sentence")), Column("label", ("gold",)), Column("id", ("id",), "", False)]
    )
    assert rows.data.to_pydict() == {"text": ["b"], "label": ["c"]} and rows.names == {"text": "text", "label": "gold"}


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", "text,label\na,1\nb\n", "Row #3: Expected 2 columns, got 1: b"),
        ("a.csv", "text,label\na,1\nb, c,3\n", "Row #3: Expected 2 columns, got 3: b, c,3"),
        ("a.csv", 'label,text\n1,a\n2,"b\n3,c\n', "the row from line 3: expected quoted cells that end"),
        ("a.csv", 'text,label\n"say ""a""",1\n"say "b"",2\n', "the row from line 3: expected quoted cells"),
        ("a.csv", b"text,label\ncaf\xe9,1\n", "invalid UTF8"),
        ("a.csv", "text;label\na;1\n", "get --delimiter semicolon"),
        ("a.csv", "body,class\na,1\n", "'text' (name another with --text_column); 'label' (name another with"),
        ("a.csv", "text,label,text\na,1,b\n", "the column 'text' is there twice"),
        ("a.csv", "text,label\n", "expected rows, got none"),
        ("a.csv", "text,label\r\n\r\n", "expected rows, got none"),
        ("a.csv", "text,label", "expected rows, got none"),
        ("a.csv", "", "got an empty file"),
        ("a.txt", "text,label\n", "expected a file named .csv, .tsv, .jsonl, .json, .parquet"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"\n', ":2: not valid JSON (Expecting ',' delimiter"),
        ("a.jsonl", '{"text": "a", "label": 1}\n[1]\n', "row 2: expected an object with fields, got [1]"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n', "row 2: expected a label, got nothing"),
        ("a.jsonl", '{"text": ["a"], "label": 1}\n', "row 1: expected text as text, got ['a']"),
        ("a.jsonl", '{"text": "a", "label": {"chosen": ["x"]}}\n', "row 1: expected a word, a number or a list"),
        (
            "a.jsonl",
            '{"text": "a", "label": ["x"]}\n{"text": "b", "label": "x"}\n',
            "row 2: expected a list in 'label'",
        ),
        ("a.parquet", b"PAR1", "not a Parquet file, or damaged"),
        ("a.csv.gz", gzip.compress(b"text,label\na,1\n" * 99, mtime=0)[:-9], "damaged .gz file"),
        ("a.jsonl.xz", lzma.compress(b'{"text": "a", "label": 1}\n' * 99)[:-9], "damaged .xz file"),
    ],
)
def test_mistakes_are_said_with_their_place(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_rows(written(tmp_path, name, content), [TEXT, LABEL])
    assert message in str(error.value) and str(tmp_path / name) in str(error.value)


def test_a_number_of_broken_rows_may_be_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "a\t1\nbroken\nb\t2\n")
    rows = read_rows(path, [TEXT, LABEL], Layout(header=("text", "label"), broken_share=0.4))
    assert rows.data.to_pydict() == {"text": ["a", "b"], "label": ["1", "2"]} and rows.facts[
        "broken_lines_left_out"
    ] == [2]
    with pytest.raises(UserError, match="Row #2"):
        read_rows(path, [TEXT, LABEL], Layout(header=("text", "label")))


def test_a_quoted_cell_may_be_as_long_as_a_book(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", f'text,label\n"{"a " * 100_000}",x\n')
    assert len(read_rows(path, [TEXT, LABEL]).data["text"][0].as_py()) == 200_000


def test_json_keeps_what_arrow_would_change(tmp_path: Path) -> None:
    """Arrow's own reader makes timestamps of such texts."""
    path = written(tmp_path, "a.jsonl", json.dumps({"text": "2020-01-01T00:00:00Z", "label": "01"}))
    assert read_rows(path, [TEXT, LABEL]).data.to_pydict() == {"text": ["2020-01-01T00:00:00Z"], "label": ["01"]}


def test_columns_of_many_rows_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bert_training.inputs.rows.ROWS_AT_ONCE", 2)
    path = written(tmp_path, "a.jsonl", "".join(f'{{"text": "{n}"}}\n' for n in range(5)))
    assert read_rows(path, [TEXT]).data["text"].to_pylist() == [*"01234"]
