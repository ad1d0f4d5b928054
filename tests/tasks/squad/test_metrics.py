"""The SQuAD metrics are those worked by hand, and give the published scores of Google's predictions."""

import pytest

from bert_training.tasks.squad.metrics import (
    exact_match,
    f1_v1,
    f1_v2,
    normalize_answer,
    read_numbers,
    read_predictions,
    score,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat, sat!", "cat sat"),
        ("a theatre and an athlete", "theatre and athlete"),
        ("U.S.A.", "usa"),  # Punctuation is removed before articles, so that there is no article "a" in it.
        ("the-end", "theend"),
        ("«The» end", "« » end"),  # Only ASCII punctuation is removed, and the article is a word of its own.
        ("A", ""),
        (" \t\n", ""),
        ("\u00a0Caf\u00c9\u2003", "caf\u00e9"),
        ("x\u2019s", "x\u2019s"),
    ],
)
def test_answers_are_normalized_as_in_the_official_scripts(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "gold", "exact", "v1", "v2"),
    [
        ("the Cat.", "cat", 1, 1, 1),
        ("black cat", "cat", 0, 2 / 3, 2 / 3),  # The precision is 1/2, the recall is 1.
        ("cat cat dog", "cat cat cat", 0, 2 / 3, 2 / 3),  # Of three words in each, two are in common.
        ("a b c d", "d c e", 0, 2 * (2 / 3) * (2 / 3) / (4 / 3), 2 / 3),  # "a" is an article and is removed.
        ("dog", "cat", 0, 0, 0),
        ("", "cat", 0, 0, 0),
        ("the", "an", 1, 0, 1),  # Normalised, both are empty. The two official scripts differ here.
        ("", "", 1, 0, 1),
    ],
)
def test_scores_of_one_answer_worked_by_hand(prediction, gold, exact, v1, v2):
    assert exact_match(prediction, gold) == exact
    assert f1_v1(prediction, gold) == pytest.approx(v1, abs=1e-12)
    assert f1_v2(prediction, gold) == pytest.approx(v2, abs=1e-12)


def test_version_1_takes_the_best_gold_answer():
    gold = {"a": ["black cat", "cat"], "b": ["two dogs"], "c": ["x"]}
    assert score(gold, {"a": "Cat", "b": "dogs", "c": ""}) == {
        "exact_match": pytest.approx(100 / 3, abs=1e-12),
        "f1": pytest.approx(100 * (1 + 2 / 3) / 3, abs=1e-12),
    }


def test_version_2_worked_by_hand():
    gold = {"a": ["cat"], "b": ["two dogs", "the"], "c": [], "d": [], "e": ["the"]}
    predictions = {"a": "cat", "b": "dogs", "c": "", "d": "bird", "e": ""}
    odds = {"a": 3.0, "b": 1.0, "c": -2.0, "d": 2.0, "e": 9.0}
    result = score(gold, predictions, True, odds)
    # Normalised, "the" is empty. It is dropped beside another answer; if it is the only one, "" is right.
    assert result == {
        "exact": 60.0,
        "f1": pytest.approx(20 * (1 + 2 / 3 + 1 + 0 + 1), abs=1e-12),
        "total": 5,
        "HasAns_exact": pytest.approx(200 / 3),
        "HasAns_f1": pytest.approx(100 * (1 + 2 / 3 + 1) / 3, abs=1e-12),
        "HasAns_total": 3,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
        # If all answers are empty, 2 are right (c and d). With rising thresholds, c changes nothing, b adds 2/3 (at
        # 1.0), d loses 1, and a and e add 1 each.
        "best_exact": 60.0,
        "best_exact_thresh": 9.0,
        "best_f1": pytest.approx(100 * (2 + 2 / 3 - 1 + 1 + 1) / 5, abs=1e-12),
        "best_f1_thresh": 9.0,
    }
    at_one = score(gold, predictions, True, odds, threshold=1.0)
    assert at_one["f1"] == pytest.approx(20 * (0 + 2 / 3 + 1 + 1 + 0), abs=1e-12)
    assert at_one["best_f1"] == result["best_f1"]


def test_missing_predictions_are_refused(capsys):
    gold = {"a": ["cat"], "b": ["dog"]}
    assert score(gold, {"a": "cat", "z": "?"}) == {"exact_match": 50.0, "f1": 50.0}
    warnings = capsys.readouterr().err
    assert "1 questions have no prediction and score 0" in warnings
    assert "1 predictions for questions that the data does not have are ignored" in warnings
    with pytest.raises(ValueError, match="predictions of 1 of 2 questions are missing, the first is 'b'"):
        score(gold, {"a": "cat"}, version_2_with_negative=True)
    with pytest.raises(ValueError, match="null odds of 1 of 2 questions are missing, the first is 'a'"):
        score(gold, {"a": "cat", "b": ""}, True, {"b": 1.0})
    with pytest.raises(ValueError, match="predictions of 2 of 2 questions are missing"):
        score(gold, {"x": "cat"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"a": ["x"]}, {"a": ""}, False, {"a": 1.0}), "belong to SQuAD 2.0"),
        (({"a": ["x"]}, {"a": ""}, False, None, 1.0), "belong to SQuAD 2.0"),
        (({"a": ["x"]}, {"a": ""}, True, None, 1.0), "threshold needs null odds"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        score(*arguments)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "p.json: not valid JSON"),
        ("[]", "expected a JSON object, got"),
        ('{"a": null}', "question id -> an answer text; got {'a': None}"),
        ('{"a": 1}', "question id -> an answer text; got {'a': 1}"),
    ],
)
def test_bad_prediction_files_are_refused(tmp_path, content, message):
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_predictions(tmp_path / "p.json")


def test_files_of_numbers_must_contain_numbers(tmp_path):
    (tmp_path / "odds.json").write_text('{"a": 1, "b": -2.5}')
    assert read_numbers(tmp_path / "odds.json") == {"a": 1, "b": -2.5}
    for wrong in ('{"a": true}', '{"a": NaN}', '{"a": "1"}', '{"a": 1e999}', f'{{"a": -{"9" * 400}}}'):
        (tmp_path / "odds.json").write_text(wrong)
        with pytest.raises(ValueError, match=r"question id -> a number; got \{'a': "):
            read_numbers(tmp_path / "odds.json")
