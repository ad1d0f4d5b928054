"""Mistakes in the flags and in the data of run_pretraining.py: each is one clear error before the training."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from bert_training.pretraining import tokenizer
from tests.helpers.pretraining_runs import pretrain

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_the_folder_can_be_used_again_after_a_mistake_was_corrected(pretraining_flags, tmp_path):
    """This includes a mistake that is found in the middle of the text."""
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a good line .\nanother .\n\n" * 400 + b"bad \xff line\n")
    more = {"tokenizer_name": None, "config_name": "tiny", "vocab_size": 150, "max_steps": 1}
    with pytest.raises(ValueError, match=r"bad\.txt:1201"):
        pretrain(pretraining_flags("again", train_file=bad, **more))
    folder = pretrain(pretraining_flags("again", **more))
    assert len(AutoTokenizer.from_pretrained(folder)) > 60
    with pytest.raises(ValueError, match="already holds a run"):
        pretrain(pretraining_flags("again", **more))


def one_sentence(path: Path):
    path.write_text("just one sentence here .\n")


def single_sentences(path: Path):
    path.write_text("\n\n".join(f"the old house {n} ." for n in range(40)))


MISTAKES = {
    "no file of text": ({"train_file": "nowhere.txt"}, None),
    "holds no text: no document .* with blank lines between them, or --validation_file": ({}, one_sentence),
    "needs at least 2 documents and a document of 2 sentences": ({"validation_split": 0.5}, single_sentences),
    "over the model's maximum of 64": ({"max_seq_length": 65}, None),
    "--max_seq_length 65 is over": ({"max_seq_length": None, "phases": "32:0.5,65:0.5"}, None),
    "expected one of tiny": ({"config_name": "huge"}, None),
    "there is no such": ({"model_name_or_path": "no/such/model", "config_name": None}, None),
    "nowhere/checkpoint-5: ": ({"resume_from_checkpoint": "nowhere/checkpoint-5"}, None),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_bad_input_is_refused_before_training(pretraining_flags, tmp_path, message):
    more, write = MISTAKES[message]
    if write:
        more = more | {"train_file": tmp_path / "bad.txt"}
        write(tmp_path / "bad.txt")
    with pytest.raises((ValueError, OSError), match=message):
        pretrain(pretraining_flags("refused", **more))
    assert not (tmp_path / "refused" / "metrics.jsonl").exists()


@pytest.mark.parametrize("wrong", [{"config_name": "huge"}, {"config_name": "mini", "max_seq_length": 1024}], ids=str)
def test_a_wrong_shape_is_said_before_a_vocabulary_is_learnt(pretraining_flags, monkeypatch, wrong):
    monkeypatch.setattr(tokenizer, "train_wordpiece", lambda *_, **more: pytest.fail("learnt a vocabulary"))
    with pytest.raises(ValueError, match=r"expected one of tiny|is over the model's maximum of 512"):
        pretrain(pretraining_flags("refused", tokenizer_name=None, vocab_size=300, **wrong))
