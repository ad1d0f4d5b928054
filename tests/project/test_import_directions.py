"""What the parts of the project import; the contracts of import-linter in pyproject.toml say the directions."""

import ast
import functools
from pathlib import Path

import pytest

from tests.helpers.repository import HOUSES, ROOT

SCRIPTS = ("run_pretraining", "run_glue", "run_squad", "run_ner", "run_swag", "extract_features")
NETWORK, TOKENIZATION = "modeling_bert_repro", "tokenization"


@functools.cache
def imported(path: Path) -> list[str]:
    """Full names of the modules that a file imports, also inside functions."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def files_of(house: str) -> list[Path]:
    return sorted((ROOT / house).rglob("*.py"))


@pytest.mark.parametrize("house", [NETWORK, TOKENIZATION, *HOUSES])
def test_no_package_imports_a_script_a_test_or_the_laboratory(house):
    assert files_of(house)
    names = {name.partition(".")[0] for path in files_of(house) for name in imported(path)}
    assert not names & {*SCRIPTS, "tests", "examples", "lab"}


def test_no_test_of_the_core_imports_an_annex_or_its_tests():
    """Those of the project as a whole and of the examples go with the annexes; test_core_alone.py runs the others."""
    beside = {"bert_tools", "bert_deploy", "project", "examples"}
    paths = [path for path in files_of("tests") if path.relative_to(ROOT / "tests").parts[0] not in beside]
    names = {name.removeprefix("tests.").split(".")[0] for path in paths for name in imported(path)}
    assert len(paths) > 150 and not names & {"bert_tools", "bert_deploy", "lab"}
