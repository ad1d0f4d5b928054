"""Docstrings that were read once come from the cache, but never stale or damaged ones, and a run needs no cache."""

import functools
import os
import shutil
from pathlib import Path

import pytest
from huggingface_hub import cached_assets_path

from bert_training.builtin_data import documentation as reading_cache
from bert_training.builtin_data import source_files
from bert_training.builtin_data.documentation import cached_docstrings

PROSE = 2 * "This paragraph is only here so that the documentation has the two hundred characters that are needed. "


def module(subject: str) -> str:
    function = f'def f(x):\n    """Of {subject}. {PROSE}\n\n    Args:\n        x: {PROSE}"""\n'
    return f'"""About {subject}. {PROSE}"""\n\n{function}'


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """A package of two modules, and a cache of its own."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "one.py").write_text(module("apples"))
    (package / "two.py").write_text(module("pears"))
    place = functools.partial(cached_assets_path, assets_dir=tmp_path / "assets")
    monkeypatch.setattr(reading_cache, "cached_assets_path", place)
    return [(package, "package")]


@pytest.fixture
def readings(monkeypatch) -> list:
    """The lists of files that were read, one for each time."""
    made, read_files = [], source_files.read_files
    monkeypatch.setattr(source_files, "read_files", lambda files: made.append(files) or read_files(files, workers=1))
    return made


def read_now(folders) -> list:
    return source_files.read_files(list(source_files.source_files(*folders[0])))


def test_an_installation_is_read_once(folders, readings):
    first, second = cached_docstrings(folders), cached_docstrings(folders)
    assert len(readings) == 1
    assert first == second == read_now(folders)
    assert [document.name for document in first] == ["", "f", "", "f"] and len(first[1].parameters) == 1


def edited(package: Path, monkeypatch) -> None:
    state = (package / "one.py").stat()
    (package / "one.py").write_text(module("plums "))  # of the same size
    assert (package / "one.py").stat().st_size == state.st_size
    os.utime(package / "one.py", ns=(state.st_atime_ns, state.st_mtime_ns + 2_000_000_000))


def added(package: Path, monkeypatch) -> None:
    (package / "three.py").write_text(module("plums"))


def other_code(package: Path, monkeypatch) -> None:
    changed = shutil.copy(reading_cache.docstrings.__file__, package.parent / "docstrings.py")
    Path(changed).write_text(Path(changed).read_text().replace("MIN_CHARACTERS = 200", "MIN_CHARACTERS = 300"))
    monkeypatch.setattr(reading_cache.docstrings, "__file__", changed)


@pytest.mark.parametrize("change", [edited, added, other_code])
def test_whatever_the_docstrings_depend_on_makes_the_cache_stale(folders, readings, monkeypatch, change):
    before = cached_docstrings(folders)
    change(folders[0][0], monkeypatch)
    after = cached_docstrings(folders)
    assert len(readings) == 2
    assert after == read_now(folders) and after != before
    assert cached_docstrings(folders) == after and len(readings) == 3  # The new content took the place of the old one.
    assert len(list(reading_cache.cache_file(folders).parent.iterdir())) == 1


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: text.replace("apples", "applet", 1)]
)
def test_a_damaged_file_is_replaced(folders, readings, damage):
    whole = cached_docstrings(folders)
    file = reading_cache.cache_file(folders)
    file.write_text(damage(file.read_text()))
    assert cached_docstrings(folders) == whole and len(readings) == 2
    assert cached_docstrings(folders) == whole and len(readings) == 2
