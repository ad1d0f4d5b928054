"""The text that a user gives, as documents: files, packed or remote ones, a data set of the Hub, this installation.

| entry of ``--train_file`` and the like | its files |
|---|---|
| the path of a file | that file, whatever characters its name has |
| a pattern with ``*``, ``?``, ``[...]`` or ``**`` | those that match; of a folder that matches, those in it |
| a folder | all in it and below it |
| a URL, which may be a pattern or a folder | copies of them in a cache |

The files of an entry are sorted by their names, folder by folder, character by character (``part-10`` before
``part-2``); the entries keep their order. Of a folder or a pattern, hidden files, those that begin with _ (the marks of
Hadoop and Spark), README.md and empty files are no text; a file of another kind is an error.

A remote file is fetched once, as a whole, and then read like any other, so that it can be hashed, read several times
and resumed. Its folder in the cache is named after its address and what the server says of it: a file that has changed
there is fetched again under another name.

    <assets folder of Hugging Face's cache>/bert_repro/texts/default/<hash>/<name of the file>

A .txt file has one sentence or paragraph per line, and a blank line between documents. In .jsonl and .parquet files,
and in a data set of the Hub, the field ``text`` of each row, or that of ``--text_column``, is a document, and its lines
are paragraphs. The output of WikiExtractor and wikitext are read as their articles (``reading_of_lines``). Files may be
packed (``reading.py: PACKED``). All text is UTF-8.
"""

import copy
import functools
import glob
import hashlib
import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bert_training.builtin_data import documentation
from bert_training.files.atomic import make_folder, whole_file
from bert_training.files.hashing import sha256
from bert_training.files.processes import hold, release
from bert_training.inputs.hub_datasets import from_hub, load_dataset
from bert_training.inputs.reading import (
    PACKED,
    decoded_lines,
    kind_of,
    open_packed,
    parquet_file,
    parsed,
    without_query,
)
from tokenization.errors import UserError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
import html
import itertools
from typing import NamedTuple

KINDS = (".txt", ".jsonl", ".parquet")
EXPECTED = ".txt, .jsonl or .parquet, or one of them as .xz, .gz, .bz2 or .zst"
PLACES = f"files ({EXPECTED}), folders, patterns in quotes ('news/**/*.txt'), URLs (s3://, hf://, ...)"
# WikiExtractor gives its files no suffix (AA/wiki_00), whether they hold lines or JSON, but may pack them.
_WIKIEXTRACTOR = re.compile(r"wiki_\d+")
_SHOWN = 3  # names in a message
_ROWS = 32  # of a Parquet file in memory at once; a row may be a book
_PARTS = re.compile(r"[^\n]+")

logger = logging.getLogger(__name__)


# --- which files ---------------------------------------------------------------------------------------------------


@dataclass
class Entry:
    """An entry, and the files that it stands for."""

    given: str
    files: list[Path]

    @property
    def name(self) -> str:
        """The last part of the entry and, if it stands for several files, their number."""
        last = Path(without_query(self.given)).name or self.given
        is_itself = len(self.files) == 1 and self.files[0].name == last
        return last if is_itself else f"{last} ({len(self.files):,} file{'s' if len(self.files) > 1 else ''})"

    def names(self) -> list[str]:
        """The names that run.json gives to the files, with the folders in which they are below a common one."""
        if is_url(self.given):  # the folders of the cache say nothing
            return [path.name for path in self.files]
        above = os.path.commonpath([path.parent for path in self.files])
        return [path.relative_to(above).as_posix() for path in self.files]


def entries_of(given: Iterable[str | os.PathLike[str]]) -> list[Entry]:
    """What each entry stands for, in order.

    Raises:
        UserError: an entry stands for nothing, for a file of another kind, or for one that is there twice.
    """
    entries = []
    for one in [os.fspath(path) for path in given]:
        files = _fetched(one) if is_url(one) else _local(one)
        others = [str(path) for path in files if not has_text(path)]
        if others or not files:
            found = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else "")
            raise UserError(
                f"{one[:200]}: expected files named {EXPECTED}, got {found or 'no file of text'}; check the path, or "
                "choose the files of text with a pattern, such as 'folder/**/*.txt' (a data set of save_to_disk is a "
                "--dataset_name)"
            )
        entries.append(Entry(one, files))
    seen: dict[str, Entry] = {}
    for entry in entries:
        for path in entry.files:
            real = os.path.realpath(path)
            if real in seen:
                raise UserError(
                    f"{path}: the same file twice, from {seen[real].given} and from {entry.given}; name each file "
                    "once, and give a text more weight with --mixture"
                )
            seen[real] = entry
    return entries


def check_files(given: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files of all entries. Raises as ``entries_of`` does."""
    return [path for entry in entries_of(given) for path in entry.files]


def is_url(entry: str | os.PathLike[str]) -> bool:
    """Whether an entry is an address such as ``s3://bucket/a.txt``."""
    return "://" in os.fspath(entry)


def is_pattern(text: str) -> bool:
    """Whether a text has a character that is special in a pattern."""
    return any(character in text for character in "*?[")


def has_text(path: Path) -> bool:
    """Whether a file, to judge by its name, is of a kind that is read."""
    return kind_of(path) in KINDS or _is_of_wikiextractor(path)


def text_kind(path: Path) -> str:
    """One of ``KINDS``. The files of WikiExtractor are opened for it."""
    if not _is_of_wikiextractor(path):
        return kind_of(path)
    with open_packed(path) as stream:
        return ".jsonl" if stream.readline(1 << 16).lstrip().startswith(b"{") else ".txt"


def _is_of_wikiextractor(path: Path) -> bool:
    return bool(_WIKIEXTRACTOR.fullmatch(path.stem if path.suffix in PACKED else path.name))


def _local(given: str) -> list[Path]:
    if os.path.isfile(given):
        return [Path(given)]
    tops = [given] if os.path.exists(given) else glob.glob(given, recursive=True)
    below = {path for top in tops for path in [top, *glob.glob(f"{glob.escape(top)}/**", recursive=True)]}
    files = (Path(path) for path in below if os.path.isfile(path) and _may_be_text(path, os.path.getsize(path)))
    return sorted(files, key=lambda path: path.parts)


def _may_be_text(name: str, size: int | None) -> bool:
    """Whether a file of a folder or a pattern is read."""
    last = name.rpartition("/")[2]
    return size != 0 and not last.startswith((".", "_")) and last != "README.md"


@functools.cache
def _fetched(url: str) -> list[Path]:
    """The copies of the files of a URL. A process asks once, so that it reads the same content to its end."""
    import fsspec

    system, place = fsspec.core.url_to_fs(url)
    pattern = is_pattern(place.replace("?", "") if url.startswith("http") else place)
    found: dict[str, dict[str, Any]] = {}
    for name in system.glob(place) if pattern else [place]:
        info = system.info(name)
        found |= system.find(name, detail=True) if info["type"] == "directory" else {name: info}
    names = sorted((name for name in found if _may_be_text(name, found[name].get("size"))), key=lambda n: n.split("/"))
    plain = [PurePosixPath(urlsplit(name).path if url.startswith("http") else name).name for name in names]
    if not all(has_text(Path(one)) for one in plain):
        return [*map(Path, plain)]  # which is said before anything is fetched
    return [_copy(system, name, one) for name, one in zip(names, plain)]


def _copy(system: "AbstractFileSystem", name: str, plain: str) -> Path:
    """The local copy of a file, which is fetched unless it is there; complete or absent."""
    from huggingface_hub import cached_assets_path

    info = system.info(name)  # a list of files may say less than the file itself
    identity = json.dumps([system.storage_options, system.unstrip_protocol(name), info], sort_keys=True, default=str)
    folder = Path(cached_assets_path("bert_repro", "texts")) / hashlib.sha256(identity.encode()).hexdigest()[:24]
    target = folder / plain
    make_folder(folder)
    hold(folder / ".lock", "", wait=True)  # another process may be fetching it
    try:
        if not target.is_file():
            logger.warning("fetching %s (%s bytes) to %s", name, info.get("size"), target)
            with whole_file(target) as draft:
                system.get_file(name, str(draft))
    finally:
        release(folder / ".lock")
    return target


# --- two forms of Wikipedia's text -----------------------------------------------------------------------------------
# In these forms a blank line or a row is not the end of a document.
#
# WikiExtractor writes XML-like lines around each article and repeats its title:
#
#     <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
#     Anarchism
#
#     Anarchism is a political philosophy.
#     </doc>
#
# Others write such lines without a title, with single quotes or as a bare <doc>.
#
# The data sets called wikitext have a line or a row for each paragraph, and headings on lines of their own:
#
#     <blank>
#      = Valkyria Chronicles III =
#     <blank>
#      Senjō no Valkyria 3 is a role @-@ playing video game .
#     <blank>
#      = = Gameplay = =
#
# Often their blank rows are filtered out, and then there are none.
#
# A text in one of these forms is read as its articles. What follows each other in a file is a document, also if no line
# closes it. The lines with tags, the repeated titles and the headings are left
# out, because BERT was trained on "only the text passages" of Wikipedia (paper, section 3.1). All other text is left as
# it is, even if such a line occurs in it.

WIKIEXTRACTOR = "WikiExtractor's output: a document for each <doc>, without the lines of tags and the repeated titles"
WIKITEXT = "wikitext: a document for each heading of level 1, without the headings"
# As much is read ahead to recognise a form. The articles of wikitext have some fifty lines.
_LINES_AHEAD = 2000
_CHARACTERS_AHEAD = 1 << 20

# Bounded, because looking for a title in it takes more than linear time.
_OPENED = re.compile(r"<doc(?:\s+\w+\s*=(?!.*</doc>).{0,2000})?\s*>")
_CLOSED = "</doc>"
_TITLE = re.compile(r"""\stitle=(["'])(?P<title>.*?)\1(?:\s\w+=(?:"[^"]*"|'[^']*'))*+\s*>$""")
_HEADING = re.compile(r"((?:= )+)(?![= ]).*[^= ]((?: =)+)")

Lines = Iterator[tuple[int, str]]


class Reading(NamedTuple):
    """How a text of a form is read, from its beginning or from the beginning of a document inside of it.

    Attributes:
        form: ``WIKIEXTRACTOR``, ``WIKITEXT`` or None for all other text.
        read: from (number, line or row) to those that are text.
        begins: whether a document begins at a stripped line; None: one line alone does not say it.
        behind: the document begins behind that line, and otherwise with it.
    """

    form: str | None
    read: Callable[[Lines], Lines]
    begins: Callable[[str], bool] | None = None
    behind: bool = False


def reading_of_lines(path: object, lines: Iterable[tuple[int, str]], rows: bool = False) -> tuple[Reading, Lines]:
    """How a text is read, and all of its lines again.

    Args:
        path: the name of the file or data set, for messages.
        lines: (number, line), or (number, text of a row).
        rows: whether ``lines`` are the rows of a table or a data set.

    Raises:
        UserError: the lines of a text file are JSON.
    """
    lines = iter(lines)
    ahead: list[tuple[int, str]] = []
    characters = 0
    for line in lines:
        ahead.append(line)
        characters += len(line[1])
        if len(ahead) == _LINES_AHEAD or characters > _CHARACTERS_AHEAD:
            break
    everything = itertools.chain(ahead, lines)
    texts = [text.strip() for _, text in ahead]
    first = [text for text in texts if text][:2]
    if not rows and first and _begins_with_doc(first[0], texts):
        return Reading(WIKIEXTRACTOR, _wikiextractor, lambda line: bool(_OPENED.fullmatch(line))), everything
    if not rows and first and all(map(_is_json, first)):
        raise UserError(
            f"{path}: expected lines of text, got an object of JSON on each; give the file a name that ends in .jsonl"
        )
    levels = [_level(text) for text in texts if any(map(str.isalpha, text))]
    if 1 in levels and sum(level > 0 for level in levels) > 1:
        return Reading(WIKITEXT, _wikitext), everything
    if rows:
        return Reading(None, lambda lines: lines, lambda line: True), everything
    return Reading(None, lambda lines: lines, lambda line: not line, behind=True), everything


def _begins_with_doc(first: str, ahead: list[str]) -> bool:
    """Whether a text begins with the tag of a document; a bare one may be a word of the text if nothing closes it."""
    return bool(_OPENED.fullmatch(first)) and (first != "<doc>" or _CLOSED in ahead)


def _title(opening: str) -> str:
    """The title in the line that opens a document; "" if it has none."""
    match = _TITLE.search(opening)
    return html.unescape(match["title"]) if match else ""


def _is_json(text: str) -> bool:
    try:
        value = json.loads(text) if text.startswith("{") else None
    except json.JSONDecodeError:
        return False
    return isinstance(value, dict) and any(isinstance(field, str) for field in value.values())


def _level(line: str) -> int:
    """The level of a heading of wikitext, from 1; 0 for other lines."""
    match = _HEADING.fullmatch(line)
    return len(match[1]) // 2 if match and len(match[1]) == len(match[2]) else 0


def _wikitext(lines: Lines) -> Lines:
    """The text; a number stands alone between "=" also elsewhere, so it is a heading only behind a blank line."""
    blank_before = True
    for number, line in lines:
        text = line.strip()
        level = _level(text) if blank_before or any(map(str.isalpha, text)) else 0
        if level == 1:
            yield number, ""
        elif text and not level:
            yield number, line
        blank_before = not text


def _wikiextractor(lines: Lines) -> Lines:
    title: str | None = None  # until the first line of text of a document
    for number, line in lines:
        text = line.strip()
        if _OPENED.fullmatch(text):
            title = _title(text)
            yield number, ""
        elif text == _CLOSED:
            yield number, ""
        elif text:
            if title is None or html.unescape(text) != title:
                yield number, line
            title = None


# --- what is in them -----------------------------------------------------------------------------------------------


def read_documents(files: Iterable[str | Path], text_column: str = "text") -> Iterator[list[str]]:
    """Yield the documents of entries in order, each as the list of its paragraphs (stripped, non-empty lines).

    Raises:
        UserError: a file is missing, empty, of an unknown kind or damaged, or it has bytes that are not UTF-8 or a
            row without a string in the field of the text. The message names file and line.
    """
    document: list[str] = []
    for line in without_empty(read_lines(check_files(files), text_column)):
        if line is not None:
            document.append(line)
        else:
            yield document
            document = []


def read_lines(files: Iterable[Path], text_column: str = "text") -> Iterator[str | None]:
    """The documents of ``check_files`` as one flat stream: paragraphs, and None at the end of each document.

    Memory stays bounded even if a file is a single endless document.
    """
    for path in files:
        empty = True
        with open_packed(path) as stream:
            reading, texts = texts_of(path, stream, text_column)
            rows = text_kind(path) != ".txt" and reading.form is None
            for _, line in row_lines(reading.read(texts), rows):
                empty = empty and line is None
                yield line
        check_has_text(path, not empty)


def check_has_text(path: str | Path, paragraphs: int) -> None:
    """Raise UserError for a file without a paragraph."""
    if not paragraphs:
        raise UserError(f"{path}: holds no text; remove it from the list of files")


def reading_of(path: Path, text_column: str = "text") -> Reading:
    """How a file is read, by its beginning.

    Raises:
        UserError: as ``read_documents`` does, if the mistake is at the beginning of the file.
    """
    with open_packed(path) as stream:
        return texts_of(path, stream, text_column)[0]


def texts_of(path: Path, stream: IO[bytes], column: str) -> tuple[Reading, Iterator[tuple[int, str]]]:
    """How a file is read, and its (number, line or text of a row)."""
    kind = text_kind(path)
    if kind == ".txt":
        return reading_of_lines(path, decoded_lines(path, stream))
    rows = (
        parquet_rows(path, stream, column)
        if kind == ".parquet"
        else json_rows(path, decoded_lines(path, stream), column)
    )
    return reading_of_lines(path, rows, rows=True)


def row_lines(texts: Iterable[tuple[int, str]], rows: bool) -> Iterator[tuple[int, str] | tuple[int, None]]:
    """Paragraphs, each with a number, and (0, None) at the end of each document.

    Args:
        texts: (number, text), in which a blank text ends a document.
        rows: whether every text is a document of its own.
    """
    for number, text in texts:
        empty = True
        for part in _PARTS.finditer(text):  # one at a time, so that a long text is not held twice
            if line := part[0].strip():
                empty = False
                yield number + part.start(), line
        if rows or empty:
            yield 0, None
    if not rows:
        yield 0, None


def json_rows(path: Path, lines: Iterable[tuple[int, str]], column: str) -> Iterator[tuple[int, str]]:
    """The field ``column`` of each line, with its number."""
    for number, line in lines:
        if line.strip():
            place = f"{path}:{number}"
            yield number, text_of_row(parsed(line, place), place, column)


def parquet_rows(path: Path, stream: IO[bytes], column: str) -> Iterator[tuple[int, str]]:
    """(row, text) of a Parquet file."""
    table = parquet_file(path, stream)
    columns = [column] if column in table.schema_arrow.names else None
    rows = (row for batch in table.iter_batches(_ROWS, columns=columns) for row in batch.to_pylist())
    for number, row in enumerate(rows, 1):
        yield number, text_of_row(row, f"{path}: row {number}", column)


def text_of_row(row: Any, where: str, column: str) -> str:
    """The field ``column`` of a row. UserError, which begins with ``where``, if it is no text."""
    text = row.get(column) if isinstance(row, dict) else row
    if isinstance(row, dict) and isinstance(text, str):
        return text
    fields = f"; its fields are {', '.join(map(repr, row))[:200]}" if isinstance(row, dict) else ""
    raise UserError(
        f"{where}: expected a row with a text in the field `{column}`, got {type(text).__name__}{fields}; name the "
        "field of the text with --text_column, or repair the row"
    )


def without_empty(lines: Iterable[str | None]) -> Iterator[str | None]:
    """``lines``, paragraphs with None at the end of each document, without documents that have no paragraph."""
    empty = True
    for line in lines:
        if line is not None or not empty:
            yield line
        empty = line is None


# --- documents -----------------------------------------------------------------------------------------------------


class Documents:
    """Documents that can be read more than once.

    Args:
        given: entries of files. Without any, the documents are those of ``dataset_name``; without that, those of this
            installation.
        text_column: the field of the text.
        dataset_name: a data set of the Hub, or a folder of ``datasets``.
        config_name: its configuration.
        streaming: whether its rows are read one by one from the Hub.

    Attributes:
        entries: the entries, each with its files.
        files: the files of all entries.
        name: where the documents come from.
        forms: names of files, or of the data set, that are read as articles of Wikipedia, and how; those of files are
            known after ``note_forms``, that of a data set after its first line has been read.
    """

    def __init__(
        self,
        given: Iterable[str | os.PathLike[str]],
        text_column: str = "text",
        dataset_name: str | None = None,
        config_name: str | None = None,
        streaming: bool = False,
    ):
        self.entries = entries_of(given)
        self.text_column, self.dataset_name, self.config_name = text_column, dataset_name, config_name
        self.streaming = streaming
        self.forms: dict[str, str] = {}

    @property
    def files(self) -> list[Path]:
        return [path for entry in self.entries for path in entry.files]

    @property
    def name(self) -> str:
        named = ", ".join(entry.name for entry in self.entries)
        return named or self.dataset_name or "the documentation carried by this Python installation"

    def of_entry(self, number: int) -> "Documents":
        """Those of one entry."""
        part = copy.copy(self)
        part.entries = [self.entries[number]]
        return part

    def identity(self) -> list[str | int | None]:
        """Values that change when the documents do; of files, their hashes say it.

        The library's hash of a data set covers the commit on the Hub, or the modification times of local files.
        """
        if self.dataset_name is None:
            return [zlib.crc32(repr(documentation.documents()).encode())]
        where = (self.dataset_name, self.config_name)
        if (state := Path(self.dataset_name) / "state.json").is_file():  # of save_to_disk; the library refuses it here
            return [*where, sha256(state)]
        return [*where, self._from_hub(lambda datasets: datasets.load_dataset_builder(*where).hash)]

    def note_forms(self) -> None:
        """Find the files that are read as articles of Wikipedia."""
        for entry in self.entries:
            for name, path in zip(entry.names(), entry.files):
                if form := reading_of(path, self.text_column).form:
                    self.forms[name] = form

    def lines(self) -> Iterator[str | None]:
        """The paragraphs, and None at the end of each document."""
        if self.entries:
            return without_empty(read_lines(self.files, self.text_column))
        if self.dataset_name is not None:
            return self._hub_lines()
        return (line for document in documentation.documents() for line in [*document, None])

    def _hub_lines(self) -> Iterator[str | None]:
        place = f"--dataset_name {self.dataset_name}"
        options = {"split": "train", "streaming": self.streaming}
        rows = self._from_hub(
            lambda datasets: load_dataset(datasets, str(self.dataset_name), self.config_name, **options)
        )
        texts = (
            (number, text_of_row(row, f"{place}, row {number}", self.text_column)) for number, row in enumerate(rows, 1)
        )
        reading, everything = reading_of_lines(place, texts, rows=True)
        lines = (line for _, line in row_lines(reading.read(everything), rows=reading.form is None))
        if reading.form is None:
            return lines
        self.forms[self.name] = reading.form
        return without_empty(lines)

    def _from_hub(self, work: Callable[[Any], Any]) -> Any:
        return from_hub(str(self.dataset_name), "give files with --train_file; it must have a split `train`", work)
