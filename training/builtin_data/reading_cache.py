"""A cache of the docstrings on disk: an installation that has been read once is read again in less than a second.

The file is in the folder that ``huggingface_hub`` gives to libraries for such files (``cached_assets_path``: the assets
folder of HF_HOME, or HF_ASSETS_CACHE). It contains the hash of everything that the docstrings depend on, so that a
stale file is never used, and it may be deleted at any time. There is one file for each set of folders that were
searched; a newer content replaces it.
"""

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from huggingface_hub import cached_assets_path

from training.builtin_data import docstrings, source_files
from training.builtin_data.docstrings import Docstring
from training.files.atomic import whole_file

DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of a file that cannot be used


def cached_docstrings(folders: Sequence[tuple[Path, str]]) -> list[Docstring]:
    """The docstrings of all source files of the folders, given as (folder, package), as ``read_files`` sorts them.

    They are read from the cache if no source file has changed. If the cache cannot be written, for example because the
    disk is full, the next call reads the source files again.

    Raises:
        RuntimeError: a child process that reads source files fails.
    """
    files = [file for folder, package in folders for file in source_files.source_files(folder, package)]
    key, path = fingerprint(files), cache_file(folders)
    if path:
        with suppress(*DAMAGE):
            content = json.loads(path.read_bytes())
            if content["key"] == key:
                return source_files.from_records(content["docstrings"])
    documents = source_files.read_files(files)
    if path:
        with suppress(OSError), whole_file(path, shared=True) as draft:
            draft.write_text(json.dumps({"key": key, "docstrings": documents}, default=vars), encoding="utf-8")
    return documents


def cache_file(folders: Sequence[tuple[Path, str]]) -> Path | None:
    """Where the docstrings of these folders are kept; None if the folder of the cache cannot be made."""
    name = hashlib.sha256(repr([str(folder) for folder, _ in folders]).encode()).hexdigest()[:16]
    try:
        return cached_assets_path("bert_repro", "builtin_data", "docstrings") / f"{name}.json"
    except (OSError, ValueError):  # the disk can only be read; a file is in the place of the folder
        return None


def fingerprint(files: Sequence[tuple[str, str]]) -> str:
    """The SHA-256, in hexadecimal, of what the docstrings of these files depend on.

    That is the path, module, size and modification time of each file, the code that reads them, and Python's version,
    which decides what can be parsed.
    """
    states = [(path, module, (state := os.stat(path)).st_size, state.st_mtime_ns) for path, module in files]
    code = [Path(file).read_text(encoding="utf-8") for file in (docstrings.__file__, source_files.__file__)]
    return hashlib.sha256(json.dumps([states, code, sys.version]).encode()).hexdigest()
