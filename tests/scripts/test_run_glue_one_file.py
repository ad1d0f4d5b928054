"""run_glue.py on one table: a share or a fold is held out, or nothing is, from end to end."""

import json
from pathlib import Path

import pytest

import run_glue

pytestmark = pytest.mark.usefixtures("no_pictures")

SHORT = ("--max_seq_length=16", "--max_steps=4", "--learning_rate=5e-3", "--per_device_train_batch_size=8",
         "--save_steps=2", "--logging_steps=1")  # fmt: skip


@pytest.fixture(scope="module")
def sheet(tmp_path_factory) -> str:
    rows = [
        f"t{number};the {('red', 'blue')[number % 2]} house {number};{number % 2};{number // 4}" for number in range(40)
    ]
    path = tmp_path_factory.mktemp("sheet") / "mails.csv"
    path.write_text("\n".join(["ticket;text;label;writer", *rows]) + "\n")
    return str(path)


@pytest.fixture
def flags(pretrained, sheet):
    return ["--delimiter=;", f"--model_name_or_path={pretrained}", f"--train_file={sheet}"]


def run(folder: Path, *argv: str) -> dict:
    run_glue.main([f"--output_dir={folder}", *SHORT, *argv])
    name = "summary.json" if (folder / "summary.json").exists() else "all_results.json"
    return json.loads((folder / name).read_text(encoding="utf-8"))


def facts(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def test_the_part_held_out_is_the_same_when_a_run_resumes_and_is_found_again(tmp_path, flags, sheet):
    given = [*flags, "--validation_split=0.25", "--group_column=writer", "--id_column=ticket"]
    results = run(tmp_path / "run", *given)
    assert (tmp_path / "run" / "model.safetensors").is_file()
    splits = facts(tmp_path / "run")["data"]["splits"]
    assert (splits["train"]["examples"], splits["validation"]["examples"]) == (32, 8)
    assert "0.25 of it held out, groups of 'writer' together" in splits["validation"]["divided"]
    assert "8 (" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    # From the checkpoint of step 2, in another folder.
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    again = run(tmp_path / "again", *given, f"--resume_from_checkpoint={tmp_path / 'run' / 'checkpoint-2'}")
    assert again["eval_loss"] == results["eval_loss"]
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == weights
    other = f"--resume_from_checkpoint={tmp_path / 'run' / 'checkpoint-2'}"
    with pytest.raises(ValueError, match=r"group_column writer -> None"):
        run(tmp_path / "other", *flags, "--validation_split=0.25", "--id_column=ticket", other)
    # A later command reads the same columns, with the same delimiter.
    new = Path(sheet).with_name("new.csv")
    new.write_text("id;ticket;text\n1;t7;the red house\n2;t9;the blue, blue house\n")
    model = f"--model_name_or_path={tmp_path / 'run'}"
    run(tmp_path / "new", model, f"--test_file={new}")
    names = [line.split(",")[0] for line in (tmp_path / "new" / "predictions_test.csv").read_text().splitlines()]
    assert names == ['"id"', '"t7"', '"t9"']


def test_folds_are_a_series_that_continues_and_is_compared(tmp_path, flags, sheet, capsys):
    summary = run(tmp_path / "folds", *flags, "--folds=2", "--save_steps=0")
    assert [one["folder"] for one in summary["runs"]] == ["fold-1", "fold-2"]
    assert summary["settings"][0]["metrics"]["eval_accuracy"]["n"] == 2
    assert "best on" not in capsys.readouterr().out
    alone = run(tmp_path / "alone", *flags, "--folds=2/2", "--save_steps=0")
    assert alone["eval_loss"] == summary["runs"][1]["results"]["eval_loss"]
    again = run(tmp_path / "folds", *flags, "--folds=2", "--save_steps=0")
    assert again == summary
    assert "fold-2: this run is finished" in capsys.readouterr().out
    longer = ("--folds=2", "--save_steps=0", f"--compare_to={tmp_path / 'folds'}", "--max_steps=3")
    assert run(tmp_path / "longer", *flags, *longer)["comparison"]["pairs"] == 2
    other = tmp_path / "other.csv"
    other.write_text(Path(sheet).read_text().replace("house", "river"))
    with pytest.raises(ValueError, match="it was evaluated on other data, or has no metric in common"):
        run(tmp_path / "no", *flags, *longer, f"--train_file={other}")


def test_the_seeds_of_a_series_have_one_split(tmp_path, flags):
    run(tmp_path / "seeds", *flags, "--validation_split=0.2", "--seeds=2", "--save_steps=0")
    one, other = (facts(tmp_path / "seeds" / name) for name in ("seed-42", "seed-43"))
    assert one["data"] == other["data"]
    assert other["flags"]["seed"] == 43
