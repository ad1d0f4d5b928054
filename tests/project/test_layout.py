"""The tests stand in folders like those of the code, and the code that they share is in tests/helpers.

tests/engine has the tests of bert_training/engine, tests/tokenization those of tokenization, and so on. tests/scripts
has those of the scripts, tests/project those of the documentation, the packages and the tests themselves,
tests/ecosystem those with other people's packages, and lab/tests/faults the campaign of faults. The programs that tests
start are in tests/programs.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.helpers.repository import ROOT

TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("*.py"))
HELPERS, PROGRAMS = TESTS / "helpers", TESTS / "programs"
FOLDERS_OF_THE_CODE = ("modeling_bert_repro", "tokenization", "benchmarks", "examples", "bert_training")
CODE = sorted([*ROOT.glob("*.py"), *(path for folder in FOLDERS_OF_THE_CODE for path in (ROOT / folder).rglob("*.py"))])
LONGEST_FILE, LONGEST_FUNCTION = 420, 60  # lines
# The tests of training/X/Y.py are in tests/X/test_Y.py. Those of these modules are in other files: a table of flags or
# of the paper's numbers, a part of one thing that other files test as a whole, or something that only a script shows.
TESTED_ELSEWHERE = {
    "bert_training/__main__.py": ("project/test_documentation.py",),
    "bert_training/app/file_box.py": ("app/test_page.py",),
    "bert_training/app/style.py": ("app/test_page.py",),
    "bert_training/builtin_data/documentation.py": (
        "builtin_data/test_docstrings.py",
        "builtin_data/test_splits_and_labels.py",
    ),
    "bert_training/engine/fsdp.py": ("engine/test_sharding.py",),
    "bert_training/engine/launch.py": ("engine/test_distributed.py",),
    "bert_training/engine/signals.py": ("engine/test_stopping.py",),
    "bert_training/engine/state.py": (
        "engine/test_checkpoint.py",
        "engine/test_stopping.py",
    ),
    "bert_training/engine/versions.py": ("engine/test_run.py",),
    "bert_training/files/tables.py": (
        "tasks/classification/test_malformed.py",
        "tokenization/test_compressed_files.py",
    ),
    "bert_training/flags/app.py": ("app/test_command.py",),
    "bert_training/flags/feature_extraction.py": (
        "flags/test_flags.py",
        "scripts/test_extract_features.py",
    ),
    "bert_training/flags/fine_tuning.py": ("flags/test_flags.py",),
    "bert_training/flags/pretraining.py": ("flags/test_flags.py",),
    "bert_training/flags/scripts.py": ("flags/test_natures.py",),
    "bert_training/flags/shared.py": ("flags/test_flags.py",),
    "bert_training/networks/configuration.py": (
        "scripts/test_run_glue.py",
        "scripts/test_run_pretraining.py",
    ),
    "lab/paper/experiments.py": (
        "paper/test_flags.py",
        "paper/test_plan.py",
    ),
    "lab/paper/picture.py": ("scripts/test_run_paper.py",),
    "lab/paper/places.py": ("scripts/test_run_paper.py",),
    "lab/paper/published.py": (
        "paper/test_plan.py",
        "paper/test_verdicts.py",
    ),
    "lab/paper/scales.py": (
        "paper/test_data.py",
        "paper/test_plan.py",
    ),
    "lab/paper/tasks.py": (
        "paper/test_data.py",
        "paper/test_plan.py",
    ),
    "bert_training/pretraining/corpora.py": ("pretraining/test_text.py",),
    "bert_training/pretraining/encoding.py": (
        "pretraining/test_build_corpus.py",
        "tokenization/test_special_tokens_in_text.py",
    ),
    "bert_training/pretraining/measurements.py": ("tools/test_audit.py",),
    "bert_training/pretraining/network.py": (
        "networks/test_initial_weights.py",
        "scripts/test_run_pretraining.py",
    ),
    "bert_training/pretraining/parallel_encoding.py": ("pretraining/test_build_corpus.py",),
    "bert_training/records/model_usage.py": ("records/test_model_card.py",),
    "bert_training/records/reference_curves.py": ("tools/test_doctor.py",),
    "bert_training/tasks/classification/last_token.py": ("tasks/test_bilstm.py",),
    "bert_training/tasks/evaluate_metrics.py": (
        "tasks/classification/test_metrics.py",
        "tasks/ner/test_metrics.py",
    ),
    "bert_training/tasks/feature_extraction.py": ("scripts/test_extract_features.py",),
    "bert_training/tasks/fine_tuning.py": (
        "scripts/test_run_glue.py",
        "scripts/test_run_squad.py",
    ),
    "bert_training/tasks/squad/settings.py": (
        "scripts/test_squad_thresholds.py",
        "tools/test_ask.py",
    ),
    "bert_training/tasks/squad/sources.py": ("tasks/squad/test_questions.py",),
    "bert_training/tools/figures.py": ("project/test_figures.py",),
    "bert_training/tools/findings.py": ("tools/test_verify.py",),
    "bert_training/tools/score.py": (
        "tasks/squad/test_metrics.py",
        "tasks/squad/test_questions.py",
    ),
    "bert_training/tools/show.py": ("tools/test_audit.py",),
    "tokenization/library_tables.py": ("tokenization/test_wordpiece.py",),
    "tokenization/text_files.py": (
        "tokenization/test_compressed_files.py",
        "tokenization/test_train_wordpiece.py",
    ),
    "modeling_bert_repro/heads.py": (
        "modeling_bert_repro/test_parity.py",
        "modeling_bert_repro/test_losses.py",
    ),
    "modeling_bert_repro/pretrained.py": (
        "modeling_bert_repro/test_saved_folder.py",
        "modeling_bert_repro/test_outsiders.py",
    ),
    "modeling_bert_repro/pretraining_heads.py": (
        "modeling_bert_repro/test_parity.py",
        "modeling_bert_repro/test_losses.py",
    ),
}


def imported_modules(path: Path) -> set[str]:
    """The full names of the modules that a file imports. ``from a import b`` counts as an import of a and of a.b."""
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
    """The imports of test files, programs and a conftest.py, and of a helper by anything but its full name."""
    bare = {file.stem for file in FILES} - {"__init__"}
    return {
        name
        for name in imported_modules(path)
        if name.split(".")[0] in bare
        or name.startswith(".")
        or (name.startswith("tests.") and name.split(".")[1] != HELPERS.name)
    }


def test_every_folder_of_the_code_has_its_folder_of_tests():
    """The packages of ``bert_training`` have their folders directly in tests."""
    all_folders = [path for folder in FOLDERS_OF_THE_CODE for path in (ROOT / folder, *(ROOT / folder).rglob("*"))]
    folders = {path.relative_to(ROOT) for path in all_folders if any(path.glob("*.py"))} - {Path("bert_training")}
    expected = {Path(*folder.parts[1:]) if folder.parts[0] == "bert_training" else folder for folder in folders}
    found = {path.relative_to(TESTS).parent for path in FILES if has_tests(path)}
    assert found - expected == {Path("scripts"), Path("project"), Path("ecosystem"), Path("faults")}
    assert expected - found == set()


def test_every_module_has_its_test_file_or_names_another():
    """So that the reader of a module finds its tests. A new module needs a file, or a row of TESTED_ELSEWHERE."""
    modules = {
        path.relative_to(ROOT).as_posix()
        for folder in ("bert_training", "tokenization", "modeling_bert_repro")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "__init__.py"
    }
    without = {
        module
        for module in modules
        if not (TESTS / Path(module.removeprefix("bert_training/")).parent / f"test_{Path(module).name}").is_file()
    }
    assert without - set(TESTED_ELSEWHERE) == set()
    assert set(TESTED_ELSEWHERE) - modules == set()
    assert {name for names in TESTED_ELSEWHERE.values() for name in names if not (TESTS / name).is_file()} == set()


def test_the_architecture_names_every_folder_of_tests():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`tests/(\w+)/`", page))
    folders = {path.parent.name for path in TESTS.glob("*/__init__.py")}
    assert folders <= named
    assert all((TESTS / name).is_dir() for name in named)


def test_no_test_stands_beside_the_folders():
    assert list(TESTS.glob("test_*.py")) == []


def test_every_folder_is_a_package():
    """Files of one name in two folders could not be collected otherwise, nor could the helpers be imported."""
    assert {path.parent for path in FILES} == {path.parent for path in FILES if path.name == "__init__.py"}


def test_no_test_counts_the_folders_up_to_the_root():
    """tests/helpers/repository.py says where the root is; a test that was moved would otherwise look elsewhere."""
    pattern = re.compile(r"Path\(__file__\)\.(resolve\(\)\.)?parents?\b")
    tests = [path for path in FILES if not {HELPERS, PROGRAMS} & set(path.parents)]
    assert [path for path in tests if pattern.search(path.read_text("utf-8"))] == []


def test_files_beside_the_tests_have_tests_in_them():
    """A file without tests belongs in tests/helpers or tests/programs; a test there would never be collected."""
    folders_without_tests = {HELPERS, PROGRAMS}
    without = {path.name for path in FILES if not has_tests(path) and not folders_without_tests & set(path.parents)}
    assert without <= {"__init__.py", "conftest.py"}
    hidden = [path for folder in folders_without_tests for path in folder.rglob("*.py") if has_tests(path)]
    assert hidden == []


def test_programs_are_not_among_the_helpers():
    """A program is a file that does something when it is started; the helpers are imported only."""

    def programs(folder: Path) -> set[str]:
        return {path.name for path in folder.rglob("*.py") if 'if __name__ == "__main__":' in path.read_text("utf-8")}

    assert programs(HELPERS) == set()
    assert programs(PROGRAMS) == {path.name for path in PROGRAMS.rglob("*.py")} - {"__init__.py"}


def test_every_program_is_named_by_the_test_that_needs_it():
    texts = [path.read_text("utf-8") for path in FILES if has_tests(path)]
    unused = {
        path.name for path in PROGRAMS.glob("*.py") if not any(f"tests/programs/{path.name}" in text for text in texts)
    }
    assert unused == {"__init__.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_shared_code_comes_from_the_helpers_alone(path):
    assert wrong_imports(path) == set()


def test_wrong_imports_are_noticed(tmp_path):
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text(
        "import os, conftest\nfrom test_loop import flags\nfrom tests.conftest import WORDS\nfrom . import test_ask\n"
        "from tests.programs.fault_runs import main\n"
        "from tests.helpers.words import WORDS\nfrom training import squad\n"
    )
    found = wrong_imports(wrong)
    assert "tests.programs.fault_runs" in found
    assert {name.split(".")[0] or "." for name in found} == {"conftest", "test_loop", "tests", "."}
    assert "tests.helpers.words" not in found and "bert_training.tasks.squad.questions" not in found


def too_long(path: Path) -> list[str]:
    """The functions with too many lines besides their docstrings, and the file itself if it has too many."""
    text = path.read_text(encoding="utf-8")
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            documented = ast.get_docstring(node, clean=False)
            documentation = 0 if documented is None else len(documented.split("\n"))
            if node.end_lineno - node.lineno + 1 - documentation > LONGEST_FUNCTION:
                names.append(node.name)
    return names + [path.name] * (len(text.splitlines()) > LONGEST_FILE)


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_keeps_to_the_limits(path):
    """Those that CONTRIBUTING.md states. They do not hold for tests."""
    assert too_long(path) == []


def test_what_is_too_long_is_noticed(tmp_path):
    file = tmp_path / "code.py"
    documented = 'class A:\n    def f(self):\n        """One.\n\n        Two.\n        """\n'
    file.write_text(documented + "        f()\n" * 59 + "\n" * 355)
    assert too_long(file) == []
    file.write_text("class A:\n    def f(self):\n" + "        f()\n" * 60 + "\n" * 359)
    assert too_long(file) == ["f", "code.py"]


def test_the_conftest_is_loaded_once(request):
    loaded = [plugin for plugin in request.config.pluginmanager.get_plugins() if hasattr(plugin, "fresh_accelerate")]
    assert [plugin.__name__ for plugin in loaded] == ["tests.conftest"]
