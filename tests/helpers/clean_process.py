"""Run code where this project cannot be imported, as a user of a saved folder runs it."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def run_clean(code: str, folder: Path) -> str:
    """Run code with the folder as its argument, in a process that cannot import this project. Return its output."""
    blocked = "import sys\nfor name in ('modeling_bert_repro', 'tokenization', 'training'): sys.modules[name] = None\n"
    home = folder.parent / "home"
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-P", "-c", blocked + textwrap.dedent(code), str(folder)],
        cwd=folder.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout
