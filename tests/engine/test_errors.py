"""bert_training/engine/errors.py: exit statuses; the user's mistakes are one line, and other errors keep their
traceback.
"""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from bert_training.engine.errors import UNEXPECTED, report_errors
from tests.helpers.repository import ROOT
from tokenization.errors import UserError


@pytest.fixture
def planted() -> Callable[[str], Callable[[], None]]:
    """A function that makes a function ``main`` with one statement."""
    return lambda statement: lambda: exec(statement, {"json": json, "UserError": UserError})


def test_a_users_mistake_is_one_line_and_status_2(planted, capsys, monkeypatch):
    mistake = planted("raise UserError('expected this, got that; do so')")
    monkeypatch.setattr(sys, "argv", ["run_x.py"])
    assert report_errors(mistake) == 2
    assert capsys.readouterr().err == "run_x.py: error: expected this, got that; do so\n"
    monkeypatch.setenv("BERT_REPRO_TRACEBACK", "1")
    assert report_errors(mistake) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("statement", ["json.loads('{')", "int('x')", "first, second = [1]", "raise ValueError('x')"])
def test_other_value_errors_keep_their_traceback(planted, capsys, statement):
    with pytest.raises(ValueError) as caught:
        report_errors(planted(statement))
    assert caught.value.__notes__ == [UNEXPECTED]
    assert capsys.readouterr().err == ""  # Python prints the traceback and the note when the process ends


def test_divergence_is_one_line_and_status_1(capsys):
    def diverged():
        raise FloatingPointError("step 3: the loss is nan")

    assert report_errors(diverged) == 1
    assert capsys.readouterr().err.endswith(": error: step 3: the loss is nan\n")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate")],
)
def test_memory_that_ends_is_one_line_and_status_1(capsys, monkeypatch, error):
    def main():
        raise error

    monkeypatch.setattr(sys, "argv", ["run_glue.py"])
    assert report_errors(main) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("run_glue.py: error: out of memory (")
    assert "--gradient_accumulation_steps gives the same training" in line


def _read_one_line(script: str) -> tuple[int, str]:
    """The status and the messages of a program whose reader ends after its first line, as of `... | head -1`."""
    program = f"import sys; from bert_training.engine.errors import report_errors; sys.argv = ['{script}']\n"
    program += "sys.exit(report_errors(lambda: [print(number) for number in range(100_000)] and None))"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout.readline() == "0\n"
    child.stdout.close()
    said = child.stderr.read()
    child.stderr.close()
    return child.wait(), said


@pytest.mark.slow
def test_a_reader_that_ends_early_ends_a_command_without_a_word():
    """As of `bert-repro inspect ... | head`: all that was wanted has been printed."""
    assert _read_one_line("inspect") == (0, "")
