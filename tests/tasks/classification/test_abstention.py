"""None of these: the threshold and its effects against what is counted by hand, and from the data to the answers."""

import csv
import json

import numpy as np
import pytest
from transformers import BertConfig

import run_glue
from bert_training.tasks.classification.abstention import abstention, find_threshold
from bert_training.tasks.classification.verdicts import judge_of

HIGHEST, RIGHT, OTHERS = (0.9, 0.7, 0.6, 0.4), (True, True, False, True), (0.8, 0.3)


def shares(highest) -> np.ndarray:
    """Of four classes, of which the first is the most probable."""
    return np.array([[one, *[(1 - one) / 3] * 3] for one in highest])


LABELS = [0 if right else 1 for right in RIGHT]


def test_the_example_of_the_module():
    found = abstention(shares(HIGHEST), LABELS, 0.5, shares(OTHERS))
    table = found.pop("risk_coverage")
    assert found == {
        "threshold": 0.5,
        "coverage": 0.75,
        "accuracy": pytest.approx(2 / 3),
        "right": 0.5,
        "other_recall": 0.5,
    }
    assert table[0] == {"threshold": 0.4, "coverage": 1.0, "accuracy": 0.75, "right": 0.75, "other_recall": 0.5}
    assert table[-1] == {"threshold": 0.7, "coverage": 0.5, "accuracy": 1.0, "right": 0.5, "other_recall": 0.5}
    assert "other_recall" not in abstention(shares(HIGHEST), LABELS, 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_threshold_treats_more_rows_rightly(seed):
    random = np.random.default_rng(seed)
    rows, others = random.dirichlet(np.ones(3), 60).round(1), random.dirichlet(3 * np.ones(3), 20).round(1)
    labels = random.integers(0, 3, 60)

    def treated(below: float) -> int:
        right = (rows.argmax(1) == labels) & (rows.max(1) >= below)
        return int(right.sum() + (others.max(1) < below).sum())

    found = find_threshold(rows, labels, others)
    assert treated(found) == max(treated(below) for below in np.linspace(0, 1, 201)) and 0 <= found <= 1


def test_without_other_texts_nineteen_of_twenty_right_answers_reach_the_threshold():
    highest = np.linspace(0.5, 0.99, 101)
    below = find_threshold(shares(highest), [0] * 101)
    assert (highest >= below).sum() == 96
    assert find_threshold(shares([0.9]), [1]) == 0.0  # no answer is right


def test_a_model_with_a_threshold_may_say_none():
    judge = judge_of(BertConfig(id2label={0: "red", 1: "old"}, fine_tuning={"abstain_below": 0.75}))
    assert judge(np.log([3.0, 1.0])).record()["label"] == "red"
    said = judge(np.log([1.0, 2.9])).record()
    assert said["label"] is None and said["abstain_below"] == 0.75 and said["probabilities"]["old"] > 0.74


def write(path, rows):
    path.write_text(
        "id,text,label\n" + "".join(f"r{number},{text},{label}\n" for number, (text, label) in enumerate(rows))
    )
    return str(path)


def test_rows_without_a_label_find_the_threshold_and_get_no_class(tmp_path, pretrained, monkeypatch):
    """They may be in each file. The predictions, a later evaluation and the card know of them."""
    monkeypatch.setattr("bert_training.tasks.fine_tuning.draw_curves", lambda *_: None)
    known = [("the red house", "red"), ("the old house", "old")]
    train = write(tmp_path / "train.csv", [*known * 16, ("of the river", "")])
    rows = [*known * 4, ("by the river", None), ("was sold", None)]
    valid = tmp_path / "valid.jsonl"
    lines = [{"id": f"r{number}", "text": text, "label": label} for number, (text, label) in enumerate(rows)]
    valid.write_text("".join(json.dumps(line) + "\n" for line in lines))
    test = write(tmp_path / "test.csv", [*known, ("it was written", ""), *known])
    files = [f"--validation_file={valid}", f"--test_file={test}", "--max_seq_length=12"]

    def run(name, *argv):
        run_glue.main([f"--output_dir={tmp_path / name}", *files, *argv, "--save_steps=0"])
        return json.loads((tmp_path / name / "all_results.json").read_text())

    training = (f"--train_file={train}", "--learning_rate=5e-3", "--max_steps=30", "--per_device_train_batch_size=8")
    results = run("run", f"--model_name_or_path={pretrained}", *training, "--calibrate=abstain")
    below = json.loads((tmp_path / "run" / "config.json").read_text())["fine_tuning"]["abstain_below"]
    found = results["eval_abstention"]
    assert 0 < below == found["threshold"] and found["right"] >= 0.5 and len(found["risk_coverage"]) == 7
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["data"]["splits"]
    assert {split: one["examples"] for split, one in facts.items()} == {
        **{"train": 32, "validation": 8, "test": 4, "other": 3, "test_other": 1}
    }
    with open(tmp_path / "run" / "predictions_test_other.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["id"] == "r2" and (row["label"] == "") == (results["test_abstention"]["other_recall"] == 1.0)
    with open(tmp_path / "run" / "predictions_other.csv", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["r32", "r8", "r9"]
    card = (tmp_path / "run" / "README.md").read_text()
    assert f"if shares.max() >= {below!r} else None" in card and "### None of these" in card
    assert "| test data, below | answered | right of these | right of all | texts of none left out |\n|---:|" in card

    model = f"--model_name_or_path={tmp_path / 'run'}"
    assert run("again", model)["eval_abstention"]["right"] == found["right"]  # the stored threshold
    assert run("other", model, "--calibrate=0.999")["eval_abstention"]["threshold"] == 0.999
    run("plain", model, "--calibrate")
    assert not json.loads((tmp_path / "plain" / "config.json").read_text())["fine_tuning"]["abstain_below"]
