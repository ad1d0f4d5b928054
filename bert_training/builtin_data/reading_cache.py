"""A cache of the docstrings on disk: an installation that has been read once is read again in less than a second.

The file is in the folder that ``huggingface_hub`` gives to libraries for such files (``cached_assets_path``: the assets
folder of HF_HOME, or HF_ASSETS_CACHE). There is one file for each set of folders that were searched. It may be deleted
at any time.

Its first line has two hashes: that of everything that the docstrings depend on (``fingerprint``), and that of the rest
of the file, the docstrings as JSON. If one of them differs, the source files are read again, and the file is replaced.
Only one change is not noticed: that of a source file which keeps its size and its time of modification.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from huggingface_hub import cached_assets_path

from bert_training.builtin_data import docstrings, source_files
from bert_training.builtin_data.docstrings import Docstring
from bert_training.files.atomic import whole_file


def cached_docstrings(folders: Sequence[tuple[Path, str]]) -> list[Docstring]:
    """The docstrings of all source files of the folders, given as (folder, package), as ``read_files`` sorts them.

    If the cache cannot be read or written, for example because the disk is full, the source files are read.

    Raises:
        RuntimeError: a child process that reads source files fails.
    """
    files = [file for folder, package in folders for file in source_files.source_files(folder, package)]
    key, path = fingerprint(files), cache_file(folders)
    if path:
        with suppress(OSError, ValueError):  # there is no such file, it is no text, or is too large
            header, _, content = path.read_text(encoding="utf-8").partition("\n")
            if header == header_of(key, content):
                return source_files.from_records(json.loads(content))
    documents = source_files.read_files(files)
    if path:
        with suppress(OSError), whole_file(path, shared=True) as draft:
            content = json.dumps(documents, default=vars)
            draft.write_text(f"{header_of(key, content)}\n{content}", encoding="utf-8")
    return documents


def header_of(key: str, content: str) -> str:
    """The first line of a file, with the hash of what follows it."""
    return f"{key} {hashlib.sha256(content.encode()).hexdigest()}"


def cache_file(folders: Sequence[tuple[Path, str]]) -> Path | None:
    """Where the docstrings of these folders are kept; None if the folder of the cache cannot be made."""
    name = hashlib.sha256(repr([str(folder) for folder, _ in folders]).encode()).hexdigest()[:16]
    try:
        return cached_assets_path("bert_repro", "builtin_data", "docstrings") / f"{name}.txt"
    except (OSError, ValueError, RuntimeError):  # it may not be made; a file is in its place; the user has no home
        return None


def fingerprint(files: Sequence[tuple[str, str]]) -> str:
    """The SHA-256, in hexadecimal, of what the docstrings of these files depend on.

    That is the path, module, size and modification time of each file, the code that reads them, and Python's version,
    which decides what can be parsed.
    """
    states = [(path, module, (state := os.stat(path)).st_size, state.st_mtime_ns) for path, module in files]
    code = [Path(file).read_text(encoding="utf-8") for file in (docstrings.__file__, source_files.__file__)]
    return hashlib.sha256(json.dumps([states, code, sys.version]).encode()).hexdigest()
