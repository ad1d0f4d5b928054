"""All scripts refuse a vocabulary that lacks special tokens, and do so before they read any data."""

import pytest
from transformers import BertConfig

import run_glue
import run_pretraining
from bert_training.engine.output_folder import LOCK
from bert_training.inputs.models import check_fit
from bert_training.pretraining.masking import MaskSettings, masking_rule
from tokenization import build_tokenizer
from tokenization.special_tokens import check_special_tokens

PIECES = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]


def test_every_missing_token_is_named():
    for missing, purpose in (("[PAD]", "padding"), ("[CLS]", "the beginning"), ("[SEP]", "the end of every segment")):
        pieces = [piece for piece in [*PIECES, "[PAD]", "[MASK]"] if piece != missing]
        with pytest.raises(ValueError, match=rf"has no \{missing[:-1]}\], which {purpose}.* needs; .*vocabulary"):
            check_special_tokens(build_tokenizer(pieces))
    tokenizer = build_tokenizer([*PIECES, "[PAD]"])
    check_special_tokens(tokenizer)
    for check in (
        lambda: check_special_tokens(tokenizer, masking=True),
        lambda: masking_rule(tokenizer, MaskSettings()),
    ):
        with pytest.raises(ValueError, match=r"has no \[MASK\], which masked-language modelling needs"):
            check()
    with pytest.raises(ValueError, match=r"has no \[PAD\]"):
        check_fit(BertConfig(vocab_size=11), build_tokenizer(PIECES), 8)


@pytest.mark.parametrize(("pieces", "missing"), [(PIECES, "PAD"), ([*PIECES, "[PAD]"], "MASK")])
def test_the_scripts_refuse_such_a_vocabulary_before_any_work(tmp_path, pieces, missing):
    build_tokenizer(pieces).save_pretrained(tmp_path / "vocabulary")
    (tmp_path / "a.txt").write_text("Unwanted. Running.\n\nUn. Wa.\n\n" * 9)
    flags = ["--tokenizer_name", str(tmp_path / "vocabulary"), "--config_name", "tiny", "--max_seq_length", "16"]
    text = ["--train_file", str(tmp_path / "a.txt"), "--validation_file", str(tmp_path / "a.txt")]
    with pytest.raises(ValueError, match=rf"has no \[{missing}\]"):
        run_pretraining.main([*flags, "--output_dir", str(tmp_path / "out"), *text])
    assert {path.name for path in (tmp_path / "out").iterdir()} <= {LOCK}
    if missing == "PAD":
        with pytest.raises(ValueError, match=r"has no \[PAD\]"):
            run_glue.main([*flags, "--output_dir", str(tmp_path / "tuned")])
