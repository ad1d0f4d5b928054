"""bert_training/inputs/hub_datasets.py: the splits of a data set of the Hub, here of a stand-in for the library."""

import datasets
import pytest

from bert_training.inputs.hub_datasets import AS_FILES, load_dataset, load_from_hub


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ({"train": 1, "validation": 2, "test": 3, "more": 4}, {"train": 1, "validation": 2, "test": 3}),
        ({"train": 1, "test": 3}, {"train": 1, "validation": 3}),
        ({"validation": 2}, {"validation": 2}),
        ({"train": 1, "dev": 2, "test": 3}, {"train": 1, "validation": 2, "test": 3}),
        ({"train": 1, "valid": 2}, {"train": 1, "validation": 2}),
        ({"train": 1, "val": 2, "test": 3}, {"train": 1, "validation": 2, "test": 3}),
    ],
)
def test_a_test_split_replaces_a_missing_validation_split(monkeypatch, splits, expected):
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names: asked.append(names) or splits)
    assert load_from_hub("glue", "mrpc", "give files") == expected
    assert asked == [("glue", "mrpc")]


def test_a_data_set_without_splits_to_evaluate_on_is_refused(monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", lambda *names: {"train": 1, "more": 2})
    with pytest.raises(
        ValueError,
        match=r"expected a split called validation or test to evaluate on; got \['train', 'more'\]; save the",
    ) as told:
        load_from_hub("glue", None, "give files")
    assert f"; {AS_FILES} (run_glue.py and run_ner.py can hold some of it out: " in str(told.value)


# --- folders of save_to_disk ---------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    rows.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": rows, "validation": rows}).save_to_disk(tmp_path / "splits")
    return tmp_path


def test_a_saved_data_set_is_opened_without_what_was_cached_in_its_folder(saved):
    """``map`` writes its rows beside the data; datasets.load_dataset would read them as further rows."""
    folder = saved / "splits"
    datasets.load_from_disk(folder)["train"].map(lambda row: {"text": row["text"] + " changed"})
    assert list((folder / "train").glob("cache-*.arrow"))
    splits = load_from_hub(str(folder), None, "give files")
    assert {name: rows["text"] for name, rows in splits.items()} == {"train": ["a", "b"], "validation": ["a", "b"]}
    assert load_dataset(datasets, str(folder), None, split="validation")["label"][:] == [0, 1]
