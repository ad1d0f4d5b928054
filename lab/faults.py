"""Run the fault campaign and record what became of every fault; `make faults` is this command.

    python lab/faults.py                                    # all rows: half an hour, and two hours for the long run
    python lab/faults.py --rows "damaged files" signals     # these rows alone; the others stay as recorded

The rows are in lab/tests/helpers/fault_campaign.py, their tests in lab/tests/faults/. Every row of the record
(lab/records/faults.json) has its own date and commit. A row is recorded if all of its tests have passed and it has as
many faults as it promises; otherwise the command says what is wrong and ends with status 1. The table of
lab/notes/faults.md is written anew.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab.benchmarks.provenance import ROOT, provenance
from lab.tables import write_pages
from lab.tests.helpers.fault_campaign import LONG_RUN_SECONDS, ROWS

TESTS = ("lab/tests/faults",)
RECORD = ROOT / "lab" / "records" / "faults.json"


class Recorder:
    """A plugin of pytest that keeps the tests of some rows only, and counts their faults and outcomes.

    Attributes:
        found: row -> its numbers; "seeds" has the number of seeds of every test, which are counted from 0.
        broken: row -> those of its tests that failed or were skipped.
    """

    def __init__(self, rows: list[str]) -> None:
        self.found: dict[str, dict[str, Any]] = {
            row: {"faults": 0, "seconds": 0.0, "seeds": Counter(), "outcomes": Counter(), "measured": {}}
            for row in rows
        }
        self.broken: dict[str, list[str]] = {row: [] for row in rows}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the tests of other rows."""
        kept, left = [], []
        for item in items:
            (kept if row_of(item) in self.found else left).append(item)
        config.hook.pytest_deselected(items=left)
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Any:
        """Count a test that has passed, and what it said of its fault."""
        report = yield
        row = row_of(item)
        if row in self.found:
            found = self.found[row]
            found["seconds"] += report.duration
            if not report.passed:
                self.broken[row].append(item.nodeid)
            elif call.when == "call":
                found["faults"] += 1
                found["seeds"][item.nodeid.partition("[")[0]] += 1
                for name, value in item.user_properties:
                    if name == "outcome":
                        found["outcomes"][value] += 1
                    else:
                        found["measured"][name] = value
        return report


def row_of(item: pytest.Item) -> str | None:
    """The row of the campaign that a test belongs to."""
    mark = item.get_closest_marker("faults")
    return None if mark is None else mark.args[0]


def not_recorded(recorder: Recorder) -> dict[str, list[str]]:
    """Row -> why it is not recorded, for those rows that are not."""
    reasons: dict[str, list[str]] = {}
    for row, found in recorder.found.items():
        lines = [f"failed or skipped: {test}" for test in dict.fromkeys(recorder.broken[row])]
        if found["faults"] < ROWS[row]:
            lines.append(f"expected {ROWS[row]} faults, got {found['faults']}")
        if lines:
            reasons[row] = lines
    return reasons


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW", help="; ".join(ROWS)
    )
    rows = parser.parse_args().rows
    os.environ["BERT_REPRO_FAULTS"] = "all"
    os.environ.setdefault("BERT_REPRO_LONG_RUN_SECONDS", str(LONG_RUN_SECONDS))
    os.chdir(ROOT)
    record, recorder, begun = provenance("lab/faults.py"), Recorder(rows), time.time()
    # The imports above load some of pytest's plugins, which it then cannot rewrite, and need not.
    early = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    status = pytest.main(["-q", "-W", early, "-m", "faults", *TESTS], plugins=[recorder])
    reasons = not_recorded(recorder)
    whole = {row: found for row, found in recorder.found.items() if row not in reasons}
    written = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    written |= {row: record | found for row, found in whole.items()}
    in_order = {row: written[row] for row in ROWS if row in written}
    RECORD.write_text(json.dumps(in_order, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_pages()
    print(f"{sum(found['faults'] for found in whole.values()):,} faults recorded in {time.time() - begun:.0f} s")
    for row, lines in reasons.items():
        print("\n".join([f"not recorded: {row}", *(f"  {line}" for line in lines)]))
    sys.exit(1 if status or reasons else 0)


if __name__ == "__main__":
    main()
