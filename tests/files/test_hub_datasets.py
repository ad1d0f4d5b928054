"""training/files/hub_datasets.py: the splits of a data set of the Hub, here of a stand-in for the library."""

import datasets
import pytest

from training.files.hub_datasets import load_from_hub


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        ({"train": 1, "validation": 2, "test": 3, "more": 4}, {"train": 1, "validation": 2, "test": 3}),
        ({"train": 1, "test": 3}, {"train": 1, "validation": 3}),
        ({"validation": 2}, {"validation": 2}),
    ],
)
def test_a_test_split_replaces_a_missing_validation_split(monkeypatch, splits, expected):
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *names: asked.append(names) or splits)
    assert load_from_hub("glue", "mrpc", "give files") == expected
    assert asked == [("glue", "mrpc")]


def test_a_data_set_without_splits_to_evaluate_on_is_refused(monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", lambda *names: {"train": 1, "more": 2})
    with pytest.raises(ValueError, match=r"expected the splits train, validation or test; got \['train', 'more'\]"):
        load_from_hub("glue", None, "give files")


def test_the_reason_of_a_failure_is_one_line_with_a_remedy(monkeypatch):
    def offline(*names):
        raise ConnectionError("no route to host\nand a long explanation")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(ValueError) as refusal:
        load_from_hub("glue", None, "give --data_dir")
    assert str(refusal.value) == (
        "--dataset_name glue: cannot be loaded (no route to host); check the name, --dataset_config_name and the "
        "network, or give --data_dir"
    )
