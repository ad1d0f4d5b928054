"""bert_training/tools/verify.py: the folders as the runs leave them, folders of strangers, and the command."""

import json
import pickle
import random
import re
import shutil
from pathlib import Path

import pytest

from bert_training.cards.curves import draw_curves
from bert_training.engine.errors import report_errors
from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES
from bert_training.files.hub_upload import write_published
from bert_training.tools import verify
from bert_training.tools.findings import DIFFERS, VERIFIED, run_check
from bert_training.tools.verify import check_card, check_results
from tests.helpers import short_runs
from tests.helpers.finished_folders import content, edit, findings_of, forge, wrong


@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_a_finished_folder_is_verified(finished_runs, script):
    findings = findings_of(finished_runs[script])
    assert not [finding.line() for finding in findings if finding.verdict == DIFFERS]
    verified = {finding.claim for finding in findings if finding.verdict == VERIFIED}
    claims = {"files", "tokenizer", "number of parameters", "code files", "results", "train_steps", "README.md"}
    assert claims | {"data, train", "data, validation"} <= verified
    assert ("labels" in verified) == (script in ("run_glue", "run_ner"))


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_the_uploaded_copy_is_verified_without_the_files_that_stay(finished_runs, script, tmp_path):
    original, copy = finished_runs[script], tmp_path / "download"
    (tmp_path / "sent").mkdir()
    write_published(original, tmp_path / "sent", "user/name")
    shutil.copytree(tmp_path / "sent", copy)  # what is sent is the content of links
    (copy / ".gitattributes").write_text("")
    findings = findings_of(copy)
    assert not [finding.line() for finding in findings if finding.verdict == DIFFERS]
    assert any(finding.claim == "README.md" and finding.verdict == VERIFIED for finding in findings)
    assert "its example opens user/name" in "".join(finding.line() for finding in findings)
    for path in copy.iterdir():
        content = path.read_bytes()
        assert not [part for part in original.parts[1:-1] if len(part) > 3 and part.encode() in content], path


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


def test_a_summary_leads_to_no_other_folder(copy_of_run, tmp_path):
    """Neither by a name nor by a link."""
    place = copy_of_run("run_glue")
    results = json.loads((place / "all_results.json").read_text()) | {"eval_accuracy": 0.123}
    series = place / "series"
    series.mkdir()
    (series / "seed-42").symlink_to(place)
    summary = {"task": "custom", "metric": "eval_accuracy", "baselines": {}}
    summary["runs"] = [{"folder": folder, "seed": 42, "results": results} for folder in ("..", "x/seed-42")]
    write_json(series / "summary.json", summary)
    lines = [finding.line() for finding in findings_of(series)]
    assert any("the runs .., x/seed-42 are not here" in line for line in lines)
    assert not any("its results are not those of its all_results.json" in line for line in lines)


# --- records against each other: the change is hidden by new hashes, or the folder is an old one without any ---------


def hidden(how: str, place: Path) -> None:
    forge(place) if how == "forged" else (place / HASHES).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("script", "how"), [("run_pretraining", "forged"), ("run_glue", "old"), ("run_squad", "forged")]
)
def test_an_edited_record_contradicts_another_one(copy_of_run, script, how):
    place = copy_of_run(script)
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


def as_of_this_commit(place: Path, monkeypatch) -> None:
    """Make the words of the card those of the present code; the working tree may have uncommitted changes."""
    then = json.loads((place / "run.json").read_text())["commit"]
    for name in ("run.json", "README.md"):
        edit(place / name, then, "0123456789ab")
    monkeypatch.setattr("bert_training.tools.verify.commit", lambda: "0123456789ab")


@pytest.mark.parametrize("written", ["model_name = {}\n", 'pipeline("ner", model={})', "AutoModel.from_pretrained({})"])
@pytest.mark.parametrize("name", ["'./run'", '"./o\'neil"', "'a\\'b'"])
def test_the_name_in_an_example_of_any_version_is_found(written, name):
    assert verify.OPENED.search(f"from transformers import x\n{written.format(name)}")[1] == name


def test_curves_that_are_drawn_later_are_no_claim_of_the_card(copy_of_run, monkeypatch):
    """The run found no matplotlib. A picture that the card does show must be there."""
    place = copy_of_run("run_glue")
    as_of_this_commit(place, monkeypatch)
    forge(place)
    draw_curves(place)
    assert not wrong(place)
    edit(place / "README.md", "\n\n### By class", "\n\n![training curves](training_curves.png)\n\n### By class")
    forge(place)
    assert not wrong(place)
    (place / "training_curves.png").unlink()
    lines = "\n".join(wrong(place))
    assert "training_curves.png: the file is missing" in lines and "README.md line" in lines


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_an_edited_figure_of_the_card_is_found_and_its_line_named(copy_of_run, script, monkeypatch):
    """Also under another version of the code, whose words would be others."""
    place = copy_of_run(script)
    (place / HASHES).unlink()
    as_of_this_commit(place, monkeypatch)
    card = (place / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [number for number, line in enumerate(card) if re.fullmatch(r"\|.*\| `?\S*\d\S*`? \|", line)]
    assert len(rows) >= 8
    values = [number for number, line in enumerate(card) if re.fullmatch(r" +value: .*\d.*", line)]
    for code in ("the same", "another"):
        if code == "another":
            monkeypatch.setattr("bert_training.tools.verify.commit", lambda: "ba9876543210")
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


def test_a_card_of_very_many_lines_is_not_compared(copy_of_run):
    place = copy_of_run("run_glue")
    (place / "README.md").write_text("\n" * 10**6)
    assert "README.md: 1,000,000 lines; no card has more than 5,000" in "\n".join(wrong(place))


@pytest.mark.parametrize(
    "name", ["run.json", "all_results.json", HASHES, "metrics.jsonl", "tokenizer.json", "README.md"]
)
def test_malformed_records_are_findings_and_no_crashes(copy_of_run, name):
    place = copy_of_run("run_squad")
    rng = random.Random(1)
    original = (place / name).read_bytes()
    hostile = [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"sha256": {"a": [1]}}',
        b"[" * 5000,
    ]
    hostile += [original[: rng.randrange(len(original))] for _ in range(2)]
    values = [b"null", b"{}", b'"x"', b"1e999"]
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


def test_scores_of_probes_are_those_of_their_own_record(copy_of_run):
    place, score = copy_of_run("run_pretraining"), {"eval_probe_law_cls": 0.5}
    results = json.loads((place / "all_results.json").read_text())
    write_json(place / "all_results.json", results | score)
    with (place / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": "probe", "step": results["train_steps"]} | score) + "\n")
    run = json.loads((place / "run.json").read_text())
    assert [one.verdict for one in check_results(place, run, results | score) if "probe" in one.reason] == [VERIFIED]
    changed = check_results(place, run, results | {"eval_probe_law_cls": 0.6})
    assert [one.verdict for one in changed if one.claim == "eval_probe_law_cls"] == [DIFFERS]


def test_a_folder_behind_a_link_has_the_name_that_its_card_has(copy_of_run, tmp_path):
    place = copy_of_run("run_glue")
    run = json.loads((place / "run.json").read_text())
    run["flags"]["output_dir"] = str(tmp_path / "other")  # a link to the folder, whose own name is in the card
    results = json.loads((place / "all_results.json").read_text())
    lines = [one for one in check_card(place, run, results) if one.verdict == DIFFERS or "does not name" in one.reason]
    assert not lines
