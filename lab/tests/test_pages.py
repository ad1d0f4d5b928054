"""What the pages and programs of the laboratory name exists, and their commands can be parsed."""

from dataclasses import fields

import pytest

from lab.paper.data import PaperArguments
from tests.helpers.repository import ROOT
from tests.project.test_documentation import (
    bad_commands,
    broken_links,
    flags_of_parsers,
    missing_files,
    missing_names,
    missing_tests,
    text_of,
    unknown_flags,
)

PAGES = [ROOT / "lab" / "README.md", *sorted((ROOT / "lab" / "notes").glob("*.md"))]
HISTORY = ROOT / "lab" / "notes" / "log.md"  # it names what there was
PROGRAMS = sorted(path for path in (ROOT / "lab").rglob("*.py") if "tests" not in path.relative_to(ROOT).parts)
FLAGS = frozenset({f"--{field.name}" for field in fields(PaperArguments)} | flags_of_parsers(tuple(PROGRAMS)))


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(ROOT)))


def missing_in_lab(text: str) -> list[str]:
    """The files that are neither in the project's root nor in the laboratory's."""
    return [name for name in missing_files(text) if not (ROOT / "lab" / name).is_file()]


@by_name(PAGES)
def test_links_files_and_names_exist(path):
    text = text_of(path)
    assert not broken_links(text, path)
    if path != HISTORY:
        assert not missing_in_lab(text)
        assert not missing_names(text, path)
        assert not missing_tests(text)


@by_name([*(page for page in PAGES if page != HISTORY), *PROGRAMS])
def test_flags_exist_and_commands_parse(path, capsys):
    text = text_of(path)
    problems = bad_commands(text) + unknown_flags(text, FLAGS) + missing_in_lab(text)
    assert not problems, capsys.readouterr().err
