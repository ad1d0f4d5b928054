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
| a line at the end of a file | ``append_line`` | all earlier lines, and possibly half of the new one |
| some files of a folder that has others | ``files_into`` | possibly old files and new ones, each of them whole |

The drafts of files have random names and are opened only if nothing is there; a rename replaces a link. The few files
that grow in their place are opened with ``open_own``, which follows none.

This is written by hand, because libraries such as atomicwrites replace single files, but no folders.

A folder is removed with ``remove_folder``, so that one which is half deleted has the name of a draft. After an error of
the disk the draft is removed, and the old content is still there.
"""

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bert_training.files.hashing import is_plain_name, sha256
from tokenization.errors import UserError


class DiskError(OSError):
    """Something could not be written; the text says what and why."""


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Name ``path`` in an error of the disk that names no file, as that of a full disk does. Others are left alone."""
    try:
        yield
    except Exception as error:
        # safetensors and tokenizers give the number in the text; torch loses the error of the file that it writes to.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        of_disk = isinstance(cause, OSError) or "(os error" in str(cause)
        told = isinstance(cause, DiskError | BrokenPipeError) or getattr(cause, "filename", None) is not None
        named = DiskError(f"{path} could not be written ({getattr(cause, 'strerror', None) or cause})")
        raise (error if told or not of_disk else named) from error


def sync(path: Path) -> None:
    """Wait until the content of a file, or the list of names in a folder if the system can, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        # Some shared folders of virtual machines cannot be synced.
        with contextlib.suppress(OSError) if path.is_dir() else contextlib.nullcontext():
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` if an error is raised; one that it raises itself is not told, as the first says what is wrong."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            undo()
        raise


@contextmanager
def whole_file(path: Path, shared: bool = False) -> Iterator[Path]:
    """Yield the path of an empty draft to write, which then replaces ``path``, or is removed if an error is raised.

    Args:
        shared: other processes may write the same file at the same time. Otherwise drafts that killed processes have
            left are removed.

    Raises:
        OSError: the file could not be written.
    """
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    with written(path):
        if not shared:
            _remove_drafts(path)
        with undone_by(draft.unlink):
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            yield draft
            sync(draft)
            os.replace(draft, path)
        sync(path.parent)


def is_draft(name: str, target: str) -> bool:
    """Whether a file has the name of a draft of the file ``target``."""
    return re.fullmatch(rf"{re.escape(target)}\.[0-9a-f]{{32}}\.tmp", name) is not None


def _remove_drafts(path: Path) -> None:
    """Remove the drafts of a file as far as possible."""
    with contextlib.suppress(OSError):  # no such folder, of which the writer has more to say
        for name in os.listdir(path.parent):
            if is_draft(name, path.name):
                with contextlib.suppress(OSError):
                    path.with_name(name).unlink()


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there."""
    path.mkdir(parents=True, exist_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` in UTF-8; ``path`` holds either the old content or the new."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` as indented JSON; ``path`` holds either the old content or the new."""
    write_text(path, json_text(content))


def append_line(path: Path, line: str) -> None:
    """Append a line to a file. Raises OSError if it could not be written; then the file is as it was before."""
    with written(path):
        size = path.stat().st_size if path.exists() else None
        with undone_by(lambda: path.unlink() if size is None else cut(path, size)), open_own(path, "ab") as file:
            file.write(f"{line}\n".encode())


def cut(path: Path, size: int) -> None:
    """Remove everything behind the first ``size`` bytes of a file."""
    with written(path), open_own(path, "rb+") as file:
        file.truncate(size)


def open_own(path: Path, mode: str) -> IO[Any]:
    """Open a file that is written in its place, in a binary mode. Raises OSError if it is a link."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))


def json_text(content: Any) -> str:
    """The text that ``write_json`` writes."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def _draft_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder ``<path>.incomplete`` to write in, which is removed if an error is raised."""
    draft = path.with_name(f"{path.name}.incomplete")
    with written(path):
        with contextlib.suppress(OSError):
            delete(draft)  # left by a process that was killed
        with undone_by(lambda: shutil.rmtree(draft, ignore_errors=True)):
            draft.mkdir()
            yield draft


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty draft folder to write in, which then becomes ``path``.

    Raises:
        OSError: ``path`` exists and is not an empty folder, or it could not be written.
    """
    with _draft_folder(path) as draft:
        yield draft
        for file in (*draft.rglob("*"), draft):
            sync(file)
        os.replace(draft, path)
        sync(path.parent)


@contextmanager
def sealed_folder(path: Path) -> Iterator[Path]:
    """Yield an empty draft folder to write in, which then replaces ``path``.

    A ``manifest.json`` with the SHA-256 of every file is added, so that ``damage`` can tell whether it is undamaged.

    Raises:
        OSError: the folder could not be written; an older one is unharmed.
    """
    with _draft_folder(path) as draft:
        yield draft
        files = sorted(file for file in draft.iterdir() if file.is_file())
        manifest = draft / "manifest.json"
        digests = {file.name: sha256(file) for file in files}
        manifest.write_text(json.dumps({"sha256": digests}, indent=2) + "\n", encoding="utf-8")
        for file in (*files, manifest, draft):
            sync(file)
        # An older one was written before the run was interrupted; the resumed run has reached the same step again.
        old = _set_aside(path)
        with undone_by(lambda: None if old is None else os.replace(old, path)):
            os.replace(draft, path)
        sync(path.parent)
    if old is not None:
        with contextlib.suppress(OSError):
            delete(old)


def check_free(path: Path) -> None:
    """Raise UserError if something is there already."""
    if is_occupied(path):
        raise UserError(f"{path} is not an empty folder; give another")


def is_occupied(path: Path) -> bool:
    """Whether something is there already; an empty folder does not count."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def remove_folder(path: Path) -> None:
    """Delete a folder, or a link to one. If the process is killed meanwhile, the rest has the name of a draft."""
    if (old := _set_aside(path)) is not None:
        delete(old)


def delete(path: Path) -> None:
    """Delete a folder, or the link or the file in its place. The target of a link stays."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    else:
        shutil.rmtree(path)


def _set_aside(path: Path) -> Path | None:
    """Give a folder the name of a draft in one step and return its path; None if there is no such folder."""
    old = path.with_name(f"{path.name}.old.incomplete")
    with contextlib.suppress(OSError):
        delete(old)  # left by a process that was killed
    if not os.path.lexists(path):
        return None
    os.replace(path, old)
    return old


@contextmanager
def files_into(folder: Path, name: str) -> Iterator[Path]:
    """Yield an empty draft folder ``<folder>/<name>.incomplete``, whose files then move to ``folder`` one by one.

    Each file is replaced in one step, but a process that is killed between two steps leaves old and new files.

    Raises:
        OSError: the files could not be written.
    """
    with _draft_folder(folder / name) as draft:
        yield draft
        for path in sorted(draft.iterdir()):
            sync(path)
            target = folder / path.name
            os.replace(path, target)
        draft.rmdir()
        sync(folder)


def damage(folder: Path, needs: Collection[str] = ()) -> str | None:
    """What is wrong with a folder that ``sealed_folder`` wrote, in words; None if it is complete and undamaged.

    Args:
        needs: names of files that it must have.
    """
    if not folder.is_dir():
        return "no such folder"
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return "it has no manifest.json: not written completely, or another program's, which --model_name_or_path takes"
    try:
        expected = json.loads(manifest.read_text(encoding="utf-8"))["sha256"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its manifest.json cannot be read ({error})"
    if absent := set(needs) - {name for name, _ in expected}:
        return f"its manifest.json does not list {', '.join(sorted(absent))}"
    for name, digest in expected:
        if not is_plain_name(name):  # a path, such as ../../x, would be read to compare its hash
            return f"its manifest.json names {str(name)[:80]!r}, which is no file of this folder"
        if not (folder / name).is_file():
            return f"{name} is missing"
        if sha256(folder / name) != digest:
            return f"{name} does not match its checksum in manifest.json"
    return None
