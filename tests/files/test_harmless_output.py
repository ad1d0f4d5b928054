"""What a terminal would obey is spelled out; all other text stays as it is."""

import pytest

from bert_training.files.harmless_output import harmless


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
