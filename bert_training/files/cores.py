"""The cores of this machine."""

import os


def usable_cores() -> int:
    """The number of cores that this process may use, which a scheduler may have limited."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it, macOS has not
    return len(affinity(0)) if affinity else os.cpu_count() or 1
