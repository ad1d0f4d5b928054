"""bert_training/files/processes.py: a lock keeps other processes out, ends with its process, and leaves nothing that
matters.
"""

import os
import signal
import subprocess
import sys

import pytest

from bert_training.files import processes as locks
from bert_training.files.processes import hold, release
from tests.helpers.repository import ROOT
from tokenization.errors import UserError

# Takes the lock, says so, and keeps it until a line comes; or says why it was refused.
OTHER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from bert_training.files import processes as locks
try:
    locks.hold(Path({path!r}), "busy", wait={wait})
except ValueError as error:
    print(error)
    sys.exit(2)
child = os.fork() if {fork} else None
if child == 0:  # It speaks for both, because only now it has surely closed its copy of the lock.
    print("held", os.getpid(), flush=True)
    time.sleep(60)
if child is None:
    print("held None", flush=True)
sys.stdin.readline()
"""


def other(path, wait=False, fork=False) -> subprocess.Popen:
    script = OTHER.format(root=str(ROOT), path=str(path), wait=wait, fork=fork)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", script], **pipes)


def test_another_process_is_refused_until_the_lock_is_released(tmp_path):
    path = tmp_path / ".lock"
    hold(path, "busy")
    hold(path, "busy")  # This process holds it already.
    first = other(path)
    assert first.communicate()[0] == "busy\n" and first.returncode == 2
    release(path)
    assert not path.exists()
    release(path)
    second = other(path)
    assert second.stdout.readline() == "held None\n"
    with pytest.raises(UserError, match="busy"):
        hold(path, "busy")
    second.communicate("end\n")
    assert not path.exists(), "The end of the process should have removed the file."


@pytest.mark.parametrize("fork", [False, True])
def test_a_killed_process_leaves_a_file_that_refuses_nobody(tmp_path, fork):
    """Also not while a child of the killed process lives on, which had a copy of the open file."""
    path = tmp_path / ".lock"
    process = other(path, fork=fork)
    child = process.stdout.readline().split()[1]
    process.kill()
    process.wait()
    assert path.exists()
    hold(path, "busy")
    release(path)
    if fork:
        os.kill(int(child), signal.SIGKILL)
    process.communicate()


def test_a_child_process_does_not_end_the_lock(tmp_path):
    path = tmp_path / ".lock"
    hold(path, "busy")
    child = os.fork()
    if child == 0:
        locks.release_all()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    refused = other(path)
    assert refused.communicate()[0].startswith("busy") and refused.returncode == 2
    assert path.exists()
