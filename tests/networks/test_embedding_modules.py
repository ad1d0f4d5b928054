"""bert_training/networks/embedding_modules.py: what of a folder of sentence-transformers travels along.

tests/ecosystem/test_sentence_transformers.py opens such folders with sentence-transformers.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from bert_training.cards.hub_upload import files_to_upload
from bert_training.networks.embedding_modules import carry_modules, embedding_modules
from tests.helpers import short_runs
from tests.helpers.embedders import add_modules, check_carried
from tests.helpers.model_folders import edit_json
from tests.helpers.published import write_published

CARRIED = {"modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"}
CARRIED |= {"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"}


@pytest.fixture
def embedder(pretrained, tmp_path) -> Path:
    folder = shutil.copytree(pretrained, tmp_path / "embedder")
    add_modules(folder, "Pooling", "Dense", "Normalize")
    return folder


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_the_modules_travel_along_with_every_script(script, embedder, short_data, tmp_path, no_pictures):
    first, out = tmp_path / "first", tmp_path / "next"
    for source, target in ((embedder, first), (first, out)):
        short_runs.start(script, short_runs.flags(script, short_data, target, source, "--save_steps=1"))
        check_carried(source, target)
    assert json.loads((out / "hashes.json").read_text())["sha256"].keys() >= CARRIED
    assert {path.relative_to(out).as_posix() for path in files_to_upload(out)} >= CARRIED
    write_published(out, tmp_path / "published", "user/name")
    check_carried(out, tmp_path / "published")
    carry_modules(str(out / "checkpoint-1"), tmp_path / "of_checkpoint")
    check_carried(out, tmp_path / "of_checkpoint")


def test_the_length_of_newer_folders_is_that_of_the_tokenizer(embedder, tmp_path):
    (embedder / "sentence_bert_config.json").unlink()
    edit_json(embedder / "tokenizer_config.json", model_max_length=9)
    carry_modules(str(embedder), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "sentence_bert_config.json").read_text()) == {"max_seq_length": 9}
    for unlimited in (None, 1000000000000000019884624838656):
        edit_json(embedder / "tokenizer_config.json", model_max_length=unlimited)
        assert json.loads(embedding_modules(str(embedder))["sentence_bert_config.json"]) == {}


def with_pickle(folder: Path) -> None:
    (folder / "x1 Dense" / "model.safetensors").unlink()
    torch.save({}, folder / "x1 Dense" / "pytorch_model.bin")


def with_module(**fields):
    def change(folder: Path) -> None:
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps([*modules[:2], modules[2] | fields, modules[3]]))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_pickle, "expected Transformer, .*, each in a folder with .*, got .*x1 Dense"),
        (with_module(path="../embedder/x1 Dense"), "expected Transformer, .*, each in a folder with"),
        (with_module(path="/etc"), "expected Transformer, .*, each in a folder with"),
        (with_module(path=""), "expected Transformer, .*, each in a folder with"),
        (with_module(path=None), "expected Transformer, .*, each in a folder with"),
        (lambda folder: (folder / "modules.json").write_text('{"path": ""}'), "expected a list of modules"),
        (with_module(type="custom.Dense"), "expected Transformer, .*, each in a folder with"),
        (with_module(type="sentence_transformers.models.WeightedLayerPooling"), "expected Transformer"),
    ],
)
def test_what_does_not_fit_stays_behind_with_a_line(change, message, embedder, tmp_path, capsys):
    change(embedder)
    with pytest.raises(ValueError, match=message):
        embedding_modules(str(embedder))
    carry_modules(str(embedder), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("warning: ") and line.endswith(
        "has no modules of sentence-transformers, which takes the tokens' mean"
    )
