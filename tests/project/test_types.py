"""Types: mypy reads every package and script, and none of them escapes it through a setting or through ``Any``."""

import ast
import re
import tomllib

from tests.helpers.repository import ROOT

PACKAGES = ("modeling_bert_repro", "tokenization", "bert_training")
SCRIPTS = sorted(path.name for path in ROOT.glob("*.py") if path.name != "setup.py")
# What nearly every function hands on: untyped, it would make most of the code untyped.
HANDED_ON = ("run", "args", "model", "tokenizer")
# `Run` alone means `Run[Any]`, whose flags have no types.
LOOSE = re.compile(r"\bAny\b|\bRun\b(?!\[)")


def settings() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]


def loose_arguments(source: str) -> list[str]:
    """The arguments named in HANDED_ON that have no type, or one that says nothing."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef):
            continue
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            annotation = ast.unparse(argument.annotation) if argument.annotation else "Any"
            if argument.arg in HANDED_ON and LOOSE.search(annotation):
                found.append(f"{node.name}: {argument.arg}")
    return found


def test_mypy_reads_every_package_and_script():
    assert sorted(settings()["files"]) == sorted([*PACKAGES, *SCRIPTS])


def test_every_function_needs_annotations_and_is_checked():
    needed = {"check_untyped_defs", "disallow_incomplete_defs", "disallow_untyped_defs"}
    assert settings()["strict"]
    for override in settings()["overrides"]:
        assert not needed & override.keys(), f"{override['module']} switches off what `strict` asks for"


def test_the_network_and_the_tokenizers_are_checked_in_full():
    full = ("modeling_bert_repro", "tokenization")
    relaxed = [name for entry in settings()["overrides"] if "strict_equality" in entry for name in entry["module"]]
    assert not [name for name in relaxed if name.startswith(full)]
    files = [path for package in full for path in (ROOT / package).glob("*.py")]
    ignores = {path.name: path.read_text(encoding="utf-8").count("type: ignore") for path in files}
    assert sum(ignores.values()) <= 1, ignores


def test_make_lint_calls_mypy():
    assert "\t$(BIN)/mypy\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_runs_flags_models_and_tokenizers_have_types_that_say_something():
    paths = [ROOT / name for name in SCRIPTS] + [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): loose_arguments(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: loose for name, loose in found.items() if loose} == {}


def test_a_loose_argument_is_found():
    source = "def f(run: Run, args, model: Any = None, *, tokenizer: list[Any], batch): ..."
    assert loose_arguments(source) == ["f: run", "f: args", "f: model", "f: tokenizer"]
    assert loose_arguments("def f(run: Run[SharedArguments], args: object, model: nn.Module): ...") == []
