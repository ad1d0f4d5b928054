"""The origin of a benchmark's figures: command, date, commit, versions and machine."""

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

import torch

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "onnxruntime")


def provenance(script: str, argv: Sequence[str] | None = None, device: str | None = None) -> dict[str, Any]:
    """The part of a record that says how it was made.

    Args:
        script: path of the benchmark from the root of the project.
        argv: its arguments, by default those of this process.
        device: "cpu" or "cuda", where it computed; by default a CUDA device if there is one, as the scripts do.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return {
        "command": shlex.join(["python", script, *map(without_place, sys.argv[1:] if argv is None else argv)]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": versions(),
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "cores": os.cpu_count(),
        "load_at_start": [round(load, 2) for load in os.getloadavg()],
    }


def without_place(word: object) -> str:
    """A word of a command; of an absolute path, which says where somebody keeps things, the last name alone."""
    path = Path(str(word))
    return path.name if path.is_absolute() else str(word)


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
