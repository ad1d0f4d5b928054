"""Files and folders are whole or absent, one module writes them, and they are on the disk before they count."""

import json
import os
import re
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bert_training.files import atomic
from bert_training.files.atomic import (
    DiskError,
    append_line,
    damage,
    files_into,
    remove_folder,
    sealed_folder,
    whole_file,
    write_json,
    write_text,
)


@pytest.fixture
def events(monkeypatch) -> list[str]:
    """The names that were synced, with # for what is random, and "rename" for every rename, in their order."""
    seen: list[str] = []
    sync, replace = atomic.sync, os.replace
    monkeypatch.setattr(atomic, "sync", lambda path: (seen.append(re.sub("[0-9a-f]{32}", "#", path.name)), sync(path)))
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append("rename"), replace(a, b)))
    return seen


def test_a_failed_write_leaves_the_old_content_and_no_draft(tmp_path):
    target = tmp_path / "a.json"
    write_json(target, {"x": "é"})
    assert target.read_text(encoding="utf-8") == '{\n  "x": "é"\n}\n'
    with pytest.raises(TypeError):
        write_json(target, {"x": object()})
    with pytest.raises(UnicodeEncodeError):
        write_text(target, "half a surrogate pair \ud800")
    with pytest.raises(KeyboardInterrupt), whole_file(target, shared=True) as draft:
        draft.write_text("{")
        raise KeyboardInterrupt
    assert json.loads(target.read_text(encoding="utf-8")) == {"x": "é"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_file_is_synced_before_its_name_and_then_the_folder(tmp_path, events):
    write_json(tmp_path / "a.json", {})
    assert events == ["a.json.#.tmp", "rename", tmp_path.name]


def test_a_sealed_folder_replaces_an_older_folder(tmp_path, events):
    for text in ("old", "new"):
        events.clear()
        with sealed_folder(tmp_path / "c") as draft:
            (draft / "a").write_text(text)
    assert (tmp_path / "c" / "a").read_text() == "new" and damage(tmp_path / "c") is None
    assert events == ["a", "manifest.json", "c.incomplete", "rename", "rename", tmp_path.name]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(("function", "calls"), [(os.replace, 2), (shutil.rmtree, 3)])
def test_a_folder_that_is_replaced_is_never_half_deleted(tmp_path, monkeypatch, function, calls):
    """It is stopped between the two renames, or when it begins to delete the older folder."""
    target, made = tmp_path / "c", []

    def write(text):
        with sealed_folder(target) as draft:
            (draft / "a").write_text(text)

    def stop_at_the_last_call(*arguments, **more):
        made.append(arguments)
        if len(made) == calls:
            raise KeyboardInterrupt
        return function(*arguments, **more)

    write("old")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os if function is os.replace else shutil, function.__name__, stop_at_the_last_call)
        write("new")
    assert (target / "a").read_text() == ("old" if function is os.replace else "new")
    assert damage(target) is None
    write("newer")
    assert damage(target) is None and [path.name for path in tmp_path.iterdir()] == ["c"]


def test_files_move_out_of_a_draft_together(tmp_path, events):
    (tmp_path / "model.incomplete").mkdir()
    (tmp_path / "model.incomplete" / "left by a kill").touch()
    with pytest.raises(KeyboardInterrupt), files_into(tmp_path, "model") as draft:
        (draft / "a").touch()
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    with files_into(tmp_path, "model") as draft:
        (draft / "a").touch()
        (draft / "b").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert events == ["a", "rename", "b", "rename", tmp_path.name]


def test_a_folder_has_the_name_of_a_draft_while_it_is_deleted(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    remove, seen = shutil.rmtree, []
    monkeypatch.setattr(shutil, "rmtree", lambda path, **more: (seen.append(path.name), remove(path, **more)))
    remove_folder(tmp_path / "c")
    assert seen == ["c.old.incomplete"] * 2 and not list(tmp_path.iterdir())
    remove_folder(tmp_path / "c")  # nothing to do


def test_a_draft_that_a_killed_process_left_is_removed_unless_others_write_the_file(tmp_path):
    left, other = tmp_path / f"a.{'0' * 32}.tmp", tmp_path / f"ab.{'0' * 32}.tmp"
    for draft in (left, other):
        draft.write_text("half")
    with whole_file(tmp_path / "a", shared=True) as one:
        one.write_text("one")
    assert left.exists()
    write_text(tmp_path / "a", "two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", other.name]


def test_a_file_that_grows_is_no_link(tmp_path):
    (tmp_path / "other").write_text("precious")
    (tmp_path / "a").symlink_to("other")
    for write in (lambda path: append_line(path, "new"), lambda path: atomic.cut(path, 2)):
        with pytest.raises(OSError, match="symbolic link"):
            write(tmp_path / "a")
    write_text(tmp_path / "a", "new")
    assert (tmp_path / "other").read_text() == "precious" and not (tmp_path / "a").is_symlink()


def save_with_torch(path: Path) -> None:
    with open(path, "wb") as file:
        torch.save({"a": torch.zeros(9999)}, file)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(9999)),
        lambda path: np.savez(path, a=np.zeros(9999)),
        save_with_torch,
        lambda path: save_file({"a": torch.zeros(9999)}, path),
    ],
)
def test_an_error_of_the_disk_names_the_file_and_leaves_nothing(tmp_path, write):
    earlier = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, earlier[1]))
    try:
        message = r"inner could not be written \(.*(File too large|written)"
        with pytest.raises(DiskError, match=message), sealed_folder(tmp_path / "inner") as draft:
            write(draft / "a.npz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, earlier)
    assert not list(tmp_path.iterdir())


def test_a_line_that_does_not_fit_is_taken_back(tmp_path):
    append_line(tmp_path / "a", "one")
    earlier = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, earlier[1]))
    try:
        with pytest.raises(DiskError, match=r"a could not be written \(File too large\)"):
            append_line(tmp_path / "a", "two")
        with pytest.raises(DiskError):
            append_line(tmp_path / "b", "a long line")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, earlier)
    assert (tmp_path / "a").read_text() == "one\n" and not (tmp_path / "b").exists()
