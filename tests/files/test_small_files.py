"""Small files are read as a whole, within a limit; what has no end is refused before it is read."""

import os

import pytest

from bert_training.files.compressed_files import LIMIT
from bert_training.files.small_files import check_small, read_small_bytes, read_small_text


def test_text_and_bytes(tmp_path):
    (tmp_path / "a.json").write_bytes("\ufeffé\r\n".encode())
    assert read_small_text(tmp_path / "a.json") == "é\r\n"
    assert read_small_bytes(tmp_path / "a.json") == "\ufeffé\r\n".encode()


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "a.json").write_bytes(b"a\nb\xff")
    with pytest.raises(ValueError, match=r"a\.json:2: expected UTF-8 text, got byte 0xff at column 2"):
        read_small_text(tmp_path / "a.json")


def test_the_limit(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMIT, "1")
    path = tmp_path / "a.json"
    with open(path, "wb") as file:
        file.truncate(4 << 20)
    assert len(read_small_bytes(path)) == 4 << 20
    with open(path, "ab") as file:
        file.write(b"1")
    with pytest.raises(ValueError, match=r"a\.json: expected at most 4,194,304 .* got 4,194,305; .* more than 1$"):
        read_small_bytes(path)
    monkeypatch.setenv(LIMIT, "2")
    assert len(read_small_bytes(path)) == (4 << 20) + 1
    with pytest.raises(ValueError, match=r"at most 100 bytes in a file of this kind, got 4,194,305; .* another one"):
        check_small(path, most=100)


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_small_bytes(tmp_path / "absent")
    with pytest.raises(IsADirectoryError):
        read_small_bytes(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: expected a file, got a pipe or a device"):
        read_small_bytes(tmp_path / "pipe")
    for target, word in (("/dev/zero", "got a pipe or a device"), ("/proc/self/status", "got one of the system")):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(target)
        with pytest.raises(ValueError, match=f"link: expected a file.*{word}"):
            read_small_bytes(tmp_path / "link")
