"""training/tools/verify.py: altered files, records, cards, predictions and weights of finished folders are found."""

import hashlib
import json
import pickle
import random
import re
import shutil
from pathlib import Path

import pytest

from tests.helpers import short_runs
from tests.helpers.repository import ROOT
from tests.helpers.squad_examples import squad_content
from training.engine.errors import report_errors
from training.files.atomic import write_json
from training.files.hashing import HASHES, hashed_files, hashes_of, hashes_record
from training.files.hub_upload import content_to_upload, files_to_upload
from training.tools import figures, verify
from training.tools.findings import DIFFERS, UNKNOWN, VERIFIED, Finding, run_check
from training.tools.verify_files import tokenizer_hash
from training.tools.verify_scores import evaluation_flags, is_close

ALTERED_BYTES = 100
TEST_FILES = ("run_ner", "run_swag")  # the scripts that predict and score --test_file


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    short_runs.write_data(folder)
    (folder / "run_squad.json").write_text(json.dumps(squad_content(12, negative=True)))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory, pretrained, data) -> dict[str, Path]:
    """The finished folder of a short run of every script; that of run_squad.py has questions without answers."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        short_runs.no_pictures(patch)
        for script in short_runs.SCRIPTS:
            more = ["--version_2_with_negative"] if script == "run_squad" else []
            if script in TEST_FILES:
                more += ["--test_file", str(next(data.glob(f"{script}.*")))]
            short_runs.start(script, short_runs.flags(script, data, place / script, pretrained, *more))
    return {script: place / script for script in short_runs.SCRIPTS}


@pytest.fixture
def folder(made, tmp_path):
    """A function that copies the finished folder of a script; the card names the folder, so the name stays."""
    return lambda script: Path(shutil.copytree(made[script], tmp_path / script))


def findings_of(folder: Path, *given: Path, evaluate: bool = False) -> list[Finding]:
    return list(verify.findings(folder, list(given), evaluate))


def wrong(folder: Path, *given: Path, evaluate: bool = False) -> list[str]:
    return [finding.line() for finding in findings_of(folder, *given, evaluate=evaluate) if finding.verdict == DIFFERS]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def forge(folder: Path) -> None:
    """Write hashes that fit the folder as it is now, as somebody would who wants to hide a change."""
    write_json(folder / HASHES, hashes_record(hashes_of(folder)))


def content(folder: Path) -> dict:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


# --- folders as the runs leave them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_a_finished_folder_is_verified(made, script):
    findings = findings_of(made[script])
    assert not [finding.line() for finding in findings if finding.verdict == DIFFERS]
    verified = {finding.claim for finding in findings if finding.verdict == VERIFIED}
    claims = {"files", "tokenizer", "number of parameters", "code files", "results", "train_steps", "README.md"}
    assert claims | {"weights that the run began with", "data, train", "data, validation"} <= verified
    assert ("scores from predictions" in verified) == (script in ("run_squad", "run_ner", "run_swag"))


def test_the_card_names_the_command(made):
    for place in made.values():
        assert "`python -m training verify FOLDER`" in (place / "README.md").read_text(encoding="utf-8")


def test_the_metrics_of_the_predictions_are_all_computed_again(made):
    for script, names in {
        "run_squad": ("eval_exact_match", "eval_f1", "eval_best_f1", "eval_NoAns_f1", "eval_null_score_diff_threshold"),
        "run_ner": ("eval_f1", "eval_LOC_recall", "test_f1"),
        "run_swag": ("eval_accuracy", "test_accuracy"),
    }.items():
        lines = [
            f.line()
            for f in findings_of(made[script])
            if f.claim == "scores from predictions" and f.verdict == VERIFIED
        ]
        assert all(any(re.search(rf"\b{name}\b", line) for line in lines) for name in names), lines


def test_the_hashes_cover_every_file_and_a_copy_is_as_good(made, folder):
    for script, place in made.items():
        recorded = json.loads((place / HASHES).read_text())["sha256"]
        files = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()} - {HASHES}
        assert recorded.keys() == files, script
        assert all(hashlib.sha256((place / name).read_bytes()).hexdigest() == recorded[name] for name in files)
    assert not wrong(folder("run_pretraining"))


def test_the_uploaded_copy_is_verified_without_the_files_that_stay(folder, tmp_path):
    original, copy = folder("run_squad"), tmp_path / "download"
    copy.mkdir()
    for path in files_to_upload(original):
        sent = content_to_upload(path, "user/name")
        (copy / path.name).write_bytes(sent if isinstance(sent, bytes) else sent.read_bytes())
    (copy / ".gitattributes").write_text("")
    findings = findings_of(copy)
    assert not [finding.line() for finding in findings if finding.verdict == DIFFERS]
    assert any(finding.claim == "README.md" and finding.verdict == VERIFIED for finding in findings)
    assert "its example opens user/name" in "".join(finding.line() for finding in findings)


# --- changes of the files --------------------------------------------------------------------------------------------


def test_every_altered_byte_is_found_and_its_file_named(folder):
    rng = random.Random(0)
    places = [folder(script) for script in short_runs.SCRIPTS]
    missed = []
    for number in range(ALTERED_BYTES):
        place = places[number % len(places)]
        name, path = rng.choice(sorted({**hashed_files(place), HASHES: place / HASHES}.items()))
        before = path.read_bytes()
        at = rng.randrange(len(before))
        path.write_bytes(before[:at] + bytes([before[at] ^ rng.randrange(1, 256)]) + before[at + 1 :])
        if not any(line.split("  ", 1)[1].strip().startswith(f"{name}:") for line in wrong(place)):
            missed.append((str(path), at))
        path.write_bytes(before)
    assert missed == []
    assert not any(map(wrong, places))


def test_swapped_missing_and_additional_files_are_named(folder):
    place = folder("run_squad")
    one, other = place / "predictions.json", place / "null_odds.json"
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1]), other.write_bytes(texts[0])
    lines = "\n".join(wrong(place))
    assert "predictions.json: the file has changed" in lines and "null_odds.json: the file has changed" in lines
    one.write_bytes(texts[0]), other.write_bytes(texts[1])
    assert not wrong(place)
    (place / "vocab.txt").unlink()
    (place / "adapter_config.json").write_text("{}")
    (place / "features" / "a.npz").write_text("")
    lines = "\n".join(wrong(place))
    assert "vocab.txt: the file is missing" in lines and "adapter_config.json: an additional file" in lines
    assert "features/a.npz: an additional file" in lines


def test_files_that_are_not_of_the_run_are_ignored_and_caches_may_be_deleted(folder):
    for script, cache in (("run_squad", "features"), ("run_pretraining", "corpus")):
        place = folder(script)
        for name in (
            ".gitattributes",
            ".cache/huggingface/x",
            "train.log",
            "nohup.out",
            "a.tmp",
            "runs/events.out.1",
            "nested/run.json",
        ):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("x")
        shutil.rmtree(place / cache)
        assert not wrong(place)
        absent = [f.claim for f in findings_of(place) if f.verdict == UNKNOWN and "it may be deleted" in f.reason]
        assert absent and all(claim.startswith(f"{cache}/") for claim in absent)


@pytest.mark.usefixtures("no_pictures")
def test_checkpoints_are_compared_with_their_own_manifests(pretrained, data, tmp_path):
    flags = short_runs.flags("run_glue", data, tmp_path / "run", pretrained, "--save_steps", "1")
    short_runs.start("run_glue", flags)
    assert [f.claim for f in findings_of(tmp_path / "run") if f.claim.startswith("checkpoint")] == [
        "checkpoint-1/",
        "checkpoint-2/",
    ]
    path = tmp_path / "run" / "checkpoint-2" / "training_state.pt"
    path.write_bytes(path.read_bytes()[:-1])
    (line,) = wrong(tmp_path / "run")
    assert "checkpoint-2/: training_state.pt does not match its checksum" in line


# --- changes of the records, hidden by new hashes or in an old folder without any -------------------------------------


def hidden(how: str, place: Path) -> None:
    forge(place) if how == "forged" else (place / HASHES).unlink(missing_ok=True)


@pytest.mark.parametrize("how", ["forged", "old"])
@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_an_edited_record_contradicts_another_one(folder, script, how):
    place = folder(script)
    kept = content(place)

    def lines_after(name: str, old: str, new: str) -> str:
        edit(place / name, old, new)
        hidden(how, place)
        lines = "\n".join(wrong(place))
        for path, (text, _) in kept.items():
            path.write_bytes(text)
        return lines

    hidden(how, place)
    assert not wrong(place)
    if how == "old":
        assert any("made before hashes were recorded" in finding.reason for finding in findings_of(place))
    results = json.loads((place / "all_results.json").read_text())
    name, value = next((name, value) for name, value in results.items() if name.startswith("eval_") and value)
    assert name in lines_after("all_results.json", f'"{name}": {json.dumps(value)}', f'"{name}": 0.9371')
    assert name in lines_after("metrics.jsonl", f'"{name}": {json.dumps(value)}', f'"{name}": 0.9371')
    assert "train_steps" in lines_after("all_results.json", '"train_steps": 2', '"train_steps": 20000')
    assert "total_steps" in lines_after("run.json", '"total_steps": 2', '"total_steps": 20000')
    assert "number of parameters" in lines_after("run.json", '"parameters": ', '"parameters": 1')
    assert "tokenizer" in lines_after("run.json", '"tokenizer_sha256": "', '"tokenizer_sha256": "0')
    assert "README.md line" in lines_after("run.json", '"learning_rate": ', '"learning_rate": 1')
    assert "not in the form that a run writes" in lines_after("metrics.jsonl", '{"event"', '{"event')


@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_an_edited_figure_of_the_card_is_found_and_its_line_named(folder, script, monkeypatch):
    """Also under another version of the code, whose words would be others."""
    place = folder(script)
    (place / HASHES).unlink()
    then = json.loads((place / "run.json").read_text())["commit"]
    for name in ("run.json", "README.md"):  # The working tree of this test may have uncommitted changes.
        edit(place / name, then, "0123456789ab")
    monkeypatch.setattr("training.tools.verify_records.commit", lambda: "0123456789ab")
    card = (place / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [number for number, line in enumerate(card) if re.fullmatch(r"\|.*\| `?\S*\d\S*`? \|", line)]
    assert len(rows) >= 8
    values = [number for number, line in enumerate(card) if re.fullmatch(r" +value: .*\d.*", line)]
    for code in ("the same", "another"):
        if code == "another":
            monkeypatch.setattr("training.tools.verify_records.commit", lambda: "ba9876543210")
            assert not wrong(place)
        for number in rows + values:
            digit = re.search(r"\d(?=[^\d]*$)", card[number])
            line = card[number][: digit.start()] + str((int(digit[0]) + 1) % 10) + card[number][digit.end() :]
            (place / "README.md").write_text("\n".join([*card[:number], line, *card[number + 1 :]]) + "\n")
            assert f"README.md line {number + 1}: " in "\n".join(wrong(place)), line
        (place / "README.md").write_text("\n".join([*card, "It beats BERT-Large by 3 points."]) + "\n")
        said = [finding.line() for finding in findings_of(place) if finding.claim.startswith("README.md")]
        assert any("README.md line" in line if code == "the same" else "1 passages" in line for line in said)
        (place / "README.md").write_text("\n".join(card) + "\n")


@pytest.mark.parametrize(
    ("script", "name", "old", "new"),
    [
        ("run_squad", "predictions.json", r'"q1": ".*?"', '"q1": "the answer"'),
        ("run_squad", "span_predictions.json", r'"q1": ".*?"', '"q1": "the answer"'),
        ("run_ner", "validation_predictions.txt", r"\t\S+\n", "\tB-MISC\n"),
        ("run_ner", "test_predictions.txt", r"\t\S+\n", "\tB-MISC\n"),
        ("run_ner", "validation_predictions.txt", r"^\S+", "Nobody"),
        ("run_swag", "validation_predictions.csv", r"\n0,\d", "\n0,9"),
        ("run_swag", "test_predictions.csv", r"\n0,.*", ""),
    ],
)
def test_edited_predictions_are_found(folder, script, name, old, new):
    place = folder(script)
    text = (place / name).read_text(encoding="utf-8")
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    (place / name).write_text(changed, encoding="utf-8")
    forge(place)
    assert wrong(place)


def test_a_forged_score_is_found_by_the_predictions(folder):
    place = folder("run_swag")
    for name in ("all_results.json", "metrics.jsonl"):
        text = (place / name).read_text()
        (place / name).write_text(re.sub(r'"eval_accuracy": [\d.]+', '"eval_accuracy": 0.875', text))
    forge(place)
    assert "eval_accuracy: all_results.json says 0.875, but validation_predictions.csv" in "\n".join(wrong(place))


# --- the weights -----------------------------------------------------------------------------------------------------


def check_the_weights(place: Path, script: str) -> None:
    lines = [finding for finding in findings_of(place, evaluate=True) if finding.claim == "scores from the weights"]
    assert [finding.verdict for finding in lines] == [VERIFIED], lines
    results = json.loads((place / "all_results.json").read_text())
    assert all(name in lines[0].reason for name in results if name.startswith(("eval_", "test_")))
    name = "eval_mlm_accuracy" if script == "run_pretraining" else "eval_f1" if script == "run_ner" else "eval_loss"
    name = "eval_HasAns_f1" if script == "run_squad" else name
    for file in ("all_results.json", "metrics.jsonl"):
        text = (place / file).read_text()
        (place / file).write_text(re.sub(rf'"{name}": [\d.]+', f'"{name}": 0.0777', text))
    for path in place.glob("*predictions*"):
        path.unlink()
    forge(place)
    assert f"{name}: all_results.json says 0.0777, but the weights give" in "\n".join(wrong(place, evaluate=True))


def test_a_forged_score_is_found_by_the_weights(folder):
    check_the_weights(folder("run_glue"), "run_glue")


@pytest.mark.slow
@pytest.mark.parametrize("script", [name for name in short_runs.SCRIPTS if name != "run_glue"])
def test_a_forged_score_of_every_script_is_found_by_the_weights(folder, script):
    check_the_weights(folder(script), script)


def test_an_evaluation_gets_the_flags_that_decide_it():
    """The precision is that of the run, which accelerate may have chosen; fp16 would need a GPU."""
    flags = {"seed": 7, "mixed_precision": None, "max_seq_length": 64, "n_best_size": 20, "bilstm_on_top": True}
    flags |= {"learning_rate": 0.5, "train_file": "train.json", "max_answer_length": None, "of_an_older_version": 1}
    run = {"script": "run_squad.py", "flags": flags, "mixed_precision": "bf16"}
    expected = ["--seed=7", "--mixed_precision=bf16", "--max_seq_length=64", "--bilstm_on_top=true"]
    assert evaluation_flags(run) == expected
    expected.remove("--mixed_precision=bf16")
    assert evaluation_flags(run | {"mixed_precision": "fp16"}) == expected
    older = {"script": "run_squad.py", "flags": flags | {"mixed_precision": "bf16"}}
    assert "--mixed_precision=bf16" in evaluation_flags(older)


def test_what_another_machine_may_change():
    assert is_close("eval_loss", 0.69310, 0.69311, "run_glue.py") and not is_close(
        "eval_loss", 0.69, 0.70, "run_glue.py"
    )
    assert is_close("eval_f1", 88.1, 88.5, "run_squad.py") and not is_close("eval_f1", 88.1, 88.7, "run_squad.py")
    assert is_close("eval_f1", 0.881, 0.885, "run_ner.py") and not is_close("eval_f1", 0.881, 0.887, "run_ner.py")
    assert is_close("eval_pearson", None, None, "run_glue.py") and not is_close("eval_f1", None, 0.1, "run_glue.py")


# --- data ------------------------------------------------------------------------------------------------------------


def test_data_is_used_only_if_its_hash_is_that_of_the_run(folder, data, tmp_path, monkeypatch):
    place = folder("run_swag")
    moved = tmp_path / "elsewhere"
    run = json.loads((place / "run.json").read_text())
    run["flags"] |= {f"{split}_file": "gone/run_swag.csv" for split in ("train", "validation", "test")}
    write_json(place / "run.json", run)
    (place / "README.md").unlink()
    forge(place)
    reasons = [finding.line() for finding in findings_of(place)]
    assert any("data, validation: gone/run_swag.csv is not on this machine; --data names" in line for line in reasons)
    assert any("eval_accuracy from predictions: the labels are not at hand" in line for line in reasons)
    (moved / "deep").mkdir(parents=True)
    shutil.copy(data / "run_swag.csv", moved / "deep")
    given = verify.verify_scores.files_in([str(moved)])
    assert not wrong(place, *given)
    assert any(f.claim == "scores from predictions" and f.verdict == VERIFIED for f in findings_of(place, *given))
    edit(moved / "deep" / "run_swag.csv", "the king", "the queen")
    assert "does not have the SHA-256 in run.json" in "\n".join(wrong(place, *given))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    shutil.copy(moved / "deep" / "run_swag.csv", "gone")  # Another file at the old place says nothing about the run.
    assert not wrong(place)
    with pytest.raises(ValueError, match="--data nowhere: expected a file or a folder, found none"):
        verify.verify_scores.files_in(["nowhere"])


# --- a stranger's folder ---------------------------------------------------------------------------------------------


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_nothing_of_the_folder_is_executed_or_written(folder, tmp_path, monkeypatch):
    place = folder("run_glue")
    harmful = "open('executed', 'w').close()\n"
    monkeypatch.chdir(tmp_path)
    for name in ("modeling_bert.py", "run_glue.py", "sitecustomize.py"):
        (place / name).write_text(harmful)
    for name in ("pytorch_model.bin", "training_args.bin"):
        (place / name).write_bytes(pickle.dumps(Harmful()))
    settings = json.loads((place / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Harm", "auto_map": {"AutoTokenizer": ["modeling_bert.Harm", None]}}
    write_json(place / "tokenizer_config.json", settings)
    before = content(place)
    lines = "\n".join(wrong(place, evaluate=True))
    assert "modeling_bert.py: the file has changed" in lines
    assert "run_glue.py: a code file that the installed package does not have" in lines
    assert not (tmp_path / "executed").exists() and content(place) == before
    for script in ("../run_glue.py", "antigravity.py", ["run_glue.py"], None):
        run = json.loads((place / "run.json").read_text()) | {"script": script}
        write_json(place / "run.json", run)
        assert "run.json: expected a run of run_pretraining.py" in "\n".join(wrong(place, evaluate=True))


@pytest.mark.parametrize(
    "name", ["run.json", "all_results.json", HASHES, "metrics.jsonl", "tokenizer.json", "README.md"]
)
def test_malformed_records_are_findings_and_no_crashes(folder, name):
    place = folder("run_squad")
    rng = random.Random(1)
    original = (place / name).read_bytes()
    hostile = [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"sha256": 3}',
        b'{"sha256": {"a": [1]}}',
        b"[" * 5000,
    ]
    hostile += [original[: rng.randrange(len(original))] for _ in range(5)]
    values = [b"null", b"[]", b"{}", b'"x"', b"-1", b"1e999"]
    hostile += [re.sub(rb": [^{\[\n]+?(?=,?\n)", lambda m, v=v: b": " + v, original) for v in values]
    for text in hostile:
        if text == original:
            continue
        (place / name).write_bytes(text)
        lines = wrong(place)
        assert lines and all("\x1b" not in line for line in lines), text[:40]
        (place / HASHES).rename(place / "aside.log")
        list(verify.findings(place, [], False))  # An old folder, whose hashes would say so.
        (place / "aside.log").rename(place / HASHES)


def test_a_line_has_no_characters_that_a_terminal_obeys():
    def check():
        raise ValueError("\x1b[2J\r\nverified")
        yield

    (finding,) = run_check("\x1b[31mclaim", check)
    assert "\x1b" not in finding.line() and "\n" not in finding.line() and "\r" not in finding.line()


# --- the command -----------------------------------------------------------------------------------------------------


def status(*words: str) -> int:
    try:
        return report_errors(lambda: verify.main([*words]))
    except SystemExit as end:
        return int(end.code)


def test_the_exit_status(folder, capsys):
    place = folder("run_ner")
    assert status(str(place), "--skip_evaluation") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(rf"{place}: \d+ verified, 0 differs, 2 cannot be checked here", last)
    edit(place / "vocab.txt", "[PAD]", "[pad]")
    assert status(str(place), "--skip_evaluation", "--brief") == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "vocab.txt: the file has changed since the run" in lines[1]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda place: shutil.rmtree(place), "expected the output folder of a finished run, found no folder"),
        (lambda place: [shutil.rmtree(place), place.mkdir()], "or one with runs below it; it holds nothing"),
        (lambda place: [(place / n).unlink() for n in ("run.json", HASHES)], "with runs below it; it holds README.md,"),
        (lambda place: (place / "all_results.json").unlink(), "expected a finished run, found no all_results.json"),
        (lambda place: [shutil.rmtree(place), place.write_text("x")], "finished run, found no folder"),
    ],
)
def test_a_folder_without_a_finished_run_is_one_clear_error(folder, capsys, prepare, message):
    place = folder("run_glue")
    prepare(place)
    assert status(str(place)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.usefixtures("no_pictures")
def test_a_series_and_its_summary(pretrained, data, tmp_path, capsys):
    series = tmp_path / "series"
    short_runs.start("run_glue", short_runs.flags("run_glue", data, series, pretrained, "--seeds", "2"))
    words = (str(series), "--skip_evaluation", "--brief")
    assert status(*words) == 0
    assert f"{series}/seed-43\n" in capsys.readouterr().out
    summary = (series / "summary.json").read_text()
    edit(series / "summary.json", '"std": ', '"std": 1')
    assert status(*words) == 1 and "summary.json, settings: not what the results" in capsys.readouterr().out
    (series / "summary.json").write_text(summary)
    (series / "seed-42" / "all_results.json").unlink()
    (series / "seed-42" / HASHES).unlink()
    assert status(str(series), "--skip_evaluation") == 0  # One of several runs may be unfinished.
    assert "all_results.json: there is none" in capsys.readouterr().out
    shutil.rmtree(series / "seed-42")
    assert status(*words) == 0
    edit(series / "seed-43" / "all_results.json", '"eval_loss": 0', '"eval_loss": 1')
    assert status(*words) == 1
    printed = capsys.readouterr().out
    assert "summary.json, seed-43: its results are not those" in printed and "all_results.json: the file has" in printed


def test_the_records_and_pages_of_this_project_are_verified(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert status("docs", "--brief") == 0, capsys.readouterr().out
    printed = capsys.readouterr().out
    assert "docs/lab/results.md" in printed and "docs/runs/mini-14000" in printed
    assert int(re.search(r"(\d+) verified, 0 differs", printed)[1]) > 300
    run = tmp_path / "mini-14000"
    shutil.copytree(ROOT / "docs/runs/mini-14000", run)
    assert not wrong(run)
    edit(run / "all_results.json", '"eval_mlm_loss": 6', '"eval_mlm_loss": 5')
    assert "eval_mlm_loss" in "\n".join(wrong(run))


def test_a_wrong_figure_on_a_page_is_a_difference(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs/lab/results.md").read_text(encoding="utf-8")
    figure = next(one for one in figures.all_figures(text) if "." in one.text)
    page = tmp_path / "results.md"
    page.write_text(text[: figure.start] + "1234.5" + text[figure.end :], encoding="utf-8")
    (line,) = wrong(page)
    assert "1234.5" in line or "this is not what python" in line


def test_the_hash_of_a_tokenizer_is_that_of_the_run(made):
    run = json.loads((made["run_glue"] / "run.json").read_text())
    assert tokenizer_hash(made["run_glue"] / "tokenizer.json") == run["tokenizer_sha256"]
