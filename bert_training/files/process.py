"""This process: what it may use of the machine, and whether it is the one that prints."""

import os


def usable_cores() -> int:
    """The number of cores that this process may use, which a scheduler may have limited."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it, macOS has not
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def say(text: str) -> None:
    """Print a line once, whatever the number of processes."""
    if os.environ.get("RANK", "0") == "0":
        print(text, flush=True)
