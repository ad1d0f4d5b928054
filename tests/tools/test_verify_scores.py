"""bert_training/tools/verify_scores.py: scores are computed again from the weights and the data."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert_training.files.atomic import write_json
from bert_training.tools import verify_scores
from bert_training.tools.findings import DIFFERS, UNKNOWN, VERIFIED
from bert_training.tools.verify_scores import evaluation_flags, is_close
from tests.helpers import short_runs
from tests.helpers.finished_folders import edit, findings_of, forge, wrong


def check_the_weights(place: Path, script: str, monkeypatch) -> None:
    evaluate, scores = verify_scores._evaluate, []

    def evaluate_once(*arguments) -> dict:
        """The scores of the first call; the weights stay as they are."""
        scores.extend([] if scores else [evaluate(*arguments)])
        return scores[0]

    monkeypatch.setattr(verify_scores, "_evaluate", evaluate_once)
    lines = [finding for finding in findings_of(place, evaluate=True) if finding.claim == "scores from the weights"]
    assert [finding.verdict for finding in lines] == [VERIFIED], lines
    results = json.loads((place / "all_results.json").read_text())
    assert all(name in lines[0].reason for name in results if name.startswith(("eval_", "test_")))
    name = "eval_mlm_accuracy" if script == "run_pretraining" else "eval_f1" if script == "run_ner" else "eval_loss"
    name = "eval_HasAns_f1" if script == "run_squad" else name
    for file in ("all_results.json", "metrics.jsonl"):
        text = (place / file).read_text()
        (place / file).write_text(re.sub(rf'"{name}": [\d.]+', f'"{name}": 0.0777', text))
    forge(place)
    assert f"{name}: all_results.json says 0.0777, but the weights give" in "\n".join(wrong(place, evaluate=True))


@pytest.mark.slow
def test_a_forged_score_is_found_by_the_weights(copy_of_run, monkeypatch):
    check_the_weights(copy_of_run("run_glue"), "run_glue", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("script", [name for name in short_runs.SCRIPTS if name != "run_glue"])
def test_a_forged_score_of_every_script_is_found_by_the_weights(copy_of_run, script, monkeypatch):
    check_the_weights(copy_of_run(script), script, monkeypatch)


def test_an_evaluation_gets_the_flags_that_decide_it():
    """The precision is that of the run, which accelerate may have chosen; fp16 would need a GPU.

    A flag that models store is given even with its default value, because the model may store another.
    """
    flags = {"seed": 7, "mixed_precision": None, "max_seq_length": 64, "n_best_size": 20, "bilstm_on_top": True}
    flags |= {"learning_rate": 0.5, "train_file": "train.json", "max_answer_length": None, "of_an_older_version": 1}
    run = {"script": "run_squad.py", "flags": flags, "mixed_precision": "bf16"}
    expected = ["--seed=7", "--mixed_precision=bf16", "--max_seq_length=64", "--n_best_size=20", "--bilstm_on_top=true"]
    assert evaluation_flags(run) == expected
    expected.remove("--mixed_precision=bf16")
    assert evaluation_flags(run | {"mixed_precision": "fp16"}) == expected
    named = {"script": "run_glue.py", "flags": {"text_column": ["#1 text", "b"], "label_column": None, "seed": 42}}
    assert evaluation_flags(named) == ["--text_column", "#1 text", "b"]
    older = {"script": "run_squad.py", "flags": flags | {"mixed_precision": "bf16"}}
    assert "--mixed_precision=bf16" in evaluation_flags(older)


def test_what_another_machine_may_change():
    assert is_close("eval_loss", 0.69310, 0.69311, 1) and not is_close("eval_loss", 0.69, 0.70, 1)
    assert is_close("eval_f1", 88.1, 88.5, 100) and not is_close("eval_f1", 88.1, 88.7, 100)
    assert is_close("eval_f1", 0.881, 0.885, 1) and not is_close("eval_f1", 0.881, 0.887, 1)
    assert is_close("eval_pearson", None, None, 1) and not is_close("eval_f1", None, 0.1, 1)


def test_records_cannot_choose_how_their_scores_are_compared(monkeypatch):
    """A forged result in per cent does not widen the tolerance, and a forged split does not hide the results."""
    monkeypatch.setattr(verify_scores, "_evaluate", lambda *arguments: {"eval_accuracy": 0.5})

    def compared(results, prefix):
        found = verify_scores._close_scores(Path(), {"script": "run_glue.py"}, results, [], prefix, "eval_")
        return [(finding.claim, finding.verdict) for finding in found]

    forged = {"eval_accuracy": 0.9, "eval_exact_match": 90.0}
    assert compared(forged, "eval_") == [("eval_accuracy", DIFFERS), ("eval_exact_match from the weights", UNKNOWN)]
    assert compared(forged, "eval_mnli_mm_") == [("scores from the weights", UNKNOWN)]


def test_data_is_used_only_if_its_hash_is_that_of_the_run(copy_of_run, run_data, tmp_path, monkeypatch):
    place = copy_of_run("run_swag")
    moved = tmp_path / "elsewhere"
    run = json.loads((place / "run.json").read_text())
    run["flags"] |= {f"{split}_file": "gone/run_swag.csv" for split in ("train", "validation", "test")}
    write_json(place / "run.json", run)
    (place / "README.md").unlink()
    forge(place)
    reasons = [finding.line() for finding in findings_of(place)]
    assert any(
        "data, validation: gone/run_swag.csv is not below the folder of this command; --data names" in line
        for line in reasons
    )
    (moved / "deep").mkdir(parents=True)
    shutil.copy(run_data / "run_swag.csv", moved / "deep")
    given = verify_scores.files_in([str(moved)])
    assert not wrong(place, *given)
    assert any(f.claim == "data, validation" and f.verdict == VERIFIED for f in findings_of(place, *given))
    edit(moved / "deep" / "run_swag.csv", "the king", "the queen")
    assert "does not have the SHA-256 in run.json" in "\n".join(wrong(place, *given))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    shutil.copy(moved / "deep" / "run_swag.csv", "gone")  # Another file at the old place says nothing about the run.
    assert not wrong(place)
    with pytest.raises(ValueError, match="--data nowhere: expected a file or a folder, found none"):
        verify_scores.files_in(["nowhere"])


def test_the_evaluation_sees_the_record_of_the_run(tmp_path, monkeypatch):
    """It says what an older version did not store in config.json, such as that the texts are pairs."""
    (folder := tmp_path / "run").mkdir()
    write_json(folder / "run.json", {"texts_per_example": 2})
    seen = []

    def evaluated(words, cwd, **_):
        seen.append(json.loads((cwd / "model" / "run.json").read_text(encoding="utf-8")))
        return subprocess.CompletedProcess(words, 1, "", "stopped")

    (place := tmp_path / "place").mkdir()
    monkeypatch.setattr(subprocess, "run", evaluated)
    verify_scores._evaluate(folder, "run_glue.py", [], place)
    assert seen == [{"texts_per_example": 2}]


@pytest.mark.parametrize("name", ["/proc/self/pagemap", "/proc/version", "/dev/zero", "pipe"])
def test_data_that_is_no_ordinary_file_is_not_read(tmp_path, monkeypatch, name):
    """Even if run.json has the SHA-256 of the bytes that such a file says to have: none."""
    monkeypatch.setattr(verify_scores, "sha256", lambda path: pytest.fail(f"{path} was read"))
    if name == "pipe":
        os.mkfifo(name := str(tmp_path / name))
    facts = {"sha256": hashlib.sha256().hexdigest()}
    run = {"script": "run_ner.py", "flags": {"validation_file": name}, "data": {"splits": {"validation": facts}}}
    (source,) = verify_scores.sources(run, [])
    assert source.path is None and "is no ordinary file, so it is not read" in source.finding.reason


@pytest.mark.parametrize("word", ["--model_name_or_path=pickle.bin", "--push_to_hub", "-h"])
def test_a_value_of_a_flag_cannot_be_another_flag(word):
    run = {"script": "run_glue.py", "flags": {"text_column": ["a", word]}}
    with pytest.raises(ValueError, match=r"--text_column: expected words that do not begin with '-'"):
        evaluation_flags(run)


def test_how_a_pretraining_is_evaluated_again(tmp_path):
    """Without training files it trained on the built-in text; the last of its phases decides on the length."""
    flags = {"max_seq_length": 512, "phases": "512:0.1,128:0.9", "per_device_train_batch_size": 4}
    run = {"script": "run_pretraining.py", "flags": flags | {"gradient_accumulation_steps": 1, "mixture": None}}
    (tmp_path / "held.txt").write_text("a\n")
    digest = hashlib.sha256(b"a\n").hexdigest()
    held_out = verify_scores.Source("validation", str(tmp_path / "held.txt"), digest, [])
    words = verify_scores._pretraining_flags(run, [held_out])
    assert "--train_file" not in words and words[-2:] == ["--validation_file", str(tmp_path / "held.txt")]
    assert [word for word in words if word.startswith("--max_seq_length")][-1] == "--max_seq_length=128"


def test_a_pretraining_on_data_of_the_hub_cannot_be_evaluated_again(copy_of_run):
    place = copy_of_run("run_pretraining")
    run = json.loads((place / "run.json").read_text())
    run["flags"]["dataset_name"] = "someone/texts"
    (found,) = verify_scores.check_weights(place, run, {}, [])
    assert (found.verdict, found.reason) == (UNKNOWN, "its training data came from the Hub")


@pytest.mark.parametrize("count", [1, 2])
def test_hidden_words_of_a_folder_are_not_chosen_file_by_file(copy_of_run, monkeypatch, count):
    """The run hid words of the files together, so its losses a word cannot be computed again from each."""
    run = {"script": "run_pretraining.py", "flags": {"validation_file": ["heldout"]}}
    files = [SimpleNamespace(split="validation", path=Path(name)) for name in ("a.txt", "b.txt")][:count]
    compared = []
    monkeypatch.setattr(verify_scores, "_close_scores", lambda folder, run, results, *_: compared.append(results) or [])
    results = {"eval_mlm_loss": 1.0, "eval_nats_per_word": 2.0, "eval_heldout_unk_share": 0.0}
    assert list(verify_scores.check_weights(copy_of_run("run_pretraining"), run, results, files)) == []
    assert compared == [results if count == 1 else {"eval_mlm_loss": 1.0}]
