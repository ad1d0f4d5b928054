"""Check a built site: each link leads to a page, a heading or a file, and nothing is loaded from other hosts.

python .ci/check_site.py site

The build itself looks at links between pages, and not at those to pictures and files of code.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote


class Page(HTMLParser):
    """The names of the places on a page, its links, and the addresses of what it loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.places: set[str | None] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.places |= {found.get("id"), found.get("name")}
        address = found.get("href") or found.get("src")
        if address:
            (self.links if tag == "a" else self.loaded).append(address)


def is_elsewhere(address: str) -> bool:
    return re.match(r"([a-z]+:)?//|mailto:|data:", address) is not None


def mistakes(site: Path) -> list[str]:
    """What is wrong with the pages below a folder, but for the page of errors, whose links begin at the root."""
    pages = {file: Page(file) for file in sorted(site.resolve().rglob("*.html")) if file.name != "404.html"}
    found = [] if pages else [f"{site} has no pages"]
    for file, page in pages.items():
        name = file.relative_to(site.resolve())
        found += [f"{name} loads {address}" for address in page.loaded if is_elsewhere(address)]
        for address in page.links + page.loaded:
            if is_elsewhere(address):
                continue
            path, _, place = unquote(address).partition("#")
            there = (file.parent / path.partition("?")[0]).resolve() if path else file
            if not there.is_file() or (place and there in pages and place not in pages[there].places):
                found.append(f"{name} has a broken link: {address}")
    return found


if __name__ == "__main__":
    wrong = mistakes(Path(sys.argv[1]))
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)
