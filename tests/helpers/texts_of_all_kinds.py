"""A small text in files of all kinds that pre-training reads, the same bytes each time, apart from packed ones."""

import gzip
import json
import lzma
from pathlib import Path

import numpy as np

from tests.helpers.small_corpora import CORPUS_WORDS, make_tokenizer, random_documents

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789=<>/,'\"-"
# A sentence of each of several scripts, marks of them, a separator of lines that ends no line, a soft hyphen.
STRANGE = [
    "यह एक वाक्य है। दूसरा वाक्य॥ १२॥ तीसरा।",
    "これは文です。次の文「そうです。」と言った。",
    "one\u2028line. Still it. \u200b",
    'Dr. Smith paid 3.50 at www.x.org. "Why?" he asked. No. 5 was J. R. R.\'s.',
    "ภาษาไทยไม่มีเครื่องหมายจบประโยค",
    "\u00e9t\u00e9 na\u00efve Stra\u00dfe \U0001f600 \U00010a56 end",
    "\u200b",
]


def tokenizer_of_letters():
    """The tokenizer of ``make_tokenizer`` with letters as pieces, so that most words become several."""
    return make_tokenizer([*LETTERS, *(f"##{letter}" for letter in LETTERS)])


def documents(seed: int, count: int = 12) -> list[list[str]]:
    """Random documents, some of them with a strange line."""
    rng = np.random.default_rng(seed)
    found = random_documents(count, seed)
    for document in found:
        if rng.random() < 0.5:
            document.insert(int(rng.integers(len(document) + 1)), STRANGE[rng.integers(len(STRANGE))])
    return found


def plain(seed: int, end: str = "\n", last: str = "\n") -> bytes:
    """Plain text, in which some borders of documents have several blank lines or white space."""
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    for document in documents(seed):
        lines += [f"  {line}\t" if rng.random() < 0.2 else line for line in document]
        lines += ["", " \t", "\u3000"][: int(rng.integers(1, 4))]
    return (end.join(lines).rstrip() + last).encode()


def json_rows(seed: int, column: str = "text") -> bytes:
    """Rows of JSON, one of them empty, some with escaped letters, and blank lines between some of them."""
    texts = ["\n".join(document) for document in documents(seed)] + ["", "\n \n"]
    rows = [json.dumps({"id": number, column: text}, ensure_ascii=number % 2 == 0) for number, text in enumerate(texts)]
    rows.insert(3, "")
    return ("\n".join(rows) + "\n").encode()


def wikitext(seed: int) -> bytes:
    """Articles as wikitext has them."""
    lines = [""]
    for number, document in enumerate(documents(seed)):
        lines += [f" = Article {number} = ", "", *document, "", " = = Part = = ", "", f" The {number} dog . ", ""]
    return "\n".join(lines).encode()


def wikiextractor(seed: int) -> bytes:
    """Articles as WikiExtractor writes them."""
    parts = []
    for number, document in enumerate(documents(seed)):
        opening = f'<doc id="{number}" url="https://x.org/{number}" title="Title {number}">'
        parts.append("\n".join([opening, f"Title {number}", "", *document, "</doc>", ""]))
    return "\n".join(parts).encode()


def write_all(folder: Path) -> list[Path]:
    """Write the files into a folder, and return them in the order in which they are read."""
    import pyarrow
    import pyarrow.parquet

    texts = ["\n".join(document) for document in documents(7, 40)]
    no_blank = "\n".join([" = One = ", *CORPUS_WORDS, " = = Two = = ", "a bird sang .", " = Three = ", "it was ."])
    content = {
        "a.txt": plain(1),
        "b.txt": b"\xef\xbb\xbf" + plain(2, "\r\n", ""),
        "c.txt.xz": lzma.compress(plain(3)[:1500]) + lzma.compress(plain(3)[1500:]),
        "d.txt.gz": gzip.compress(plain(4)),
        "e.jsonl": json_rows(5),
        "f.jsonl.gz": gzip.compress(json_rows(6)),
        "h.txt": wikitext(8),
        "i.txt": wikiextractor(9),
        "j.txt": no_blank.encode(),
        "k.jsonl": "".join(json.dumps({"text": line}) + "\n" for line in wikitext(10).decode().split("\n")).encode(),
        "l.txt": b"\n\n" + " ".join(CORPUS_WORDS * 60).encode() + b"\n" + plain(11),
    }
    for name, data in content.items():
        (folder / name).write_bytes(data)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / "g.parquet", row_group_size=7)
    return sorted(folder.iterdir())
