"""Recompute the report of a recorded table of the paper from the results of its runs, and say what differs.

    python -m lab.paper.verify lab/records/runs/paper/table7

The verdicts and the exit status are those of ``bert-repro verify``, which checks the runs themselves.
"""

import argparse
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_deploy.findings import (
    DIFFERS,
    Finding,
    differs,
    print_findings,
    run_check,
    short_text,
    unknown,
    verified,
)
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import commit
from bert_training.files.hashing import is_plain_name, sha256
from bert_training.inputs.json_files import read_json
from lab.paper.data import PaperArguments, find_tasks, find_text, scale_of
from lab.paper.plan import Outline, make_plan
from lab.paper.record import outline_of, plain_outline, results_of
from lab.paper.report import content, markdown
from lab.paper.scales import CELLS, RECORD
from tokenization.errors import UserError


def main(argv: list[str] | None = None) -> None:
    """Print the findings about a table; exits with status 1 if one of them is a difference. ValueError without one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help=f"folder of a finished table of lab/run_paper.py, with {RECORD}")
    folder = parser.parse_args(argv).folder
    if not (folder / RECORD).is_file():
        raise UserError(
            f"{folder}: expected the folder of a finished table of lab/run_paper.py, found no {RECORD} there"
        )
    if print_findings([(folder, findings(folder))])[DIFFERS]:
        sys.exit(1)


def findings(folder: Path) -> Iterator[Finding]:
    """What a check of a recorded table finds."""
    return run_check(RECORD, lambda: check_record(folder))


def check_record(folder: Path) -> Iterator[Finding]:
    """The files of a recorded table, from the results of its runs to the words of its report."""
    record = read_json(folder / RECORD)
    yield from _files(folder, record["sha256"])
    yield from _cells(folder, record["cells"])
    yield from _means(record["cells"])
    outline = outline_of(record)
    yield from _outline(outline, record)
    numbers = content(outline, results_of(record["cells"]))
    report = read_json(folder / "report.json")
    if nearly_equal(report, numbers):
        claims, contrasts = report["claims"], sum(len(claim["contrasts"]) for claim in report["claims"])
        reason = f"means, intervals and {len(claims)} verdicts on {contrasts} contrasts follow from {RECORD}"
        yield verified("report.json", reason)
    else:
        wrong = [name for name in numbers if not nearly_equal(report.get(name), numbers[name])]
        yield differs("report.json", f"not what the results of the runs give: {', '.join(wrong or report)}")
    expected = markdown(outline, numbers, picture=(folder / "report.png").is_file())
    yield from _page(expected, (folder / "report.md").read_text(encoding="utf-8"), record)


def _files(folder: Path, recorded: dict[str, str]) -> Iterator[Finding]:
    same = []
    for name, digest in recorded.items():
        if not is_plain_name(name) or not (folder / name).is_file():
            yield unknown(name, "it is not here")
        elif sha256(folder / name) != digest:
            yield differs(name, "the file has changed since the report was written")
        else:
            same.append(name)
    if same:
        yield verified("files", f"{', '.join(same)} have the hashes in {RECORD}")


def _cells(folder: Path, cells: dict[str, Any]) -> Iterator[Finding]:
    """The results in the record, against the files of the runs where these are here."""
    present = 0
    for name, cell in cells.items():
        path = folder / CELLS / name / ("summary.json" if "runs" in cell else "all_results.json")
        if is_plain_name(name) and path.is_file():
            present += 1
            if sha256(path) != cell["sha256"]:
                yield differs(f"{CELLS}/{name}", f"{path.name} has changed since the report was written")
    if present:
        yield verified("runs", f"the results of {present} were compared with those in {RECORD}")
    if absent := len(cells) - present:
        yield unknown("runs", f"{absent} are not here; their results are taken from {RECORD}")


def _means(cells: dict[str, Any]) -> Iterator[Finding]:
    """The mean results of the series, from those of their runs."""
    series = {name: cell for name, cell in cells.items() if "runs" in cell}
    for name, cell in series.items():
        for metric, mean in cell["results"].items():
            again = statistics.fmean(run["results"].get(metric) or 0.0 for run in cell["runs"])
            if not nearly_equal(mean, again):
                yield differs(f"{CELLS}/{name}", f"{metric} is {mean}, but its runs have the mean {again}")
    if series:
        yield verified("series", f"{len(series)} means were computed again from their runs")


def _outline(outline: Outline, record: dict[str, Any]) -> Iterator[Finding]:
    """Which score comes from which run, against the plan that this version makes."""
    if outline.scale not in ("builtin", "smoke"):
        yield unknown("plan", "it depends on the data, which is not here")
        return
    args = PaperArguments(outline.table, "", seeds=len(outline.seeds), smoke=outline.scale == "smoke")  # type: ignore[arg-type]
    scale = scale_of(args)
    plan = make_plan(outline.experiment, scale, find_tasks(args, scale), find_text(args).flags, args.seeds)
    if plain_outline(plan) == record["outline"] and set(record["cells"]) == {cell.name for cell in plan.cells}:
        yield verified("plan", "rows, columns and runs are those that this version of lab/run_paper.py plans")
    else:
        yield unknown("plan", "this version of lab/run_paper.py plans other runs or columns")


def _page(expected: str, page: str, record: dict[str, Any]) -> Iterator[Finding]:
    """report.md, whose words are those of the version that wrote it and whose figures must be those of the record."""
    if page == expected:
        yield verified("report.md", f"its {len(page.splitlines())} lines are those that {RECORD} gives")
        return
    figures = re.compile(r"[-+]?\d[\d,.]*")
    by_words: dict[str, set[str]] = {}
    for line in expected.splitlines():
        by_words.setdefault(figures.sub("#", line), set()).add(line)
    worded = wrong = 0
    for number, line in enumerate(page.splitlines(), 1):
        known = by_words.get(figures.sub("#", line))
        if known is None:
            worded += 1
        elif line not in known:
            wrong += 1
            yield differs(f"report.md line {number}", f"{short_text(line)}, but the record gives other figures")
    if worded or not wrong:
        then = record["report_made_with"]["commit"]
        reason = f"{worded} lines have other words than this version writes, or lines are missing"
        yield unknown("report.md", f"{reason} (commit {commit()}; the report: {then})")


def nearly_equal(one: Any, other: Any) -> bool:
    """Whether two contents of JSON are equal, but for the rounding of floats in another version of numpy."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(nearly_equal(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(nearly_equal, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= 1e-9 * max(abs(one), abs(other))
    return bool(one == other) or (one != one and other != other)  # both are NaN


if __name__ == "__main__":
    sys.exit(report_errors(main))
