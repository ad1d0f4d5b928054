"""One table is divided: classes keep their shares, groups stay together, and what cannot be divided is refused."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from bert_training.tasks.classification import splits
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.splits import check_divided, divided
from tests.helpers.official_files import glue_arguments, glue_error, own


def sheet(tmp_path, classes: str, groups: str = "") -> str:
    """A table with a row for each letter of ``classes``, in the groups that the letters of ``groups`` name."""
    rows = [f"text {row},{label},{groups[row : row + 1] or row}" for row, label in enumerate(classes)]
    return own(tmp_path, "\n".join(["text,label,who", *rows]) + "\n", "own.csv")


def parts_of(path: str, **given) -> dict:
    """The data by fold, or with the key None."""
    folds = given.get("folds") if "fold" not in given else None
    plans = {number: {"fold": number} for number in range(1, folds + 1)} if folds else {None: {}}
    arguments = {number: glue_arguments(train_file=path, **given, **plan) for number, plan in plans.items()}
    return {number: divided(load_data(args), args) for number, args in arguments.items()}


def rows(examples) -> list[int]:
    return [int(text.split()[1]) for text in examples.texts[0]]


def test_a_share_is_held_out_as_scikit_learn_does(tmp_path, monkeypatch):
    classes = "aaab" * 10
    parts = parts_of(path := sheet(tmp_path, classes), validation_split=0.2)
    train, held_out = (parts[None].splits[split] for split in ("train", "validation"))
    oracle = StratifiedShuffleSplit(n_splits=1, test_size=0.2, random_state=42).split([0] * 40, [*classes])
    assert [rows(train), rows(held_out)] == [sorted(part.tolist()) for part in next(oracle)]
    assert Counter(held_out.labels) == {0: 6, 1: 2}
    assert held_out.where(0) == f"{path}, row {rows(held_out)[0] + 1}"
    again = parts_of(path, validation_split=0.2)[None].facts()
    assert again == parts[None].facts()
    assert len({part["sha256"] for part in again["splits"].values()}) == 2
    monkeypatch.setattr(splits, "SPLIT_SEED", 2)
    assert parts_of(path, validation_split=0.2)[None].facts() != again


def test_folds_hold_out_every_row_once(tmp_path):
    classes = "aabbb" * 6
    folds = parts_of(path := sheet(tmp_path, classes), folds=3)
    oracle = StratifiedKFold(3, shuffle=True, random_state=42).split([0] * 30, [*classes])
    assert [rows(folds[number].splits["validation"]) for number in (1, 2, 3)] == [part.tolist() for _, part in oracle]
    for one in folds.values():
        assert sorted(rows(one.splits["train"]) + rows(one.splits["validation"])) == [*range(30)]
    (alone,) = parts_of(path, folds=3, fold=2).values()
    assert alone.facts() == folds[2].facts()
    assert "fold 2 of 3 held out, by class" in alone.summary()


@pytest.mark.parametrize("given", [{"validation_split": 0.25}, {"folds": 4}])
@pytest.mark.parametrize("scores", [False, True])
def test_groups_stay_together(tmp_path, given, scores):
    classes, groups = "ab" * 20, "".join(letter * 4 for letter in "qrstuvwxyz")
    path = sheet(tmp_path, classes, groups)
    if scores:
        text = Path(path).read_text().replace(",a,", ",0.5,").replace(",b,", ",1.5,")
        Path(path).write_text(text)
    for one in parts_of(path, group_column="who", **given).values():
        train, held_out = one.splits["train"], one.splits["validation"]
        assert not set(train.groups) & set(held_out.groups)
        assert 8 <= len(held_out) <= 12 and len(train) + len(held_out) == 40


@pytest.mark.parametrize(("share", "most"), [(0.1, 10), (0.2, 20)])
def test_a_large_group_is_not_held_out_for_a_small_share(tmp_path, share, most):
    """One writer has 91 of 100 rows."""
    classes, groups = "a" * 60 + "b" * 31 + "ababababa", "x" * 91 + "qrstuvwyz"
    (data,) = parts_of(sheet(tmp_path, classes, groups), validation_split=share, group_column="who").values()
    assert 0 < len(data.splits["validation"]) <= most


@pytest.mark.parametrize(("pairs", "share", "held_out"), [(50, 0.01, 1), (50, 0.3, 30), (50, 0.5, 50), (10, 0.05, 1)])
def test_of_many_groups_the_share_is_held_out(tmp_path, pairs, share, held_out):
    parts = parts_of(sheet(tmp_path, "ab" * pairs), validation_split=share, group_column="who")
    assert len(parts[None].splits["validation"]) == held_out


def test_a_rare_class_does_not_change_how_much_is_held_out(tmp_path):
    parts = parts_of(sheet(tmp_path, "a" * 58 + "bb"), validation_split=0.3, group_column="who")
    assert len(parts[None].splits["validation"]) == 18


@pytest.mark.parametrize(
    ("classes", "groups", "given", "expected"),
    [
        ("aaab", "", {"validation_split": 0.5}, "at least 2 rows of each class, got fewer of 'b' (1); add rows"),
        (
            "aabbccddee",
            "",
            {"validation_split": 0.1},
            "The test_size = 1 should be",
        ),
        (
            "abbbbcc",
            "",
            {"folds": 3},
            "expected at least 3 rows of each class, got fewer of 'a' (1), 'c' (2)",
        ),
        ("ab", "", {"folds": 3}, "got fewer of 'a' (1), 'b' (1); add rows of it"),
        (
            "abab",
            "xxxx",
            {"validation_split": 0.5},
            "no row of the class 'a' is left to train on, because the rows of",
        ),
        (
            "a" * 9 + "b" * 9,
            "",
            {"validation_split": 0.5, "max_train_samples": 3},
            "this and all other training examples (3) have the label 'a'",
        ),
        ("aaaaaabbb", "uvwxyzqqr", {"folds": 3}, "no row of the class 'b' is left to hold out, because the rows of"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_remedy(tmp_path, classes, groups, given, expected):
    with pytest.raises(ValueError) as caught:
        parts_of(sheet(tmp_path, classes, groups), group_column="who" if groups else None, **given)
    assert expected in str(caught.value)


def test_training_without_validation_data_must_be_asked_for(tmp_path):
    path = sheet(tmp_path, "abab")
    assert "nothing to evaluate on; give --validation_file, --validation_split 0.1, or --v" in glue_error(
        train_file=path
    )
    (data,) = parts_of(path, validation_split=0).values()
    assert "no validation data: nothing will say how good the model is" in data.summary()
    assert list(data.splits) == ["train"]


def test_copies_on_both_sides_are_said(tmp_path):
    path = own(tmp_path, "text,label\n" + "good,a\nbad,b\n" * 10, "own.csv")
    (data,) = parts_of(path, validation_split=0.2).values()
    assert "warning: 4 of the 4 rows held out have the same text as one to train on" in data.summary()


def test_a_label_that_no_text_to_train_on_has_is_said(tmp_path, monkeypatch):
    path = own(tmp_path, "text,label\n" + "good,a|b\nbad,a\n" * 10 + "rare,a|c\n", "own.csv")
    seen = set()
    for seed in range(10):
        monkeypatch.setattr(splits, "SPLIT_SEED", seed)
        (data,) = parts_of(path, validation_split=0.5, label_separator="|").values()
        held_out = "rare" in data.splits["validation"].texts[0]
        assert ("warning: no text has the label c" in data.summary()) is held_out
        seen.add(held_out)
    assert seen == {True, False}


def test_the_rows_of_one_text_can_be_kept_together(tmp_path):
    rows = [f"question {row // 4},answer {row},{'ab'[row % 2]}" for row in range(40)]
    path = own(tmp_path, "\n".join(["question,answer,label", *rows]) + "\n", "own.csv")
    given = {"text_column": ["question", "answer"], "group_column": "question"}
    (data,) = parts_of(path, validation_split=0.25, **given).values()
    train, held_out = (data.splits[split].texts for split in ("train", "validation"))
    assert len(train) == 2 and not set(train[0]) & set(held_out[0])


def test_a_share_that_leaves_nothing_of_a_class_is_not_blamed_on_groups(tmp_path):
    with pytest.raises(ValueError, match="no row of the class 'b' is left to train on; change the flag"):
        parts_of(sheet(tmp_path, "a" * 98 + "bb"), validation_split=0.9)


def test_the_advice_for_a_task_of_glue_can_be_followed():
    """Its splits are fixed, so that no part of one can be held out."""
    args = SimpleNamespace(task_name="mrpc", dataset_name=None, folds=None, validation_split=None)
    with pytest.raises(ValueError, match=r"nothing to evaluate on; give --validation_file$"):
        check_divided(args, ["train"])
