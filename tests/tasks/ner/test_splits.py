"""Holding out a part of tagged training data."""

import pytest

from bert_training.tasks.ner.sources import _divided
from bert_training.tasks.ner.tagged_text import Sentence, Split
from bert_training.tasks.task_data import rows_of_units

SIZES = [3, 1, 4, 1, 5, 9, 2, 6]  # sentences of every document


def data(documents: int) -> Split:
    numbers = [number for number, size in enumerate(SIZES) for _ in range(size)]
    sentences = [Sentence([f"word{row}"], ["O"], number, "train.txt") for row, number in enumerate(numbers)]
    return Split("train.txt", sentences, {"documents": documents, "sha256": "of the file", "tag_scheme": "BIO"})


def words(split: Split) -> list[str]:
    return [sentence.words[0] for sentence in split.sentences]


@pytest.mark.parametrize("documents", [0, len(SIZES)])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_every_sentence_is_on_one_side_in_the_order_of_the_file(documents, share):
    for seed in range(20):
        whole = data(documents)
        parts = _divided(whole, share, seed)
        train, held_out = parts["train"], parts["validation"]
        assert sorted([*words(train), *words(held_out)], key=words(whole).index) == words(whole)
        assert words(train) == sorted(words(train), key=words(whole).index)
        if documents:
            assert not {one.document for one in train.sentences} & {one.document for one in held_out.sentences}
            assert train.facts["documents"] + held_out.facts["documents"] == len(SIZES)
            assert abs(len(held_out) - share * 31) <= 9
        else:
            assert abs(len(held_out) - share * 31) <= 0.5
        assert train.facts["file_sha256"] == held_out.facts["file_sha256"] == "of the file"
        assert train.facts["sha256"] != held_out.facts["sha256"]


def test_a_large_document_is_passed_over():
    for seed in range(20):
        assert len(rows_of_units([0] * 200 + [1] * 5 + [2] * 5 + [3] * 5, 0.1, seed)) == 15
        assert rows_of_units([0] * 58 + [1] * 2, 0.1, seed) == [58, 59]
