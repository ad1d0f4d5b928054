"""bert_training/files/hashing.py: files that change while they are read."""

import os

import pytest

from bert_training.files.hashing import UnchangedFiles


def append(path):
    with open(path, "a") as file:
        file.write("more")


def replace(path):
    (path.parent / "new").write_text(path.read_text())
    os.replace(path.parent / "new", path)


@pytest.mark.parametrize("change", [append, replace, lambda path: path.unlink(), lambda path: path.write_text("")])
def test_a_change_is_refused(tmp_path, change):
    path = tmp_path / "text.txt"
    path.write_text("text")
    files = UnchangedFiles([path])
    files.check()
    change(path)
    with pytest.raises(ValueError, match=r"text\.txt: it .* while it was being read, and nothing made from it is kept"):
        files.check()
