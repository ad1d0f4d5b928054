"""bert_training/inputs/texts.py: texts behind URLs, with fsspec's file system in memory as the server."""

import fsspec
import pytest

from bert_training.inputs import texts
from bert_training.inputs.texts import entries_of, read_documents


def expand(url):
    return entries_of([url])[0]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A file system in memory; the cache is below tmp_path."""
    monkeypatch.setattr("huggingface_hub.cached_assets_path", lambda *names: tmp_path.joinpath("cache", *names))
    system = fsspec.filesystem("memory")
    system.store.clear()
    texts._fetched.cache_clear()
    yield system
    system.store.clear()
    texts._fetched.cache_clear()


def again():
    """As in a new process."""
    texts._fetched.cache_clear()


def test_a_file_is_fetched_once_until_it_changes(server, caplog):
    server.pipe("/bucket/a.txt", b"one .\n\ntwo .\n")
    url = "memory://bucket/a.txt"
    assert [*read_documents([url])] == [["one ."], ["two ."]]
    first = expand(url).files[0]
    assert first.name == "a.txt" and caplog.messages == [f"fetching /bucket/a.txt (13 bytes) to {first}"]
    again()
    assert expand(url).files == [first] and len(caplog.messages) == 1
    server.pipe("/bucket/a.txt", b"one .\n\nSIX .\n")
    assert [*read_documents([url])] == [["one ."], ["two ."]]  # this process goes on with what it has read
    again()
    assert [*read_documents([url])] == [["one ."], ["SIX ."]] and len(caplog.messages) == 2
    assert first.read_bytes() == b"one .\n\ntwo .\n"


def test_folders_and_patterns_have_the_rules_of_local_ones(server):
    for name in ("b/2.txt", "b/10.txt", "b/_SUCCESS", "b/.x.txt", "a.txt", "b/c/3.jsonl"):
        server.pipe(f"/top/{name}", b'{"text": "row"}\n')
    server.pipe("/top/b/empty.txt", b"")
    entry = expand("memory://top/b")
    assert [path.name for path in entry.files] == ["10.txt", "2.txt", "3.jsonl"]
    assert [path.name for path in expand("memory://top/**/*.txt").files] == ["a.txt", "10.txt", "2.txt"]
    server.pipe("/top/b/table.csv", b"x")
    again()
    with pytest.raises(ValueError, match=r"memory://top/b: expected files named .* got table\.csv"):
        expand("memory://top/b")
    with pytest.raises(ValueError, match="got no file of text"):
        expand("memory://top/x*")
    with pytest.raises(FileNotFoundError, match=r"none/a\.txt"):
        expand("memory://none/a.txt")


def test_a_broken_download_leaves_nothing(server, tmp_path, monkeypatch):
    server.pipe("/bucket/a.txt", b"one .\n" * 10)
    whole = type(server).open

    def breaks(*_, **__):
        raise ConnectionResetError("reset by peer")

    monkeypatch.setattr(type(server), "open", breaks)
    with pytest.raises(OSError, match="reset by peer"):
        expand("memory://bucket/a.txt")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.setattr(type(server), "open", whole)
    assert [*read_documents(["memory://bucket/a.txt"])] == [["one ."] * 10]
