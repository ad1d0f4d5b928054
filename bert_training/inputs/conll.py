"""Files in columns, a word a line with its tag in the last column, as rows of sentences.

A blank line follows each sentence, and in CoNLL-2003's files -DOCSTART- precedes each document:

    -DOCSTART- -X- O O

    EU NNP I-NP I-ORG
    rejects VBZ I-VP O          tokens            tags             document   line
                          ->    ["EU", "rejects"] ["I-ORG", "O"]   1          3

The reader is written by hand, because that of datasets (``conll``) drops the borders of documents, and reads a line
that is cut short as a word without a tag.
"""

import re
from pathlib import Path

from bert_training.inputs.reading import numbered_lines
from bert_training.inputs.rows import Rows, bar, check_rows, facts_of
from tokenization.errors import UserError

DOCUMENT = re.compile(r"[ \t]*-DOCSTART-(?=[ \t]|$)")
TAG = re.compile(r"[OBIESLUM]|[BIESLUM]-\S+")


def read_conll(path: str | Path) -> Rows:
    """The sentences of a file in columns (plain or packed).

    Columns are separated by tabs if the first line has one, otherwise by spaces. The first column is the word and the
    last its tag; a file with one column has no ``tags``, and one without -DOCSTART- lines no ``document``. Comments are
    lines that begin with # before a sentence and are no word with a tag; they are counted. ``line`` is that of the
    first word of a sentence.

    Raises:
        UserError: with file and line: a line has another number of columns or no word or tag; or there is no word.
    """
    import pyarrow

    found: dict[str, list] = {"tokens": [], "tags": [], "document": [], "line": []}
    separator, columns, first, documents, within, comments = "", 0, 0, 0, False, 0
    for number, line in bar(numbered_lines(path), "reading", "lines"):
        if DOCUMENT.match(line) or not line.strip(" \t"):
            documents += bool(DOCUMENT.match(line))
            within = False
            continue
        mark = separator or ("\t" if "\t" in line else " ")
        fields = [field for field in line.split(mark) if field or mark == "\t"]
        if not within and _is_comment(fields, columns):
            comments += 1
            continue
        separator, columns, first = mark, columns or len(fields), first or number
        if len(fields) != columns or not fields[0].strip() or not fields[-1].strip() or "\t" in "".join(fields):
            raise UserError(
                f"{path}:{number}: expected {columns} columns separated by {'tabs' if mark != ' ' else 'spaces'} as on "
                f"line {first}, a word first and its tag last, got {line[:60]!r}; correct it (a blank line "
                "ends a sentence)"
            )
        if not within:
            within = True
            for name, value in ("tokens", []), ("tags", []), ("document", documents), ("line", number):
                found[name].append(value)
        found["tokens"][-1].append(fields[0])
        found["tags"][-1].append(fields[-1])
    check_rows(found["tokens"], str(path))
    there = [name for name in found if (name != "tags" or columns > 1) and (name != "document" or documents)]
    facts = facts_of(str(path)) | ({"comment_lines": comments} if comments else {})
    return Rows(pyarrow.table({name: found[name] for name in there}), {}, [], facts)


def _is_comment(fields: list[str], columns: int) -> bool:
    """Whether a line before a sentence is a comment, such as "# id 7". A word may begin with #, too: "#one B-TAG"."""
    if not fields[0].startswith("#") or TAG.fullmatch(fields[-1]):
        return False
    return len(fields) != columns if columns else len(fields) > 2 and fields[0] in ("#", "##")
