"""Ids, words and labels that a file of predictions cannot hold are refused before the training, in every script."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from bert_training.tasks import swag
from bert_training.tasks.classification.sources import load_data as load_texts
from bert_training.tasks.ner.sources import load_data as load_sentences
from bert_training.tasks.task_data import as_ids, check_ids
from tests.helpers.official_files import glue_arguments
from tests.helpers.tagged_text import ner_arguments, write

LINE_ENDS = [c for c in map(chr, range(0x3000)) if len(f"a{c}b".splitlines()) > 1]


def refusal(ids: list, in_columns: bool = True) -> str:
    with pytest.raises(ValueError) as caught:
        check_ids(as_ids(ids), lambda row: f"file:{row + 2}", "id", in_columns)
    (told,) = str(caught.value).splitlines()
    assert "remove the column 'id', so that predictions are numbered by row" in told
    return told


def test_every_line_end_of_unicode_and_tabs_are_refused_in_an_id():
    assert len(LINE_ENDS) == 10  # those of the table at str.splitlines; \r\n is the eleventh
    for character in [*LINE_ENDS, "\t"]:
        told = refusal(["a", f"b{character}c"])
        assert told.startswith("file:3: expected an id of its own in the column 'id', without tabs and line ends")
        check_ids([f"b{character}c"], str, "id", in_columns=False)


@pytest.mark.parametrize("empty", ["", " ", "\u00a0", None, float("nan")])
def test_an_empty_id_is_refused(empty):
    expected = "file:3: expected an id of its own in the column 'id', by which predictions are told apart; got "
    assert refusal(["a", empty]).startswith(expected)
    assert refusal([empty, "a"], in_columns=False).startswith("file:2: expected an id")


@pytest.mark.parametrize("pair", [("a", "a"), (1, "1"), (1, 1.0), ("1", "1.0"), (-2, "-2.00"), (True, "True")])
def test_two_rows_with_one_id_are_refused(pair):
    told = refusal([pair[0], "x", pair[1]])
    assert told.startswith("file:4: expected an id of its own in the column 'id', by which predictions are told apart")
    assert f"; got '{pair[1]}', which file:2 has as well; correct it" in told


def test_ids_that_differ_and_rows_without_ids_are_accepted():
    check_ids(as_ids(["a", "A", "1", "01", "1.5", "a b", "ä", "1.0.0", 10, -1]), str, "id")
    check_ids(["0", "1"], str, None)


# --- run_glue.py -----------------------------------------------------------------------------------------

ODD = ['"a\tb"', '"line\nbreak"', '"a\rb"', "a\u2028b", "", "q1"]


@pytest.mark.parametrize("odd", ODD)
def test_a_file_to_predict_with_an_odd_id_is_refused_with_its_line(tmp_path, odd):
    path = write(tmp_path, f"id,text\nq1,a\n{odd},b\n", "test.csv")
    with pytest.raises(ValueError) as caught:
        load_texts(glue_arguments(test_file=path), model_labels=("no", "yes"))
    assert str(caught.value).startswith(f"{path}, row 2: expected an id ") and "\n" not in str(caught.value)
    # The same file trains, because its ids are not written anywhere.
    path = write(tmp_path, f"id,text,label\nq1,a,x\n{odd},b,y\n", "train.csv")
    assert len(load_texts(glue_arguments(train_file=path, validation_file=path)).splits["train"]) == 2


# --- run_swag.py -----------------------------------------------------------------------------------------


def choices(ids: list, split: str, tmp_path) -> swag.SwagData:
    rows = [{"id": id_, "sent1": "a", "ending0": "b", "ending1": "c", "label": 1} for id_ in ids]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "own.jsonl")
    good = write(tmp_path, json.dumps(rows[0]) + "\n", "good.jsonl")
    files = {"train_file": good, "validation_file": good, f"{split}_file": path}
    names = ("delimiter", "test_file", "dataset_name", "dataset_config_name", "max_train_samples", "max_eval_samples")
    return swag.load_data(SimpleNamespace(**(dict.fromkeys(names) | files)))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_ids_of_choices_are_checked_where_they_are_written(tmp_path, split):
    for ids in (["a", "b", "a"], [1, "x", 1.0], ["a", "b", ""]):
        with pytest.raises(ValueError, match=r"own\.jsonl, row 3: expected an id"):
            choices(ids, split, tmp_path)
        assert len(choices(ids, "train", tmp_path).splits["train"]) == 3


def test_the_predictions_of_choices_hold_any_id(tmp_path):
    ids = [f"a{character}b" for character in [*LINE_ENDS, "\t", ",", '"', "\r\n"]]
    part = choices(ids, "test", tmp_path).splits["test"]
    swag.write_predictions(tmp_path / "out.csv", part, np.zeros((len(ids), 2)))
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        assert [row[0] for row in csv.reader(file)] == ["index", *ids]


# --- run_ner.py ------------------------------------------------------------------------------------------

LABELS = ("O", "B-X", "I-X")


@pytest.mark.parametrize("word", ["foo\tbar", "foo\nbar", "foo\rbar", "\r\nfoo"])
def test_words_that_would_break_the_columns_are_refused(tmp_path, word):
    rows = [{"tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}, {"tokens": ["a", word], "ner_tags": ["O", "O"]}]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "own.jsonl")
    good = write(tmp_path, json.dumps(rows[0]) + "\n", "good.jsonl")
    for split in ("validation", "test"):
        files = {"train_file": good, "validation_file": good, f"{split}_file": path}
        with pytest.raises(ValueError, match=r"own\.jsonl, row 2: expected a word without tabs and line ends"):
            load_sentences(ner_arguments(**files))
    # In the training data they do no harm, because nothing is written about them.
    assert len(load_sentences(ner_arguments(train_file=path, validation_file=good)).splits["train"]) == 2


# --- run_squad.py and score ------------------------------------------------------------------------------
