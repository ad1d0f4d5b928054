"""The tasks of GLUE: their table, their official files, and the built-in tasks."""

import json

import pytest

from bert_training.builtin_data import documentation
from bert_training.tasks.classification import glue
from bert_training.tasks.classification.sources import load_data
from tests.helpers.official_files import LAYOUTS, SPELLED, glue_arguments, glue_error, write_task

METRICS = {
    "cola": ("matthews_correlation",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearmanr"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
    "ax": ("matthews_correlation",),
}
THREE_WAY = ("entailment", "neutral", "contradiction")


# --- Official files --------------------------------------------------------------------------------------


def test_the_table_has_every_task_and_its_metrics():
    assert {name: task.metrics for name, task in glue.GLUE_TASKS.items()} == METRICS


@pytest.mark.parametrize("task", LAYOUTS)
def test_the_official_layout_of_every_task(tmp_path, task):
    folder = write_task(tmp_path / task, task)
    data = load_data(
        glue_arguments(task_name=task, data_dir=str(folder), do_predict=True), THREE_WAY if task == "ax" else None
    )
    expected = {
        "mnli": {"train", "validation_matched", "validation_mismatched", "test_matched", "test_mismatched"},
        "ax": {"validation", "test"},
    }
    assert set(data.splits) == expected.get(task, {"train", "validation", "test"})
    for split, examples in data.splits.items():
        assert len(examples) == 24
        assert len(examples.texts) == (1 if task in ("cola", "sst2") else 2)
        assert examples.texts[0][:4] == ['" he said was red number 0'] + [
            f"{opening} was {['red', 'green', 'blue'][row % len(SPELLED[task])]} number {row}"
            for row, opening in ((1, "it 's"), (2, '"'), (3, "the\u2028cat"))
        ]
        if split.startswith("test"):
            assert examples.labels is None
            assert examples.index == [str(i) for i in range(24)]
        elif task == "stsb":
            assert examples.labels == [0.0, 2.5, 5.0] * 8
        else:
            assert examples.labels == [i % len(SPELLED[task]) for i in range(24)]
    assert data.problem_type == ("regression" if task == "stsb" else "single_label_classification")
    json.dumps(data.facts())
    assert "labels: " in data.summary()


def test_label_order_is_that_of_the_hub():
    # The order is that of the card of nyu-mll/glue, so that a head that was trained elsewhere keeps its meaning.
    labels = {name: task.labels for name, task in glue.GLUE_TASKS.items()}
    assert labels["cola"] == ("unacceptable", "acceptable")
    assert labels["sst2"] == ("negative", "positive")
    assert labels["mrpc"] == ("not_equivalent", "equivalent")
    assert labels["qqp"] == ("not_duplicate", "duplicate")
    assert labels["mnli"] == labels["ax"] == THREE_WAY
    assert labels["qnli"] == labels["rte"] == ("entailment", "not_entailment")
    assert labels["wnli"] == ("not_entailment", "entailment")
    assert labels["stsb"] is None


def sst2(folder, content: str | bytes):
    """The training rows of these files of SST-2."""
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return load_data(glue_arguments(task_name="sst2", data_dir=str(folder))).splits["train"]


def test_quotation_marks_do_not_merge_rows(tmp_path):
    """pandas and `datasets`, by default, read these four rows as two, because for them a field that begins with a
    quotation mark goes on to the next one.
    """
    rows = ["sentence\tlabel", '" open\t1', "inner\t0", 'closed "\t1', 'last " one\t0']
    examples = sst2(tmp_path, "\n".join(rows) + "\n")
    assert examples.texts[0] == ['" open', "inner", 'closed "', 'last " one']
    assert examples.labels == [1, 0, 1, 0]


def test_broken_rows_of_an_old_qqp_file_are_left_out_with_a_message(tmp_path):
    folder = write_task(tmp_path, "qqp", rows=4000)
    lines = (folder / "train.tsv").read_text(encoding="utf-8").split("\n")
    lines[100:101] = ["100\tx\tx\ta question", "", "with line breaks\tother\t0"]
    (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
    data = load_data(glue_arguments(task_name="qqp", data_dir=str(folder)))
    assert len(data.splits["train"]) == 3999
    assert data.facts()["splits"]["train"]["broken_lines_left_out"] == [101, 102]
    assert "left out 2 broken lines: 101, 102" in data.summary()
    lines[200:204] = ["x"] * 4  # More than one bad row in a thousand is refused.
    (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
    assert "train.tsv: CSV parse error: Row #202: Expected 6 columns" in glue_error(
        task_name="qqp", data_dir=str(folder)
    )


def test_official_task_with_files_named_one_by_one(tmp_path):
    folder = write_task(tmp_path, "mnli")
    given = {"train_file": str(folder / "train.tsv"), "validation_file": str(folder / "dev_mismatched.tsv")}
    data = load_data(glue_arguments(task_name="mnli", **given))
    assert set(data.splits) == {"train", "validation_matched"}


# --- Predictions, features, built-in tasks ---------------------------------------------------------------


def test_diagnostics_in_the_folder_of_the_archive_and_without_its_second_file(tmp_path):
    folder = write_task(tmp_path / "diagnostic", "ax")
    given = glue_arguments(task_name="ax", data_dir=str(tmp_path), do_predict=True)
    assert load_data(given, THREE_WAY).to_predict == ["test"]
    (folder / "diagnostic.tsv").unlink()
    assert load_data(given, THREE_WAY).to_predict == ["validation"]
    assert (
        load_data(glue_arguments(task_name="rte", data_dir=str(write_task(tmp_path / "rte", "rte")))).to_predict == []
    )


def test_the_built_in_tasks(monkeypatch):
    pairs = [{"sentence1": "s", "sentence2": "t", "label": n} for n in (1, 0)]
    kinds = [{"text": "s", "label": kind} for kind in ("method", "class", "function")]
    monkeypatch.setattr(documentation, "pair_examples", lambda split: pairs)
    monkeypatch.setattr(documentation, "classification_examples", lambda split: kinds)
    data = load_data(glue_arguments())
    assert (data.name, data.splits["train"].labels, set(data.splits)) == (
        "builtin_pair",
        [1, 0],
        {"train", "validation"},
    )
    assert load_data(glue_arguments(task_name="builtin_classification")).splits["validation"].labels == [2, 0, 1]
