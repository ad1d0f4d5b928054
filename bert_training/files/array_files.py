"""Arrays in a file that is addressed by content: it says what its arrays were made from, and damage is noticed."""

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_training.files.atomic import make_folder, whole_file
from tokenization.errors import UserError

# What reading a damaged file raises; RuntimeError and NotImplementedError, if it claims to be encrypted or the like.
DAMAGE = (OSError, EOFError, KeyError, ValueError, RuntimeError, MemoryError, zlib.error, struct.error,
          zipfile.BadZipFile)  # fmt: skip


def save_arrays(path: Path, key: str, columns: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file that is always complete, even if several processes write it at the same time.

    Args:
        key: the hash of everything that they depend on.
    """
    make_folder(path.parent)
    with whole_file(path, shared=True) as draft, open(draft, "wb") as file:
        np.savez(file, key=np.array(key), **columns)  # type: ignore[arg-type]  # the names are those of columns


def load_arrays(path: Path, key: str, other: str) -> dict[str, np.ndarray]:
    """Read what ``save_arrays`` wrote.

    A damaged file raises one of ``DAMAGE``, because zip files have checksums.

    Args:
        other: what the file holds if it has another key, for the error message.

    Raises:
        ValueError: the file has another ``key``, for example because it was renamed.
    """
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        columns = dict(arrays)
    if str(columns.pop("key")) != key:
        raise UserError(f"it holds {other}")
    return columns
