"""bert_training/networks/other_formats.py: folders whose weights are not read here are named, with what to do."""

import json
import shutil
from pathlib import Path

import pytest

from bert_training.app.folder import open_folder
from bert_training.networks.old_checkpoints import read_old_checkpoint
from bert_training.networks.other_formats import files_of_index, found_instead
from bert_training.networks.pretrained import checkpoint_config
from bert_training.tools import ask

FILES = ("tf_model.h5", "flax_model.msgpack", "model.fp16.safetensors", "best.pt", "optimizer.pt", "state.json")


@pytest.fixture
def without_weights(pretrained, tmp_path) -> Path:
    """A folder with config and tokenizer."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(pretrained / name, folder)
    return folder


def put(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("{}")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("opened_by", [checkpoint_config, ask.load, open_folder])
def test_a_folder_without_readable_weights_is_named_with_a_remedy(without_weights, name, opened_by):
    put(without_weights, name)
    with pytest.raises(ValueError) as refusal:
        opened_by(str(without_weights))
    said = str(refusal.value)
    assert name in said and str(without_weights) in said and "transformers 4: from_pretrained with from_tf" in said


def test_an_adapter_beside_whole_weights_is_refused(pretrained, tmp_path):
    folder = shutil.copytree(pretrained, tmp_path / "model")
    assert found_instead(folder) == ""
    put(folder, "adapter_config.json")
    with pytest.raises(ValueError, match=r"it holds an adapter \(adapter_config\.json\), which changes another model"):
        checkpoint_config(str(folder))


def test_a_folder_without_a_config_is_named_too(tmp_path):
    put(tmp_path, "tf_model.h5")
    with pytest.raises(ValueError, match=r"has no config\.json and no weights; it holds tf_model\.h5; give a folder"):
        checkpoint_config(str(tmp_path))
    (tmp_path / "bert_config.json").write_text(json.dumps({"vocab_size": 9}))
    with pytest.raises(ValueError, match=r"found none: .*tf_model\.h5; give a folder"):
        read_old_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "b/../a", "a\0", ".", "", 1, None])
def test_an_index_names_files_beside_it(tmp_path, name):
    (tmp_path / "index.json").write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": name}}))
    with pytest.raises(ValueError, match="expected names of files beside it"):
        files_of_index(tmp_path / "index.json")


def test_the_files_of_an_index(tmp_path):
    (tmp_path / "index.json").write_text(json.dumps({"weight_map": {"x": "b", "y": "a", "z": "b"}}))
    assert files_of_index(tmp_path / "index.json") == ["a", "b"]
    (tmp_path / "index.json").write_text(json.dumps({"weight_map": {}}))
    with pytest.raises(ValueError, match="expected 'weight_map'"):
        files_of_index(tmp_path / "index.json")
