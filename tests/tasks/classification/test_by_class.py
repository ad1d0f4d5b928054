"""Scores by class and who is taken for whom, compared with scikit-learn."""

import warnings

import numpy as np
import pytest

from bert_training.cards.model_card import most_confused
from bert_training.tasks.classification.predictions import confusion
from bert_training.tasks.classification.scores import scores_by_class, shown, value_of, with_chosen
from bert_training.tasks.fine_tuning import goodness

NAMES = ("very angry", "loss", "f1:x")


@pytest.mark.parametrize(
    ("labels", "predicted"),
    [
        ([0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 0, 2]),
        ([0, 0, 0, 2], [0, 2, 0, 2]),  # no row of class 1, and none taken for it
        ([0, 0, 0, 2], [0, 1, 0, 2]),  # no row of class 1, but one taken for it
        ([0, 1, 1, 2], [0, 0, 0, 0]),  # two classes are never predicted
    ],
)
def test_the_scores_are_those_of_scikit_learn(labels, predicted):
    sklearn = pytest.importorskip("sklearn.metrics")
    with warnings.catch_warnings(action="error"):
        found = scores_by_class(np.array(predicted), labels, NAMES)
        options = {"labels": range(3), "target_names": NAMES, "output_dict": True, "zero_division": 0.0}
        report = sklearn.classification_report(labels, predicted, **options)
        for rate, name in (("precision", "precision"), ("recall", "recall"), ("f1-score", "f1")):
            assert [found["by_class"][one][name] for one in NAMES] == [report[one][rate] for one in NAMES]
        assert [one["support"] for one in found["by_class"].values()] == [report[one]["support"] for one in NAMES]
        for name in ("f1", "precision", "recall"):  # over the classes that occur, which is scikit-learn's default
            macro = getattr(sklearn, f"{name}_score")(labels, predicted, average="macro", zero_division=0.0)
            assert found[f"{name}_macro"] == pytest.approx(macro, abs=1e-15)
        counts = confusion(*([NAMES[number] for number in side] for side in (labels, predicted)), NAMES)
        matrix = [[counts[name].get(other, 0) for other in NAMES] for name in NAMES]
        assert (np.array(matrix) == sklearn.confusion_matrix(labels, predicted, labels=range(3))).all()
    assert sum(pair[0] for pair in most_confused(counts)) == len(labels) - np.trace(matrix)


def test_the_pairs_most_confused_come_first_with_the_rows_of_their_class():
    counts = {"a": {"a": 5, "b": 2}, "b": {"a": 3, "b": 1}, "c": {}}
    assert most_confused(counts) == [(3, "b", "a", 4), (2, "a", "b", 7)]


def test_a_class_is_named_after_a_colon_whatever_its_name_is():
    found = scores_by_class(np.array([0, 1, 2, 0]), [0, 1, 2, 2], NAMES)
    results = {f"eval_{name}": value for name, value in found.items()} | {"eval_loss": 1.0}
    assert value_of(results, "eval_f1:very angry") == found["by_class"]["very angry"]["f1"] == 2 / 3
    assert value_of(results, "eval_recall:f1:x") == 0.5
    several = {"eval_by_class": {"praise": {"average_precision": 0.75}}}
    assert value_of(several, "eval_average_precision:praise") == 0.75
    assert value_of(results, "eval_loss") == 1.0
    assert value_of(results, "eval_f1:sad") is value_of({}, "eval_f1:a") is None
    assert with_chosen(results, "eval_f1:loss")["eval_f1:loss"] == 1.0
    assert with_chosen(results, "eval_loss") is results
    assert with_chosen({}, "eval_f1:loss") == {}  # nothing was evaluated
    assert goodness("eval_f1:loss", 0.5) == 0.5 == -goodness("eval_loss", 0.5) == -goodness("eval_ece", 0.5)
    assert "by_class" not in shown(results)
    assert shown({"a": 1.0, "b": {}, "c": 2 / 3, "d": 7}) == "a 1.0, c 0.6667, d 7"
