"""Read a small file as a whole: a config, a tokenizer, a card, the record of a run.

The files of a stranger may be far larger than their kind ever is, for nothing: a file with a hole in it has terabytes
and takes no space on the disk, and JSON needs up to 40 times its bytes in memory. Therefore the size is compared with
a limit before anything is read. 64 MiB are 20 times the largest tokenizer.json of a published BERT, and 4 times that
of the multilingual models with 250,000 pieces. BERT_REPRO_LARGEST_MIB raises this limit with the others
(``bert_training/files/compressed_files.py``, which reads files of data).
"""

import os

from bert_training.files.compressed_files import LIMIT, decoded, largest, open_regular
from tokenization.errors import UserError

TIMES = 4  # the limit of a line


def largest_small() -> int:
    """The largest number of bytes of a small file. Raises ValueError as ``largest`` does."""
    return TIMES * largest()


def check_small(path: str | os.PathLike[str], size: int | None = None, most: int | None = None) -> None:
    """Raise ValueError if a file is larger than a small file may be.

    Args:
        size: its bytes, if they are known.
        most: the limit, if it is another one; it does not change with BERT_REPRO_LARGEST_MIB.
    """
    size = os.stat(path).st_size if size is None else size
    if size > (largest_small() if most is None else most):
        remedy = f"set {LIMIT} to more than {largest() >> 20}" if most is None else "give another one"
        raise UserError(
            f"{path}: expected at most {most or largest_small():,} bytes in a file of this kind, got {size:,}; copy or "
            f"download it again or, if it is meant to be so large, {remedy}"
        )


def read_small_bytes(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The content of a small file.

    Args:
        most: the largest number of bytes, if it is another one than ``largest_small``.

    Raises:
        ValueError: it is too large, no file, a file of the system without a size, or it grows meanwhile.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_small(path, size, most)
        content = file.read(size + 1)
    if len(content) > size:
        raise UserError(f"{path}: expected a file of {size:,} bytes, got more; wait until it has been written")
    return content


def read_small_text(path: str | os.PathLike[str]) -> str:
    """The text of a small file, without a byte-order mark. Raises as ``read_small_bytes``, or if it is not UTF-8."""
    return decoded(path, read_small_bytes(path))
