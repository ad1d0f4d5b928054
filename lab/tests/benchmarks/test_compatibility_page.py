"""lab/notes/compatibility.md has a row for every test with other people's packages, and CI runs them."""

import ast
import json
import re
import tomllib
from pathlib import Path

from tests.helpers.repository import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
RECORD = json.loads((ROOT / "lab" / "records" / "compatibility.json").read_text(encoding="utf-8"))


def marks(node: ast.FunctionDef, name: str) -> list[ast.Call]:
    """The decorators ``pytest.mark.NAME(...)`` of a function."""
    calls = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    return [call for call in calls if ast.unparse(call.func) == f"pytest.mark.{name}"]


def functions_of(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def packages(*extras: str) -> set[str]:
    """The names of the packages in these extras, without those in the extras that they name."""
    given = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {re.split(r"[<>=[]", requirement)[0] for extra in extras for requirement in given[extra]}
    return names - {"modeling-bert-repro"}


def test_the_record_has_the_tests_of_today():
    """The text of a row is that of its test. If they differ, call lab/benchmarks/compatibility.py again."""
    written = {
        (f"{path.relative_to(ROOT)}::{node.name}", *map(ast.literal_eval, mark.args))
        for path in FILES
        for node in functions_of(path)
        for mark in marks(node, "tried")
    }
    assert {(row["test"], row["package"], row["tried"]) for row in RECORD["results"]} == written


def test_the_recorded_versions_are_pinned():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w-]+)==([^\s;]+)", text, re.MULTILINE))
    rows = [(row["package"].lower().replace("_", "-"), row["version"].partition("+")[0]) for row in RECORD["results"]]
    assert [(package, version) for package, version in rows if pins[package] != version] == []
    assert packages("ecosystem") <= set(pins)


def test_the_extra_is_what_the_tests_need():
    needed = {
        name.partition(".")[0].replace("_", "-")
        for path in (*FILES, ROOT / "lab" / "tests" / "test_library_examples.py")
        for name in re.findall(r"needed\(\"([\w.]+)\"\)", path.read_text(encoding="utf-8"))
    }
    assert packages("ecosystem") <= needed <= packages("ecosystem", "deploy", "cluster", "train")
