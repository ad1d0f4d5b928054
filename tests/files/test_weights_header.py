"""The headers of safetensors files and indices, hostile ones too: no memory is used for what they merely claim."""

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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack("<Q", 1 << 62), "its header would have 4,611,686,018,427,387,904 bytes"),
        (b"\x01", "its header is damaged"),
        (struct.pack("<Q", 2) + b"[]", "its header is damaged"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "its header is damaged"),
        (struct.pack("<Q", 90_000) + b"[" * 90_000, "its header is damaged .maximum recursion"),
        (struct.pack("<Q", 24) + b'{"a": {"shape": [1e300]}}'[:24] + b"}", "its header is damaged"),
        (struct.pack("<Q", 22) + b'{"a": {"shape": [-1]}}', "its header is damaged"),
    ],
)
def test_damaged_headers_are_refused(tmp_path, content, message):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        shapes_in(tmp_path / "a.safetensors")


def test_a_header_that_is_too_long_is_not_read(tmp_path):
    with open(tmp_path / "a.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 1 << 33))
        file.truncate(1 << 34)  # a file with a hole, which takes no space
    with pytest.raises(ValueError, match="its header would have 8,589,934,592 bytes"):
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
