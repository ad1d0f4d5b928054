"""What torch writes is accepted, in both of its forms; what asks for more than the file holds is refused."""

import zipfile

import pytest
import torch

from bert_training.files.pickled_weights import check_pickle, is_zip
from tests.helpers.bombs import PICKLES, archive, state, tensor


def contents() -> dict[str, object]:
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    shared = torch.zeros(100, 100)
    return {
        "a state dict": layer.state_dict(),
        "half": layer.half().state_dict(),
        "parameters": dict(layer.named_parameters()),
        "shared": {"word": shared, "decoder": shared},
        "a slice": {"a": shared[:3], "b": shared.T},
        "a training": {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "flags": {"lr": [0.1, None]}},
        "other values": {"n": 1, "d": torch.float32, "c": torch.device("cpu"), "s": torch.Size([2]), "b": b"\xff"},
        "nothing": {"empty": torch.zeros(0), "one": torch.tensor(1.0)},
    }


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", contents())
def test_what_torch_writes(tmp_path, name, zipped):
    path = tmp_path / "pytorch_model.bin"
    torch.save(contents()[name], path, _use_new_zipfile_serialization=zipped)
    check_pickle(path)
    assert is_zip(path) == zipped


REASONS = {
    "a bytearray of 6 GiB": "it uses builtins.bytearray",
    "a stride of 0": "is larger than its 64 bytes",
    "a tensor larger than its storage": "is larger than its 64 bytes",
    "a storage larger than the file": "its numbers would have 4,000,000,000 bytes",
    "names that share their numbers": "share their numbers",
    "a packed description": "are packed",
    "a long description": "described in 4,194,304 bytes",
    "lists in lists": "nested too deeply|more than 1,000,000 values",
    "names that are slow to compare": "a name in it is no text",
    "a tensor made by its class": "it uses torch.FloatTensor",
}


def reason(path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        check_pickle(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", PICKLES)
def test_what_asks_for_more(tmp_path, name):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(PICKLES[name])
    with pytest.raises(ValueError, match=REASONS[name]):
        check_pickle(path)


def test_archives_that_two_readers_would_read_differently(tmp_path):
    path, good = tmp_path / "a.bin", archive(state(tensor(16, 1)))
    path.write_bytes(good)
    check_pickle(path)
    assert "not where its end says" in reason(path, good[:4] + good)
    assert "directory" in reason(path, good[:-2] + b"\x16\0" + good[-22:])
    with zipfile.ZipFile(path, "w") as file, pytest.warns(UserWarning, match="Duplicate"):
        for _ in range(2):
            file.writestr("archive/data.pkl", state())
    assert "two parts of one name" in reason(path, path.read_bytes())


def test_attributes_are_not_set(tmp_path):
    """A pickle that sets attributes of a class would change this process."""
    words = b"\x80\x02ctorch\nFloatStorage\nN}X\x01\0\0\0xK\1s\x86b."
    assert "it sets attributes" in reason(tmp_path / "a.bin", archive(words))
    assert "makes objects" in reason(tmp_path / "a.bin", archive(b"\x80\x02ctorch\nSize\n)\x81."))
    assert "other than a storage" in reason(tmp_path / "a.bin", archive(b"\x80\x02(X\1\0\0\0aK\4X\1\0\0\0bNK\1tQ."))
    assert "expected a pickle of tensors" in reason(tmp_path / "a.bin", archive(b"\x80\x02\x8f."))
