"""bert_training/pretraining/held_out.py: the draw of the held-out documents, in bounded memory."""

import tracemalloc
import zlib

import numpy as np
import pytest

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import held_out
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.held_out import is_held_out, lines_of_side
from bert_training.pretraining.text import Text


def documents(count=200):
    rng = np.random.default_rng(3)
    letters = list("aé।的𑁇 x")
    return [["".join(rng.choice(letters, rng.integers(1, 9))) for _ in range(rng.integers(0, 6))] for _ in range(count)]


def lines_of(texts):
    return [line for document in texts for line in (*document, None)]


@pytest.mark.parametrize("in_memory", [1 << 22, 120])
def test_the_draw_is_that_of_the_whole_document(monkeypatch, in_memory):
    """The side is that of the CRC-32 of the joined lines, as in earlier versions; long documents wait in a file."""
    monkeypatch.setattr(held_out, "_IN_MEMORY", in_memory)
    sides = {True: [], False: []}
    for document in documents():
        sides[zlib.crc32("\n".join(document).encode()) < 0.4 * 2**32].append(document)
        assert is_held_out(document, 0.4) == (document in sides[True])
    for side, expected in sides.items():
        assert len(expected) > 40
        assert list(lines_of_side(lines_of(documents()), 0.4, side)) == lines_of(expected)


@pytest.mark.slow
def test_the_memory_does_not_grow_with_a_document(tmp_path, monkeypatch, pretrained):
    """A document of 8 MB, of which the lines would need twice as much: reading, checking and drawing."""
    monkeypatch.setattr(held_out, "_IN_MEMORY", 1 << 19)
    path, line = tmp_path / "a.txt", "the old house a new river music in the night the king"
    path.write_text("the old house . a new river .\n\na letter . the king .\n\n" + f"{line}\n" * 150_000)
    flags = f"--output_dir x --train_file {path} --validation_split 0.5"
    text = Text(parse_arguments(PretrainingArguments, flags.split()))
    text.check = lambda: None
    tracemalloc.start()
    count = sum(line is None for side in (True, False) for line in lines_of_side(text.lines(), 0.5, side))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 3 and peak < path.stat().st_size // 2, peak


def test_the_lines_of_documents_make_the_corpus_of_their_lists(tmp_path, tokenizer_folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    texts = [["the old house .", "a new river ."], [], ["the king ."]]
    one = build_corpus(texts, tokenizer, tmp_path / "a", fingerprint="x")
    other = build_corpus(iter(lines_of(texts)), tokenizer, tmp_path / "b", fingerprint="x")
    assert one.fingerprint == other.fingerprint
    assert one.manifest["files"] == other.manifest["files"] and one.num_documents == 2
