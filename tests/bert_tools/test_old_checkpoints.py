"""bert_tools/old_checkpoints.py: names and layouts of TensorFlow and of older PyTorch become transformers'.

tests/bert_tools/test_convert.py tests what the converted network computes.
"""

import pickle
from pathlib import Path

import pytest
import torch
import transformers
from transformers import BertConfig

from bert_tools import old_checkpoints
from bert_tools.old_checkpoints import _tensorflow_target, read_old_checkpoint
from bert_tools.tensorflow_checkpoint import TensorFlowCheckpoint
from tests.bert_tools.written import state_and_config
from tests.helpers.old_checkpoints import WRITTEN, saved_as

pytest.importorskip("google_crc32c")


def test_variables_of_the_optimiser_are_left_out():
    old = read_old_checkpoint(WRITTEN / "pretrained")
    variables = TensorFlowCheckpoint(WRITTEN / "pretrained" / "bert_model.ckpt").variables
    assert len(old.left_out) + len(old.tensors) == len(variables) and "global_step" in old.left_out
    assert len(old.left_out) == 2 * len(old.tensors) + 1


def test_the_first_version_of_the_format_is_refused():
    with pytest.raises(ValueError, match="found none"):
        read_old_checkpoint(WRITTEN / "version_1")
    with pytest.raises(ValueError, match="of the first version of TensorFlow's format"):
        read_old_checkpoint(WRITTEN / "version_1" / "bert_model.ckpt")


def test_an_unknown_variable_is_refused(monkeypatch):
    without = tuple(pair for pair in old_checkpoints.TENSORFLOW_NAMES if "pooler" not in pair[0])
    monkeypatch.setattr(old_checkpoints, "TENSORFLOW_NAMES", without)
    with pytest.raises(ValueError, match=r"found 2 others: bert/pooler/dense/bias, bert/pooler/dense/kernel"):
        read_old_checkpoint(WRITTEN / "pretrained")


class Payload:
    """An object that would create a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("write", [torch.save, lambda stored, path: path.write_bytes(pickle.dumps(stored, 2))])
def test_a_pickle_is_never_executed(tmp_path, write):
    folder = saved_as(tmp_path / "old", {})
    write({"bert.pooler.dense.bias": Payload(tmp_path / "executed")}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: expected a file with nothing but tensors") as caught:
        read_old_checkpoint(folder)
    assert not (tmp_path / "executed").exists() and "\n" not in str(caught.value)


@pytest.mark.realdata
def test_the_variables_of_a_published_checkpoint_are_those_of_the_network(real_data):
    """Every variable of Google's Chinese BERT-Base has a place in BertForPreTraining, and every place a variable."""
    name = "chinese_L-12_H-768_A-12"
    checkpoint = TensorFlowCheckpoint(real_data / "assets" / f"{name}.bert_model.ckpt")
    config = BertConfig.from_json_file(real_data / "assets" / f"{name}.bert_config.json")
    with torch.device("meta"):
        model = transformers.BertForPreTraining(config)
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    found = {}
    for name, variable in checkpoint.variables.items():
        shape = variable.shape[::-1] if name.endswith("/kernel") else variable.shape
        found[_tensorflow_target(name)] = shape
    assert found == expected


# --- Names and layouts, by hand ---------------------------------------------------------------------------


def test_names_of_older_pytorch(tmp_path):
    """The prefix of DataParallel, LayerNorm's old names, NVIDIA's dense_act, an encoder alone, and an old buffer."""
    stored = {
        "module.module.bert.embeddings.LayerNorm.gamma": torch.ones(16),
        "bert.embeddings.LayerNorm.beta": torch.zeros(16),
        "bert.pooler.dense_act.weight": torch.eye(16, dtype=torch.float16),
        "encoder.layer.0.output.dense.bias": torch.full((16,), 2.0),
        "embeddings.position_ids": torch.arange(12)[None],
    }
    found = read_old_checkpoint(saved_as(tmp_path / "old", stored))
    assert {name: tensor.flatten()[0].item() for name, tensor in found.tensors.items()} == {
        "bert.embeddings.LayerNorm.weight": 1.0,
        "bert.embeddings.LayerNorm.bias": 0.0,
        "bert.pooler.dense.weight": 1.0,
        "bert.encoder.layer.0.output.dense.bias": 2.0,
    }
    assert {tensor.dtype for tensor in found.tensors.values()} == {torch.float32}
    assert found.left_out == ["embeddings.position_ids"]


def test_a_flipped_bit_in_a_file_of_pytorch_is_found(tmp_path, seed=3):
    """``torch.load`` does not compare the checksums that torch.save has written."""
    tensors, _ = state_and_config()
    path = saved_as(tmp_path / "old", tensors) / "pytorch_model.bin"
    content = bytearray(path.read_bytes())
    place = content.find(tensors["bert.embeddings.word_embeddings.weight"].numpy().tobytes())
    assert place > 0
    content[place + seed] ^= 1 << seed
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin: .*the checksum of its part 'pytorch_model/data/\d+' d"):
        read_old_checkpoint(path.parent)
