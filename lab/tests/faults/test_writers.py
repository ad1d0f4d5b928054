"""Commands that are killed while they write a file leave the earlier file, and finish when they are started again."""

import random
import signal
from typing import Any

from lab.tests.helpers.fault_campaign import faults
from tests.helpers.file_writers import NAMES, check_goes_on, draw_growth, draw_moment

FAULTS = "tests.helpers.disk_faults"


@faults("kills while a file is written", 130)
def test_a_kill_at_a_call_of_the_system(seed, unbroken, folder, record_property):
    draw = random.Random(seed)
    chosen = unbroken(draw.choice(NAMES))
    fatal, half = draw_moment(draw, chosen.moments), draw.random() < 0.7
    chosen.writer.earlier(folder)
    arguments: dict[str, Any] = {"trace": "../trace", "fatal": fatal, "half": half}
    ended = chosen.start(folder, [(f"{FAULTS}:kill_at_moment", arguments)])
    assert ended.statuses[0] == -signal.SIGKILL and not ended.left_behind, (chosen.moments[fatal], ended.printed)
    record_property("outcome", check_goes_on(chosen, folder, fatal))


@faults("kills while a file is written", 70)
def test_a_kill_in_the_middle_of_a_file(seed, unbroken, folder, record_property):
    """The system kills the process when a file gets one byte too many, also if torch or safetensors writes it."""
    draw = random.Random(seed)
    chosen = unbroken(draw.choice(NAMES))
    number, size = draw_growth(draw, chosen.moments)
    arguments: dict[str, Any] = {"trace": "../trace", "number": number, "size": size}
    chosen.writer.earlier(folder)
    ended = chosen.start(folder, [(f"{FAULTS}:limit_at_moment", arguments | {"kill": True})])
    assert ended.statuses[0] == -signal.SIGXFSZ and not ended.left_behind, ended.printed
    record_property("outcome", check_goes_on(chosen, folder, number))
