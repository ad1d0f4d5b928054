"""run_glue.py on a user's own labels: scores by class, predictions with probabilities, calibration; from end to end."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import run_glue
from bert_training.cards.hub_upload import files_to_upload
from tests.helpers.script_checks import stopped_after_saving

WORDS = {"very angry": "red", "id": "blue", "label": "old"}
SHORT = ("--max_seq_length=12", "--learning_rate=5e-3", "--per_device_train_batch_size=8", "--save_steps=0")


def table(folder: Path, name: str, rows: int, classes=tuple(WORDS), first: int = 0) -> str:
    """A table whose every fifth row has the word of another class."""
    path = folder / name
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        for number in range(rows):
            label = classes[number % len(classes)]
            word = WORDS["id"] if number % 5 == 4 else WORDS[label]
            writer.writerow([f'r,"{number + first}"', f"the {word} house", label])
    return str(path)


def run(folder: Path, *argv: str) -> dict:
    run_glue.main([f"--output_dir={folder}", *SHORT, *argv])
    return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))


def probabilities(folder: Path, split: str) -> tuple[list[str], np.ndarray]:
    with open(folder / f"predictions_{split}.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "label", "p_id", "p_label", "p_very angry"]
    assert [row[0] for row in rows[1:]] == [f'r,"{number}"' for number in range(len(rows) - 1)]
    return [row[1] for row in rows[1:]], np.array([row[2:] for row in rows[1:]], dtype=float)


@pytest.fixture(scope="module")
def own(tmp_path_factory, pretrained) -> Path:
    """Data of three classes, of which one has no row for validation, and a calibrated model in "run"."""
    place = tmp_path_factory.mktemp("own")
    table(place, "train.csv", 60)
    table(place, "valid.csv", 20, ("very angry", "id"))
    table(place, "test.csv", 15)
    files = [f"--{split}_file={place / name}.csv"
             for split, name in (("train", "train"), ("validation", "valid"), ("test", "test"))]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bert_training.tasks.fine_tuning.draw_curves", lambda *_: None)
        run(place / "run", f"--model_name_or_path={pretrained}", *files, "--max_steps=40", "--eval_steps=20",
            "--calibrate", "--load_best_model_at_end", "--metric_for_best_model=f1:id")  # fmt: skip
    return place


def test_the_results_are_those_of_the_predictions(own):
    """A class without rows has defined scores; all numbers follow from the files of predictions."""
    metrics = pytest.importorskip("sklearn.metrics")
    results = json.loads((own / "run" / "all_results.json").read_text())
    for split, kind, rows in (("validation", "eval", 20), ("test", "test", 15)):
        with open(own / ("valid.csv" if kind == "eval" else "test.csv"), newline="") as file:
            true = [row["label"] for row in csv.DictReader(file)]
        labels, shares = probabilities(own / "run", split)
        assert len(labels) == rows
        assert labels == [("id", "label", "very angry")[number] for number in shares.argmax(1)]
        report = metrics.classification_report(true, labels, output_dict=True, zero_division=0.0)
        assert results[f"{kind}_accuracy"] == metrics.accuracy_score(true, labels) > 0.5
        assert results[f"{kind}_f1_macro"] == pytest.approx(report["macro avg"]["f1-score"])
        assert results[f"{kind}_by_class"]["very angry"]["recall"] == report["very angry"]["recall"]
        assert (f"{kind}_ece" in results) and (f"{kind}_ece_uncalibrated" in results)
    nothing = dict.fromkeys(("precision", "recall", "f1", "support"), 0)
    assert results["eval_by_class"]["label"] in (nothing, nothing | {"precision": 0.0})
    assert results["eval_f1:id"] == results["eval_by_class"]["id"]["f1"] > 0
    counts = json.loads((own / "run" / "confusion.json").read_text())
    assert sum(counts["validation"]["id"].values()) == 10
    assert [*counts["test"]] == ["id", "label", "very angry"]


def test_the_temperature_goes_wherever_probabilities_are_shown(own, tmp_path, capsys):
    """In a later prediction and on the card; an evaluation uses it without being asked."""
    config = json.loads((own / "run" / "config.json").read_text())
    temperature = config["fine_tuning"]["temperature"]
    results = json.loads((own / "run" / "all_results.json").read_text())
    assert temperature == results["eval_temperature"] != 1
    model = f"--model_name_or_path={own / 'run'}"
    again = run(tmp_path / "again", model, f"--validation_file={own / 'valid.csv'}", f"--test_file={own / 'test.csv'}")
    assert again["eval_temperature"] == temperature
    for name in ("eval_ece", "eval_ece_uncalibrated", "test_ece", "eval_f1_macro"):
        assert again[name] == pytest.approx(results[name], abs=1e-6)
    assert again["eval_by_class"] == results["eval_by_class"]
    _, shares = probabilities(tmp_path / "again", "test")
    assert np.allclose(shares, probabilities(own / "run", "test")[1], atol=1e-6)
    card = (own / "run" / "README.md").read_text()
    assert f".div({temperature!r}).softmax(dim=0)" in card
    # A new training from this model is not calibrated, unless it is asked for.
    rest = (f"--train_file={own / 'train.csv'}", f"--validation_file={own / 'valid.csv'}", "--max_steps=1")
    assert "eval_temperature" not in run(tmp_path / "more", model, *rest)
    assert "temperature" not in json.loads((tmp_path / "more" / "config.json").read_text())["fine_tuning"]
    assert "Probabilities" not in (tmp_path / "more" / "README.md").read_text()


def test_the_card_shows_the_classes(own):
    card = (own / "run" / "README.md").read_text()
    assert "| Macro F1, the mean over the classes | 0." in card
    assert "### By class, on validation data\n\n| class | precision | recall | F1 | rows |" in card
    assert "| very angry | id | " in card.split("taken for")[1]
    uploaded = {path.name for path in files_to_upload(own / "run")}
    assert "confusion.json" in uploaded and not [name for name in uploaded if name.startswith("predictions")]


def test_the_temperature_of_the_best_evaluation_is_stored_if_the_run_goes_on_without_the_flag(
    own, pretrained, tmp_path
):
    files = [f"--{split}_file={own / name}.csv" for split, name in (("train", "train"), ("validation", "valid"))]
    saving = (f"--model_name_or_path={pretrained}", *files, "--max_steps=4", "--eval_steps=2", "--save_steps=2")
    best = ("--load_best_model_at_end", "--metric_for_best_model=accuracy", "--learning_rate=0")
    with stopped_after_saving(step=2):
        run(tmp_path / "run", *saving, *best, "--calibrate")
    results = run(tmp_path / "run", *saving, *best, "--resume_from_checkpoint=auto")
    assert results["best_step"] == 2
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["fine_tuning"]["temperature"] == results["eval_temperature"]


def test_a_test_file_with_other_labels_is_predicted_but_not_scored(own, tmp_path, capsys):
    path = tmp_path / "other.csv"
    path.write_text("id,text,label\na,the red house,happy\nb,the old house,sad\n")
    results = run(tmp_path / "run", f"--model_name_or_path={own / 'run'}", f"--test_file={path}")
    assert not [name for name in results if name.startswith("test_")]
    assert "the predictions are not scored" in capsys.readouterr().out
    assert len((tmp_path / "run" / "predictions_test.csv").read_text().splitlines()) == 3
    assert not (tmp_path / "run" / "confusion.json").exists()
