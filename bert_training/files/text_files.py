"""Read texts from files, one at a time: .txt and .jsonl, also packed, .parquet, and .arrow of ``save_to_disk``."""

import importlib.util
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from bert_training.files.arrow_files import arrow_rows
from bert_training.files.compressed_files import decoded_lines, kind_of, open_packed, unpack
from bert_training.files.json_files import parse_json
from bert_training.files.parquet_files import text_rows
from bert_training.files.text_forms import recognised
from bert_training.files.text_kinds import has_text, text_kind
from bert_training.files.text_paths import entries_of
from tokenization.errors import UserError

FORMS = ".txt, .jsonl, one of them as .xz, .gz, .bz2 or .zst, .parquet or .arrow"
PLACES = f"files ({FORMS}), folders, patterns in quotes ('news/**/*.txt'), URLs (s3://, hf://, ...)"
TABLES = (".parquet", ".arrow")
_NAMED = 3  # files of each form in messages

logger = logging.getLogger(__name__)


def read_texts(
    files: Iterable[str | os.PathLike[str]], progress: bool = True, text_column: str = "text"
) -> Iterator[str]:
    """Yield each line of the .txt files and each ``text`` field of the .jsonl and .parquet files.

    What is no text in the output of WikiExtractor and in wikitext is left out, with a message (``text_forms``).

    One line (or one batch of parquet rows) is in memory at a time. All paths are checked before the first file is read.

    Args:
        files: paths of files and folders, patterns and URLs (``text_paths.py``).
        progress: show a progress bar if standard error is a terminal.
        text_column: the name of the field of the text.

    Raises:
        ValueError: a file is missing, empty, of an unknown form or damaged, or it has bytes that are not UTF-8,
            malformed JSON or a row without the field of the text. The message names the file and, if possible, the
            line.
    """
    entries = entries_of(files)
    paths = [path for entry in entries for path in entry.files]
    if not paths:
        raise UserError(f"expected at least one file ({FORMS}), got none")
    for remark in (remark for entry in entries for remark in entry.remarks()):
        logger.warning("%s", remark)
    for path in paths:
        _check(path)
    forms: Counter[str] = Counter()
    total = sum(path.stat().st_size for path in paths)
    # disable=None means that tqdm shows no bar unless stderr is a terminal.
    with tqdm(total=total, unit="B", unit_scale=True, desc="reading", disable=None if progress else True) as bar:
        for path in paths:
            empty, rows = True, text_kind(path) != ".txt"
            texts = (_table_texts if path.suffix in TABLES else _line_texts)(path, text_column, bar.update)
            form, texts = recognised(path, texts, rows)
            if form is not None:
                forms[form] += 1
                if forms[form] <= _NAMED:
                    more = ", and so may further files be" if forms[form] == _NAMED else ""
                    logger.warning("%s: read as %s%s", path, form, more)
            for _, text in texts:
                empty = False
                yield text
            if empty:
                raise UserError(f"{path}: holds no text; remove it from the list of files")


def _check(path: Path) -> None:
    """Raise ValueError if the file cannot be read for a reason that is known before it is opened."""
    if not has_text(path) or (kind_of(path) in TABLES and path.suffix not in TABLES):
        raise UserError(f"{str(path)[:200]}: expected a file named {FORMS}")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if path.suffix in TABLES and importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"{path}: {path.suffix[1:]} files need pyarrow: pip install pyarrow")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty")


def _line_texts(path: Path, column: str, advance: Callable[[int], object]) -> Iterator[tuple[int, str]]:
    """(line, text) of a .txt or .jsonl file; ``advance`` gets the bytes that were read since its last call."""
    rows = text_kind(path) == ".jsonl"
    position = 0
    with path.open("rb") as raw:
        for number, line in decoded_lines(path, unpack(path, raw)):
            if not rows:
                yield number, line
            elif line.strip():
                yield number, text_of_row(line.strip(), f"{path}:{number}", column)
            if number % 1000 == 0:
                advance(raw.tell() - position)
                position = raw.tell()
    advance(path.stat().st_size - position)


def text_of_row(line: str, where: str, column: str = "text") -> str:
    """The field ``column`` of a line of JSON; ``where`` is the file and the line for error messages.

    Raises:
        ValueError: the line is not one JSON object with a string in this field, or half a surrogate pair is in it.
    """
    try:
        row = parse_json(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: not JSON at column {error.colno} ({error.msg}); expected one object a line"
        ) from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected one JSON object a line, got a {type(row).__name__}")
    if column not in row:
        raise UserError(
            f"{where}: expected a field `{column}`; its fields are {', '.join(map(repr, row))[:200]}; name that of the "
            "text with --text_column"
        )
    text = row[column]
    if not isinstance(text, str):
        raise UserError(
            f"{where}: expected a string in the field `{column}`, got {type(text).__name__}; repair the row"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: lone surrogate at character {error.start}; repair the text") from None
    return text


def _table_texts(path: Path, column: str, advance: Callable[[int], object]) -> Iterator[tuple[int, str]]:
    """(row, text) of a .parquet or .arrow file, some rows at a time."""
    import pyarrow

    number = 0
    try:
        with open_packed(path) as file:
            rows = (text_rows if path.suffix == ".parquet" else arrow_rows)(path, file, column)
            for number, row in enumerate(rows, 1):
                text = row.as_py()
                if not isinstance(text, str):
                    raise UserError(f'{path}: row {number}: expected a string in "{column}", got {str(text)[:80]}')
                yield number, text
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: row {number}: not UTF-8 ({error.reason}); repair the text") from error
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a {path.suffix[1:]} file, or damaged: {reason}") from error
    advance(path.stat().st_size)
