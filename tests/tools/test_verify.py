"""bert_training/tools/verify.py: the folders as the runs leave them, folders of strangers, and the command."""

import json
import pickle
import re
import shutil
from pathlib import Path

import pytest

from bert_training.engine.errors import report_errors
from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES
from bert_training.files.hub_upload import content_to_upload, files_to_upload
from bert_training.tools import figures, verify
from bert_training.tools.findings import DIFFERS, VERIFIED, run_check
from tests.helpers import short_runs
from tests.helpers.finished_folders import content, edit, findings_of, wrong
from tests.helpers.repository import ROOT


@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_a_finished_folder_is_verified(finished_runs, script):
    findings = findings_of(finished_runs[script])
    assert not [finding.line() for finding in findings if finding.verdict == DIFFERS]
    verified = {finding.claim for finding in findings if finding.verdict == VERIFIED}
    claims = {"files", "tokenizer", "number of parameters", "code files", "results", "train_steps", "README.md"}
    assert claims | {"weights that the run began with", "data, train", "data, validation"} <= verified
    assert ("scores from predictions" in verified) == (script in ("run_squad", "run_ner", "run_swag"))


def test_the_card_names_the_command(finished_runs):
    for place in finished_runs.values():
        assert "`bert-repro verify FOLDER`" in (place / "README.md").read_text(encoding="utf-8")


def test_the_uploaded_copy_is_verified_without_the_files_that_stay(copy_of_run, tmp_path):
    original, copy = copy_of_run("run_squad"), tmp_path / "download"
    copy.mkdir()
    for path in files_to_upload(original):
        sent = content_to_upload(path, "user/name")
        (copy / path.name).write_bytes(sent if isinstance(sent, bytes) else sent.read_bytes())
    (copy / ".gitattributes").write_text("")
    findings = findings_of(copy)
    assert not [finding.line() for finding in findings if finding.verdict == DIFFERS]
    assert any(finding.claim == "README.md" and finding.verdict == VERIFIED for finding in findings)
    assert "its example opens user/name" in "".join(finding.line() for finding in findings)


class Harmful:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_nothing_of_the_folder_is_executed_or_written(copy_of_run, tmp_path, monkeypatch):
    place = copy_of_run("run_glue")
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


def test_a_line_has_no_characters_that_a_terminal_obeys():
    def check():
        raise ValueError("\x1b[2J\r\nverified")
        yield

    (finding,) = run_check("\x1b[31mclaim", check)
    assert "\x1b" not in finding.line() and "\n" not in finding.line() and "\r" not in finding.line()


def status(*words: str) -> int:
    try:
        return report_errors(lambda: verify.main([*words]))
    except SystemExit as end:
        return int(end.code)


def test_the_exit_status(copy_of_run, capsys):
    place = copy_of_run("run_ner")
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
def test_a_folder_without_a_finished_run_is_one_clear_error(copy_of_run, capsys, prepare, message):
    place = copy_of_run("run_glue")
    prepare(place)
    assert status(str(place)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.usefixtures("no_pictures")
def test_a_series_and_its_summary(pretrained, run_data, tmp_path, capsys):
    series = tmp_path / "series"
    short_runs.start("run_glue", short_runs.flags("run_glue", run_data, series, pretrained, "--seeds", "2"))
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
    assert "all_results.json: missing" in capsys.readouterr().out
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
    assert "lab/notes/results.md" in printed and "lab/records/runs/mini-14000" in printed
    assert int(re.search(r"(\d+) verified, 0 differs", printed)[1]) > 300
    run = tmp_path / "mini-14000"
    shutil.copytree(ROOT / "lab/records/runs/mini-14000", run)
    assert not wrong(run)
    edit(run / "all_results.json", '"eval_mlm_loss": 6', '"eval_mlm_loss": 5')
    assert "eval_mlm_loss" in "\n".join(wrong(run))


def test_a_wrong_figure_on_a_page_is_a_difference(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "lab/notes/results.md").read_text(encoding="utf-8")
    figure = next(one for one in figures.all_figures(text) if "." in one.text)
    page = tmp_path / "results.md"
    page.write_text(text[: figure.start] + "1234.5" + text[figure.end :], encoding="utf-8")
    (line,) = wrong(page)
    assert "1234.5" in line or "this is not what `python lab/tables.py" in line
