"""Write files and folders that are complete or absent, even after a kill or a power failure.

Everything is written to a draft beside its target, synced, and renamed. A rename within one folder replaces the target
in one step (POSIX). But the rename may reach the disk before the content does, and a power failure may undo it until
the folder itself is synced. Therefore the content is synced before the rename, and the folder after it.

| what is written | function | after a kill there are |
|---|---|---|
| a text, a JSON file | ``write_text``, ``write_json`` | the old content or the new |
| another file | ``whole_file`` | the old content or the new |
| a folder that does not exist yet, or is empty | ``new_folder`` | all files or none |
| a folder of which ``damage`` can tell that it is whole | ``sealed_folder`` | all old files, all new ones, or none |
| some files of a folder that has others | ``files_into`` | possibly old files and new ones, each of them whole |
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.files.hashing import sha256
from training.files.json_files import is_plain_name, read_object


def sync(path: Path) -> None:
    """Wait until the content of a file, or the list of names in a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def whole_file(path: Path, shared: bool = False) -> Iterator[Path]:
    """Yield the path of a draft to write, which then replaces ``path``, or is removed if an error is raised.

    Args:
        shared: other processes may write the same file at the same time, so each needs a draft of its own.
    """
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp" if shared else f"{path.name}.tmp")
    try:
        yield draft
        sync(draft)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8; ``path`` holds either the old content or the new."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as indented JSON; ``path`` holds either the old content or the new."""
    write_text(path, json_text(content))


def json_text(content: Any) -> str:
    """The text that ``write_json`` writes."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def _draft_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder ``<path>.incomplete`` to write in, which is removed if an error is raised."""
    draft = path.with_name(f"{path.name}.incomplete")
    shutil.rmtree(draft, ignore_errors=True)  # left by a process that was killed
    try:
        draft.mkdir()
        yield draft
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty draft folder to write files in, which then becomes ``path``.

    Raises:
        OSError: ``path`` exists and is not an empty folder.
    """
    with _draft_folder(path) as draft:
        yield draft
        for file in (*draft.iterdir(), draft):
            sync(file)
        os.replace(draft, path)
    sync(path.parent)


@contextmanager
def sealed_folder(path: Path) -> Iterator[Path]:
    """Yield an empty draft folder to write in, which then replaces ``path``.

    A ``manifest.json`` with the SHA-256 of every file is added, so that ``damage`` can tell whether it is undamaged.
    """
    with _draft_folder(path) as draft:
        yield draft
        files = sorted(file for file in draft.iterdir() if file.is_file())
        manifest = draft / "manifest.json"
        digests = {file.name: sha256(file) for file in files}
        manifest.write_text(json.dumps({"sha256": digests}, indent=2) + "\n", encoding="utf-8")
        for file in (*files, manifest, draft):
            sync(file)
        old = path.with_name(f"{path.name}.old.incomplete")
        shutil.rmtree(old, ignore_errors=True)  # left by a process that was killed
        if path.exists():  # written before the run was interrupted; the resumed run has reached the same step again
            os.replace(path, old)  # in one step, because a folder that is being deleted is neither old nor absent
        os.replace(draft, path)
        sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def files_into(folder: Path, name: str) -> Iterator[Path]:
    """Yield an empty draft folder ``<folder>/<name>.incomplete``, whose files then move to ``folder`` one by one.

    Each file is replaced in one step, but a process that is killed between two steps leaves old and new files.
    """
    with _draft_folder(folder / name) as draft:
        yield draft
        for path in sorted(draft.iterdir()):
            sync(path)
            os.replace(path, folder / path.name)
        draft.rmdir()
        sync(folder)


def damage(folder: Path) -> str | None:
    """What is wrong with a folder that ``sealed_folder`` wrote, in words; None if it is complete and undamaged."""
    if not folder.is_dir():
        return "no such folder"
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return "it has no manifest.json, so it was not written completely"
    try:
        expected = read_object(manifest)["sha256"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest.json cannot be read ({error})"
    for name, digest in expected:
        if not is_plain_name(name):  # a path, such as ../../x, would be read to compare its hash
            return f"its manifest.json names {str(name)[:80]!r}, which is no file of this folder"
        if not (folder / name).is_file():
            return f"{name} is missing"
        if sha256(folder / name) != digest:
            return f"{name} does not match its checksum"
    return None
