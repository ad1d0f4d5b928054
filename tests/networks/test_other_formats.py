"""bert_training/networks/other_formats.py: folders whose weights are not read here are named, with what to do."""

import json
import shutil
from pathlib import Path

import datasets
import pytest

from bert_training.app.folder import open_folder
from bert_training.networks.old_checkpoints import read_old_checkpoint
from bert_training.networks.other_formats import found_instead
from bert_training.networks.pretrained import checkpoint_config, load_tokenizer
from bert_training.tools import ask

AGAIN = "with transformers 4, which reads it, BertForPreTraining.from_pretrained"
# The only file of weights, or another file that says what the folder is; and words of the message.
FILES = {
    "tf_model.h5": f"tf_model.h5, weights of TensorFlow 2; save it anew {AGAIN}",
    "flax_model.msgpack": f"flax_model.msgpack, weights of Flax; save it anew {AGAIN}",
    "rust_model.ot": "weights for Rust; give a folder with model.safetensors or pytorch_model.bin",
    "onnx/model.onnx": "onnx/model.onnx, an export for programs that only compute",
    "model.gguf": "give the model that was exported",
    "model.fp16.safetensors": "a file of weights that is not named model.safetensors; rename it",
    "best.pt": "if it holds the weights, give the file itself",
    "checkpoint-4/model.safetensors": "checkpoint-4/model.safetensors, a checkpoint of a training that has not",
    "optimizer.pt": "it holds config.json, optimizer.pt, tokenizer.json, tokenizer_config.json, vocab.txt; give",
    "adapter_config.json": "merge it into the weights, PeftModel.from_pretrained(MODEL, ",
}


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
    assert FILES[name] in str(refusal.value) and str(without_weights) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_adapter_beside_whole_weights_is_refused(pretrained, tmp_path):
    folder = shutil.copytree(pretrained, tmp_path / "model")
    assert found_instead(folder) == ""
    put(folder, "adapter_config.json")
    with pytest.raises(ValueError, match=r"it holds an adapter \(adapter_config\.json\), which changes another model"):
        checkpoint_config(str(folder))


def test_a_file_and_a_folder_without_a_config_are_named_too(tmp_path):
    put(tmp_path, "tf_model.h5")
    for place in (tmp_path, tmp_path / "tf_model.h5"):
        with pytest.raises(ValueError, match=r"weights of TensorFlow 2; .* AutoModelForPreTraining\.from_pretrained"):
            checkpoint_config(str(place))
    (tmp_path / "bert_config.json").write_text(json.dumps({"vocab_size": 9}))
    with pytest.raises(ValueError, match=r"found none: it holds tf_model\.h5, weights of TensorFlow 2"):
        read_old_checkpoint(tmp_path)


@pytest.mark.parametrize("opened_by", [checkpoint_config, load_tokenizer, ask.load, open_folder])
def test_a_data_set_is_no_model(tmp_path, opened_by):
    rows = datasets.Dataset.from_dict({"text": ["a"]})
    for saved, folder in ((rows, tmp_path / "one"), (datasets.DatasetDict({"train": rows}), tmp_path / "splits")):
        saved.save_to_disk(folder)
        with pytest.raises(ValueError, match="it holds a data set that save_to_disk wrote; give it as --dataset_name"):
            opened_by(str(folder))
