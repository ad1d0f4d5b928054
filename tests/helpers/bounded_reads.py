"""What tests/helpers/bounded.py calls: readers whose arguments or values are no JSON, with everything imported."""

import importlib.util
from pathlib import Path

import pyarrow.parquet

from bert_training.files.tables import read_table
from bert_training.files.tensorflow_checkpoint import TensorFlowCheckpoint
from bert_training.pretraining.documents import read_lines

if importlib.util.find_spec("google_crc32c"):
    import google_crc32c

    assert google_crc32c
assert pyarrow.parquet


def table(path: Path) -> int:
    """The number of rows."""
    return len(read_table(path, lambda header: ["sentence", "label"]))


def texts(path: Path) -> int:
    """The number of texts."""
    return sum(line is not None for line in read_lines([path]))


def variables(prefix: Path) -> int:
    """The number of variables, all of which are in memory at once."""
    checkpoint = TensorFlowCheckpoint(prefix)
    return len([checkpoint.read(name) for name in checkpoint.variables])
