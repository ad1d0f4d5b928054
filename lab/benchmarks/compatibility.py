"""Run the tests with other people's packages and record what each of them found.

    python lab/benchmarks/compatibility.py

This needs pip install -e '.[dev,ecosystem]'.
Every test in TESTS with the mark `tried` is a row of the record, lab/records/compatibility.json. Nothing is
recorded if a test fails or is skipped. The table of lab/notes/compatibility.md is then written anew.
"""

import argparse
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.benchmarks.provenance import ROOT, provenance
from lab.tables import write_pages

TESTS = ("tests",)
RECORD = ROOT / "lab" / "records" / "compatibility.json"


class Recorder:
    """A plugin of pytest that collects one row for every test function with the mark `tried`."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.skipped: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Any:
        """Add the outcome of a test's call, and what it measured, to the row of its function."""
        report = yield
        mark = item.get_closest_marker("tried")
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(item.nodeid)
        if call.when == "call" and mark is not None:
            package, tried = mark.args
            test = item.nodeid.partition("[")[0]
            row = {"package": package, "version": importlib.metadata.version(package), "tried": tried, "test": test}
            row = self.rows.setdefault(test, row | {"works": True, "ways": [], "cases": 0, "measured": {}})
            row["cases"] += 1
            if hasattr(report, "wasxfail"):
                row |= {"works": False, "reason": report.wasxfail.removeprefix("reason: ")}
            way = item.callspec.params.get("way") if hasattr(item, "callspec") else None
            if way is not None and way not in row["ways"]:
                row["ways"].append(way)
            for name, value in item.user_properties:
                choose = min if name.startswith("smallest") else max
                row["measured"][name] = choose(value, row["measured"].get(name, value))
        return report


def main() -> None:
    """The command."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    os.environ["BERT_REPRO_ECOSYSTEM"] = "required"
    os.chdir(ROOT)
    record = provenance("lab/benchmarks/compatibility.py")
    recorder = Recorder()
    loaded = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the tables' imports bring a plugin's package
    if pytest.main(["-q", "-m", "tried", *loaded, *TESTS], plugins=[recorder]) or recorder.skipped:
        sys.exit("nothing is recorded, because of the tests that are listed above")
    rows = sorted(recorder.rows.values(), key=lambda row: row["package"])
    RECORD.write_text(json.dumps(record | {"results": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_pages()


if __name__ == "__main__":
    main()
