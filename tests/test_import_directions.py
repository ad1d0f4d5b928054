"""The network and the tokenization import neither each other nor the training, which may import the tokenization."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ISLANDS = {  # package: the others that it may import
    "modeling_bert_repro": set(),
    "tokenization": set(),
    "training": {"tokenization"},
}
SCRIPTS = ("run_pretraining", "run_glue", "run_squad", "run_ner", "run_swag", "extract_features")
OUTSIDE = (*SCRIPTS, "tests", "examples", "benchmarks")


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports absolutely."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("island", ISLANDS)
def test_islands_import_what_they_may(island):
    files = sorted((ROOT / island).glob("*.py"))
    assert files
    foreign = {*ISLANDS, *OUTSIDE} - {island} - ISLANDS[island]
    assert {path.name: imported(path) & foreign for path in files if imported(path) & foreign} == {}


def test_packed_files_need_the_standard_library_only():
    assert imported(ROOT / "tokenization" / "packed_files.py") <= sys.stdlib_module_names


def test_tokenization_does_not_import_torch():
    assert not any("torch" in imported(path) for path in (ROOT / "tokenization").glob("*.py"))


def test_the_network_needs_torch_and_transformers_only():
    allowed = {"torch", "transformers", *sys.stdlib_module_names}
    found = {path.name: imported(path) - allowed for path in (ROOT / "modeling_bert_repro").glob("*.py")}
    assert {name: names for name, names in found.items() if names} == {}


def test_the_network_is_flat():
    """Sub-packages break the code that travels inside a checkpoint."""
    folders = [p.name for p in (ROOT / "modeling_bert_repro").iterdir() if p.is_dir() and p.name != "__pycache__"]
    assert folders == []


@pytest.mark.parametrize("package", ["modeling_bert_repro", "tokenization"])
def test_importing_has_no_side_effects(package):
    """No registration, no output, no network, no threads."""
    code = (
        "import threading, transformers\n"
        "before = dict(transformers.AutoModel._model_mapping._extra_content)\n"
        f"import {package}\n"
        "assert dict(transformers.AutoModel._model_mapping._extra_content) == before\n"
        "assert threading.active_count() == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
