"""Systems without the modules that the training needs: one sentence instead of a traceback."""

import subprocess
import sys

import pytest

from tests.helpers.repository import ROOT

SCRIPTS = sorted(path.stem for path in ROOT.glob("*.py") if path.stem != "setup")
COMMANDS = ("training.tools.ask", "training.files.hub_upload", "training.tools.budget")


def hidden(module: str, code: str) -> subprocess.CompletedProcess:
    code = f"import sys; sys.modules[{module!r}] = None; " + code
    # Other packages warn of the same loss.
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)


def refusal(module: str) -> str:
    return f"training runs on Linux and macOS: this Python has no module {module}; on Windows, use WSL 2\n"


@pytest.mark.parametrize("module", ["fcntl", "resource"])
def test_training_says_it_in_one_sentence(module):
    done = hidden(module, "import training.pretraining.corpus")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refusal(module))


@pytest.mark.slow
@pytest.mark.parametrize("script", [*SCRIPTS, *COMMANDS])
def test_every_script_and_command_does(script):
    assert len(SCRIPTS) > 5
    done = hidden("fcntl", f"import runpy; runpy.run_module({script!r}, run_name='__main__')")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refusal("fcntl"))


def test_tokenization_needs_neither():
    done = hidden(
        "fcntl", "sys.modules['resource'] = None; import tokenization.train_wordpiece as t; t.train_wordpiece"
    )
    assert (done.returncode, done.stderr) == (0, "")
