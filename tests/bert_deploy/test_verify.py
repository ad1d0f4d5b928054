"""bert_deploy/verify.py: every lie that is planted in a finished folder is found."""

import hashlib
import json
import pickle
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bert_deploy import verify
from bert_deploy.verify import ADDED, DIFFERS, UNKNOWN, VERIFIED, data_flags, evaluation_flags, is_close
from bert_training.engine.errors import report_errors
from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashed_files
from tests.bert_deploy.finished_folders import content, edit, findings_of, forge, wrong
from tests.helpers import short_runs
from tests.helpers.published import write_published

ALTERED_BYTES = 10


def named(place: Path, verdict: str, *given: Path, evaluate: bool = False) -> dict[str, str]:
    """What has this verdict, with the reason."""
    return {one.claim: one.reason for one in findings_of(place, *given, evaluate=evaluate) if one.verdict == verdict}


def change_json(path: Path, **fields) -> None:
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | fields)


def status(*words: object) -> int:
    try:
        return report_errors(lambda: verify.main([*map(str, words)]))
    except SystemExit as end:
        return int(end.code)


# --- scores ----------------------------------------------------------------------------------------------------------

FORGED = {"run_pretraining": "eval_mlm_loss", "run_glue": "eval_loss", "run_squad": "eval_HasAns_f1",
          "run_swag": "test_accuracy"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("script", FORGED)
def test_every_score_is_computed_again_and_a_changed_or_an_invented_one_differs(copy_of_run, script, monkeypatch):
    """The script evaluates once; its results are then compared with forged records, whose hashes fit."""
    place, evaluate, made = copy_of_run(script), verify.evaluate, []

    def evaluate_once(folder, run, results, given, out):
        if made:
            shutil.copytree(made[0], out)
            return
        evaluate(folder, run, results, given, out)
        made.append(shutil.copytree(out, out.parents[1] / f"{out.parent.name}-kept"))

    monkeypatch.setattr(verify, "evaluate", evaluate_once)
    results = json.loads((place / "all_results.json").read_text())
    said = named(place, VERIFIED, evaluate=True)
    assert all(f"{name} " in said["scores"] for name in results if name.startswith(("eval_", "test_")))
    assert {"files", "tokenizer_sha256", "parameters"} <= said.keys()
    assert not named(place, DIFFERS, evaluate=True) | named(place, UNKNOWN, evaluate=True)
    invented = {"eval_matthews_correlation": 0.9999, "test_f1_of_another_model": 0.9, "accuracy": 1.0}
    write_json(place / "all_results.json", results | invented | {FORGED[script]: 0.0777})
    forge(place)
    told = named(place, DIFFERS, evaluate=True)
    assert told.keys() == {FORGED[script], *invented}
    assert "says 0.0777, but run_" in told[FORGED[script]]
    assert f"says 0.9999, and {script}.py computes nothing" in told["eval_matthews_correlation"]
    shutil.rmtree(made[0])


@pytest.mark.slow
def test_swapped_labels_are_found_by_the_weights_also_if_the_whole_record_was_swapped(pretrained, run_data, tmp_path):
    place = tmp_path / "run_glue"
    more = ("--max_steps", "40", "--learning_rate", "1e-3")
    short_runs.start("run_glue", short_runs.flags("run_glue", run_data, place, pretrained, *more))
    assert json.loads((place / "all_results.json").read_text())["eval_accuracy"] == 1
    change_json(place / "config.json", id2label={"0": "y", "1": "x"}, label2id={"y": 0, "x": 1})
    change_json(place / "run.json", data=json.loads((place / "run.json").read_text())["data"] | {"labels": ["y", "x"]})
    forge(place)
    assert "but run_glue.py computes 0.0" in named(place, DIFFERS, evaluate=True)["eval_accuracy"]


def test_what_cannot_be_computed_again_is_named_and_is_no_success(copy_of_run, run_data, tmp_path, capsys):
    place = copy_of_run("run_swag")
    change_json(place / "run.json", flags=json.loads((place / "run.json").read_text())["flags"] | {
        f"{split}_file": "gone/run_swag.csv" for split in ("train", "validation", "test")})  # fmt: skip
    forge(place)
    claims = {"eval_accuracy, eval_loss, test_accuracy, test_loss"}
    told = named(place, UNKNOWN, evaluate=True)
    assert told.keys() == claims and "no gone/run_swag.csv with the SHA-256 in run.json is at hand" in str(told)
    assert status(place) == 3 and status(place, "--skip_evaluation") == 0
    assert "0 differs, 0 not in the record, 1 not recomputed" in capsys.readouterr().out
    (moved := tmp_path / "moved").mkdir()
    shutil.copy(run_data / "run_swag.csv", moved)
    run, results = (json.loads((place / name).read_text()) for name in ("run.json", "all_results.json"))
    found = data_flags(run, results, verify.files_in([str(moved)]))
    assert found == dict.fromkeys(("train_file", "validation_file", "test_file"), str(moved / "run_swag.csv"))
    edit(moved / "run_swag.csv", "the king", "the queen")  # another file of this name
    with pytest.raises(ValueError, match=r"with the SHA-256 in run\.json is at hand"):
        data_flags(run, results, verify.files_in([str(moved)]))
    (place / "model.safetensors").unlink()
    assert named(place, UNKNOWN, evaluate=True) == {"scores": "the folder has no weights (model.safetensors)"}


def test_a_test_split_that_was_scored_is_scored_again(tmp_path):
    """Where the labels of the test split are known, --do_predict gives scores; of GLUE, it gives none."""
    run = {"flags": {"data_dir": str(tmp_path), "do_predict": True}}
    assert data_flags(run, {"test_accuracy": 0.9}, []) == {"data_dir": str(tmp_path), "do_predict": True}
    assert data_flags(run, {"eval_accuracy": 0.9}, []) == {"data_dir": str(tmp_path)}


def test_a_script_that_stops_says_why(copy_of_run, monkeypatch):
    done = subprocess.CompletedProcess([], 2, "", "first line\nrun_glue.py: error: no such thing\n")
    monkeypatch.setattr(verify.subprocess, "run", lambda *_, **__: done)
    (reason,) = named(copy_of_run("run_glue"), UNKNOWN, evaluate=True).values()
    assert reason == "the evaluation stopped: run_glue.py: error: no such thing"


def test_an_evaluation_gets_the_flags_that_decide_it():
    """The precision is that of the run, which accelerate may have chosen; fp16 would need a GPU.

    A flag that models store is given even with its default value, because the model may store another.
    """
    flags = {"seed": 7, "mixed_precision": None, "max_seq_length": 64, "n_best_size": 20, "bilstm_on_top": True}
    flags |= {"learning_rate": 0.5, "train_file": "train.json", "max_answer_length": None, "push_to_hub": True}
    run = {"script": "run_squad.py", "flags": flags, "mixed_precision": "bf16"}
    expected = {"seed": 7, "max_seq_length": 64, "n_best_size": 20, "bilstm_on_top": True}
    assert evaluation_flags(run) == expected | {"mixed_precision": "bf16"}
    assert evaluation_flags(run | {"mixed_precision": "fp16"}) == expected
    named = {"script": "run_glue.py", "flags": {"text_column": ["#1", "b"], "validation_split": 0.1, "seed": 42}}
    assert evaluation_flags(named) == {"text_column": ["#1", "b"], "validation_split": 0.1}


def test_what_another_machine_may_change():
    assert is_close("eval_loss", 0.69310, 0.69311, 1) and not is_close("eval_loss", 0.69, 0.70, 1)
    assert is_close("eval_f1", 88.1, 88.5, 100) and not is_close("eval_f1", 88.1, 88.7, 100)
    assert is_close("eval_f1", 0.881, 0.885, 1) and not is_close("eval_f1", 0.881, 0.887, 1)
    assert is_close("eval_pearson", None, None, 1) and not is_close("eval_f1", None, 0.1, 1)
    assert not is_close("eval_by_class", {"x": {"f1": 1.0}}, {"x": {"f1": 0.9}}, 1)


OWN = "id,text,label\n" + "".join(f"{n},the {word} house,{word}\n" for n, word in enumerate(("red", "blue", "old") * 8))
ROWS = ({"text": "the red house", "label": ["red", "warm"]}, {"text": "the blue house", "label": ["blue"]}) * 12
SEVERAL = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "content", "more", "named_again"),
    [
        (
            "run_glue",
            OWN,
            "--calibrate=abstain --load_best_model_at_end --metric_for_best_model=f1:red",
            "eval_by_class eval_f1:red eval_temperature eval_abstention",
        ),
        ("run_glue", OWN, "--folds=2/2 --id_column=id", "eval_accuracy"),
        ("run_glue", SEVERAL, "--max_steps=20", "eval_f1_micro"),
        ("run_squad", None, "--version_2_with_negative --test_file DATA", "eval_best_f1 test_f1"),
    ],
)
def test_what_a_run_has_found_or_divided_is_found_again(
    script, content, more, named_again, pretrained, run_data, tmp_path, no_pictures
):
    """Temperatures and thresholds, which stand in config.json, and the part of the data that was held out."""
    source = next(run_data.glob(f"{script}.*"))
    data = tmp_path / "data"
    data.mkdir()
    path = data / f"{script}{'.jsonl' if content == SEVERAL else source.suffix}"
    path.write_text(content or source.read_text())
    flags = short_runs.flags(script, data, tmp_path / "run", pretrained, *more.replace("DATA", str(path)).split())
    if "--validation_split" in more or "--folds" in more:
        place = flags.index("--validation_file")
        del flags[place : place + 2]
    short_runs.start(script, flags)
    said = named(tmp_path / "run", VERIFIED, evaluate=True)
    assert all(f"{name} " in said["scores"] for name in named_again.split())
    assert not wrong(tmp_path / "run", evaluate=True) and not named(tmp_path / "run", UNKNOWN, evaluate=True)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    found = {"temperature", "thresholds"} & config.get("fine_tuning", {}).keys()
    for name in found:
        other = {"temperature": 9.0, "thresholds": [0.99, 0.01, 0.5]}[name]
        change_json(tmp_path / "run" / "config.json", fine_tuning=config["fine_tuning"] | {name: other})
        forge(tmp_path / "run")
        assert f"config.json, {name}: the folder says" in "\n".join(wrong(tmp_path / "run", evaluate=True))
    assert bool(found) == (content == SEVERAL or "--calibrate" in more)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_a_folder_is_as_the_run_left_it_also_after_its_upload(finished_runs, script, tmp_path):
    original, copy = finished_runs[script], tmp_path / "download"
    recorded = json.loads((original / HASHES).read_text())["sha256"]
    files = {path.relative_to(original).as_posix(): path for path in original.rglob("*") if path.is_file()}
    assert recorded.keys() == files.keys() - {HASHES}
    assert all(hashlib.sha256(files[name].read_bytes()).hexdigest() == digest for name, digest in recorded.items())
    assert not wrong(original) and not named(original, ADDED)
    assert ("labels" in named(original, VERIFIED)) == (script in ("run_glue", "run_ner", "run_swag"))
    write_published(original, tmp_path / "sent", "user/name")
    shutil.copytree(tmp_path / "sent", copy)  # what is sent is the content of links
    (copy / ".gitattributes").write_text("")
    assert not wrong(copy) and named(copy, ADDED) == {".gitattributes": ""}
    for path in copy.iterdir():
        text = path.read_bytes()
        assert not [part for part in original.parts[1:-1] if len(part) > 3 and part.encode() in text], path


def test_every_altered_byte_is_found_and_its_file_named(copy_of_run):
    rng = random.Random(0)
    places = [copy_of_run(script) for script in short_runs.SCRIPTS]
    for number in range(ALTERED_BYTES):
        place = places[number % len(places)]
        name, path = rng.choice(sorted(hashed_files(place).items()))
        before = path.read_bytes()
        at = rng.randrange(len(before))
        path.write_bytes(before[:at] + bytes([before[at] ^ rng.randrange(1, 256)]) + before[at + 1 :])
        assert name in named(place, DIFFERS), (str(path), at)
        path.write_bytes(before)
    assert not any(map(wrong, places))


def test_every_file_is_in_the_record_or_is_named(copy_of_run):
    """Wherever it lies, and whatever it is called; what may be deleted is not missed."""
    place = copy_of_run("run_squad")
    one, other = place / "predictions.json", place / "null_odds.json"
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1]), other.write_bytes(texts[0])
    (place / "vocab.txt").unlink()
    own = ("notes.txt", "adapter_config.json", "pytorch_model.bin", "train.log", ".gitattributes", "features/a.npz")
    for name in (*own, "sub/a.txt", "sub/deep/b.json"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("{}")
    assert named(place, DIFFERS).keys() == {"predictions.json", "null_odds.json", "vocab.txt"}
    assert named(place, ADDED) == dict.fromkeys(own, "") | {"sub/": "2 files"}
    edit(place / HASHES, '"config.json": "', '"config.json": "0')
    assert "damaged or edited" in named(place, DIFFERS)["files"]
    (place / HASHES).unlink()
    assert {"config.json", "model.safetensors", "run.json"} <= named(place, ADDED).keys()


@pytest.mark.usefixtures("no_pictures")
def test_checkpoints_have_a_record_of_their_own(pretrained, run_data, tmp_path):
    flags = short_runs.flags("run_glue", run_data, tmp_path / "run", pretrained, "--save_steps", "1")
    short_runs.start("run_glue", flags)
    run = tmp_path / "run"
    assert not wrong(run) and not named(run, ADDED)
    path = run / "checkpoint-2" / "training_state.pt"
    path.write_bytes(path.read_bytes()[:-1])
    (run / "checkpoint-1" / "optimizer.bin").write_text("")
    change_json(run / "checkpoint-1" / "config.json", auto_map={"AutoModel": "a/evil--net.Net"})
    assert named(run, DIFFERS).keys() == {"checkpoint-2/training_state.pt", "checkpoint-1/config.json"}
    assert named(run, ADDED).keys() == {"checkpoint-1/optimizer.bin"}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"id2label": {"0": "y", "1": "x"}, "label2id": {"y": 0, "x": 1}},
            "in its order, ['x', 'y']; got id2label with ['y', 'x']",
        ),
        ({"label2id": {"x": 1, "y": 0}}, "got id2label with ['x', 'y'] and label2id with {'x': 1, 'y': 0}"),
        ({"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}, "got id2label with ['a', 'b']"),
    ],
)
def test_labels_are_those_of_the_run(copy_of_run, fields, problem):
    place = copy_of_run("run_glue")
    change_json(place / "config.json", **fields)
    forge(place)
    assert problem in named(place, DIFFERS)["labels"]


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


@pytest.mark.slow
def test_nothing_of_the_folder_is_executed_or_written(copy_of_run, tmp_path, monkeypatch):
    place = copy_of_run("run_glue")
    harmful = "open('executed', 'w').close()\n"
    monkeypatch.chdir(tmp_path)
    for name in ("modeling_bert.py", "run_glue.py", "sitecustomize.py"):
        (place / name).write_text(harmful)
    for name in ("pytorch_model.bin", "training_args.bin"):
        (place / name).write_bytes(pickle.dumps(Harmful()))
    fields = {"tokenizer_class": "Harm", "auto_map": {"AutoTokenizer": ["modeling_bert.Harm", None]}}
    change_json(place / "tokenizer_config.json", **fields)
    before = content(place)
    told = {one.claim for one in findings_of(place, evaluate=True) if one.verdict in (ADDED, DIFFERS)}
    assert {"modeling_bert.py", "run_glue.py", "sitecustomize.py"} <= told
    assert not (tmp_path / "executed").exists() and content(place) == before
    for script in ("../run_glue.py", "antigravity.py", ["run_glue.py"], None):
        change_json(place / "run.json", script=script)
        assert "run.json" in named(place, DIFFERS, evaluate=True)
    assert not (tmp_path / "executed").exists()


# --- the command, series ---------------------------------------------------------------------------------------------


def test_the_exit_status(copy_of_run, capsys):
    place = copy_of_run("run_ner")
    (place / "notes.txt").write_text("mine")
    assert status(place, "--skip_evaluation") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(rf"{place}: \d verified, 0 differs, 1 not in the record, 1 not recomputed", last)
    edit(place / "vocab.txt", "[PAD]", "[pad]")
    assert status(place, "--skip_evaluation", "--brief") == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "vocab.txt: the file has changed" in lines[1]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda place: shutil.rmtree(place), "with runs below it; found no folder"),
        (lambda place: [shutil.rmtree(place), place.mkdir()], "with runs below it; found nothing"),
        (lambda place: [(place / n).unlink() for n in ("run.json", HASHES)], "with runs below it; found README.md,"),
        (lambda place: [shutil.rmtree(place), place.write_text("x")], "with runs below it; found no folder"),
    ],
)
def test_a_folder_without_a_finished_run_is_one_clear_error(copy_of_run, capsys, prepare, message):
    place = copy_of_run("run_glue")
    prepare(place)
    assert status(place) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.usefixtures("no_pictures")
def test_a_series_and_its_summary(pretrained, run_data, tmp_path, capsys):
    series = tmp_path / "series"
    short_runs.start("run_glue", short_runs.flags("run_glue", run_data, series, pretrained, "--seeds", "2"))
    words = (series, "--skip_evaluation", "--brief")
    assert status(*words) == 0 and not named(series, ADDED)
    assert f"{series}/seed-43\n" in capsys.readouterr().out
    edit(series / "summary.json", '"runs"', '"ran"')
    assert status(*words) == 1 and "summary.json: damaged or edited" in capsys.readouterr().out.replace(
        f"{series}/", ""
    )
