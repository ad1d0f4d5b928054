"""Plant a mistake in a function of a source file, and run tests on a copy of the project that has it.

The function is found by its name, the code by its syntax tree.
"""

import ast
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.clean_process import run_in_a_fork
from tests.helpers.repository import ROOT

PACKAGES = ("modeling_bert_repro", "tokenization", "bert_training", "bert_tools", "bert_deploy")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mistake, and the test files of which at least one must notice it.

    Attributes:
        file: from the root of the project.
        places: one function or several; ``plant`` says what else can be a place.
        correct, faulty: the code of the project, and what stands there instead of it.
        tests: from the root of the project.
    """

    file: str
    places: str | tuple[str, ...]
    correct: str
    faulty: str
    tests: tuple[str, ...]


def faults_in(file: str, *tests: str, rows: Mapping[str, tuple[str | tuple[str, ...], str, str]]) -> dict[str, Fault]:
    """Mistakes in one file, each of which one of the test files must notice: name -> (places, correct, faulty)."""
    return {
        name: Fault(file=file, places=places, correct=correct, faulty=faulty, tests=tests)
        for name, (places, correct, faulty) in rows.items()
    }


def faulty_source(fault: Fault) -> str:
    """The content of the file with the mistake; ValueError if the row no longer fits the file."""
    source = (ROOT / fault.file).read_text(encoding="utf-8")
    places = (fault.places,) if isinstance(fault.places, str) else fault.places
    return plant(source, places, fault.correct, fault.faulty)


# Run in a fork of a process that has imported torch and transformers; {project} are the packages of the copy.
PROGRAM = """
import os
for name in {project}:
    sys.modules.pop(name, None)
sys.path.insert(0, os.getcwd())
os.environ["PYTHONPATH"] = os.getcwd()
import pytest
loaded = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that transformers has imported
status = pytest.main(["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", *loaded, *sys.argv[1:]])
print(f"ended with {{int(status)}}")
"""


def run_on_a_copy(folder: Path, tests: Iterable[str], fault: Fault | None = None) -> tuple[int, str]:
    """Copy the code and these test files to the folder, plant the fault there, and run the tests until one fails.

    Tests marked "slow" are left out. Returns the exit status of pytest, and what it printed.
    """
    for name in (*PACKAGES, "tests/helpers", "tests/programs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    test_folders = {parent for test in tests for parent in Path(test).parents} - {Path()}
    scripts = [path.name for path in ROOT.glob("*.py")]
    beside = [parent / name for parent in test_folders for name in ("__init__.py", "conftest.py")]
    for file in (*scripts, "pyproject.toml", *(file for file in beside if (ROOT / file).exists()), *tests):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)
    if fault:
        (folder / fault.file).write_text(faulty_source(fault), encoding="utf-8")
    printed = run_in_a_fork(PROGRAM.format(project=PACKAGES), list(tests), folder)
    return int(printed.rpartition("ended with ")[2]), printed


def plant(source: str, places: tuple[str, ...], correct: str, faulty: str) -> str:
    """Return the source with ``faulty`` in the place of ``correct`` wherever ``correct`` stands in one of the places.

    Both are one expression or one statement. A place is the name of a function such as "BertPooler.forward", the name
    of a class, which stands for its whole body, or the target of an assignment outside all functions. Syntax trees are
    compared, so that formatting, comments and the rest of the file may change.

    Raises:
        ValueError: the source does not have a place, or a place does not contain the correct code.
    """
    scopes = dict(named_scopes(ast.parse(source)))
    old, new = (ast.parse(code).body[0] for code in (correct, faulty))
    text = faulty
    if isinstance(old, ast.Expr) and isinstance(new, ast.Expr):
        old, text = old.value, f"({faulty})"  # The parentheses let it fit into any expression.
    wanted = ast.dump(old)
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    spans = set()
    for place in places:
        if place not in scopes:
            raise ValueError(f"no function, class or assignment {place!r}; adapt the table of planted faults")
        alike = (node for node in ast.walk(scopes[place]) if type(node) is type(old))
        found = [node for node in alike if ast.dump(node) == wanted]
        if not found:
            raise ValueError(f"{place} does not hold {correct!r}; adapt the table of planted faults")
        spans |= {
            (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
            for node in found
        }
    content = source.encode()
    for begin, end in sorted(spans, reverse=True):
        content = content[:begin] + text.encode() + content[end:]
    return content.decode()


def named_scopes(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every function, class and module-level assignment, with its full name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from named_scopes(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign) and not prefix:
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))
