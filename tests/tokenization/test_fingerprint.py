"""tokenization/bert_tokenizer.py: a tokenizer is known by its content, without the state of its last call."""

import hashlib
import json

import pytest
from transformers import BertTokenizer

from tokenization.bert_tokenizer import tokenizer_json, tokenizer_sha256

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "old", "new"]


def made_of(words, **settings):
    return BertTokenizer(vocab={word: number for number, word in enumerate(words)}, **settings)


def test_the_last_call_leaves_no_trace():
    tokenizer = made_of(VOCABULARY)
    before = tokenizer_sha256(tokenizer)
    tokenizer(["old new"], truncation=True, padding="max_length", max_length=3)
    assert json.loads(tokenizer.backend_tokenizer.to_str())["truncation"] is not None
    assert tokenizer_sha256(tokenizer) == before == tokenizer_sha256(made_of(VOCABULARY))


@pytest.mark.parametrize(
    "other", [made_of([*VOCABULARY, "house"]), made_of(VOCABULARY, do_lower_case=False)], ids=["words", "capitals"]
)
def test_another_content_is_another_tokenizer(other):
    assert tokenizer_sha256(other) != tokenizer_sha256(made_of(VOCABULARY))


def test_the_hash_is_that_of_the_canonical_text(tmp_path):
    """It can be computed from tokenizer.json alone: keys in order, and neither truncation nor padding."""
    tokenizer = made_of(VOCABULARY)
    tokenizer.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    text = json.dumps(content | {"truncation": None, "padding": None}, sort_keys=True, ensure_ascii=False)
    assert tokenizer_json(tokenizer) == text
    assert tokenizer_sha256(tokenizer) == hashlib.sha256(text.encode()).hexdigest()
