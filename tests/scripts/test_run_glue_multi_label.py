"""run_glue.py with several labels a text, from end to end, and what uses its models."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from transformers import BertConfig, pipeline

import run_glue
from bert_training.tasks import fine_tuning
from tests.helpers.model_folders import edit_json, save_model
from tests.helpers.records import results_of_rows

pytestmark = pytest.mark.usefixtures("no_pictures")

NAMES = ("blue", "old", "red")
SHORT = ("--max_seq_length=16", "--per_device_train_batch_size=8", "--save_steps=0", "--logging_steps=1",
         "--eval_steps=100")  # fmt: skip


def write(folder: Path) -> str:
    """24 texts; those with "old" have this label and a colour, and some texts have none."""
    rows = []
    for number in range(24):
        words = [
            word for word, there in (("red", number % 2), ("blue", number % 3 == 0), ("old", number % 4 < 2)) if there
        ]
        rows.append({"id": f"r{number}", "text": " ".join(["the", *words, "house"]), "label": words})
    path = folder / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(folder: Path, *argv: str) -> dict:
    run_glue.main([f"--output_dir={folder}", *SHORT, *argv])
    return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))


def losses(folder: Path) -> list[float]:
    events = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [event["loss"] for event in events if event["event"] == "train"]


def predicted(folder: Path, split: str = "test") -> list[dict]:
    return list(map(json.loads, (folder / f"predictions_{split}.jsonl").read_text(encoding="utf-8").splitlines()))


def scores(results: dict, prefix: str = "eval_") -> dict:
    return {name.removeprefix(prefix): value for name, value in results.items() if name.startswith(prefix)}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pretrained, data) -> Path:
    folder = tmp_path_factory.mktemp("several") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fine_tuning, "draw_curves", lambda *_: None)
        run(folder, f"--model_name_or_path={pretrained}", f"--train_file={data}", f"--validation_file={data}",
            f"--test_file={data}", "--max_steps=40", "--learning_rate=3e-3")  # fmt: skip
    return folder


@pytest.fixture
def thresholds(trained) -> list[float]:
    return BertConfig.from_pretrained(trained).fine_tuning["thresholds"]


def test_scores_and_predictions_are_those_of_a_plain_pipeline_with_the_stored_thresholds(trained, data, thresholds):
    results, config = json.loads((trained / "all_results.json").read_text()), BertConfig.from_pretrained(trained)
    assert (config.problem_type, tuple(config.id2label.values())) == ("multi_label_classification", NAMES)
    assert results["eval_f1_micro"] > 0.8 and len(thresholds) == 3
    assert scores(results, "test_") == scores(results)
    names = ("f1_macro", "f1_micro", "subset_accuracy")
    assert results_of_rows(trained) == {f"{split}_{name}" for split in ("eval", "test") for name in names}
    rows = list(map(json.loads, Path(data).read_text().splitlines()))
    classify = pipeline("text-classification", model=str(trained), top_k=None)
    labels = predicted(trained)
    for row, found, answer in zip(rows, classify([row["text"] for row in rows]), labels, strict=True):
        expected = {one["label"]: one["score"] for one in found}
        assert answer["id"] == row["id"] and answer["probabilities"] == pytest.approx(expected, abs=1e-6)
        given = [name for name, least in zip(NAMES, thresholds) if answer["probabilities"][name] >= least]
        assert answer["label"] == given
    with open(trained / "predictions_test.csv", newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["id", "label", "p_blue", "p_old", "p_red"] and len(table) == 25
    assert table[1][1] == "|".join(labels[0]["label"])
    assert predicted(trained, "validation") == labels  # of the same file


def test_an_evaluation_takes_the_stored_thresholds(tmp_path, trained, data, capsys):
    model = shutil.copytree(trained, tmp_path / "model")
    given = (f"--model_name_or_path={model}", f"--validation_file={data}", f"--test_file={data}")
    expected = scores(json.loads((trained / "all_results.json").read_text()))
    assert scores(run(tmp_path / "again", *given)) == expected
    assert "thresholds of the labels: stored with the model" in capsys.readouterr().out
    config = json.loads((model / "config.json").read_text())
    edit_json(model / "config.json", fine_tuning=config["fine_tuning"] | {"thresholds": [0.0, 1.0, 0.0]})
    run(tmp_path / "other", *given)
    assert {tuple(row["label"]) for row in predicted(tmp_path / "other")} == {("blue", "red")}
    assert "fine_tuning" in json.loads((tmp_path / "other" / "config.json").read_text())


def test_a_model_of_the_hub_without_thresholds_gives_labels_from_one_half_on(tmp_path, pretrained, data, capsys):
    several = {"num_labels": 3, "problem_type": "multi_label_classification", "id2label": dict(enumerate(NAMES))}
    several["label2id"] = {name: number for number, name in enumerate(NAMES)}
    model = save_model(tmp_path / "model", pretrained, "BertForSequenceClassification", **several)
    run(tmp_path / "run", f"--model_name_or_path={model}", f"--validation_file={data}", f"--test_file={data}")
    assert "thresholds of the labels: 0.5, the usual one" in capsys.readouterr().out
    for row in predicted(tmp_path / "run"):
        assert row["label"] == [name for name, share in row["probabilities"].items() if share >= 0.5]
    assert "[0.5] * classify.model.config.num_labels" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.slow
def test_micro_batches_and_transformers_network_take_the_same_steps(tmp_path, pretrained, data):
    given = (f"--model_name_or_path={pretrained}", f"--train_file={data}", f"--validation_file={data}", "--max_steps=4")
    run(tmp_path / "one", *given)
    run(tmp_path / "parts", *given, "--per_device_train_batch_size=2", "--gradient_accumulation_steps=4")
    run(tmp_path / "control", *given, "--model_impl=transformers")
    for name in ("parts", "control"):
        assert losses(tmp_path / name) == pytest.approx(losses(tmp_path / "one"), abs=1e-5)
