"""lab/paper/record.py: the record of a table holds what its report needs, and what its runs were made with."""

import copy
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from lab.paper.data import PaperArguments
from lab.paper.record import outline_of, plain_outline, read_cells, record_of, results_of
from lab.paper.report import content, markdown
from lab.paper.scales import RECORD
from lab.tests.helpers.paper_plans import TABLES, plan_of, write_scores, write_table
from lab.tests.test_records import flat
from tests.helpers.repository import ROOT

RECORDED = sorted(path.parent for path in ROOT.glob(f"lab/records/runs/paper/*/{RECORD}"))


def differences(record: dict[str, Any], report: dict[str, Any], page: str) -> list[object]:
    """What in report.json, in the tables of report.md and in the means of series does not follow from the runs."""
    outline = outline_of(record)
    numbers = content(outline, results_of(record["cells"]))
    found, expected = flat(report), flat(json.loads(json.dumps(numbers)))
    wrong: list[object] = [*(found.keys() ^ expected.keys())]
    for path, value in expected.items():  # another numpy may round otherwise
        value = pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
        wrong += [] if found.get(path) == value else [path]
    wrong += [line for line in markdown(outline, numbers).splitlines() if line[:1] == "|" and f"{line}\n" not in page]
    for name, cell in record["cells"].items():
        for metric, mean in cell["results"].items() if "runs" in cell else ():
            again = statistics.fmean(run["results"].get(metric) or 0.0 for run in cell["runs"])
            wrong += [] if mean == pytest.approx(again, rel=1e-9) else [(name, metric)]
    return wrong


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    record, report = (json.loads((folder / name).read_text(encoding="utf-8")) for name in (RECORD, "report.json"))
    return record, report, (folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_the_recorded_tables_follow_from_the_results_of_their_runs(folder):
    record, report, page = read(folder)
    assert differences(record, report, page) == []
    other = copy.deepcopy(record)
    score = other["outline"]["scores"][0]
    other["cells"][score["cell"]]["results"][score["metric"]] += 0.001
    assert differences(other, report, page)


@pytest.mark.parametrize("table", TABLES)
def test_the_report_can_be_made_from_the_record_alone(table, tmp_path):
    write_table(tmp_path, table)
    record = json.loads((tmp_path / RECORD).read_text())
    outline = outline_of(record)
    assert plain_outline(outline) == plain_outline(plan_of(table)) == record["outline"]
    assert content(outline, results_of(record["cells"])) == json.loads((tmp_path / "report.json").read_text())
    assert record["command"] == ["lab/run_paper.py", "--table", table, "--scale", "builtin", "--seeds", "2"]
    assert str(tmp_path) not in json.dumps(record)


def test_the_record_says_what_the_runs_were_made_with(tmp_path):
    plan = plan_of("7")
    write_scores(tmp_path, plan)
    earlier = {"versions": {"torch": "1"}, "commit": "a", "device": "cpu", "processes": 1}
    now = earlier | {"commit": "b", "mixed_precision": "no"}
    first, second = (tmp_path / "cells" / cell.name for cell in plan.cells[:2])
    (first / "run.json").write_text(json.dumps(now | {"started": "2026-01-02", "earlier": [earlier]}))
    (second / "run.json").write_text(json.dumps(now | {"started": "2026-01-03"}))
    for place, seconds in ((first, 2.0), (second, 3.5)):
        results = json.loads((place / "all_results.json").read_text())
        results |= {"train_runtime": seconds, "train_loss": 1.5, "peak_memory_gb": 2.0}
        (place / "all_results.json").write_text(json.dumps(results))
    (first / "metrics.jsonl").write_text('{"event": "corpus", "unigram_entropy": 6.5}\n{"event": "train", "step": 1}\n')
    args = PaperArguments("7", str(tmp_path), seeds=2)
    record = record_of(tmp_path, plan, read_cells(tmp_path, plan), args, {"/home/x/data/a.txt": "12"})
    assert [(one["commit"], one["mixed_precision"], one["runs"]) for one in record["runs_made_with"]] == [
        *(("a", None, 1), ("b", "no", 2))
    ]
    assert record["training_seconds"] == 5.5 and record["data"] == {"a.txt": "12"}
    args.data_dir = "/home/x/data"
    checksums = {"/home/x/data/glue/MRPC/dev.tsv": "34", "/home/x/data/glue/SST-2/dev.tsv": "56"}
    record = record_of(tmp_path, plan, read_cells(tmp_path, plan), args, checksums)
    assert record["data"] == {"glue/MRPC/dev.tsv": "34", "glue/SST-2/dev.tsv": "56"}
    cell = record["cells"][plan.cells[0].name]
    assert cell["results"] == {"train_loss": 1.5, "unigram_entropy": 6.5}
    assert cell["started"] == "2026-01-02" and cell["training_seconds"] == 2.0
    assert {"date", "commit", "processor", "cores"} == set(record["report_made_with"])
