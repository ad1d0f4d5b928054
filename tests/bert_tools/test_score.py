"""bert_tools/score.py: the command `score`, with numbers worked by hand and those that were published."""

import json

import pytest

from bert_training.__main__ import main as run_command
from tests.helpers.squad_examples import squad_content


def test_a_file_of_answers_is_scored(tmp_path, capsys):
    content = squad_content(2, negative=True)
    questions = [one for part in content["data"] for text in part["paragraphs"] for one in text["qas"]]
    answered, empty = sorted(questions, key=lambda one: not one["answers"])
    (tmp_path / "data.json").write_text(json.dumps(content))
    right = {answered["id"]: answered["answers"][0]["text"], empty["id"]: "river"}
    (tmp_path / "predictions.json").write_text(json.dumps(right))
    (tmp_path / "odds.json").write_text(json.dumps({answered["id"]: -1, empty["id"]: 2.5}))
    data, predictions = str(tmp_path / "data.json"), str(tmp_path / "predictions.json")
    assert run_command(["score", data, predictions, "--version_2_with_negative"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["exact"] == scores["f1"] == 50 and scores["HasAns_f1"] == 100 and scores["NoAns_f1"] == 0
    assert (scores["total"], scores["HasAns_total"], scores["NoAns_total"]) == (2, 1, 1)
    more = ["--version_2_with_negative", "--na_prob_file", str(tmp_path / "odds.json")]
    # The official script has 1.0 as its default.
    for threshold, f1 in (["--na_prob_thresh", "0"], 100), (["--na_prob_thresh", "3"], 50), ([], 100):
        assert run_command(["score", data, predictions, *more, *threshold]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["f1"] == f1 and (result["best_f1"], result["best_f1_thresh"]) == (100, -1)
    assert run_command(["score", data, predictions]) == 2
    assert "has no answer" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.realdata
def test_the_command_prints_the_published_scores(real_data, capsys):
    """The predictions are read as they were submitted, and the data are packed with xz."""
    predictions = next((real_data / "assets").glob("1.1__BERT__ensemble*.json"))
    assert run_command(["score", str(real_data / "squad" / "dev-v1.1.json.xz"), str(predictions)]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert {name: round(value, 3) for name, value in scores.items()} == {"exact_match": 86.206, "f1": 92.196}
