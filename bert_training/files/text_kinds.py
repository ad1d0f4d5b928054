"""The kinds of files that hold text for pre-training and for a vocabulary, by their names."""

import re
from pathlib import Path

from bert_training.files.compressed_files import PACKED, kind_of, open_packed

KINDS = (".txt", ".jsonl", ".parquet", ".arrow")
EXPECTED = ".txt, .jsonl or .parquet, or one of them as .xz, .gz, .bz2 or .zst, or .arrow of save_to_disk"
PLACES = f"files ({EXPECTED}), folders, patterns in quotes ('news/**/*.txt'), URLs (s3://, hf://, ...)"
# WikiExtractor gives its files no suffix (AA/wiki_00), whether they hold lines or JSON, but may pack them.
_WIKIEXTRACTOR = re.compile(r"wiki_\d+")


def has_text(path: Path) -> bool:
    """Whether a file, to judge by its name, is of a kind that is read."""
    if path.suffix in PACKED and kind_of(path) == ".arrow":
        return False
    return kind_of(path) in KINDS or _is_of_wikiextractor(path)


def text_kind(path: Path) -> str:
    """One of ``KINDS``, or another suffix for a file that is not read. The files of WikiExtractor are opened for it.

    Raises:
        ValueError: such a file cannot be read.
    """
    if not _is_of_wikiextractor(path):
        return kind_of(path)
    with open_packed(path) as stream:
        first = stream.readline(1 << 16).lstrip()
    return ".jsonl" if first.startswith(b"{") else ".txt"


def _is_of_wikiextractor(path: Path) -> bool:
    return bool(_WIKIEXTRACTOR.fullmatch(path.stem if path.suffix in PACKED else path.name))
