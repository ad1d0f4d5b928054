"""A Parquet file that stands for far more rows or text than it holds is refused; an honest one is read."""

import pyarrow
import pyarrow.parquet
import pytest

from tokenization.compressed_files import LIMIT
from tokenization.parquet_files import text_rows


def write(path, texts) -> int:
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    return path.stat().st_size


@pytest.mark.parametrize(
    "texts", [["x" * 1000] * 20_000, [""] * 1_500_000], ids=["one text many times", "a million empty rows"]
)
def test_repeated_rows_are_refused(tmp_path, monkeypatch, texts):
    monkeypatch.setenv(LIMIT, "1")
    path = tmp_path / "bomb.parquet"
    size = write(path, texts)
    assert size < 10_000
    with pytest.raises(ValueError, match=r"bomb.parquet: expected at most 1,048,576 rows and bytes of text"):
        for _ in text_rows(path, path, size):
            pass
    monkeypatch.setenv(LIMIT, "32")
    assert sum(1 for _ in text_rows(path, path, size)) == len(texts)


def test_an_honest_file_is_read(tmp_path):
    path, texts = tmp_path / "a.parquet", [f"row {n} é" for n in range(100)]
    assert [row.as_py() for row in text_rows(path, path, write(path, texts))] == texts
