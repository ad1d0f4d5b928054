"""lab/benchmarks/pages.py: a page gets the table of its record."""

import pytest

from lab.benchmarks import pages, tables


def test_the_page_gets_the_table(tmp_path):
    page = tmp_path / "page.md"
    begin, end = "# A\n\n<!-- python lab/tables.py compatibility.json -->\n", "<!-- end -->\n\nRecord"
    page.write_text(f"{begin}old\n{end}.\n")
    pages.put_table(page, "compatibility.json")
    assert page.read_text() == f"{begin}{tables.output(['compatibility.json'])}{end}.\n"


def test_a_page_without_the_table_is_an_error(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A\n")
    with pytest.raises(AssertionError, match=r"expected one table of compatibility\.json, found 0"):
        pages.put_table(page, "compatibility.json")
