"""Mistakes in the flags and in the data of run_pretraining.py: each is one clear error before any long work."""

import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from bert_training.pretraining import tokenizer as tokenizer_module
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


MISTAKES = {
    "no file of text": ({"train_file": "nowhere.txt"}, None),
    "empty": ({}, lambda path: path.write_text("")),
    "UTF-8": ({}, lambda path: path.write_bytes(b"good line\nbad \xff\xfe line\n")),
    "sentence": ({}, one_sentence),
    "over the model's maximum of 64": ({"max_seq_length": 65}, None),
    "--max_seq_length 65 is over": ({"max_seq_length": None, "phases": "32:0.5,65:0.5"}, None),
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


EARLY = {
    "no_such.txt: expected files named": {"validation_file": "no_such.txt"},
    "--max_seq_length 1024 is over the model's maximum of 512": {"config_name": "mini", "max_seq_length": 1024},
    "expected one of tiny": {"config_name": "huge"},
    "no such folder": {"resume_from_checkpoint": "nowhere/checkpoint-5"},
    "expected a folder, or a name on the Hub; there is no such": {"model_name_or_path": "no/such/model"},
    "held.txt: --objective mlm_nsp needs at least 2 documents": {"validation_file": "held.txt"},
}


@pytest.mark.parametrize("message", EARLY)
def test_mistakes_that_no_vocabulary_mends_are_found_before_one_is_learnt(
    pretraining_flags, tmp_path, monkeypatch, message
):
    monkeypatch.chdir(tmp_path)
    one_sentence(tmp_path / "held.txt")
    monkeypatch.setattr(tokenizer_module, "train_wordpiece", lambda *args, **more: pytest.fail("learnt a vocabulary"))
    learnt = {"tokenizer_name": None, "vocab_size": 300, "validation_split": None}
    if "model_name_or_path" in EARLY[message]:
        learnt = {"config_name": None}
    with pytest.raises(ValueError, match=re.escape(message)):
        pretrain(pretraining_flags("refused", **learnt | EARLY[message]))
