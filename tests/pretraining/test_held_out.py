"""bert_training/pretraining/held_out.py: the draw of the held-out documents."""

import zlib

import numpy as np

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.held_out import Side, is_held_out
from tests.helpers.small_corpora import data_bytes


def documents(count=200):
    rng = np.random.default_rng(3)
    letters = list("aé।的𑁇 x")
    return [["".join(rng.choice(letters, rng.integers(1, 9))) for _ in range(rng.integers(0, 6))] for _ in range(count)]


def lines_of(texts):
    return [line for document in texts for line in (*document, None)]


def test_the_draw_is_that_of_the_whole_document():
    """The side is that of the CRC-32 of the joined lines."""
    sides = {True: [], False: []}
    for document in documents():
        sides[zlib.crc32("\n".join(document).encode()) < 0.4 * 2**32].append(document)
        assert is_held_out(document, 0.4) == (document in sides[True])
    for held_out, expected in sides.items():
        assert len(expected) > 40
        assert list(Side(0.4, held_out).of(lines_of(documents()))) == lines_of(expected)


def test_the_lines_of_documents_make_the_corpus_of_their_lists(tmp_path, tokenizer_folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    texts = [["the old house .", "a new river ."], [], ["the king ."]]
    one = build_corpus(texts, tokenizer, tmp_path / "a", fingerprint="x")
    other = build_corpus(iter(lines_of(texts)), tokenizer, tmp_path / "b", fingerprint="x")
    assert one.facts == other.facts
    assert data_bytes(one.path) == data_bytes(other.path) and one.num_documents == 2
