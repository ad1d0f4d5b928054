"""The sizes before the pages are those that the library reports, and damaged headers are refused."""

import io

import pyarrow
import pyarrow.parquet
import pytest

from bert_training.files.parquet_pages import unpacked_sizes


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}])
@pytest.mark.parametrize("statistics", [False, True])
def test_the_sizes_add_up_to_what_the_file_says(tmp_path, options, statistics):
    texts = [f"{number} " * (number % 400) for number in range(3000)] + ["long " * 20_000]
    table = pyarrow.table({"text": texts})
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        table, path, data_page_size=10_000, write_batch_size=50, write_statistics=statistics, **options
    )
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(0)
    start = min(group.data_page_offset, group.dictionary_page_offset or group.data_page_offset)
    with open(path, "rb") as file:
        sizes = [*unpacked_sizes(file, start, group.total_compressed_size)]
    headers = group.total_uncompressed_size - sum(sizes)  # which that sum includes
    assert len(sizes) > 3 and max(sizes) >= 100_000 and 0 < headers < 100 * len(sizes) + 400_000 * statistics


@pytest.mark.parametrize(
    "header, word",
    [
        (b"", "gives no size"),
        (b"\x00", "gives no size"),
        (b"\x25\x02\x15", "is damaged"),
        (b"\x25" + b"\xff" * 12, "has no end"),
        (b"\x1c" * 20, "nested too deeply"),
        (b"\x19" * 20, "nested too deeply"),
        (b"\x1b", "holds what no header has"),
        (b"\x18\xff\xff\xff\xff\x07", "is damaged"),
        (b"\x25\x02\x15\x01\x00", "gives no size"),
    ],
)
def test_damaged_headers(header, word):
    with pytest.raises(ValueError, match=word):
        [*unpacked_sizes(io.BytesIO(header + bytes(1)), 0, len(header) + (not header))]
