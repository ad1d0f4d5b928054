"""lab/tables.py: the tables of the pages are those of the records, with date, processor and commit."""

import json
import re

import pytest

from lab import tables
from lab.tests.helpers.paper_plans import write_table


@pytest.mark.parametrize("path", tables.pages(), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_what_the_command_writes(path):
    text = path.read_text(encoding="utf-8")
    assert tables.rewritten(text) == text, "python lab/tables.py writes the tables of the records"


def test_every_table_is_on_a_page():
    shown = {name for path in tables.pages() for name in re.findall("<!-- table: (.*?) -->", path.read_text())}
    assert shown == set(tables.TABLES)


@pytest.mark.parametrize("path", sorted(tables.FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_a_record_says_when_and_at_which_commit_it_was_measured(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    parts = [record] if "date" in record else [part for name, part in record.items() if name != "table"]
    assert all(re.match(r"20\d\d-\d\d-\d\d", part["date"]) and part["commit"] for part in parts)


def test_a_table_is_replaced_and_the_rest_of_the_page_stays():
    page = "# A\n\n<!-- table: lengths -->\nold\n<!-- end -->\n\nText <!-- end -->.\n"
    made = tables.rewritten(page)
    assert made == page.replace("old\n", tables.TABLES["lengths"]())
    assert "| mrpc train | 128 | 41.6 |\n" in made and tables.rewritten(made.replace("41.6", "41.7")) == made


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- table: nothing -->\n<!-- end -->\n", "with one of step_cpu, .*; got <!-- table: nothing -->"),
        ("<!-- table: lengths -->\n\n<!-- table: squad -->\n<!-- end -->\n", "got <!-- table: lengths -->"),
        ("<!-- table: lengths -->\n| a |\n", "expected <!-- end --> after every table"),
    ],
)
def test_an_unknown_or_open_table_is_an_error(page, message, tmp_path, monkeypatch):
    message = message.replace("with one of", "where NAME is one of")
    (tmp_path / "README.md").write_text(page)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=f"README.md: .*{message}"):
        tables.write_pages()
    assert (tmp_path / "README.md").read_text() == page


def test_the_command_writes_the_pages_and_names_them(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    page, other = tmp_path / "README.md", tmp_path / "docs" / "a.md"
    page.write_text("<!-- table: lengths -->\n<!-- end -->\n")
    other.write_text("# A\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    tables.write_pages()
    assert page.read_text().endswith(
        "commit 74c996b-dirty, where its program stands: `lab/records/lengths.json`*\n<!-- end -->\n"
    )
    assert capsys.readouterr().out == "README.md: its tables are new\n"


def test_the_line_below_a_table_has_days_processors_and_commits_in_their_order():
    line = tables.sentence(
        "Measured",
        ["2026-11-22T09:00:00", "2026-11-20T08:00:00", "2026-11-22T10:00:00"],
        ["bbbbbbbbb", "ccccccccc-dirty", "bbbbbbbbb"],
        ["cpu, x86_64, 1 threads", "AMD EPYC", "AMD EPYC"],
        "a.json",
    )
    assert (
        line == "*Measured 2026-11-20 to 2026-11-22 on x86_64 and AMD EPYC, commits ccccccc-dirty, bbbbbbb: `a.json`*\n"
    )
    assert tables.sentence("At", ["2026-11-20"], ["a"], [""], "b") == "*At 2026-11-20, commit a: `b`*\n"


def test_a_recorded_report_is_shown_by_its_verdicts_its_picture_and_a_link(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    write_table(tmp_path / "runs/paper/table7", "7")
    verdicts, picture, link, recorded = tables.paper("table7").strip().split("\n\n")
    assert verdicts.splitlines()[2].startswith("| (1) | The concatenation of the last four layers is the best")
    assert len(verdicts.splitlines()) == 5 and picture.endswith("](../records/runs/paper/table7/report.png)")
    assert link.endswith("](../records/runs/paper/table7/report.md)")
    assert "`lab/records/runs/paper/table7/record.json`" in recorded
