"""Every form of text file gives the same texts, one at a time, and a bad one is named with its line."""

import gzip
import json
import lzma
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_training.files.text_files import read_texts
from tests.helpers.repository import ROOT

LINES = ["The cat sat on the mat.", "", "The dog — sat on the cat;", "中文 and naïve text"]


def read(*files: str | Path) -> list[str]:
    return list(read_texts(files))


def write_forms(folder: Path) -> dict[str, Path]:
    text = "".join(f"{line}\n" for line in LINES)
    rows = "".join(json.dumps({"text": line, "n": 1}) + "\n" for line in LINES)
    (folder / "a.txt").write_text(text, encoding="utf-8")
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (folder / "a.jsonl").write_text(rows, encoding="utf-8")
    for name, content in (("a.txt", text), ("a.jsonl", rows)):
        (folder / f"{name}.xz").write_bytes(lzma.compress(content.encode()))
        # The file has two streams, as `cat a.gz b.gz` makes it.
        (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()[:40]) + gzip.compress(content.encode()[40:]))
    pq.write_table(pa.table({"n": [1] * 4, "text": LINES}), folder / "a.parquet")
    return {path.name: path for path in folder.iterdir()}


def test_every_form_gives_the_same_texts(tmp_path):
    forms = write_forms(tmp_path)
    assert len(forms) == 8
    for name, path in forms.items():
        assert read(path) == LINES, name
    assert read(forms["a.txt"], forms["a.parquet"]) == LINES * 2


def test_texts_are_read_as_they_are_asked_for(tmp_path):
    """Of 40 MB of compressed text, one line at a time is in memory."""
    path = tmp_path / "big.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(400):
            file.write(b"the same short line of text again and again\n" * 2300)
    code = (
        "import os, resource\n"
        "os.environ['BERT_REPRO_LARGEST_MIB'] = '64'\n"  # Such a text looks like a bomb.
        "from bert_training.files.text_files import read_texts\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"n = sum(1 for _ in read_texts([{str(path)!r}]))\n"
        "print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    count, kib = map(int, done.stdout.split())
    assert count == 400 * 2300
    assert kib < 8_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"a\.txt: the file is empty"),
        ("a.txt", b"fine\n\xe9t\xe9\n", r"a\.txt:2: expected UTF-8 text, got byte 0xe9"),
        (
            "a.txt.xz",
            lzma.compress(random.Random(0).randbytes(999).hex().encode())[:-40],
            r"a\.txt\.xz:1: damaged \.xz",
        ),
        ("a.txt.xz", b"plain text", r"a\.txt\.xz:1: damaged \.xz file"),
        ("a.txt.gz", gzip.compress(b"text\n" * 99, mtime=0)[:-9], r"a\.txt\.gz:\d+: damaged \.gz file"),
        ("a.txt.gz", b"plain text", r"a\.txt\.gz:1: damaged \.gz file"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a\.jsonl:2: not JSON at column 9 .*; expected one object a line"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": "b", "text": "c"}\n', r"a\.jsonl:3: not JSON .*'text' occurs twice"),
        ("a.jsonl", b'{"text": "a\\ud800"}\n', r"a\.jsonl:1: lone surrogate at character 1"),
        ("a.jsonl", b"\n", r"a\.jsonl: holds no text"),
        ("a.txt", b"a\nb\0\n", r"a\.txt:2: holds a NUL byte"),
        ("a.txt", b"a\rb\r", r"a\.txt:1: expected lines that end in .n, got a file in which they end in .r"),
        ("a.jsonl", b'{"body": "a"}\n', r"a\.jsonl:1: expected a field `text`; its fields are 'body'"),
        ("a.jsonl", b'{"text": null}\n', r"a\.jsonl:1: expected a string in the field `text`, got NoneType"),
        ("a.jsonl", b'["text"]\n', r"a\.jsonl:1: expected one JSON object a line, got a list"),
        ("a.jsonl", b'{"text": "\xff"}\n', r"a\.jsonl:1: expected UTF-8"),
        (
            "a.jsonl",
            b'{"text": "ok"}\n{"text": "\\ud800"}\n',
            r"a\.jsonl:2: lone surrogate at character 0; repair the text",
        ),
        ("a.parquet", b"PAR1 not really", r"a\.parquet: not a parquet file"),
        ("a.csv", b"a,b\n", r"a\.csv: expected a file named \.txt, \.jsonl"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / name)


def test_bad_paths_and_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one file"):
        read()
    with pytest.raises(ValueError, match="no such file"):
        read(tmp_path / "absent.txt")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(ValueError, match="no file of text is in it"):
        read(tmp_path / "folder.txt")
    with pytest.raises(ValueError, match=r"A sentence\.: no such file; expected the path of a file of text"):
        read("A sentence.")
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"expected one column `text`; its columns are body"):
        read(tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="row 2: expected a string"):
        read(tmp_path / "b.parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write_forms(tmp_path)["a.parquet"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        read(path)
