"""zensical.toml: the site has every page, and its check finds broken links. `make site` builds it."""

import re
import tomllib

from tests.helpers.repository import ROOT


def leaves(entry: object) -> list[str]:
    """The files of a navigation, which is a list of pairs of a title and a file, or of a title and such a list."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [leaf for part in parts for leaf in leaves(part)]


def test_the_navigation_has_every_page_and_no_other():
    named = leaves(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    assert len(set(named)) == len(named)
    pages = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("lab/*.md"), *ROOT.glob("lab/notes/*.md"), *ROOT.glob("*.md")]
    assert set(named) == {str(page.relative_to(ROOT)) for page in pages}


def test_the_pages_of_the_api_name_what_exists():
    for package in ("modeling_bert_repro", "tokenization"):
        text = (ROOT / "docs" / "api" / f"{package}.md").read_text()
        assert f"::: {package}\n" in text
        for module, name in re.findall(rf"^::: ({package}[\w.]*)\.(\w+)$", text, re.MULTILINE):
            source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
            assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{module}.{name}"
