"""None of these, from the data to the answers: a run of run_glue.py that finds and stores a threshold."""

import csv
import json
import shutil
import subprocess
from types import SimpleNamespace

import run_glue
from bert_deploy import verify
from tests.helpers.model_folders import edit_json


def write(path, rows):
    path.write_text(
        "id,text,label\n" + "".join(f"r{number},{text},{label}\n" for number, (text, label) in enumerate(rows))
    )
    return str(path)


def test_rows_without_a_label_find_the_threshold_and_get_no_class(tmp_path, pretrained, monkeypatch, capsys):
    """They may be in each file. The predictions, a later evaluation, `verify` and the card know of them."""
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
    shutil.copytree(tmp_path / "run", tmp_path / "zero")  # a threshold that every text reaches is one, too
    stored = json.loads((tmp_path / "zero" / "config.json").read_text())["fine_tuning"]
    edit_json(tmp_path / "zero" / "config.json", fine_tuning=stored | {"abstain_below": 0.0})
    again = run("plain", f"--model_name_or_path={tmp_path / 'zero'}", "--calibrate")["eval_abstention"]["threshold"]
    stored = json.loads((tmp_path / "plain" / "config.json").read_text())["fine_tuning"]
    assert stored["abstain_below"] == again > 0
    capsys.readouterr()

    def in_this_process(words, **_):
        run_glue.main(words[2:])
        return subprocess.CompletedProcess(words, 0)

    # A process of its own imports torch for seconds.
    monkeypatch.setattr(verify, "subprocess", SimpleNamespace(run=in_this_process, DEVNULL=None))
    verify.main([str(tmp_path / "run")])
    said = capsys.readouterr().out
    assert "eval_abstention" in said and ", 0 differs" in said, said
