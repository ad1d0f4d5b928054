"""Errors of the disk, whoever raises them, become one sentence; other errors are left as they are."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert_training.files.disk_errors import DiskError, explained, with_remedy

FULL = r"\(No space left on device\): the disk is full \([\d,]+ bytes are free there\)\. Free some space, then "


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.ENOSPC, "No space left on device", "/read/well.txt"),  # shutil.copyfile names the source
        Exception("No space left on device (os error 28)"),  # tokenizers
        RuntimeError(
            "[enforce fail at inline_container.cc:747] . open file failed with strerror: No space left on device"
        ),
    ],
    ids=["Python", "shutil", "tokenizers", "torch"],
)
def test_a_full_disk_is_one_sentence(tmp_path, error):
    text = rf"{tmp_path}/a could not be written {FULL}start again$"
    with pytest.raises(DiskError, match=text) as raised, explained(tmp_path / "a", "start again"):
        raise error
    assert raised.value.errno == errno.ENOSPC and raised.value.__cause__ is error


def test_a_disk_that_holds_no_more_files_is_not_called_full(tmp_path, monkeypatch):
    """Small files use up the inodes, and the system gives the same number for that."""
    whole = os.statvfs(tmp_path)
    for favail, files, says in ((0, 1000, "can hold no more files"), (1, 1000, "is full"), (0, 0, "is full")):
        fields = {name: getattr(whole, name) for name in dir(whole) if name.startswith("f_")}
        fields |= {"f_favail": favail, "f_files": files, "f_bavail": 5, "f_frsize": 4096}
        monkeypatch.setattr(os, "statvfs", lambda path, fields=fields: SimpleNamespace(**fields))
        text = rf"a could not be written \(No space left on device\): the disk {says} \(20,480 bytes are free there\)"
        with pytest.raises(DiskError, match=text), explained(tmp_path / "a"):
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_pipe_that_nobody_reads_is_not_an_error_of_the_file(tmp_path):
    error = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    with pytest.raises(BrokenPipeError) as raised, explained(tmp_path / "a"):
        raise error
    assert raised.value is error
    assert "the program that read what is printed has ended. Redirect the output" in with_remedy(error)


@pytest.mark.parametrize(
    "text",
    ["[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534", "basic_ios::clear: iostream error"],
)
def test_torch_does_not_say_why(tmp_path, text):
    with (
        pytest.raises(DiskError, match=r"a could not be written \(.*\): perhaps the disk is full"),
        explained(tmp_path / "a"),
    ):
        raise RuntimeError(text)


def test_numpy_counts_what_it_could_not_write(tmp_path):
    with pytest.raises(DiskError, match="100 requested and 7 written"), explained(tmp_path / "a"):
        raise OSError("100 requested and 7 written")


@pytest.mark.parametrize("below", ["a", "a/b", "a.tmp", "a.incomplete/b", "a.old.incomplete", "a.building/b", ""])
def test_an_error_of_the_file_its_draft_or_its_folder_is_explained(tmp_path, below):
    text = r"a could not be removed \(Permission denied\): you may not write there"
    with pytest.raises(DiskError, match=text), explained(tmp_path / "a", verb="removed"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / below))


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "read.txt"),
        PermissionError(errno.EACCES, "Permission denied", "a.txt"),
        ValueError("a mistake"),
        RuntimeError("a shape does not fit"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_are_left_as_they_are(error):
    with pytest.raises(type(error)) as raised, explained(Path("a")):
        raise error
    assert raised.value is error


def test_an_error_is_explained_once(tmp_path):
    with pytest.raises(DiskError) as raised, explained(tmp_path / "outer"), explained(tmp_path / "inner"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert str(raised.value).startswith(f"{tmp_path}/inner could not be written (Input/output error): the disk reports")
    assert with_remedy(raised.value) == str(raised.value)


def test_what_to_do_about_an_error_that_nobody_explained():
    assert with_remedy(OSError(errno.ENAMETOOLONG, "File name too long", "n")).endswith("Give a shorter one")
    assert "(FREE" not in with_remedy(OSError(errno.ENOSPC, "No space left on device"))
    assert with_remedy(FileNotFoundError(errno.ENOENT, "No such file", "n")) == "[Errno 2] No such file: 'n'"
