"""Texts of other languages and forms in run_pretraining.py: what is said, recorded and refused."""

import json

import numpy as np
import pytest

from tests.helpers.pretraining_runs import pretrain

pytestmark = pytest.mark.usefixtures("no_pictures")
CHINESE = "南北心工作次数红木了上门。"
THAI = "เพราะให้เอเชียสูตรหรือการถือว่า"
TOKENIZER = "bert_training.pretraining.tokenizer"


def paragraphs(mark):
    rng = np.random.default_rng(5)
    words = ["the", "old", "house", "new", "river", "music", "king", "letter"]
    sentences = [" ".join(rng.choice(words, 9)) + f" {mark} " for _ in range(900)]
    return "\n\n".join("".join(sentences[start : start + 15]) + "\n" + sentences[start] for start in range(0, 900, 15))


@pytest.mark.parametrize("mark", ["।", "/"])
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
        assert "warning: so little of the text is used" in said and "on a line of its own" in said
    else:
        assert recorded["48"] > 0.9 and "warning: so little" not in said


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
    monkeypatch.setattr(f"{TOKENIZER}.learnt_tokenizer", lambda *_: pytest.fail("learnt a vocabulary"))
    (tmp_path / "a.txt").write_text("\n\n".join(f"{line}\n{line}{number}" for number in range(40)))
    flags = {"train_file": tmp_path / "a.txt", "tokenizer_name": None, "validation_split": 0.3}
    with pytest.raises(ValueError, match=message):
        pretrain(pretraining_flags("run", **flags, whole_word_mask="true"))


def test_the_field_of_the_text_is_a_flag_that_a_resumed_run_must_have(pretraining_flags, tmp_path, monkeypatch):
    rows = [{"text": "the king .\na letter .", "content": f"the old house .\na new river {n**3} ."} for n in range(60)]
    names = [{"id": row["text"], "content": row["content"]} for row in rows]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in names))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = {"train_file": tmp_path / "a.jsonl", "validation_split": 0.3, "save_steps": 1}
    with pytest.raises(ValueError, match=r"b\.jsonl:1: .* 'id', 'content'; name the field of the text with"):
        pretrain(pretraining_flags("run", **more | {"train_file": tmp_path / "b.jsonl"}, max_steps=1))
    with monkeypatch.context() as patch:
        patch.setattr("run_pretraining.save_results", lambda *_: None)  # as if the run were interrupted
        folder = pretrain(pretraining_flags("run", **more, max_steps=2, text_column="content"))
    assert json.loads((folder / "run.json").read_text())["flags"]["text_column"] == "content"
    again = pretraining_flags("run", **more, max_steps=2, resume_from_checkpoint="auto", text_column="content")
    with pytest.raises(
        ValueError, match=r"train: holds a corpus made from other input \(it differs in: text\); give the text"
    ):
        pretrain([word for word in again if word not in ("--text_column", "content")])
    pretrain(again)
    assert (folder / "all_results.json").is_file()
