"""bert_training/pretraining/early_checks.py: what is refused before the text is read and a vocabulary is learnt."""

import pytest

from bert_training.flags.parsing import parse_arguments
from bert_training.flags.pretraining import PretrainingArguments
from bert_training.pretraining.early_checks import check_early


def check(*flags: str) -> None:
    check_early(parse_arguments(PretrainingArguments, ["--output_dir", "x", *flags]))


def test_the_longest_phase_must_fit_the_network():
    """The published sizes have 512 positions."""
    check("--config_name", "tiny", "--max_seq_length", "512")
    check("--config_name", "tiny", "--phases", "128:0.9,512:0.1")
    for flags in (("--max_seq_length", "513"), ("--phases", "128:0.9,513:0.1"), ("--phases", "513:0.9,128:0.1")):
        with pytest.raises(ValueError, match="513"):
            check("--config_name", "tiny", *flags)


def test_the_model_to_continue_must_exist(tmp_path):
    with pytest.raises(ValueError, match="nothing-here"):
        check("--model_name_or_path", str(tmp_path / "nothing-here"))


def test_the_checkpoint_to_resume_from_must_be_complete(tmp_path):
    check("--resume_from_checkpoint", "auto")
    with pytest.raises(ValueError, match=r"no such folder; give another, or 'auto'"):
        check("--resume_from_checkpoint", str(tmp_path / "checkpoint-5"))


def test_the_held_out_file_must_hold_pairs_where_they_are_needed(tmp_path):
    path = tmp_path / "held_out.txt"
    path.write_text("The old house . A new river .\n")
    with pytest.raises(ValueError, match=r"held_out\.txt: next-sentence prediction needs at least 2 documents"):
        check("--validation_file", str(path))
    check("--validation_file", str(path), "--objective", "mlm")
    path.write_bytes(b"fine .\n\n\xff\n")
    with pytest.raises(ValueError, match=r"held_out\.txt:3: expected UTF-8"):
        check("--validation_file", str(path), "--objective", "mlm")
