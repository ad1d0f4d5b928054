"""A Parquet file that stands for far more rows or text than it holds is refused; an honest one is read."""

import pyarrow
import pyarrow.parquet
import pytest

from bert_training.files.compressed_files import LIMIT
from bert_training.files.parquet_files import text_rows


def write(path, texts) -> int:
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    return path.stat().st_size


def rows(path, size) -> list[str]:
    with open(path, "rb") as file:
        return [row.as_py() for row in text_rows(path, file, size)]


@pytest.mark.parametrize(
    "texts", [["x" * 1000] * 20_000, [""] * 1_100_000], ids=["one text many times", "a million empty rows"]
)
def test_repeated_rows_are_refused(tmp_path, monkeypatch, texts):
    monkeypatch.setenv(LIMIT, "1")
    path = tmp_path / "bomb.parquet"
    size = write(path, texts)
    assert size < 10_000
    with pytest.raises(ValueError, match=r"bomb.parquet: expected at most 1,048,576 rows and bytes of text"):
        rows(path, size)
    monkeypatch.setenv(LIMIT, "32")
    assert len(rows(path, size)) == len(texts)


def test_an_honest_file_is_read(tmp_path):
    path, texts = tmp_path / "a.parquet", [f"row {n} é" for n in range(100)]
    assert rows(path, write(path, texts)) == texts
