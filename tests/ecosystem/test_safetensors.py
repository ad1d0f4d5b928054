"""The tools of safetensors read the weights of a finished folder: metadata, slices, numpy, whole models."""

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from modeling_bert_repro import BertForPreTraining
from tests.helpers.ecosystem import OWN, every_way, open_folder

pytestmark = pytest.mark.slow
WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.mark.tried("safetensors", "`safe_open`: metadata, names and shapes without reading a tensor")
def test_the_header_lists_every_tensor_once(finished):
    """A tied tensor is stored under one name only."""
    model = BertForPreTraining.from_pretrained(finished)
    tied = set(model.all_tied_weights_keys)
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items() if name not in tied}
    with safetensors.safe_open(finished / "model.safetensors", "pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
        assert file.metadata() == {"format": "pt"}
        assert {name: part.get_shape() for name, part in slices.items()} == shapes
        assert {part.get_dtype() for part in slices.values()} == {"F32"}


@pytest.mark.tried("safetensors", "slices of a tensor, in torch and in numpy")
@pytest.mark.parametrize("framework", ["pt", "np"])
def test_slices_are_parts_of_the_tensor(framework, finished):
    whole = BertForPreTraining.from_pretrained(finished).state_dict()[WORDS].numpy()
    with safetensors.safe_open(finished / "model.safetensors", framework) as file:
        part = file.get_slice(WORDS)
        for rows, columns in ((slice(3, 11), slice(None)), (slice(None), slice(5, 6)), (slice(7, 8), slice(2, 30))):
            np.testing.assert_array_equal(np.asarray(part[rows, columns]), whole[rows, columns])
        np.testing.assert_array_equal(np.asarray(file.get_tensor(WORDS)), whole)


@pytest.mark.tried("safetensors", "`load_file` of numpy: the tensors of torch")
def test_numpy_reads_what_torch_reads(finished):
    arrays = safetensors.numpy.load_file(finished / "model.safetensors")
    tensors = safetensors.torch.load_file(finished / "model.safetensors")
    assert arrays.keys() == tensors.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, tensors[name].numpy())


@pytest.mark.tried("safetensors", "`save_model` and `load_model`, which know of tied tensors")
@every_way
def test_a_model_with_tied_tensors_is_saved_and_loaded(way, finished, tmp_path):
    model = open_folder(way, "BertForPreTraining", finished)
    safetensors.torch.save_model(model, str(tmp_path / "weights.safetensors"))
    other = type(model)(model.config)
    assert not torch.equal(other.state_dict()[WORDS], model.state_dict()[WORDS])
    missing, unexpected = safetensors.torch.load_model(other, tmp_path / "weights.safetensors")
    assert not missing and not unexpected
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    decoder = other.get_output_embeddings().weight
    assert decoder.data_ptr() == other.get_input_embeddings().weight.data_ptr()


@pytest.mark.tried("safetensors", "a folder whose weights lie in several files with an index")
@every_way
def test_weights_in_several_files(way, finished, tmp_path):
    model = open_folder(OWN, "BertForPreTraining", finished)
    model.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 2
    again = open_folder(way, "BertForPreTraining", tmp_path / "parts")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
