"""Programs in several processes on this machine, as torchrun starts them."""

import os
import subprocess
import sys
from collections.abc import Iterable

from tests.helpers.repository import ROOT


def torchrun(program: str, flags: Iterable, processes: int = 2) -> subprocess.CompletedProcess:
    """Run a script of this project, or a program of tests/programs, on the CPU until all processes have succeeded."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, program, *map(str, flags)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done
