"""zensical.toml: the site has every page, and its check finds broken links. `make site` builds it."""

import importlib.util
import re
import tomllib

from tests.helpers.repository import ROOT

# Plain Markdown, which GitHub shows, and on the pages of the API the names whose docstrings stand there.
ANOTHER_SYNTAX = re.compile(r"^(:::|!!!|\?\?\?|===) |\{: ?[.#]|\]\{|:(material|octicons|lucide)-", re.MULTILINE)


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


def test_pages_use_only_what_github_shows():
    for page in ROOT.glob("docs/*.md"):
        code_is_out = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        assert not ANOTHER_SYNTAX.search(code_is_out), page


def test_the_pages_of_the_api_name_what_exists():
    for package in ("modeling_bert_repro", "tokenization"):
        text = (ROOT / "docs" / "api" / f"{package}.md").read_text()
        assert f"::: {package}\n" in text
        for module, name in re.findall(rf"^::: ({package}[\w.]*)\.(\w+)$", text, re.MULTILINE):
            source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
            assert re.search(rf"^(def|class) {name}\b", source, re.MULTILINE), f"{module}.{name}"


def test_broken_links_and_other_hosts_are_noticed(tmp_path):
    spec = importlib.util.spec_from_file_location("check_site", ROOT / ".ci" / "check_site.py")
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    assert len(check.mistakes(tmp_path)) == 1  # no pages
    page, other = tmp_path / "index.html", tmp_path / "docs" / "other.html"
    other.parent.mkdir()
    (tmp_path / "a file.py").write_text("")
    page.write_text(
        '<h1 id="top"></h1><a href="docs/other.html?h=x#two"></a><a href="#top"></a><a href="https://f"></a>'
    )
    other.write_text('<h2 id="two"></h2><a href="../index.html"></a><a href="../a%20file.py"></a>')
    assert check.mistakes(tmp_path) == []
    for wrong in ('<a href="#one">', '<a href="../index.html#two">', '<img src="a.png">', '<a href="../docs/">'):
        other.write_text(wrong)
        page.write_text("")
        assert len(check.mistakes(tmp_path)) == 1, wrong
    other.write_text('<script src="https://elsewhere/a.js">')
    assert check.mistakes(tmp_path) == ["docs/other.html loads https://elsewhere/a.js"]
