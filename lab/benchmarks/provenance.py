"""The origin of a benchmark's figures: command, versions, machine, and a hash of every source file involved.

The hashes say which code was measured; nothing compares them with the code of today.
"""

import hashlib
import importlib
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "onnxruntime")
ASIDE = {"tests", "lab/benchmarks/provenance.py"}  # may be imported but are not measured


def provenance(script: str, argv: Sequence[str] | None = None, measured: Sequence[str] = ()) -> dict[str, Any]:
    """The part of a record that says how it was made.

    Args:
        script: path of the benchmark from the root of the project.
        argv: its arguments, by default those of this process.
        measured: names of modules that the benchmark runs in other processes. They are imported here, so that their
            files are among the sources, and all files that they import.
    """
    for name in measured:
        importlib.import_module(name)
    return {
        "command": shlex.join(["python", script, *map(str, sys.argv[1:] if argv is None else argv)]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "device": processor(),
        "cores": os.cpu_count(),
        "load_at_start": [round(load, 2) for load in os.getloadavg()],
        "sources": {name: sha256(ROOT / name) for name in source_files(script)},
    }


def source_files(script: str) -> list[str]:
    """The benchmark and those files of the project that this process has imported, as paths from its root."""
    imported = {script}
    for module in list(sys.modules.values()):
        path = Path(getattr(module, "__file__", None) or "")
        if path.suffix == ".py" and path.is_absolute() and path.resolve().is_relative_to(ROOT):
            imported.add(path.resolve().relative_to(ROOT).as_posix())
    installed = {name for name in imported if name.startswith(".") or "site-packages" in name}
    return sorted(name for name in imported - installed - ASIDE if name.partition("/")[0] not in ASIDE)


def sha256(path: Path) -> str:
    """The hash of a file, or of the names and contents of all Python files below a folder, in hexadecimal."""
    if path.is_dir():
        files = sorted(file.relative_to(path).as_posix() for file in path.rglob("*.py"))
        return hashlib.sha256("".join(f"{sha256(path / name)} {name}\n" for name in files).encode()).hexdigest()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit() -> str:
    """The commit of the working tree, with "-dirty" appended if tracked files other than records differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "-uno", "--", ".", ":!lab/records")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages in PACKAGES."""
    by_name = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return by_name


def processor() -> str:
    """The model name of the processor, or what else the platform tells about it."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()
