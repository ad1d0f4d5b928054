"""A training that may not open enough files is refused at once; without room for them, it would wait for ever."""

import os
import resource
import subprocess
import sys

import pytest

from bert_training.files.open_files import ALONE, EACH, make_room
from tests.helpers import short_runs
from tests.helpers.repository import ROOT


@pytest.fixture
def limits(monkeypatch):
    """The limits that the process has, as (the one in force, the highest); they are not really set."""
    now = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: now.append(pair))
    return now


def test_the_limit_is_raised_only_as_far_as_needed(limits):
    make_room(4)
    assert limits == [(1024, 4096)]
    make_room(100)
    assert limits[1:] == [(ALONE + 100 * EACH, 4096)]
    limits[:] = [(10, resource.RLIM_INFINITY)]
    make_room(0)
    assert limits[1:] == [(ALONE, resource.RLIM_INFINITY)]
    limits[:] = [(resource.RLIM_INFINITY, resource.RLIM_INFINITY)]
    make_room(10**6)
    assert len(limits) == 1


@pytest.mark.parametrize(
    ("workers", "remedy"),
    [(0, r"\(ulimit -n 64\)$"), (2, r"\(ulimit -n 128\), or give fewer --dataloader_num_workers$")],
)
def test_a_limit_that_cannot_be_raised(limits, workers, remedy):
    limits[:] = [(40, 40)]
    with pytest.raises(ValueError, match=f"at most 40 files open here, and this training may need .*{remedy}"):
        make_room(workers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "workers", "status"), [(24, 2, 2), (40, 2, 2), (64, 2, 2), (40, 0, 2), (128, 2, 0), (64, 0, 0)]
)
def test_a_training_with_few_open_files_ends(tmp_path, short_data, pretrained, most, workers, status):
    flags = short_runs.flags("run_pretraining", short_data, tmp_path / "out", pretrained)
    done = subprocess.run(
        [sys.executable, "run_pretraining.py", *flags, "--dataloader_num_workers", str(workers)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)),
    )
    assert done.returncode == status, done.stderr
    assert status == 0 or f"may have at most {most} files open" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
