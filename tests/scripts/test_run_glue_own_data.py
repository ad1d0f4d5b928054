"""run_glue.py on a user's own tables and with models of others, from end to end."""

import csv
import json
from pathlib import Path

import pytest

import run_glue
from bert_training.engine.errors import report_errors
from tests.helpers.model_folders import save_model

pytestmark = pytest.mark.usefixtures("no_pictures")

SHORT = ("--max_seq_length=16", "--max_steps=40", "--learning_rate=5e-3", "--per_device_train_batch_size=8",
         "--save_steps=0", "--eval_steps=100")  # fmt: skip
WORDS = ("red", "blue")


def write(folder: Path, name: str, header: str, row: str) -> str:
    """A table of 16 rows; ``row`` is filled with the number, the word and the class of each."""
    rows = [row.format(number=number, word=WORDS[number % 2], label=number % 2) for number in range(16)]
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return str(path)


def run(folder: Path, *argv: str) -> dict:
    run_glue.main([f"--output_dir={folder}", *SHORT, *argv])
    return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))


def refused(capsys, folder: Path, *argv: str) -> str:
    """The only line that a run with a user's mistake prints; it leaves no folder behind."""
    assert report_errors(lambda: run_glue.main([f"--output_dir={folder}", *SHORT, *argv])) == 2
    assert not folder.exists()
    return capsys.readouterr().err.strip().splitlines()[-1]


def lines(folder: Path) -> list[list[str]]:
    """The id of each row, and its label or score."""
    with open(folder / "predictions_test.csv", encoding="utf-8", newline="") as file:
        return [row[:2] for row in csv.reader(file)]


@pytest.fixture(scope="module")
def reviews(tmp_path_factory, pretrained) -> Path:
    """A model that was trained on one of two columns that could be the text, and scored on data to predict."""
    place = tmp_path_factory.mktemp("reviews")
    path = write(place, "train.csv", "stars,review,label", "{label},the {word} house,{word}")
    test = write(place, "test.csv", "id,review,label", "r{number},the {word} house,{word}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bert_training.tasks.fine_tuning.draw_curves", lambda *_: None)
        run(place / "run", f"--model_name_or_path={pretrained}", f"--train_file={path}", f"--validation_file={path}",
            f"--test_file={test}", "--text_column", "review", "--label_column", "label")  # fmt: skip
    return place


def test_the_columns_are_recorded_and_stored_with_the_model(reviews):
    config = json.loads((reviews / "run" / "config.json").read_text(encoding="utf-8"))
    expected = {"texts_per_example": 1, "text_columns": ["review"], "label_column": "label"}
    assert {name: config["fine_tuning"][name] for name in expected} == expected
    recorded = json.loads((reviews / "run" / "run.json").read_text(encoding="utf-8"))
    assert {name: recorded[name] for name in expected} == expected
    assert recorded["flags"]["text_column"] == ["review"]


def test_data_to_predict_with_labels_is_scored_and_predicted(reviews, capsys):
    results = json.loads((reviews / "run" / "all_results.json").read_text(encoding="utf-8"))
    assert results["eval_accuracy"] == results["test_accuracy"] == 1.0
    assert 0 < results["test_loss"] < 0.7
    assert lines(reviews / "run")[1:3] == [["r0", "red"], ["r1", "blue"]]
    assert "Nothing was measured on a test set" not in (reviews / "run" / "README.md").read_text(encoding="utf-8")


def test_later_commands_read_the_columns_of_the_training(reviews, tmp_path, capsys):
    model = f"--model_name_or_path={reviews / 'run'}"
    results = run(tmp_path / "again", model, f"--validation_file={reviews / 'train.csv'}", "--warmup_steps=100")
    assert results["eval_accuracy"] == 1.0
    config = json.loads((tmp_path / "again" / "config.json").read_text(encoding="utf-8"))
    assert config["fine_tuning"]["text_columns"] == ["review"]
    alone = write(tmp_path, "new.csv", "review", "the {word} house")
    assert set(run(tmp_path / "new", model, f"--test_file={alone}")) & {"test_accuracy", "eval_accuracy"} == set()
    assert lines(tmp_path / "new")[1:3] == [["0", "red"], ["1", "blue"]]
    pairs = write(tmp_path, "pairs.csv", "text_a,text_b", "the {word} house,{word}")
    told = refused(capsys, tmp_path / "no", model, f"--test_file={pairs}", "--text_column", "text_a", "text_b")
    assert "It was trained on single texts, got pairs of texts" in told


# --- Models of others ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "names"), [(2, ("LABEL_0", "LABEL_1")), (1, None)])
def test_a_model_without_names_is_evaluated_and_predicts(tmp_path, pretrained, outputs, names):
    """transformers names the outputs of a model LABEL_0, LABEL_1 and so on, and one output is a score."""
    model = save_model(tmp_path / "model", pretrained, "BertForSequenceClassification", num_labels=outputs)
    dev = write(tmp_path, "dev.csv", "text,label", "the {word} house,{label}")
    new = write(tmp_path, "new.csv", "text", "the {word} house")
    results = run(tmp_path / "run", f"--model_name_or_path={model}", f"--validation_file={dev}", f"--test_file={new}")
    assert "eval_accuracy" in results if names else "eval_pearson" in results
    predicted = {label for _, label in lines(tmp_path / "run")[1:]}
    assert len(lines(tmp_path / "run")) == 17
    assert predicted <= set(names) if names else all(float(score) for score in predicted)
    run(tmp_path / "alone", f"--model_name_or_path={model}", f"--test_file={new}")
    assert lines(tmp_path / "alone") == lines(tmp_path / "run")
