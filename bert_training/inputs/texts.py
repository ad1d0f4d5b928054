"""The text that a user gives, as documents: files, packed or remote ones, a data set of the Hub, this installation.

| entry of ``--train_file`` and the like | its files |
|---|---|
| the path of a file | that file, whatever characters its name has |
| a pattern with ``*``, ``?``, ``[...]`` or ``**`` | those that match; of a folder that matches, those in it |
| a folder | all in it and below it |
| a URL, which may be a pattern or a folder | copies of them in a cache |

The files of an entry are sorted by their names, folder by folder, character by character (``part-10`` before
``part-2``); the entries keep their order. Of a folder or a pattern, hidden files, the marks of Hadoop and Spark
(``LEFT_OUT``), empty files and links to folders are left out, and a message says so; a file of another kind is an
error. A file that several links lead to is read once.

A remote file is fetched once, as a whole, and then read like any other, so that it can be hashed, read several times
and resumed. Its folder in the cache is named after its address and what the server says of it: a file that has changed
there is fetched again under another name.

    <assets folder of Hugging Face's cache>/bert_repro/texts/default/<hash>/<name of the file>

A .txt file has one sentence or paragraph per line, and a blank line between documents. In .jsonl and .parquet files,
and in a data set of the Hub, the field ``text`` of each row, or that of ``--text_column``, is a document, and its lines
are paragraphs. The output of WikiExtractor and wikitext are read as their articles (``text_forms.py``). Files may be
packed (``compressed_files.py: PACKED``). All text is UTF-8.
"""

import copy
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bert_training.builtin_data import documentation
from bert_training.files.atomic import make_folder, whole_file
from bert_training.files.hashing import sha256
from bert_training.files.locks import hold, release
from bert_training.inputs.compressed_files import PACKED, decoded_lines, kind_of, open_packed, without_query
from bert_training.inputs.hub_datasets import from_hub, load_dataset
from bert_training.inputs.text_forms import Reading, reading_of_lines
from tokenization.errors import UserError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

KINDS = (".txt", ".jsonl", ".parquet")
EXPECTED = ".txt, .jsonl or .parquet, or one of them as .xz, .gz, .bz2 or .zst"
PLACES = f"files ({EXPECTED}), folders, patterns in quotes ('news/**/*.txt'), URLs (s3://, hf://, ...)"
LEFT_OUT = re.compile(r"\..*|_(SUCCESS|metadata|common_metadata|(started|committed)_\d+)|README\.md")
# WikiExtractor gives its files no suffix (AA/wiki_00), whether they hold lines or JSON, but may pack them.
_WIKIEXTRACTOR = re.compile(r"wiki_\d+")
_SHOWN = 3  # names in a message
_ROWS = 32  # of a Parquet file in memory at once; a row may be a book
_PARTS = re.compile(r"[^\n]+")

logger = logging.getLogger(__name__)


# --- which files ---------------------------------------------------------------------------------------------------


@dataclass
class Entry:
    """An entry and what it stands for.

    Attributes:
        given: the entry.
        files: its files.
        left_out: files that are not read, each with the reason.
    """

    given: str
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

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

    def remarks(self) -> list[str]:
        """What is to be said about files that are left out: at most one sentence."""
        if not self.left_out:
            return []
        more = f" and {len(self.left_out) - _SHOWN:,} more" if len(self.left_out) > _SHOWN else ""
        return [f"{self.given}: not read: {', '.join(self.left_out[:_SHOWN])}{more}"]


def entries_of(given: Iterable[str | os.PathLike[str]]) -> list[Entry]:
    """What each entry stands for, in order.

    Raises:
        UserError: an entry stands for nothing, for a file that is empty or of another kind, or for a file that another
            entry stands for as well.
    """
    entries = [_fetched(entry) if is_url(entry) else _local(entry) for entry in [os.fspath(one) for one in given]]
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


def check_entries(
    given: Iterable[str | os.PathLike[str]], say: Callable[[str], object], text_column: str | None = None
) -> list[Path]:
    """``check_files``, which also says what is not read of a folder or a pattern.

    Args:
        say: is called with each sentence.
        text_column: with it, each file that is read in a form of its own is named, too.
    """
    entries = entries_of(given)
    for remark in (remark for entry in entries for remark in entry.remarks()):
        say(remark)
    files = [path for entry in entries for path in entry.files]
    for path in files if text_column else ():
        if form := reading_of(path, str(text_column)).form:
            say(f"{path}: read as {form}")
    return files


def check_apart(given: Iterable[str | os.PathLike[str]], output_dir: str | os.PathLike[str]) -> None:
    """Refuse an output folder below a folder of text: what is written there would be text for the next start."""
    target = Path(os.path.realpath(output_dir))
    for entry in map(str, given):
        top = Path(os.path.realpath(entry.partition("**")[0] or "."))
        below = target.relative_to(top).parts if top.is_dir() and target.is_relative_to(top) else ()
        if below and not is_url(entry) and not any(map(LEFT_OUT.fullmatch, below)):
            raise UserError(
                f"--output_dir {output_dir} lies within {entry}, where all files are read as text, also those that "
                "are written there; give a folder elsewhere"
            )


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


def _local(given: str) -> Entry:
    if os.path.lexists(given) and not os.path.isdir(given):
        path = Path(given)
        if not has_text(path) or not path.stat().st_size:
            problem = "is empty; remove it from the list of files" if has_text(path) else f"expected {EXPECTED}"
            raise UserError(f"{given}: {problem}")
        return Entry(given, [path])
    if not os.path.isdir(given) and not is_pattern(given):
        raise UserError(f"{given[:200] or repr(given)}: no such file")
    parts = Path(given).parts
    fixed = len(parts) if os.path.isdir(given) else next(n for n, part in enumerate(parts) if is_pattern(part))
    top, rest = Path(*parts[:fixed]), "/".join(parts[fixed:])
    found = {path for one in (top.glob(rest) if rest else [top]) for path in _below(one)}
    entry, real = Entry(given), dict[str, Path]()
    ordered = sorted(found, key=lambda path: path.parts)
    for path in sorted(ordered, key=lambda path: os.path.abspath(path) != os.path.realpath(path)):  # links last
        if reason := _why_left_out(path.relative_to(top).parts, -1 if path.is_dir() else path.stat().st_size):
            entry.left_out.append(f"{path} ({reason})")
        else:
            real.setdefault(os.path.realpath(path), path)
    entry.files = [path for path in ordered if path in {*real.values()}]
    return _of_kinds(entry, entry.files)


def _below(top: Path) -> Iterator[Path]:
    """The files of a folder, and below it those folders that are not entered; or the file ``top``."""
    if not top.is_dir():
        yield top
    for folder, folders, files in os.walk(top):
        yield from (Path(folder, name) for name in files)
        for name in [*folders]:
            if LEFT_OUT.fullmatch(name) or os.path.islink(Path(folder, name)):
                folders.remove(name)
                yield Path(folder, name)


def _why_left_out(parts: Sequence[str], size: int | None) -> str:
    """Why a file below a folder is not read; "" if it is. A size of -1 is that of a folder."""
    if any(map(LEFT_OUT.fullmatch, parts)):
        return "by its name"
    return "empty" if size == 0 else "a link to a folder" if size == -1 else ""


def _of_kinds(entry: Entry, names: Iterable[Path]) -> Entry:
    """``entry``, unless it stands for no file, or ``names`` have one of a kind that is not read."""
    if others := [str(path) for path in names if not has_text(path)]:
        more = f" and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
        raise UserError(
            f"{entry.given}: expected files named {EXPECTED}, got {', '.join(others[:_SHOWN])}{more}; choose the files "
            "of text with a pattern, such as 'folder/**/*.txt', or give a data set of save_to_disk as --dataset_name"
        )
    if not entry.files:
        raise UserError(f"{entry.given}: no file of text is there{''.join(f' ({one})' for one in entry.remarks())}")
    return entry


@functools.cache
def _fetched(url: str) -> Entry:
    """A URL and the copies of its files. A process asks once, so that it reads the same content to its end."""
    import fsspec

    system, place = fsspec.core.url_to_fs(url)
    if is_pattern(place.replace("?", "") if url.startswith("http") else place):
        tops, top = system.glob(place), re.split(r"[^/]*[*?[]", place, maxsplit=1)[0]
    else:
        if not system.exists(place):
            raise UserError(f"{url}: no such file; check the address")
        tops, top = [place], place if system.info(place)["type"] == "directory" else ""
    infos: dict[str, dict[str, Any]] = {}
    for name in tops:
        info = system.info(name)
        infos |= system.find(name, detail=True) if info["type"] == "directory" else {name: info}
    entry, chosen = Entry(url), list[str]()
    for name in sorted(infos, key=lambda name: name.split("/")):
        inner = name.removeprefix(top).strip("/").split("/")
        if top and (reason := _why_left_out(inner, infos[name].get("size"))):
            entry.left_out.append(f"{name} ({reason})")
        else:
            chosen.append(name)
    plain = [Path(PurePosixPath(urlsplit(name).path if url.startswith("http") else name).name) for name in chosen]
    entry.files = plain
    _of_kinds(entry, plain)
    entry.files = [_copy(system, name, one.name) for name, one in zip(chosen, plain, strict=True)]
    return entry


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
            size = info.get("size")
            logger.warning("fetching %s%s to %s", name, f" ({size:,} bytes)" if size else "", target)
            with whole_file(target) as draft:
                try:
                    system.get_file(name, str(draft))
                except OSError as error:  # which else would be taken for one of the disk
                    raise UserError(
                        f"{name}: cannot be fetched ({error}); check the address and your access"
                    ) from error
                if size not in (None, got := draft.stat().st_size):
                    raise UserError(f"{name}: expected {size:,} bytes, got {got:,}; start again")
    finally:
        release(folder / ".lock")
    return target


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
    """Raise ValueError for a file without a paragraph."""
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


def row_lines(
    texts: Iterable[tuple[int, str]], rows: bool, ends: bool = True
) -> Iterator[tuple[int, str] | tuple[int, None]]:
    """Paragraphs, each with a number, and (0, None) at the end of each document.

    Args:
        texts: (number, text), in which a blank text ends a document.
        rows: whether every text is a document of its own.
        ends: whether the last text ends a document, as the last line of a file does.
    """
    for number, text in texts:
        empty = True
        for part in _PARTS.finditer(text):  # one at a time, so that a long text is not held twice
            if line := part[0].strip():
                empty = False
                yield number + part.start(), line
        if rows or empty:
            yield 0, None
    if ends and not rows:
        yield 0, None


def json_rows(path: Path, lines: Iterable[tuple[int, str]], column: str) -> Iterator[tuple[int, str]]:
    """The field ``column`` of each line, with its number."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not JSON ({error}); expected one object a line") from error
        yield number, text_of_row(row, f"{path}:{number}", column)


def parquet_rows(path: Path, stream: IO[bytes], column: str) -> Iterator[tuple[int, str]]:
    """(row, text) of a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    with tempfile.TemporaryFile() as unpacked:
        if path.suffix in PACKED:  # it is read from its end, and each seek in a packed stream unpacks it again
            shutil.copyfileobj(stream, unpacked)
            stream = unpacked
        try:
            table = parquet.ParquetFile(stream)
            columns = [column] if column in table.schema_arrow.names else []
            batches = table.iter_batches(_ROWS, columns=columns or None)
            rows = (row for batch in batches for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                yield number, text_of_row(row, f"{path}: row {number}", column)
        except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: not a readable parquet file ({reason}); fetch the file again") from error


def text_of_row(row: Any, where: str, column: str) -> str:
    """The field ``column`` of a row.

    Raises:
        UserError: it is no text; the message begins with ``where``.
    """
    text = row.get(column) if isinstance(row, dict) else None
    problem = f"got {type(text if isinstance(row, dict) else row).__name__}"
    if isinstance(text, str):
        try:
            text.encode()
            return text
        except UnicodeEncodeError as error:  # for which the library of tokenizers raises an error that does not name it
            problem = f"got one with half a surrogate pair at character {error.start}"
    fields = f"; its fields are {', '.join(map(repr, row))[:200]}" if isinstance(row, dict) else ""
    raise UserError(
        f"{where}: expected a row with a text in the field `{column}`, {problem}{fields}; name the field of the text "
        "with --text_column, or repair the row"
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
