"""TensorFlow's checkpoints are read as TensorFlow wrote them, and damaged files are refused."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_tools.old_checkpoints import read_old_checkpoint
from bert_tools.tensorflow_checkpoint import FOOTER, TensorFlowCheckpoint
from tests.helpers.repository import ROOT

pytest.importorskip("google_crc32c")
WRITTEN = ROOT / "tests" / "data" / "tensorflow"
FOLDERS = ("pretrained", "several_files")


def content(folder: Path) -> dict[str, np.ndarray]:
    """All variables except those of the optimiser."""
    checkpoint = TensorFlowCheckpoint(folder / "bert_model.ckpt")
    wanted = [name for name in checkpoint.variables if "adam" not in name and name != "global_step"]
    return {name: checkpoint.read(name) for name in wanted}


@pytest.mark.parametrize("folder", FOLDERS)
def test_values_are_those_that_tensorflow_stored(folder):
    """TensorFlow computed the sums. Two folders have the same variables: in one file and in three."""
    tensors, sums = content(WRITTEN / folder), json.loads((WRITTEN / "sums.json").read_text())
    assert tensors.keys() == sums.keys()
    for name, total in sums.items():
        assert tensors[name].dtype == np.float32 and tensors[name].astype(np.float64).sum() == pytest.approx(
            total, rel=1e-9
        )
    first = content(WRITTEN / FOLDERS[0])
    assert all(np.array_equal(tensors[name], first[name]) for name in first)


def test_the_step_is_an_integer():
    assert TensorFlowCheckpoint(WRITTEN / "pretrained" / "bert_model.ckpt").read("global_step") == 0


def test_a_checkpoint_of_objects_is_refused():
    config = WRITTEN / "pretrained" / "bert_config.json"
    with pytest.raises(ValueError, match=r"expected variables of google-research/bert, found .* others"):
        read_old_checkpoint(WRITTEN / "objects" / "model.ckpt", config)


@pytest.mark.parametrize("seed", range(15))
def test_damage_is_found(tmp_path, seed):
    """A bit is changed, the end is cut off, other bytes are written, or two files are exchanged. Either this has no
    effect, or an error names the file.

    It may have no effect because the footer contains padding.
    """
    random = np.random.default_rng(seed)
    folder = tmp_path / "copy"
    shutil.copytree(WRITTEN / FOLDERS[1], folder)
    before = content(folder)
    files = sorted(folder.glob("bert_model.ckpt.*"))
    path = files[seed // 2 % len(files)]
    data = bytearray(path.read_bytes())
    place = int(random.integers(len(data)))
    how = ("flip", "cut", "overwrite", "insert", "exchange")[seed % 5]
    if how == "flip":
        data[place] ^= 1 << int(random.integers(8))
    elif how == "cut":
        del data[place:]
    elif how == "overwrite":
        data[place : place + 8] = random.bytes(len(data[place : place + 8]))
    elif how == "insert":
        data[place:place] = random.bytes(int(random.integers(1, 9)))
    else:
        data = bytearray(files[(files.index(path) + 1) % len(files)].read_bytes())
    path.write_bytes(data)
    try:
        after = content(folder)
    except ValueError as error:
        assert "bert_model.ckpt" in str(error) and "\n" not in str(error)
    else:
        assert path.suffix == ".index" and place >= len(data) - FOOTER
        assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("size", [0, 10, FOOTER])
def test_a_file_that_is_not_a_table_is_refused(tmp_path, size):
    (tmp_path / "x.index").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=r"x\.index: cannot be read"):
        TensorFlowCheckpoint(tmp_path / "x")


@pytest.mark.realdata
def test_the_index_of_a_published_checkpoint(real_data):
    """In Google's Chinese BERT-Base all checksums of blocks are right, and the variables are those of the network."""
    checkpoint = TensorFlowCheckpoint(real_data / "assets" / "chinese_L-12_H-768_A-12.bert_model.ckpt")
    assert len(checkpoint.variables) == 206
    variable = checkpoint.variables["bert/embeddings/word_embeddings"]
    assert variable.shape == (21128, 768) and variable.size == 21128 * 768 * 4
    ends = sorted((v.offset, v.offset + v.size) for v in checkpoint.variables.values())
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ends))  # There is no gap and no overlap.
