"""Networks of exported folders: they answer as torch does, and what cannot be served is refused with a sentence."""

import numpy as np
import pytest
import torch

from bert_deploy import onnx_files, readings
from bert_deploy.folder import open_folder
from bert_deploy.onnx_files import FILES, ONNX
from bert_training.networks.number_types import DTYPES
from tests.bert_deploy.guesses import alone
from tests.helpers.model_folders import save_model
from tokenization.errors import UserError

TEXT = "the old doctor opened a small red house"


@pytest.fixture
def folder(tmp_path, pretrained):
    return save_model(tmp_path / "classes", pretrained, "BertForSequenceClassification", id2label={0: "no", 1: "yes"})


def computing(model):
    """What a file with this network computes."""

    def compute(batch):
        outputs = model(**{name: torch.from_numpy(value) for name, value in batch.items()})
        return {name: value.detach().numpy() for name, value in outputs.items()}

    return compute


def as_export(folder, monkeypatch, name="onnx/model.onnx"):
    """The same folder without weights, and with a file that computes as they do."""
    model = open_folder(str(folder)).model
    (folder / "model.safetensors").unlink()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"a file")
    opened = []

    def opens(path):
        opened.append(path.relative_to(folder).as_posix())
        return computing(model)

    monkeypatch.setattr(onnx_files, "OnnxFile", opens)
    return opened


def test_an_export_answers_as_its_model(folder, monkeypatch):
    expected = alone(readings.verdict, open_folder(str(folder)), TEXT).record()
    name = FILES[-1]
    assert as_export(folder, monkeypatch, name) == []
    opened = open_folder(str(folder), ONNX)
    assert alone(readings.verdict, opened, TEXT).record() == expected and opened.model.file == name
    with pytest.raises(UserError, match=r"gives no vectors, only logits; .*--encoder_alone"):
        alone(readings.vector, opened, TEXT)


def test_the_file_in_eight_bits_is_taken_if_there_is_one(folder, monkeypatch):
    opened = as_export(folder, monkeypatch)
    open_folder(str(folder), ONNX)
    (folder / "onnx" / "model_quantized.onnx").write_bytes(b"another")
    open_folder(str(folder), ONNX)
    assert opened == ["onnx/model.onnx", "onnx/model_quantized.onnx"]


def test_an_exported_encoder_has_the_vectors_of_its_model(tmp_path, pretrained, monkeypatch):
    folder = save_model(tmp_path / "encoder", pretrained, "BertModel")
    expected = alone(readings.vector, open_folder(str(folder)), TEXT)
    as_export(folder, monkeypatch)
    assert np.allclose(alone(readings.vector, open_folder(str(folder), ONNX), TEXT), expected, atol=1e-6)


def test_what_cannot_be_served_is_refused(folder, monkeypatch):
    with pytest.raises(UserError, match=r"expected one of onnx/.*; found none; bert-repro export writes it"):
        open_folder(str(folder), ONNX)
    as_export(folder, monkeypatch)
    with pytest.raises(UserError, match="expected a folder with a model; it has no weights"):
        open_folder(str(folder))


def test_bfloat16_rounds_the_weights_and_gives_float32(folder):
    exact, rounded = (open_folder(str(folder), dtype=dtype) for dtype in DTYPES)
    assert rounded.model.dtype == torch.bfloat16
    found = [alone(readings.verdict, opened, TEXT).shares for opened in (exact, rounded)]
    assert np.allclose(*found, atol=0.02) and not np.array_equal(*found)
    assert alone(readings.vector, rounded, TEXT).dtype == np.float32
