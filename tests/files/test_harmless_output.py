"""What a terminal would obey is spelled out; all other text stays as it is, and so do progress bars."""

import io
import logging
import sys

import pytest

from bert_training.files.harmless_output import harmless, harmless_output


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]52;c;cm0gLXJm\x07", "\\x1b[2J\\x1b]52;c;cm0gLXJm\\x07"),
        ("verified\rdiffers \x08\x7f\x9b31m", "verified\\rdiffers \\x08\\x7f\\x9b31m"),
        ("a\u202ecba\u2066", "a\\u202ecba\\u2066"),
        ("\udcff.txt", "\\udcff.txt"),
        ("one\ttwo\nthree \u2028", "one\ttwo\nthree \\u2028"),
    ],
)
def test_what_a_terminal_obeys_is_spelled_out(text, shown):
    assert harmless(text) == shown


@pytest.mark.parametrize(
    "text",
    ["naïve Ärger", "中文", "한국어 ひらカナ", "עברית\u200f", "عربي\u200e", "👨\u200d👩\u200d👧🏽", "x\u0301"],
)
def test_text_of_all_scripts_stays(text):
    assert harmless(text) == text


def test_print_log_and_traceback_are_covered(monkeypatch):
    out, error = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    handler = logging.StreamHandler(error)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    with harmless_output():
        print("\x1b[31m")
        logging.getLogger("hostile").warning("a\rb")
        with harmless_output():  # a command that calls another one
            print("\x07")
    assert sys.stdout is out and handler.stream is error
    assert out.getvalue() == "\\x1b[31m\n\\x07\n" and error.getvalue() == "a\\rb\n"
    with pytest.raises(KeyError), harmless_output():
        raise KeyError("\x1b")
    sys.excepthook(ValueError, ValueError("\x1b[2J"), None)  # as Python does after the error has left
    assert "ValueError: \\x1b[2J" in error.getvalue()
