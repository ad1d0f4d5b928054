"""training/pretraining/sentences.py: where sentences end."""

import numpy as np
import pytest

from training.pretraining.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith paid 3.50 dollars.", '"Why?" he asked.', "He left."],
        ["J. R. R. Tolkien wrote it.", "It sold."],
        ["He came from the U.S. in May.", "Then he went home."],
        ["“Stop!” cried he.", "“Never.”", "She laughed...", "And ran.", "It was I.", "You know."],
        ["See No. 5 and p. 12.", "No.", "I will not!"],
        ["What?!", "Yes... no.", "(He did.)", "[It was.]", "1999 was good."],
        ["all lower here.", "next one.", "mr. x left."],
        ["Mr. and Mrs. Smith, Ph.D. students, vs. the rest."],
        ["one line without an end"],
    ],
)
def test_sentences_are_found_again(sentences):
    assert split_sentences("  " + "  ".join(sentences) + " ") == sentences


def test_cjk_full_stops_need_no_space():
    assert split_sentences("你好。世界！「再见。」好") == ["你好。", "世界！", "「再见。」", "好"]


def test_splitting_loses_no_text():
    rng = np.random.default_rng(1)
    for _ in range(300):
        text = "".join(rng.choice(list("aB1é.!?\"' (。—\u2028\t"), 60))
        assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
