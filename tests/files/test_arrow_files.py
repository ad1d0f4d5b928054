"""bert_training/files/arrow_files.py: the rows of a stream of Arrow."""

import numpy as np
import pyarrow
import pytest

from bert_training.pretraining.documents import read_documents


def stream(table: pyarrow.Table, **options) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema, options=pyarrow.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue().to_pybytes()


TEXTS = [f"row {n} ." for n in range(5)]


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()])
def test_the_rows_are_those_that_were_written(tmp_path, kind):
    path = tmp_path / "a.arrow"
    path.write_bytes(stream(pyarrow.table({"n": range(5), "text": pyarrow.array(TEXTS, kind)})))
    assert [*read_documents([path])] == [[text] for text in TEXTS]


def test_packed_batches_and_dictionaries_are_read(tmp_path):
    path, table = tmp_path / "a.arrow", pyarrow.table({"text": pyarrow.array(TEXTS).dictionary_encode()})
    for content in (stream(pyarrow.table({"text": TEXTS}), compression="zstd"), stream(table)):
        path.write_bytes(content)
        assert [*read_documents([path])] == [[text] for text in TEXTS]


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.arrow"
    for content in (b"anything", b"ARROW1\0\0", stream(pyarrow.table({"text": TEXTS}))[:-40]):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"a\.arrow: not a readable stream of Arrow \(.*\); save the data set again"
        ):
            [*read_documents([path])]
    path.write_bytes(stream(pyarrow.table({"text": pyarrow.array([*TEXTS[:4], None])})))
    with pytest.raises(ValueError, match=r"a\.arrow: row 5: expected a string in the field `text`, got NoneType"):
        [*read_documents([path])]
    (tmp_path / "a.arrow.gz").write_bytes(b"x")
    with pytest.raises(ValueError, match="unknown kind"):
        [*read_documents([tmp_path / "a.arrow.gz"])]


def test_changed_bytes_give_rows_or_one_error(tmp_path):
    """An offset outside the buffers would read memory that is not the file's."""
    whole = stream(pyarrow.table({"text": TEXTS}))
    path, rng, refused = tmp_path / "a.arrow", np.random.default_rng(0), 0
    for place in rng.integers(len(whole), size=150).tolist():
        changed = bytearray(whole)
        changed[place] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            assert sum(map(len, [*read_documents([path])])) <= 5
        except MemoryError:  # a length that no memory holds
            refused += 1
        except ValueError as error:
            refused += 1
            assert str(error).startswith(str(path)), error
    assert refused > 50
