"""Commands to which the disk gives an error say so in one line, leave the earlier files, and go on later."""

import errno
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.tests.helpers.disk_faults import ERRORS
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import Ended
from lab.tests.helpers.file_writers import (
    NAMES,
    UNFINISHED,
    Unbroken,
    check_goes_on,
    check_whole,
    draw_growth,
    draw_moment,
    files,
)

FAULTS = "lab.tests.helpers.disk_faults"
UNREMOVABLE = (errno.EROFS, errno.EACCES)  # with which drafts cannot be removed either


def only_error(ended: Ended) -> str:
    """The only error message, and no traceback. Another process may say that the first one has ended."""
    lines = [line for line in ended.printed.splitlines() if not line.startswith("[rank1]:")]
    assert not any("Traceback" in line for line in lines), ended.printed
    (message,) = {line for line in lines if "error:" in line}
    return message


def check_one_line(ended: Ended, error: int | None) -> None:
    """Check that the status is 2 and that one line names the file or folder and the reason.

    Args:
        error: its number; None for a full disk or a file that may not grow.
    """
    assert ended.statuses[0] == 2 and not ended.left_behind, ended.printed
    line = only_error(ended)
    reasons = [os.strerror(number) for number in ([error] if error else [errno.ENOSPC, errno.EFBIG])]
    assert re.search("(out|finished)", line) and any(reason in line for reason in reasons), line


def check_survived(unbroken: Unbroken, folder: Path, ended: Ended, error: int | None, number: int = 0) -> str:
    """Check what a command left to which the disk gave an error, and start it again; return what happened."""
    left = [name for name in files(folder) if UNFINISHED.search(name)]
    if {*ended.statuses} == {0}:  # The error came when something was removed, which may fail.
        assert left == [] or error in UNREMOVABLE
        check_whole(folder, unbroken.earlier, unbroken.folders)
        return "not needed"
    check_one_line(ended, error)
    parts = [name for name in left if not re.search(r"\.shares-|\.old\.incomplete/", name)]
    assert parts == [] or error in UNREMOVABLE, f"drafts are left: {parts}"
    return f"one line, then {check_goes_on(unbroken, folder, number)}"


@faults("errors of the disk", 60)
def test_an_error_at_a_call_of_the_system(seed, unbroken, folder, record_property):
    draw = random.Random(seed)
    chosen = unbroken(draw.choice(NAMES))
    error = draw.choice(list(ERRORS))
    number = draw_moment(draw, chosen.moments, ERRORS[error][0])
    arguments: dict[str, Any] = {"trace": "../trace", "number": number, "error": error, "short": draw.random() < 0.5}
    chosen.writer.earlier(folder)
    ended = chosen.start(folder, [(f"{FAULTS}:error_at_moment", arguments)])
    record_property("outcome", check_survived(chosen, folder, ended, error, number))


@faults("errors of the disk", 20)
def test_a_file_that_may_not_grow(seed, unbroken, folder, record_property):
    """The system refuses every byte beyond a size, as with ulimit -f, whoever writes it."""
    draw = random.Random(seed)
    chosen = unbroken(draw.choice(NAMES))
    number, size = draw_growth(draw, chosen.moments)
    arguments: dict[str, Any] = {"trace": "../trace", "number": number, "size": size, "kill": False}
    chosen.writer.earlier(folder)
    ended = chosen.start(folder, [(f"{FAULTS}:limit_at_moment", arguments)])
    assert ended.statuses[0] == 2, ended.printed
    record_property("outcome", check_survived(chosen, folder, ended, None, number))


class Disk:
    """A small disk in memory, on which commands are started."""

    def __init__(self, place: Path):
        self.place = place
        self.mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", place)

    def mount(self, *words: str | Path) -> None:
        subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)

    def pages(self) -> tuple[int, int]:
        """The size of a page, and the number of pages that are taken."""
        found = os.statvfs(self.place)
        return found.f_frsize, found.f_blocks - found.f_bfree

    def become(self, options: str) -> None:
        """Set its size ("size=64k"), or make it "ro" or "rw"."""
        self.mount("-o", f"remount,{options}", self.place)


@pytest.fixture
def disk(folder) -> Iterator[Disk]:
    try:
        made = Disk(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"nothing can be mounted here ({error})")
    yield made
    subprocess.run(["umount", "-l", str(folder)], check=True)


@faults("errors of the disk", 20)
def test_a_disk_that_is_really_full(seed, unbroken, disk, record_property):
    """Nothing is simulated: the files of an unbroken run need more room than a disk of a random size has."""
    draw = random.Random(seed)
    chosen = unbroken(draw.choice([name for name in NAMES if name != "run_paper"]))  # whose cells a test writes
    chosen.writer.earlier(disk.place)
    page, taken = disk.pages()
    whole = sum(-(-path.stat().st_size // page) for path in files(chosen.folders[0]).values())
    disk.become(f"size={page * max(1, taken + draw.randrange(max(1, whole - taken)))}")  # 0 would be no limit
    ended = chosen.start(disk.place, [])
    disk.become("size=64m")
    record_property("outcome", check_survived(chosen, disk.place, ended, None))
    assert ended.statuses[0] == 2
