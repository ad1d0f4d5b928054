"""The peak of a process's memory."""

import re
from pathlib import Path


def peak_bytes() -> int:
    """The most memory that this process has had resident, in bytes; on Linux only.

    Not ``ru_maxrss``, which begins with the memory of the process that started this one.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
