"""Holding out a part of tagged training data."""

import pytest

from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.tasks.ner import sources
from bert_training.tasks.ner.tagged_text import Sentence, Split
from bert_training.tasks.task_data import rows_of_units
from tokenization.errors import UserError

SIZES = [3, 1, 4, 1, 5, 9, 2, 6]  # sentences of every document


def data(documents: int) -> Split:
    numbers = [number for number, size in enumerate(SIZES) for _ in range(size)]
    sentences = [Sentence([f"word{row}"], ["O"], number, "train.txt") for row, number in enumerate(numbers)]
    return Split("train.txt", sentences, {"documents": documents, "sha256": "of the file", "tag_scheme": "BIO"})


def divided(whole: Split, **flags) -> tuple[Split, Split]:
    parts = sources._divided(
        whole, NerArguments(output_dir="run", model_name_or_path="base", train_file="train.txt", **flags)
    )
    return parts["train"], parts["validation"]


def words(split: Split) -> list[str]:
    return [sentence.words[0] for sentence in split.sentences]


@pytest.mark.parametrize("documents", [0, len(SIZES)])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_every_sentence_is_on_one_side_in_the_order_of_the_file(documents, share, monkeypatch):
    for seed in range(20):
        monkeypatch.setattr(sources, "SPLIT_SEED", seed)
        whole = data(documents)
        train, held_out = divided(whole, validation_split=share)
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


@pytest.mark.parametrize("documents", [0, len(SIZES)])
def test_folds_hold_out_every_sentence_once_and_documents_whole(documents):
    whole = data(documents)
    folds = [divided(whole, folds=f"{fold}/4") for fold in range(1, 5)]
    assert sorted(word for _, held_out in folds for word in words(held_out)) == sorted(words(whole))
    for train, held_out in folds:
        assert sorted(words(train) + words(held_out)) == sorted(words(whole))
        assert words(train) == sorted(words(train), key=words(whole).index)
        if documents:
            assert not {one.document for one in train.sentences} & {one.document for one in held_out.sentences}


def test_more_folds_than_documents_are_refused():
    with pytest.raises(UserError, match="--folds 9: expected at least 9 whole documents to hold out in turn, got 8"):
        divided(data(len(SIZES)), folds="1/9")


@pytest.mark.parametrize("fold", [1, 2])
def test_every_fold_refuses_a_word_that_only_one_of_them_will_write(fold, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"tokens": ["Ada"], "tags": ["B-PER"]}\n{"tokens": ["a\\tb"], "tags": ["B-PER"]}\n')
    args = NerArguments(output_dir="run", model_name_or_path="base", train_file=str(path), folds=f"{fold}/2")
    with pytest.raises(UserError, match="row 2"):
        sources.load_data(args)


def test_a_type_that_is_only_in_the_part_held_out_is_said():
    train, held_out = divided(data(0), folds="1/4")
    labels = ("O", "B-PER", "I-PER")
    assert "warning" not in sources.NerData("own", {"train": train, "validation": held_out}, labels).summary()
    held_out.sentences[0].tags = ["B-PER"]
    said = sources.NerData("own", {"train": train, "validation": held_out}, labels).summary()
    assert "the training data has no entities of type PER" in said and "warning: the model cannot learn these" in said


def test_a_large_document_is_passed_over():
    for seed in range(20):
        assert len(rows_of_units([0] * 200 + [1] * 5 + [2] * 5 + [3] * 5, 0.1, seed)) == 15
        assert rows_of_units([0] * 58 + [1] * 2, 0.1, seed) == [58, 59]
