"""Which Python source files of an installation are read, and by which child processes.

What is in a file is the business of ``docstrings``, which each child runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bert_training.builtin_data import docstrings
from bert_training.builtin_data.docstrings import Docstring, Parameter
from bert_training.files.processes import usable_cores

SKIPPED_FOLDERS = {
    "benchmarks",
    "dist-packages",
    "externals",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "testing",
    "tests",
    "third_party",
    "turtledemo",
    "vendored",
}
# Two hundred models with similar texts. Reading them would take a quarter of the time, although they are only 8 % of
# the documents after near-duplicates are removed.
SKIPPED_MODULES = ("transformers.models.",)


def source_files(root: Path, package: str) -> Iterator[tuple[str, str]]:
    """Yield (path, dotted module name) of the package's .py files, sorted by name in each folder.

    Tests, vendored code and private folders are left out: the docstrings of private code are written for its
    developers, and they are a third of torch's. The exception is _core, which contains the functions of numpy.
    """
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED_FOLDERS and (name[0] != "_" or name == "_core")
        )
        prefix = [package] if package else []
        prefix += Path(folder).relative_to(root).parts
        for file in sorted(files):
            if file.endswith(".py"):
                stem = [] if file == "__init__.py" else [file.removesuffix(".py")]
                module = ".".join([*prefix, *stem])
                if not module.startswith(SKIPPED_MODULES):
                    yield os.path.join(folder, file), module


def read_files(files: list[tuple[str, str]], workers: int | None = None) -> list[Docstring]:
    """The docstrings of the files, given as (path, module), sorted by module and name.

    Args:
        files: the files to read.
        workers: number of child processes that read them. The default is one for each core that this process may use,
            at most 8.

    Raises:
        subprocess.CalledProcessError: a child fails.
    """
    workers = workers or min(8, usable_cores())
    by_size = sorted(files, key=lambda file: (-os.path.getsize(file[0]), file))

    def read(worker: int) -> list[Docstring]:
        program, part = [sys.executable, "-S", docstrings.__file__], json.dumps(by_size[worker::workers])
        done = subprocess.run(program, input=part, stdout=subprocess.PIPE, encoding="utf-8", check=True)
        return from_records(json.loads(done.stdout))

    with ThreadPoolExecutor(workers) as pool:
        documents = [document for part in pool.map(read, range(workers)) for document in part]
    return sorted(documents, key=lambda document: (document.module, document.name, document.kind, document.summary))


def from_records(records: list[dict[str, Any]]) -> list[Docstring]:
    """The docstrings that were written as JSON objects."""
    for record in records:
        record["parameters"] = [Parameter(**entry) for entry in record["parameters"]]
    return [Docstring(**record) for record in records]
