"""bert-repro app: its mistakes are one line and status 2, and it says what to install."""

import importlib.util
import shutil
import socket

import pytest

from bert_training.__main__ import main
from bert_training.app import command


@pytest.fixture
def with_gradio(monkeypatch):
    """Gradio passes for installed; these tests end before it is imported."""
    find = importlib.util.find_spec
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: find("json" if name == "gradio" else name))


def error_of(capsys, *words: str) -> str:
    assert main(["app", *words]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    return line


def test_without_gradio_it_says_what_to_install(pretrained, capsys, monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert 'pip install ".[train,app]"' in error_of(capsys, "--model", str(pretrained))


def test_the_folder_and_the_port_are_checked(with_gradio, tmp_path, pretrained, capsys):
    assert "there is no such folder" in error_of(capsys, "--model", str(tmp_path / "absent"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"--port {port}: cannot be opened" in error_of(capsys, "--model", str(pretrained), "--port", port)


@pytest.mark.parametrize("words", [[], ["--model", "m", "--port", "70000"], ["--model", "m", "--share"]])
def test_wrong_flags_end_with_status_2(capsys, words):
    try:
        status = main(["app", *words])
    except SystemExit as end:  # argparse's
        status = end.code
    assert status == 2 and "error:" in capsys.readouterr().err


def test_a_space_is_not_written_over_anything(with_gradio, tmp_path, pretrained, capsys):
    shutil.copytree(pretrained, tmp_path / "space")
    line = error_of(capsys, "--model", str(pretrained), "--space", str(tmp_path / "space"))
    assert "exists already; give the name of a new folder" in line
