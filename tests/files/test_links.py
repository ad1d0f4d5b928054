"""A stranger's folder is full of links: whatever writes there changes nothing elsewhere and makes nothing elsewhere."""

import ast
import inspect
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_training.files import atomic, links, locks
from bert_training.files.disk_errors import DiskError
from bert_training.files.links import guard, refuse_links
from tests.helpers.repository import ROOT

PRECIOUS = "precious\n"
READING = {
    "is_occupied",
    "damage",
    "is_draft",
    "json_text",
}  # and `sync`, `delete`, which get what the other functions have checked
INSIDE = {"sync", "delete"}


def _whole(path: Path, **more: bool) -> None:
    with atomic.whole_file(path, **more) as draft:
        draft.write_text("new")


def _folder(function: Callable, path: Path) -> None:
    with function(path) as draft:
        (draft / "file").write_text("new")


def _files(path: Path) -> None:
    with atomic.files_into(path.parent, "model") as draft:
        (draft / path.name).write_text("new")


def _opened(path: Path) -> None:
    with atomic.open_own(path, "ab") as file:
        file.write(b"new")


def _held(path: Path) -> None:
    with locks.held(path, "busy"):
        pass


# The functions that write under a name: name -> a call.
WRITERS: dict[str, Callable[[Path], None]] = {
    "whole_file": _whole,
    "whole_file, shared": lambda path: _whole(path, shared=True),
    "write_text": lambda path: atomic.write_text(path, "new"),
    "write_json": lambda path: atomic.write_json(path, "new"),
    "new_folder": lambda path: _folder(atomic.new_folder, path),
    "sealed_folder": lambda path: _folder(atomic.sealed_folder, path),
    "files_into": _files,
    "make_folder": lambda path: atomic.make_folder(path),
    "remove_folder": lambda path: atomic.remove_folder(path),
    "append_line": lambda path: atomic.append_line(path, "new"),
    "cut": lambda path: atomic.cut(path, 2),
    "open_own": _opened,
    "hold": _held,
}
# Those that write in the file that is there, and therefore refuse a link; the others put something in its place.
IN_PLACE = ("append_line", "cut", "open_own", "hold", "make_folder")
FOLDERS = ("new_folder", "sealed_folder", "make_folder", "remove_folder")


def test_the_table_has_every_function_that_writes():
    functions = inspect.getmembers(atomic, inspect.isfunction)
    own = {name for name, function in functions if function.__module__ == atomic.__name__ and name[0] != "_"}
    assert own - READING - INSIDE == {name.partition(",")[0] for name in WRITERS} - {"hold"}


@pytest.fixture
def outside(tmp_path) -> Path:
    """A folder with a file, a file in a folder, and nothing else."""
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "file").write_text(PRECIOUS)
    (folder / "sub" / "file").write_text(PRECIOUS)
    return folder


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    guard(folder)
    return folder


def check_unharmed(outside: Path) -> None:
    found = {str(path.relative_to(outside)): path.is_file() and path.read_text() for path in outside.rglob("*")}
    assert found == {"file": PRECIOUS, "sub": False, "sub/file": PRECIOUS}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("depth", [1, 2])
def test_no_folder_on_the_way_may_be_a_link(root, outside, name, depth):
    target = root / "link" / "file" if depth == 1 else root / "real" / "link" / "sub" / "new"
    target.parents[depth - 1].parent.mkdir(exist_ok=True)
    target.parents[depth - 1].symlink_to(outside)
    with pytest.raises(ValueError, match=r"link: is a link to .*outside, and nothing is written through links"):
        WRITERS[name](target)
    check_unharmed(outside)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kind", ["file", "sub", "nowhere"])
def test_a_link_in_the_place_of_what_is_written(root, outside, name, kind):
    target = root / "target"
    target.symlink_to(outside / kind)
    if name in IN_PLACE:
        with pytest.raises(DiskError if name == "hold" else ValueError, match="link"):
            WRITERS[name](target)
    elif name == "new_folder":
        with pytest.raises(OSError):
            WRITERS[name](target)
    else:
        WRITERS[name](target)
        assert not target.is_symlink() and target.exists() == (name != "remove_folder")
    check_unharmed(outside)


@pytest.mark.parametrize("name", sorted({*WRITERS} - {"cut"}))
@pytest.mark.parametrize("kind", ["file", "sub", "nowhere"])
def test_links_under_the_names_of_drafts(root, outside, name, kind):
    """They are removed, or are left where they are, and the target is written."""
    target = root / "target"
    if name == "remove_folder":
        target.mkdir()
    for ending in ("tmp", f"{'0' * 32}.tmp", "incomplete", "old.incomplete"):
        for draft in ("target", "model"):
            (root / f"{draft}.{ending}").symlink_to(outside / kind)
    WRITERS[name](target)
    assert not target.is_symlink() and target.exists() == (name not in ("hold", "remove_folder"))
    check_unharmed(outside)


@pytest.mark.parametrize("name", sorted({*WRITERS} - {*FOLDERS}))
def test_another_name_of_a_file_keeps_its_content(root, outside, name):
    os.link(outside / "file", root / "target")
    WRITERS[name](root / "target")
    if name != "hold":
        assert "new" in (root / "target").read_text() or (root / "target").read_text() == PRECIOUS[:2]
    check_unharmed(outside)


@pytest.mark.parametrize("name", ["append_line", "cut", "open_own"])
def test_nobody_waits_at_a_pipe(root, name):
    os.mkfifo(root / "pipe")
    with pytest.raises(ValueError, match=r"pipe: is neither a file nor a folder"):
        WRITERS[name](root / "pipe")


@pytest.mark.parametrize("name", WRITERS)
def test_the_folder_that_the_user_names_may_be_a_link(tmp_path, name):
    """And what is above it: ``runs`` may lead to a larger disk."""
    real = tmp_path / "disk" / "runs"
    real.mkdir(parents=True)
    (tmp_path / "runs").symlink_to(real)
    (real / "first").mkdir()
    (tmp_path / "runs" / "again").symlink_to("first")
    guard(tmp_path / "runs" / "again")
    target = tmp_path / "runs" / "again" / "target"
    if name == "cut":
        target.write_text("text")
    WRITERS[name](target)
    assert (real / "first" / "target").exists() == (name not in ("hold", "remove_folder"))


def test_the_outermost_output_folder_decides(root, outside, monkeypatch):
    """A run of a series names its own folder, which is below that of the series."""
    (root / "seed-1").symlink_to(outside)
    guard(root / "seed-1")
    monkeypatch.chdir(root)
    for path in (root / "seed-1", root / "seed-1" / "sub", Path("seed-1", "sub")):
        with pytest.raises(ValueError, match=r"seed-1: is a link to .*outside"):
            refuse_links(path)
    refuse_links(root)
    refuse_links(root / "seed-2" / "corpus")


def test_a_relative_folder_stays_where_it_was_named(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    guard("a")
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    monkeypatch.chdir("/")
    with pytest.raises(ValueError, match="link: is a link"):
        refuse_links(tmp_path / "a" / "link" / "x")


def test_an_opener_follows_no_link(root, outside):
    (root / "link").symlink_to(outside / "file")
    with pytest.raises(OSError, match="symbolic links"):
        open(root / "link", "wb", opener=links.no_follow)  # noqa: SIM115 - it fails
    check_unharmed(outside)


def opens_or_makes(node: ast.AST) -> bool:
    """Whether a node is a call that opens, cuts or makes something by a path, and could follow a link."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    called = ast.unparse(node.func)
    if called in ("os.truncate", "os.open", "os.mkdir", "os.link", "os.symlink", "os.mkfifo"):
        return True
    if node.func.attr == "open":  # that of a path; `Corpus.open` reads
        return any(ast.unparse(word)[:2] in ("'w", "'a", "'x") or "+'" in ast.unparse(word) for word in node.args[:1])
    return node.func.attr in (
        "mkdir",
        "makedirs",
        "touch",
        "symlink_to",
        "hardlink_to",
        "copytree",
        "copyfile",
        "copy2",
    )


def test_no_other_module_opens_or_makes_anything_but_drafts():
    """A new writer has to use bert_training/files/atomic.py, or to say here why it follows no link of a stranger."""
    aside = {
        "atomic.py": "checks the links",
        "links.py": "does not follow",
        "errors.py": "opens /dev/null",
        "documents.py": "an unnamed temporary file",
        "budget.py": "a temporary folder",
        "runner.py: _link": "makes names in a draft",
        "space.py: write_space": "copies below a draft",
        "space.py: _copy_model": "is given a draft",
    }
    found = set()
    for path in [*(ROOT / "bert_training").rglob("*.py"), *ROOT.glob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            calls = [node for node in ast.walk(function) if opens_or_makes(node) and "draft" not in ast.unparse(node)]
            if calls and not {path.name, f"{path.name}: {function.name}"} & {*aside}:
                found |= {f"{path.name}: {function.name}: {ast.unparse(node)}" for node in calls}
    assert found == set()


@pytest.mark.parametrize("kind", ["file", "nowhere"])
def test_a_draft_is_opened_only_where_nothing_is(root, outside, monkeypatch, kind):
    """Even if somebody knew the random name, and the link had come after the old drafts were removed."""
    monkeypatch.setattr(atomic, "_remove_drafts", lambda path: None)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=0))
    (root / f"target.{'0' * 32}.tmp").symlink_to(outside / kind)
    with pytest.raises(DiskError, match="File exists"):
        atomic.write_text(root / "target", "new")
    assert not (root / "target").exists()
    check_unharmed(outside)
