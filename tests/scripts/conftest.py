"""The checkpoints, data and finished runs that several files of this folder share."""

import json
from pathlib import Path

import pytest

import run_squad
from tests.helpers.small_networks import LEARNS_FAST, save_random_network, small_config
from tests.helpers.squad_examples import squad_content
from tests.helpers.squad_runs import squad_flags


@pytest.fixture(scope="session")
def squad_checkpoint(tmp_path_factory, tokenizer_folder, vocab):
    """The folder of a pre-trained network of one layer, with random weights, and its tokenizer."""
    config = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=32, **LEARNS_FAST)
    return save_random_network(tmp_path_factory.mktemp("checkpoint"), tokenizer_folder, config)


@pytest.fixture(scope="session")
def squad_files(tmp_path_factory):
    """Files in the form of SQuAD, "train" and "dev" of version 1.1, "train2" and "dev2" with impossible questions."""
    folder = tmp_path_factory.mktemp("squad")
    for name, content in {
        "train": squad_content(30),
        "dev": squad_content(12),
        "train2": squad_content(30, True),
        "dev2": squad_content(13, True),
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="session")
def finished_squad(squad_checkpoint, squad_files, tmp_path_factory):
    """A run on SQuAD 1.1 with several evaluations."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_squad.main(squad_flags(squad_checkpoint, squad_files, folder, "--eval_steps", "2"))
    return folder


@pytest.fixture
def pretraining_flags(tmp_path, text_file, tokenizer_folder, network_shape):
    """A function that makes the flags of a short pre-training. None leaves a flag out."""

    def make(name="out", **more) -> list[str]:
        settings = {
            "output_dir": tmp_path / name,
            "train_file": text_file,
            "validation_split": 0.2,
            "tokenizer_name": tokenizer_folder,
            "config_name": network_shape,
            "max_seq_length": 32,
            "per_device_train_batch_size": 8,
            "max_steps": 6,
            "logging_steps": 1,
            "eval_steps": 3,
            "save_steps": 2,
            "learning_rate": 1e-3,
        } | more
        pairs = [(f"--{key}", str(value)) for key, value in settings.items() if value is not None]
        return [part for pair in pairs for part in pair]

    return make


@pytest.fixture
def data_set(tmp_path, text_file, monkeypatch) -> Path:
    """A folder that ``datasets.load_dataset`` takes for a data set, in the place of one on the Hub."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data_set"
    folder.mkdir()
    rows = [{"text": document} for document in text_file.read_text().split("\n\n")]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
