"""What the tests share is in tests/helpers and is imported in one way."""

import ast
from pathlib import Path

import pytest

from tests.helpers.repository import ROOT

TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))
HELPERS = TESTS / "helpers"


def imported_modules(path: Path) -> set[str]:
    """Full names of the modules that a file imports; `from a import b` counts as both a and a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return names


def has_tests(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in ast.walk(tree))


def wrong_imports(path: Path) -> set[str]:
    """Imports of another test file or of a conftest.py, and of a helper by anything but its full name."""
    bare = {file.stem for file in FILES} - {"__init__"}
    return {
        name
        for name in imported_modules(path)
        if name.split(".")[0] in bare
        or name.startswith(".")
        or (name.startswith("tests.") and name.split(".")[1] != "helpers")
    }


def test_files_beside_the_tests_have_tests_in_them():
    """Files without tests belong in tests/helpers, and tests in there would never be collected."""
    without = {path.name for path in FILES if not has_tests(path) and HELPERS not in path.parents}
    assert without <= {"__init__.py", "conftest.py"}
    assert [path.name for path in HELPERS.rglob("*.py") if has_tests(path)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_shared_code_comes_from_the_helpers_alone(path):
    assert wrong_imports(path) == set()


def test_wrong_imports_are_noticed(tmp_path):
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text(
        "import os, conftest\nfrom test_loop import flags\nfrom tests.conftest import WORDS\nfrom . import test_ask\n"
        "from tests.helpers.words import WORDS\nfrom training import squad\n"
    )
    found = wrong_imports(wrong)
    assert {name.split(".")[0] or "." for name in found} == {"conftest", "test_loop", "tests", "."}
    assert "tests.helpers.words" not in found and "training.tasks.squad.squad_data" not in found


def test_the_conftest_is_loaded_once(request):
    loaded = [plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "fresh_accelerate")]
    assert [plugin.__name__ for plugin in loaded] == ["tests.conftest"]
