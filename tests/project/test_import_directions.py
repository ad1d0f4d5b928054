"""Which part of the project may import which: the table of docs/architecture.md."""

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.helpers.clean_process import run_in_a_fork
from tests.helpers.repository import ROOT

SCRIPTS = ("run_pretraining", "run_glue", "run_squad", "run_ner", "run_swag", "extract_features")
# What each part may import of the project, besides itself.
NETWORK, TOKENIZATION = "modeling_bert_repro", "tokenization"
INPUTS, FILES, CARDS = "bert_training.inputs", "bert_training.files", "bert_training.cards"
ENGINE, NETWORKS = "bert_training.engine", "bert_training.networks"
BUILTIN, PRETRAINING, TASKS = "bert_training.builtin_data", "bert_training.pretraining", "bert_training.tasks"
TOOLS, APP, RECORD = "bert_training.tools", "bert_training.app", "bert_training.record"
LAYERS = {
    NETWORK: set(),
    TOKENIZATION: set(),
    INPUTS: {TOKENIZATION, FILES, BUILTIN},
    FILES: {TOKENIZATION},
    RECORD: {TOKENIZATION, INPUTS, FILES},
    CARDS: {TOKENIZATION, INPUTS, FILES, RECORD},
    ENGINE: {TOKENIZATION, INPUTS, FILES, CARDS, RECORD},
    NETWORKS: {TOKENIZATION, INPUTS, FILES, ENGINE},
    BUILTIN: {TOKENIZATION, FILES},
    PRETRAINING: {TOKENIZATION, INPUTS, FILES, CARDS, ENGINE, NETWORKS, BUILTIN, RECORD},
    TASKS: {TOKENIZATION, INPUTS, FILES, CARDS, ENGINE, NETWORKS, BUILTIN, RECORD},
    TOOLS: {NETWORK, TOKENIZATION, INPUTS, FILES, CARDS, ENGINE, NETWORKS, BUILTIN, PRETRAINING, TASKS, RECORD},
    APP: {NETWORK, TOKENIZATION, INPUTS, FILES, CARDS, ENGINE, NETWORKS, BUILTIN, PRETRAINING, TASKS, TOOLS, RECORD},
}


def imported(path: Path) -> list[str]:
    """Full names of the modules that a file imports, also inside functions."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def part_of(name: str) -> str | None:
    """The part of the project that a module belongs to, or None if it is not a module of the project."""
    if name.split(".")[0] in (*SCRIPTS, "tests", "examples", "lab"):
        return "outside"
    parts = [part for part in LAYERS if name == part or name.startswith(f"{part}.")]
    return parts[0] if parts else "outside" if name.split(".")[0] == "bert_training" else None


def files_of(part: str) -> list[Path]:
    folder = ROOT.joinpath(*part.split("."))
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


@pytest.mark.parametrize("part", LAYERS)
def test_a_part_imports_only_what_its_layer_allows(part):
    assert files_of(part)
    allowed = {None, part, *LAYERS[part]}
    wrong = {(path.name, name) for path in files_of(part) for name in imported(path) if part_of(name) not in allowed}
    assert wrong == set()


def test_architecture_lists_these_imports():
    """The table of docs/architecture.md. "All of ``bert_training``" is every package but its own and
    bert_training.app.
    """
    table = (
        (ROOT / "docs/architecture.md")
        .read_text()
        .partition("| package | what it does | imports")[2]
        .partition("\n\n")[0]
    )
    listed = {}
    for row in table.splitlines()[2:]:
        part, _, imports = row.strip("| ").split(" | ")
        names = set(re.findall(r"`([\w.]+)`", imports))
        packages = {name for name in LAYERS if name.startswith("bert_training.")} - {part.strip("`"), APP}
        listed[part.strip("`")] = names - {"bert_training"} | (packages if "bert_training" in names else set())
    assert listed == LAYERS


def test_every_file_of_training_is_in_a_package():
    packages = {path for part in LAYERS for path in files_of(part)}
    assert set((ROOT / "bert_training").rglob("*.py")) - packages == {
        ROOT / "bert_training" / "__init__.py",
        ROOT / "bert_training" / "__main__.py",
    }


def test_training_imports_its_modules_by_their_full_names():
    for path in (ROOT / "bert_training").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert not [n.lineno for n in nodes if isinstance(n, ast.ImportFrom) and n.level], path


def test_tokenization_does_not_import_torch():
    assert not any(name.startswith("torch") for path in files_of(TOKENIZATION) for name in imported(path))


def test_flags_need_nothing_of_tokenization_but_the_error():
    paths = [path for path in files_of(INPUTS) if path.parent.name == "flags"]
    names = {name for path in paths for name in imported(path) if part_of(name) == TOKENIZATION}
    assert names == {"tokenization.errors.UserError"}


def test_the_network_needs_torch_and_transformers_only():
    allowed = {"torch", "transformers", *sys.stdlib_module_names}
    found = {(path.name, name) for path in files_of(NETWORK) for name in imported(path)}
    assert {(file, name) for file, name in found if name.split(".")[0] not in allowed} == set()


def test_the_network_is_flat():
    """Code that is copied into a checkpoint cannot be in sub-packages."""
    folders = [p.name for p in (ROOT / NETWORK).iterdir() if p.is_dir() and p.name != "__pycache__"]
    assert folders == []


def test_the_imports_of_the_network_have_no_circle():
    """Imports for type checkers count as well, and so do those inside functions. modeling_bert.py, which is plain BERT,
    needs nothing but what all classes share.
    """
    modules = {path.stem for path in files_of(NETWORK)}
    graph = {path.stem: relative_imports(path, modules) for path in files_of(NETWORK)}
    TopologicalSorter(graph).prepare()  # raises CycleError
    assert graph["modeling_bert"] == {"pretrained"} and graph["pretrained"] == graph["losses"] == set()
    assert [name for name, imports in graph.items() if "fast_path" in imports] == ["encoder"]
    assert {name for name, imports in graph.items() if imports & {"unpadding", "fast_dropout"}} == {"fast_path"}


def relative_imports(path: Path, modules: set[str]) -> set[str]:
    """The modules of the same package that a file imports; the package itself is ``__init__``."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            aliases = {alias.name for alias in node.names}
            names |= {node.module} if node.module else {name if name in modules else "__init__" for name in aliases}
    return names


@pytest.mark.slow
def test_importing_has_no_side_effects(package="modeling_bert_repro, tokenization"):
    """Importing registers no class, prints nothing and starts no thread."""
    code = (
        "import threading, transformers\n"
        "before = dict(transformers.AutoModel._model_mapping._extra_content)\n"
        f"import {package}\n"
        "assert dict(transformers.AutoModel._model_mapping._extra_content) == before\n"
        "assert threading.active_count() == 1\n"
    )
    assert run_in_a_fork(code, (), ROOT, with_project=True) == ""
