"""lab/paper/verify.py: a recorded table is recomputed, and what was altered in it is found."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest

from bert_deploy.findings import DIFFERS, UNKNOWN, VERIFIED
from bert_training.files.hashing import sha256
from lab.paper import verify
from lab.paper.scales import RECORD
from lab.tests.helpers.paper_plans import TABLES, write_table
from tests.helpers.repository import ROOT

RECORDED = sorted(path.parent for path in ROOT.glob(f"lab/records/runs/**/{RECORD}"))


@pytest.fixture(scope="module", params=TABLES)
def recorded(request, tmp_path_factory) -> Path:
    """The files of a recorded table, without its runs."""
    whole, folder = (tmp_path_factory.mktemp(name) for name in ("whole", "recorded"))
    write_table(whole, request.param, seeds=3)
    for name in ("report.md", "report.json", "report.png", RECORD):
        shutil.copy(whole / name, folder / name)
    return folder


def findings_of(folder: Path) -> list[tuple[str, str]]:
    return [(finding.verdict, finding.claim) for finding in verify.findings(folder)]


def seal(folder: Path) -> None:
    """Write the hashes anew, as somebody would who wants an alteration to go unnoticed."""
    record = json.loads((folder / RECORD).read_text())
    record["sha256"] = {name: sha256(folder / name) for name in record["sha256"] if (folder / name).is_file()}
    (folder / RECORD).write_text(json.dumps(record))


def test_a_recorded_table_is_verified(recorded):
    found = findings_of(recorded)
    assert [claim for verdict, claim in found if verdict == VERIFIED][-3:] == ["plan", "report.json", "report.md"]
    assert {claim for verdict, claim in found if verdict == UNKNOWN} == {"runs", "plan.json"}
    assert DIFFERS not in dict(found)


def test_the_runs_of_a_whole_folder_are_compared(tmp_path):
    write_table(tmp_path, "6")
    assert (VERIFIED, "runs") in findings_of(tmp_path) and (VERIFIED, "series") in findings_of(tmp_path)
    changed = tmp_path / "cells/kind-l3_h768_a12-seed-43/summary.json"
    changed.write_text(changed.read_text() + " ")
    assert (DIFFERS, "cells/kind-l3_h768_a12-seed-43") in findings_of(tmp_path)


def test_every_altered_file_is_noticed(recorded, tmp_path):
    for name in ("report.md", "report.json", "report.png"):
        folder = Path(shutil.copytree(recorded, tmp_path / name))
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / name).write_bytes(content)
        assert (DIFFERS, name) in findings_of(folder)


def test_altered_figures_are_noticed_also_with_new_hashes(recorded, tmp_path):
    """A figure of the page, a mean, an interval, a verdict, or a result of a run."""
    draw = random.Random(3)
    page = (recorded / "report.md").read_text()
    places = [match for match in re.finditer(r"\d+\.\d\d", page) if "paper" not in page[: match.start()][-200:]]
    for number, match in enumerate(draw.sample(places, 5)):
        folder = Path(shutil.copytree(recorded, tmp_path / f"page-{number}"))
        other = f"{float(match[0]) + 0.01:.2f}"
        (folder / "report.md").write_text(page[: match.start()] + other + page[match.end() :])
        seal(folder)
        assert any(verdict == DIFFERS and "report.md line" in claim for verdict, claim in findings_of(folder)), match

    def altered(name: str, change) -> list[tuple[str, str]]:
        folder = Path(shutil.copytree(recorded, tmp_path / f"altered-{len(list(tmp_path.iterdir()))}"))
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))
        seal(folder)
        return findings_of(folder)

    def change_verdict(report):
        report["claims"][0]["verdict"] = "holds" if report["claims"][0]["verdict"] != "holds" else "contradicted"

    def change_interval(report):
        report["claims"][0]["contrasts"][0]["wide_interval"][0] -= 0.001

    def change_mean(report):
        report["rows"][report["reference"]]["scores"][next(iter(report["columns"]))]["mean"] += 0.001

    def change_result(record):
        score = record["outline"]["scores"][0]
        record["cells"][score["cell"]]["results"][score["metric"]] += 0.001

    for change in (change_verdict, change_interval, change_mean):
        assert (DIFFERS, "report.json") in altered("report.json", change)
    assert (DIFFERS, "report.json") in altered(RECORD, change_result)


def test_a_malformed_record_is_one_finding(recorded, tmp_path):
    folder = Path(shutil.copytree(recorded, tmp_path / "out"))
    (folder / RECORD).write_text("{}")
    assert findings_of(folder) == [(DIFFERS, RECORD)]


def test_the_recorded_tables_of_the_pages_are_verified():
    for folder in RECORDED:
        assert DIFFERS not in dict(findings_of(folder)), folder


def test_the_command_prints_the_findings_and_says_by_its_status_whether_one_differs(recorded, tmp_path, capsys):
    folder = Path(shutil.copytree(recorded, tmp_path / "out"))
    verify.main([str(folder)])
    assert "report.json: means, intervals and" in capsys.readouterr().out
    (folder / "report.md").write_text("")
    with pytest.raises(SystemExit, match="1"):
        verify.main([str(folder)])
    with pytest.raises(
        ValueError, match=r"expected the folder of a finished table of lab/run_paper.py, found no record"
    ):
        verify.main([str(tmp_path)])


def test_a_record_leads_to_no_other_folder(recorded, tmp_path):
    folder = Path(shutil.copytree(recorded, tmp_path / "out"))
    (tmp_path / "secret").write_text("x")
    record = json.loads((folder / RECORD).read_text())
    record["sha256"]["../secret"] = sha256(tmp_path / "secret")
    (folder / RECORD).write_text(json.dumps(record))
    assert (UNKNOWN, "../secret") in findings_of(folder)
