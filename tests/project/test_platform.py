"""What a newcomer is told, and the one sentence on a system without the modules that the training needs."""

import dataclasses
import inspect
import re
import subprocess
import sys

import pytest

from bert_training.__main__ import commands, main
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import helps
from bert_training.inputs.flags.pretraining import PretrainingArguments
from tests.helpers.repository import ROOT


def hidden(module: str, code: str) -> subprocess.CompletedProcess:
    code = f"import sys; sys.modules[{module!r}] = None; " + code
    # Other packages may warn that the module is missing.
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)


def refusal(module: str) -> str:
    return f"training runs on Linux and macOS: this Python has no module {module}; on Windows, use WSL 2\n"


@pytest.mark.parametrize("module", ["fcntl", "resource"])
def test_training_refuses_in_one_sentence_where_a_module_is_missing(module):
    done = hidden(module, "import bert_training.pretraining.corpus")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", refusal(module))


def test_a_command_names_the_package_that_it_lacks(monkeypatch, capsys):
    """As after a plain `pip install .`."""
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.delitem(sys.modules, "bert_deploy.serve", raising=False)
    assert main(["serve", "--help"]) == 2
    text = 'needs the package fastapi, which is not installed; run pip install "modeling-bert-repro[deploy]"'
    assert capsys.readouterr() == ("", f"bert-repro serve: error: {text}\n")


def test_tokenization_works_without_both_modules():
    done = hidden(
        "fcntl", "sys.modules['resource'] = None; import tokenization.train_wordpiece as t; t.train_wordpiece"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_newcomer_is_told_where_to_begin(capsys):
    """In ten lines whose flags are those of the scripts."""
    assert main([]) == 0
    told = capsys.readouterr().out
    assert len(told.splitlines()) <= 10
    flags = {field.name for cls in (PretrainingArguments, GlueArguments) for field in dataclasses.fields(cls)}
    asked = set(re.findall(r"--(\w+)", told)) - {"help", "model", "text"}
    assert asked <= flags and commands().keys() >= set(re.findall(r"bert-repro (\w+)", told))


def test_flags_are_explained_on_a_python_that_takes_the_indentation_out_of_docstrings(monkeypatch):
    """Python 3.13 does; the explanations are the same."""
    explained = helps(PretrainingArguments)
    for cls in PretrainingArguments.__mro__[:-1]:
        if cls.__doc__:
            monkeypatch.setattr(cls, "__doc__", inspect.cleandoc(cls.__doc__))
    assert helps(PretrainingArguments) == explained and len(explained) > 50
