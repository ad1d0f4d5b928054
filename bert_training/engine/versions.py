"""What a run was done with, for its run.json: the versions of packages, the commit of the code, the device."""

import importlib.metadata
import platform
import shutil
import subprocess
from pathlib import Path

import torch

PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy", "safetensors")


def versions() -> dict[str, str]:
    """Python's version and those of ``PACKAGES``, for run.json."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["torch"] = torch.__version__  # unlike the package's version, it names the build: +cpu, +cu130
    return found


def commit() -> str:
    """The commit of the checkout that contains this file, with '+' if tracked files differ; 'unknown' without one."""
    here = Path(__file__).parents[2]
    if not (here / ".git").exists() or shutil.which("git") is None:  # images for containers often lack git
        return "unknown"
    git = ["git", "-C", str(here)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True)
    return head.stdout.strip() + ("+" if changed.returncode == 1 else "") if head.returncode == 0 else "unknown"


def device_name(device: torch.device) -> str:
    """The name of a GPU; for other devices their type, the architecture and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {platform.machine()}, {torch.get_num_threads()} threads"
