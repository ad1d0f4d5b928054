"""Damage to a file as disks, interrupted copies and tired people cause it, and what a command made of it."""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.tests.helpers.fault_runs import Ended

KINDS = ("flipped", "flipped", "cut", "emptied", "doubled", "swapped", "a folder", "a loop of links")
ALARMS = ("error:", "warning:", "ignoring", "was damaged", "differs ", "has lost")


def damage(path: Path, kind: str, draw: random.Random, other: Path | None = None) -> None:
    """Damage a file.

    Args:
        kind: one of ``KINDS``.
        other: the file whose content it gets if it is "swapped"; without one it gets its own content backwards.
    """
    content = bytearray(path.read_bytes())
    if kind == "flipped" and content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del content[draw.randrange(len(content)) if content else 0 :]
    elif kind == "emptied":
        content.clear()
    elif kind == "doubled":
        content *= 2
    elif kind == "swapped":
        content = bytearray(other.read_bytes()) if other else content[::-1]
    path.unlink()
    if kind == "a folder":
        path.mkdir()
    elif kind == "a loop of links":
        path.symlink_to(path.name)
    else:
        path.write_bytes(content)


def judge(ended: Ended, names: str | Sequence[str], same: Callable[[], bool], statuses: Sequence[int] = (2,)) -> str:
    """What became of a run with a damaged file, in the words of the campaign.

    A run that fails must end with one line about the file; one that does not must have said so, or have the results of
    a run with the undamaged file.

    Args:
        names: the name of the file, and of a folder that the damage makes unusable.
        same: whether the results are those of a run with the undamaged file.
        statuses: the exit status of a run that is refused.
    """
    assert "Traceback" not in ended.printed, ended.printed
    assert not ended.timed_out and not ended.left_behind
    names = [names] if isinstance(names, str) else names
    lines = [line for line in ended.printed.splitlines() if any(alarm in line for alarm in ALARMS)]
    alarms = [line for line in lines if any(name in line for name in names)]
    if ended.status:
        assert ended.status in statuses and alarms, (names, ended.printed)
        return "refused: the file is named"
    if alarms:
        return "survived: the file is named"
    assert same(), f"{names[0]} changed the results, and nothing says so:\n{ended.printed}"
    return "harmless: the results are bit-equal"


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder, in which links stay links."""
    return Path(shutil.copytree(source, target, symlinks=True))
