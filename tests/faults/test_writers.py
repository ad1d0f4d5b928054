"""Commands that are killed while they write a file leave the earlier file, and finish when they are started again."""

import functools
import json
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.helpers import short_runs
from tests.helpers.fault_campaign import faults
from tests.helpers.fault_runs import Ended, run
from tests.helpers.file_writers import NAMES, UNFINISHED, Writer, check_finished, check_whole, files, writers

FAULTS = "tests.helpers.disk_faults"
LINES = "tests.helpers.fault_injection:at_line"


class Unbroken(NamedTuple):
    """Two unbroken runs of a command, which differ in times only.

    Attributes:
        earlier: the files that were there before, with their content.
        moments: see ``Moments`` of tests/helpers/disk_faults.py.
        lines: the number of lines of training/files/atomic.py that were executed.
    """

    writer: Writer
    folders: list[Path]
    earlier: dict[str, bytes]
    moments: list[tuple[str, str, dict[str, int]]]

    def start(self, folder: Path, prepare: list[tuple[str, dict]], again: bool = False) -> Ended:
        flags = [*self.writer.flags, *(self.writer.again if again else ())]
        return run(self.writer.script, flags, folder, prepare=[*self.writer.prepare, *prepare])


@pytest.fixture(scope="session")
def unbroken(short_data, pretrained, network_shape, tmp_path_factory) -> Callable[[str], Unbroken]:
    """The unbroken runs of the command of a name."""
    place = tmp_path_factory.mktemp("finished")
    ended = run("run_glue", short_runs.flags("run_glue", short_data, Path("run"), pretrained), place)
    assert ended.statuses == [0], ended.printed
    every = writers(short_data, pretrained, network_shape, place / "run")

    @functools.cache
    def of(name: str) -> Unbroken:
        folders = [tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("whole")]
        for folder in folders:
            every[name].earlier(folder)
        made = Unbroken(every[name], folders, {n: path.read_bytes() for n, path in files(folders[0]).items()}, [])
        trace = folders[0].with_suffix(".json")
        counting: list[tuple[str, dict]] = [(f"{FAULTS}:kill_at_moment", {"trace": str(trace)})]
        for folder, prepare in zip(folders, (counting, [])):
            ended = made.start(folder, prepare, again=not prepare)
            assert ended.statuses == [0], ended.printed
        made.moments.extend(json.loads(trace.read_text()))
        return made

    return of


def draw_moment(draw: random.Random, moments: list, possible: tuple[str, ...] | None = None) -> int:
    """The number of a moment. All kinds of moments and of files are equally probable."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, (moment, path, _) in enumerate(moments):
        if possible is None or moment in possible:
            groups.setdefault((moment, re.sub(r"[0-9a-f]{32}|\d+", "#", path)), []).append(number)
    return draw.choice(draw.choice(list(groups.values())))


def check_goes_on(unbroken: Unbroken, folder: Path) -> str:
    """Start a command again that was broken off; return what it did."""
    stood = {int(path.name[11:]) for path in folder.glob("out/checkpoint-*") if path.name[11:].isdigit()}
    finished = (folder / "out" / "all_results.json").exists()
    check_whole(folder, unbroken.earlier, unbroken.folders)
    ended = unbroken.start(folder, [], again=True)
    if ended.statuses == [2] and re.search("already holds|exists|is not an empty folder", ended.printed):
        outcome = "refused, as the files are whole"
    else:
        assert ended.statuses == [0] and not ended.left_behind, ended.printed
        outcome = "started anew"
        if finished and unbroken.writer.again:
            assert "this run is finished" in ended.printed
            outcome = "had finished"
        elif stood:
            assert f"resuming from out/checkpoint-{max(stood)} " in ended.printed, (stood, ended.printed)
            outcome = "resumed from the newest checkpoint"
    check_finished(folder, unbroken.folders)
    return outcome


@faults("kills while a file is written", 130)
def test_a_kill_at_a_call_of_the_system(seed, unbroken, tmp_path, record_property):
    draw = random.Random(seed)
    chosen = unbroken(draw.choice(NAMES))
    fatal, half = draw_moment(draw, chosen.moments), draw.random() < 0.7
    chosen.writer.earlier(tmp_path)
    arguments: dict[str, Any] = {"trace": "trace", "fatal": fatal, "half": half}
    ended = chosen.start(tmp_path, [(f"{FAULTS}:kill_at_moment", arguments)])
    assert ended.statuses == [-signal.SIGKILL] and not ended.left_behind, (chosen.moments[fatal], ended.printed)
    record_property("outcome", check_goes_on(chosen, tmp_path))


@faults("kills while a file is written", 70)
def test_a_kill_in_the_middle_of_a_file(seed, unbroken, tmp_path, record_property):
    """The system kills the process when a file gets one byte too many, also if torch or safetensors writes it."""
    draw = random.Random(seed)
    chosen = unbroken(draw.choice(NAMES))
    # A draft that will be renamed, and the first moment at which it is there.
    renamed = [(path, sizes) for moment, path, sizes in chosen.moments if moment == "rename" and any(sizes.values())]
    draft, sizes = draw.choice(renamed)
    unfinished = UNFINISHED.search(draft)
    assert unfinished, f"{draft} is renamed, but its name does not say that it is unfinished"
    named = draft[: unfinished.end(1)]
    begun = next(number for number, (_, path, _) in enumerate(chosen.moments) if path.startswith(named))
    arguments: dict[str, Any] = {"trace": "trace", "number": begun, "size": draw.randrange(max(sizes.values()))}
    chosen.writer.earlier(tmp_path)
    ended = chosen.start(tmp_path, [(f"{FAULTS}:limit_at_moment", arguments | {"kill": True})])
    assert ended.statuses == [-signal.SIGXFSZ] and not ended.left_behind, (draft, ended.printed)
    record_property("outcome", check_goes_on(chosen, tmp_path))
