"""The sources of the examples of a classification, and the messages about malformed files."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bert_training.tasks.classification.predictions import write_predictions
from bert_training.tasks.classification.sources import load_data
from tests.helpers.official_files import glue_arguments, glue_error, own, write_task

THREE_WAY = ("entailment", "neutral", "contradiction")


# --- Mistakes are named with their place -----------------------------------------------------------------


MISTAKES = [
    ("own.tsv", "text\tlabel\na\t1\nb\t1\n", "this and all other training examples (2) have the label '1'"),
    ("own.jsonl", '{"text": "a", "label": 1}\n{"text": null, "label": 0}\n', "row 2: expected a text, got nothing; fi"),
    ("own.jsonl", '{"text": "a", "label": 0.5}\n{"text": "b", "label": "x"}\n', "row 2: the label 'x' may be a class"),
    ("own.jsonl", '{"text": "a", "label": 0.5}\n{"text": "b", "label": "1e999"}\n', "row 2: expected a number; got '1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "expected"), MISTAKES)
def test_a_malformed_file_is_refused_with_its_place(tmp_path, name, content, expected):
    path = own(tmp_path, content, name)
    told = glue_error(train_file=path, validation_file=path)
    assert told.startswith(path) and expected in told


def test_a_score_out_of_range_is_refused(tmp_path):
    folder = write_task(tmp_path, "stsb")
    text = (folder / "dev.tsv").read_text(encoding="utf-8").replace("\t5.000", "\t5.001", 1)
    (folder / "dev.tsv").write_text(text, encoding="utf-8")
    assert "dev.tsv, row 3: expected a number from 0 to 5; got '5.001'" in glue_error(
        task_name="stsb", data_dir=str(folder)
    )


def test_missing_and_unfit_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.tsv"):
        load_data(glue_arguments(train_file=str(tmp_path / "no.tsv")))
    sheet = glue_error(train_file=str(tmp_path / "no.xlsx"))
    assert "no.xlsx: expected a file named .csv, .tsv, .jsonl, .json, .parquet" in sheet
    assert "no such folder" in glue_error(task_name="rte", data_dir=str(tmp_path / "none"))
    folder = write_task(tmp_path / "RTE", "rte")
    (folder / "dev.tsv").unlink()
    error = glue_error(task_name="rte", data_dir=str(folder))
    assert "expected the official dev.tsv of RTE there" in error
    assert "got test.tsv, train.tsv" in error
    assert "diagnostic-full.tsv, diagnostic.tsv of AX" in glue_error(task_name="ax", data_dir=str(folder))


def test_sources_that_contradict_each_other_are_refused(tmp_path):
    assert glue_error(task_name="rte", data_dir="a", train_file="b").startswith(
        "give only one of --data_dir and --train"
    )
    assert "--task_name: expected one of cola, sst2" in glue_error(task_name="rtee")
    assert "--data_dir needs --task_name" in glue_error(data_dir="a")
    assert "takes no data; leave out --data_dir" in glue_error(task_name="builtin_pair", data_dir="a")
    path = own(tmp_path, "text\tlabel\na\t1\nb\t0\n")
    assert "nothing to evaluate on; give --validation_file" in glue_error(train_file=path)
    assert "--do_predict: there is no test split" in glue_error(train_file=path, validation_file=path, do_predict=True)


# --- A user's own data -----------------------------------------------------------------------------------


def test_true_and_false_of_json_are_words(tmp_path):
    rows = [{"text": "a", "label": n} for n in (True, False)]
    path = own(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "own.jsonl")
    assert load_data(glue_arguments(train_file=path, validation_file=path)).task.labels == ("false", "true")


def test_a_file_to_predict_needs_no_labels(tmp_path):
    test = own(tmp_path, "id\ttext\nq1\ta\nq2\tb\n", "test.tsv")
    data = load_data(glue_arguments(test_file=test), model_labels=("no", "yes"))
    assert data.task.labels == ("no", "yes")
    assert data.splits["test"].index == ["q1", "q2"]
    assert "name its labels in id2label of its config.json" in glue_error(test_file=test)


def test_a_trained_head_keeps_its_label_order(tmp_path):
    folder = write_task(tmp_path / "mnli", "mnli")
    order = ("contradiction", "entailment", "neutral")
    data = load_data(glue_arguments(task_name="mnli", data_dir=str(folder)), model_labels=order)
    assert data.task.labels == order
    assert data.splits["train"].labels[:3] == [1, 2, 0]
    # Digits in the files still stand for the official classes.
    folder = write_task(tmp_path / "sst2", "sst2")
    given = glue_arguments(task_name="sst2", data_dir=str(folder), do_predict=True)
    data = load_data(given, model_labels=("positive", "negative"))
    assert data.splits["train"].labels[:2] == [1, 0]
    (path,) = write_predictions(tmp_path, data, {"test": np.tile([1.0, 0.0], (24, 1))})
    assert path.read_text(encoding="utf-8").split("\n")[1] == "0\t1"
    # Class names of another task are not used for this one.
    assert load_data(given, model_labels=("cat", "dog")).task.labels == ("negative", "positive")


def test_diagnostics_need_a_model_that_knows_the_labels(tmp_path):
    folder = write_task(tmp_path, "ax")
    assert "Give another model fine-tuned on MNLI" in glue_error(task_name="ax", data_dir=str(folder))


# --- The Hub ---------------------------------------------------------------------------------------------


def hub(monkeypatch, splits: dict, label_names=None) -> list:
    datasets = pytest.importorskip("datasets")
    asked = []
    made = {}
    for split, columns in splits.items():
        made[split] = datasets.Dataset.from_dict(columns)
        if label_names:
            made[split] = made[split].cast_column("label", datasets.ClassLabel(names=label_names))
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: asked.append(given) or datasets.DatasetDict(made))
    return asked


def test_glue_is_read_from_the_hub(monkeypatch):
    columns = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [0, 1, 2], "idx": [7, 8, 9]}
    hidden = columns | {"label": [-1, -1, -1]}
    splits = {"train": columns, "validation_matched": columns, "validation_mismatched": columns}
    splits |= {"test_matched": hidden, "test_mismatched": hidden}
    asked = hub(monkeypatch, splits, list(THREE_WAY))
    data = load_data(
        glue_arguments(task_name="mnli", do_predict=True), model_labels=("contradiction", "entailment", "neutral")
    )
    assert asked == [("nyu-mll/glue", "mnli")]
    assert set(data.splits) == set(splits)
    assert data.splits["train"].labels == [1, 2, 0]
    assert data.splits["test_matched"].index == ["7", "8", "9"]
    assert load_data(glue_arguments(task_name="mnli")).splits.keys() == set(list(splits)[:3])


def test_other_data_sets_of_the_hub(monkeypatch):
    columns = {"text": ["a", "b"], "label": [1, 0]}
    hub(monkeypatch, {"train": columns, "test": columns}, ["neg", "pos"])
    data = load_data(glue_arguments(dataset_name="imdb"))
    assert (data.task.labels, data.splits["train"].labels) == (("neg", "pos"), [1, 0])
    assert data.splits["validation"].facts["source"] == "imdb  test"
    hub(monkeypatch, {"train": columns | {"label": [1, -1]}, "validation": columns}, ["neg", "pos"])
    assert "imdb  train, row 2: expected a label, got nothing" in glue_error(dataset_name="imdb")
    hub(monkeypatch, {"train": {"a": ["x"], "b": ["y"], "c": ["z"], "label": [1]}})
    assert "got neither among 'a', 'b', 'c', 'label'; name the text" in glue_error(dataset_name="imdb")
    hub(monkeypatch, {"extra": columns})
    assert "expected the splits train, validation, test; got extra" in glue_error(dataset_name="imdb")


@pytest.mark.parametrize("kind", [ConnectionError, RuntimeError])  # `datasets` raises RuntimeError for its scripts.
def test_offline_hub_is_one_clear_error(monkeypatch, kind):
    datasets = pytest.importorskip("datasets")

    def offline(*given):
        raise kind("Couldn't reach the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    error = glue_error(task_name="rte")
    expected = "--dataset_name nyu-mll/glue, which --task_name rte reads by default: cannot be loaded (Couldn't reach"
    assert error.startswith(expected)
    assert "--data_dir FOLDER" in error
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    assert "import of datasets halted" in glue_error(task_name="rte")


# --- Real files ------------------------------------------------------------------------------------------


REAL = Path(os.environ.get("BERT_REPRO_DATA", "/nonexistent")) / "glue"


@pytest.mark.realdata
@pytest.mark.skipif(not REAL.is_dir(), reason="BERT_REPRO_DATA names no folder with a glue folder in it")
@pytest.mark.parametrize(
    ("task", "train", "dev", "test", "positive_dev"),
    [("cola", 8551, 1043, 1063, 721), ("sst2", 67349, 872, 1821, 444), ("mrpc", 3668, 408, 1725, 279),
     ("stsb", 5749, 1500, None, None)],
)  # fmt: skip
def test_the_real_files_have_their_published_sizes(task, train, dev, test, positive_dev):
    data = load_data(glue_arguments(task_name=task, data_dir=str(REAL), do_predict=test is not None))
    assert len(data.splits["train"]) == train
    assert len(data.splits["validation"]) == dev
    if test:
        assert len(data.splits["test"]) == test
        assert sum(data.splits["validation"].labels) == positive_dev
    else:
        assert 0 <= min(data.splits["train"].labels) < max(data.splits["train"].labels) == 5.0
