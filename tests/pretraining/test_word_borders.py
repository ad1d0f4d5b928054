"""bert_training/pretraining/tokenizer.py: whole words in scripts that have no spaces between words."""

import numpy as np
from transformers import AutoTokenizer

from bert_training.pretraining.masking import MaskSettings, mask_batch, masking_rule
from bert_training.pretraining.tokenizer import ideographs_apart, shares
from tokenization import build_tokenizer
from tokenization.train_wordpiece import train_wordpiece

CHINESE = "南北心工作次数红木了上门。"
WORDS = ["南北", "心", "工作", "次数", "红木", "了", "上门", "。"]
THAI = "เพราะให้เอเชียสูตรหรือการถือว่า"
ENGLISH = "the old house ."


def test_the_shares_worked_by_hand():
    """12 of the 13 characters are ideographs; 31 of Thai and 12 of English; segmented text has no long words."""
    assert shares([CHINESE], apart=True) == (12 / 13, 0)
    assert shares([f"{THAI} {ENGLISH}"], apart=True) == (0, len(THAI) / (len(THAI) + 12))
    assert shares([CHINESE * 3], apart=False) == (0, 0)  # punctuation ends a word, too
    assert shares([CHINESE[:-1] * 2], apart=False) == (0, 1)
    assert shares([" ".join(WORDS), "เพราะ ให้ เอเชีย"], apart=False) == (0, 0)
    assert shares([ENGLISH, "schöne Häuser " + "x" * 50], apart=True) == (0, 0)


def test_segmented_chinese_is_masked_word_by_word(tmp_path):
    """The way that the messages advise: spaces between words, and a vocabulary learnt without ideographs apart."""
    text = " ".join(WORDS)
    flags = {"layout": "compact", "output_dir": tmp_path, "min_frequency": 99}
    train_wordpiece(iter([text] * 5), 60, **flags, tokenize_chinese_chars=False)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert not ideographs_apart(tokenizer) and ideographs_apart(build_tokenizer(["[UNK]"]))
    assert tokenizer.tokenize("工作 心") == ["工", "##作", "心"]
    rule = masking_rule(tokenizer, MaskSettings(whole_word_mask=True))
    ids = np.array([tokenizer(text)["input_ids"]] * 200)
    _, labels = mask_batch(rule, ids, seed=1, epoch=0, index=np.arange(200))
    pieces = tokenizer.convert_ids_to_tokens(ids[0])
    inside = [place for place, piece in enumerate(pieces) if piece.startswith("##")]
    assert len(inside) == 5
    for place in inside:
        assert np.array_equal(labels[:, place] >= 0, labels[:, place - 1] >= 0) and (labels[:, place] >= 0).any()
