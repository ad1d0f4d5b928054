"""The rows of a Parquet file, as a whole and group by group."""

import itertools

import pyarrow
import pyarrow.parquet

from bert_training.files.parquet_files import groups_within, text_rows


def test_every_group_is_read_once_whatever_the_division(tmp_path):
    texts = [f"row {n} é" for n in range(100)]
    table = pyarrow.table({"n": range(100), "meta": [{"text": "no"}] * 100, "text": texts})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=9)
    size = (tmp_path / "a.parquet").stat().st_size
    with open(tmp_path / "a.parquet", "rb") as file:
        assert [row.as_py() for row in text_rows("a", file)] == texts
        for cuts in ([0, size], [0, size // 3, size // 2, size], [*range(0, size + 1, 50), size + 50]):
            found = []
            for within in itertools.pairwise(cuts):
                assert groups_within(file, "text", within).rows_before == len(found) or found == texts
                found += [row.as_py() for row in text_rows("a", file, within=within)]
            assert found == texts
