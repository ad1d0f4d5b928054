"""The headers of safetensors files, and indices, which name files beside them only."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from bert_training.files.weights_header import elements_in, files_of_index, shapes_in


def test_shapes_and_elements(tmp_path):
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(())}, tmp_path / "a.safetensors", {"format": "pt"})
    assert shapes_in(tmp_path / "a.safetensors") == {"a": [2, 3], "b": []}
    assert elements_in(tmp_path / "a.safetensors") == 7


@pytest.mark.parametrize("content", [struct.pack("<Q", 1 << 62), b"\x01", struct.pack("<Q", 9) + b'{"a": {}}'])
def test_damaged_headers_are_refused(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.safetensors: its header is damaged"):
        shapes_in(tmp_path / "a.safetensors")


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
