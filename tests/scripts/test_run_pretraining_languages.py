"""Texts of other languages and forms in run_pretraining.py: what is said, recorded and refused."""

import json

import numpy as np
import pytest

from tests.helpers.pretraining_runs import pretrain

pytestmark = pytest.mark.usefixtures("no_pictures")
CHINESE = "南北心工作次数红木了上门。"
THAI = "เพราะให้เอเชียสูตรหรือการถือว่า"
ENGLISH = "the old house ."


def paragraphs(mark):
    rng = np.random.default_rng(5)
    words = ["the", "old", "house", "new", "river", "music", "king", "letter"]
    sentences = [" ".join(rng.choice(words, 9)) + f" {mark} " for _ in range(900)]
    return "\n\n".join("".join(sentences[start : start + 15]) + "\n" + sentences[start] for start in range(0, 900, 15))


@pytest.mark.parametrize("mark", [".", "।", "/"])
def test_a_text_without_ends_of_sentences_is_warned_of(pretraining_flags, tmp_path, capsys, mark):
    """A danda counts as a dot does; with a mark that is none, each paragraph is one long sentence."""
    (tmp_path / "a.txt").write_text(paragraphs(mark))
    more = {"train_file": tmp_path / "a.txt", "max_steps": 1, "max_seq_length": 48, "validation_split": 0.1}
    folder = pretrain(pretraining_flags("run", **more))
    said = capsys.readouterr().out
    recorded = json.loads((folder / "run.json").read_text())["used_tokens"]
    assert list(recorded) == ["48"] and f"{recorded['48']:.1%} (length 48)" in said
    if mark == "/":
        assert recorded["48"] < 0.4
        assert "warning: an epoch of instances of 48 tokens uses only" in said and "on a line of its own" in said
    else:
        assert recorded["48"] > 0.9 and "warning" not in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (CHINESE, r"--whole_word_mask: 86\.5% .* ideographs.* leave the flag out\. .*--tokenize_chinese_chars false"),
        (THAI, r"--whole_word_mask: .* words of more than 20 .*; leave the flag out\. Put spaces between the words"),
    ],
)
def test_whole_words_of_such_a_text_are_refused_before_a_vocabulary_is_learnt(
    pretraining_flags, tmp_path, monkeypatch, line, message
):
    monkeypatch.setattr("run_pretraining.load_or_learn_tokenizer", lambda *_: pytest.fail("learnt a vocabulary"))
    (tmp_path / "a.txt").write_text("\n\n".join(f"{line}\n{line}{number}" for number in range(40)))
    flags = {"train_file": tmp_path / "a.txt", "tokenizer_name": None, "validation_split": 0.3}
    with pytest.raises(ValueError, match=message):
        pretrain(pretraining_flags("run", **flags, whole_word_mask="true"))


def test_a_mixed_text_is_warned_of_with_its_share(pretraining_flags, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(f"{ENGLISH}\n{ENGLISH * 9} 南北 {n}" for n in range(60)))
    more = {"train_file": tmp_path / "a.txt", "tokenizer_name": None, "vocab_size": 60, "config_name": "tiny"}
    pretrain(pretraining_flags("run", **more, max_steps=1, validation_split=0.3, whole_word_mask="true"))
    said = capsys.readouterr().out
    assert "% of the tokens are ideographs, each of which this tokenizer makes a word" in said
