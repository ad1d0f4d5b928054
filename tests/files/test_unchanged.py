"""bert_training/files/unchanged.py: files that change while they are read."""

import os

import pytest

from bert_training.files.unchanged import UnchangedFiles, unchanged


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


def test_the_same_content_again_is_no_change(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("text")
    files = UnchangedFiles([path])
    files.sha256(path)
    replace(path)
    files.check()
    append(path)
    with pytest.raises(ValueError, match="changed or replaced"):
        files.check()


def test_a_change_explains_an_error_of_reading(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("text")
    with pytest.raises(ValueError, match="row 3 is cut short"), unchanged(path):
        raise ValueError("row 3 is cut short")
    with pytest.raises(ValueError, match="changed or replaced"), unchanged(path):
        append(path)
        raise ValueError("row 3 is cut short")
    with pytest.raises(KeyError), unchanged(tmp_path / "absent"):
        raise KeyError  # the reader's own error for a file that is not there
