"""lab/paper/command_line.py: flags become the words that one would type."""

import pytest

from lab.paper.plan import files_in, number_in_words, words_of


def test_words_of_every_kind_of_value():
    flags = {"train_file": ["a b.txt", "c.txt"], "name": "x", "on": True, "off": False, "steps": 0, "rate": 2e-3}
    assert "|".join(words_of(flags)) == "--train_file|a b.txt|c.txt|--name|x|--on|--steps|0|--rate|2e-3"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1_000_000, "1000000"), (0.0, "0"), (1.0, "1"), (0.8, "0.8"), (5e-5, "5e-5"), (1.5e-3, "1.5e-3")],
)
def test_numbers_are_written_as_by_hand(value, text):
    assert number_in_words(value) == text and float(text) == value


def test_a_number_is_never_rounded():
    with pytest.raises(AssertionError, match="more digits"):
        number_in_words(1 / 3)


def test_the_files_that_flags_name():
    flags = {"train_file": ["a", "b"], "validation_file": "c", "data_dir": "d", "lstm_size": 3, "seed": 1}
    assert files_in(flags) == ["a", "b", "c", "d"]
