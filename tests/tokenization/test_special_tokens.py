"""All scripts refuse a vocabulary that lacks special tokens, and do so before they read any data."""

import pytest
from transformers import BertConfig

from bert_training.inputs.models import check_fit
from bert_training.pretraining.masking import MaskSettings, masking_rule
from tokenization import build_tokenizer
from tokenization.bert_tokenizer import check_special_tokens

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
