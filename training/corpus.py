"""Files -> documents -> sentences -> token ids in a memory-mapped corpus.

    corpus = build_corpus(["wiki.txt.xz", "books.jsonl"], tokenizer, "corpus", num_workers=8)
    corpus = Corpus.open("corpus", tokenizer)

Text is streamed: memory depends on the number of workers, not on the size of the corpus. The ids are the same
for every number of workers and whether or not the build was interrupted.
"""

import gzip
import hashlib
import io
import itertools
import json
import lzma
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import tokenizers

from training.encoding import Encoded, encoded_chunks
from training.sentences import split_sentences
from training.shards import (
    FORMAT,
    Corpus,
    ShardWriter,
    disk_error,
    fingerprint_of,
    read_manifest,
    sha256_of,
    tokenizer_json,
    tokenizer_sha256,
)
from training.shares import joined, remove_shares, share_folder, write_share

_PACKED = (".xz", ".gz")
_BLOCK = 1 << 20
_KINDS = (".txt", ".jsonl", ".parquet")
_CHUNK_CHARACTERS = 1 << 20
COMMIT_SECONDS = 20.0


# --- Reading ------------------------------------------------------------------------------------------------


def read_documents(files: Iterable[str | Path]) -> Iterator[list[str]]:
    """The documents of `files` in order, each as its paragraphs (stripped lines that are not empty).

    .txt: a sentence or paragraph a line, a blank line between documents. .jsonl and .parquet: the field `text`
    is a document, its lines are paragraphs. Each may be compressed (.xz, .gz). UTF-8 only.
    Raises ValueError, naming file and line, for a missing or empty file, an unknown kind, bytes that are not
    UTF-8, damaged compression, a row without a `text` string.
    """
    document: list[str] = []
    for line in read_lines(files):
        if line is not None:
            document.append(line)
        elif document:
            yield document
            document = []


def read_lines(files: Iterable[str | Path]) -> Iterator[str | None]:
    """Like `read_documents` as one flat stream: paragraphs, and None at the end of each document.

    It keeps memory bounded for a file that is one endless document.
    """
    for path in check_files(files):
        with _opened(path) as stream:
            kind = _kind(path)
            readers = {".txt": _text_lines, ".jsonl": _json_lines, ".parquet": _parquet_lines}
            empty = True
            for line in readers[kind](path, stream):
                empty = empty and line is None
                yield line
        if empty:
            raise ValueError(f"{path}: holds no text; remove it from the list of files")


def check_files(files: Iterable[str | Path]) -> list[Path]:
    """`files` as paths; ValueError for one that is missing, empty or of an unknown kind."""
    paths = [Path(file) for file in files]
    if not paths:
        raise ValueError("no input files; expected at least one .txt, .jsonl or .parquet file")
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path}: expected a file, got a folder; name the files in it")
        if not path.is_file():
            raise ValueError(f"{path}: no such file")
        if _kind(path) not in _KINDS:
            raise ValueError(f"{path}: unknown kind; expected .txt, .jsonl or .parquet, or one of them as .xz or .gz")
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: is empty; remove it from the list of files")
    return paths


def _kind(path: Path) -> str:
    return Path(path.stem).suffix if path.suffix in _PACKED else path.suffix


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".xz":
        return io.BufferedReader(_Xz(path), _BLOCK)
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")


class _Xz(io.RawIOBase):
    """What an .xz holds, all of its streams. `lzma.open` takes a damaged second one for the end and says nothing."""

    def __init__(self, path: Path):
        self.file = path.open("rb")
        self.decoder = lzma.LZMADecompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        while True:
            block = b""
            if self.decoder.eof:
                block = self.decoder.unused_data.lstrip(b"\0")  # streams may be padded
                while not block and (more := self.file.read(_BLOCK)):
                    block = more.lstrip(b"\0")
                if not block:
                    return 0
                self.decoder = lzma.LZMADecompressor()
            elif self.decoder.needs_input:
                block = self.file.read(_BLOCK)
                if not block:
                    raise EOFError("it ends in the middle of a stream")
            data = self.decoder.decompress(block, len(buffer))
            if data:
                buffer[: len(data)] = data
                return len(data)

    def close(self) -> None:
        self.file.close()
        super().close()


def _decoded_lines(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        for number, line in enumerate(stream, 1):
            if b"\0" in line:
                raise ValueError(f"{path}:{number}: holds a NUL byte: a binary file, or UTF-16; convert it to UTF-8")
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{number}: not UTF-8 ({error.reason} at byte {error.start}); convert the file"
        ) from error
    except (lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}:{number + 1}: damaged compression ({error}); fetch the file again") from error


def _text_lines(path: Path, stream: IO[bytes]) -> Iterator[str | None]:
    for _, line in _decoded_lines(path, stream):
        yield line or None
    yield None


def _json_lines(path: Path, stream: IO[bytes]) -> Iterator[str | None]:
    for number, line in _decoded_lines(path, stream):
        if not line:
            continue
        try:
            # Of two fields of one name json keeps the last and says nothing; the look-out for them costs time.
            row = json.loads(line, object_pairs_hook=_unrepeated if line.count('"text"') > 1 else None)
        except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits, and endless brackets
            raise ValueError(f"{path}:{number}: not JSON ({error}); expected one object a line") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected one object a line, got a {type(row).__name__}")
        if "text" not in row:
            raise ValueError(f"{path}:{number}: expected a field `text`; its fields are {', '.join(row)}")
        yield from _paragraphs(row["text"], f"{path}:{number}")


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if names.count("text") > 1:
        raise ValueError("the field `text` comes twice")
    return dict(pairs)


def _parquet_lines(path: Path, stream: IO[bytes]) -> Iterator[str | None]:
    import pyarrow
    import pyarrow.parquet

    with tempfile.TemporaryFile() as unpacked:
        try:
            if path.suffix in _PACKED:
                # Parquet is read from its end: seeking in a compressed stream would unpack it many times.
                shutil.copyfileobj(stream, unpacked)
                stream = unpacked
            table = pyarrow.parquet.ParquetFile(stream)
            names = table.schema_arrow.names
            if names.count("text") != 1:
                raise ValueError(f"{path}: expected one column `text`; its columns are {', '.join(names)}")
            rows = itertools.chain.from_iterable(
                batch.column(0) for batch in table.iter_batches(1024, columns=["text"])
            )
            for number, row in enumerate(rows, 1):
                try:
                    text = row.as_py()
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path}: row {number}: not UTF-8 ({error.reason}); repair the text") from error
                yield from _paragraphs(text, f"{path}: row {number}")
        except (pyarrow.ArrowException, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: not a readable parquet file ({reason}); fetch the file again") from error


def _paragraphs(text: Any, where: str) -> Iterator[str | None]:
    if not isinstance(text, str):
        raise ValueError(f"{where}: expected a string in the field `text`, got {type(text).__name__}; repair the row")
    check_encodable(text, where)
    for line in text.split("\n"):
        if line := line.strip():
            yield line
    yield None


def check_encodable(text: str, where: str) -> None:
    """ValueError for lone surrogates, which are no characters and which tokenizers refuse with a TypeError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: lone surrogate at character {error.start}; repair the text") from error


# --- Building -----------------------------------------------------------------------------------------------


def build_corpus(
    source: Sequence[str | Path] | Iterable[list[str]],
    tokenizer: Any,
    output_dir: str | Path,
    num_workers: int = 1,
    *,
    need_pairs: bool = True,
    fingerprint: str | None = None,
    shares: int = 1,
) -> Corpus:
    """Tokenise `source` into a corpus in `output_dir`, or open the one that is already there.

    source: files for `read_documents`, or documents (lists of paragraphs). For documents that are not in a list
    (a generator, a streamed data set) give `fingerprint`, any text that changes when they do.
    need_pairs: next-sentence prediction is wanted, so there must be 2 documents and one of 2 sentences.
    shares: above 1, that many processes have encoded the text with `encode_share`, and this one joins their work.
    A build that was interrupted is continued when it is started again with the same arguments.
    Raises ValueError for unreadable input (see `read_documents`), a source without the pairs, an `output_dir`
    that holds another corpus or other files; OSError with a remedy when the disk is full.
    """
    target = Path(output_dir)
    if num_workers < 1:
        raise ValueError(f"num_workers is {num_workers}; expected at least 1")
    lines, sources, key = _open_source(source, fingerprint, tokenizer)
    if _taken(target):
        return _reuse(target, key)
    if need_pairs:
        lines = _with_pairs(lines, source)
    vocab_size = len(tokenizer)
    facts = {
        "sources": sources,
        "vocab_size": vocab_size,
        "special_ids": sorted(set(tokenizer.all_special_ids)),
        "versions": {"tokenizers": tokenizers.__version__, "numpy": np.__version__},
    }
    dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")
    try:
        writer = ShardWriter(target, key, dtype)
        try:
            if shares > 1:
                _write(writer, joined(share_folder(target, shares, fingerprint_of(key)), shares, writer.events))
            else:
                remaining = itertools.islice(lines, writer.events, None)
                _write(writer, encoded_chunks(_chunks(remaining), tokenizer_json(tokenizer), num_workers))
            if writer.tokens == 0:
                raise ValueError("the source holds no text that the tokenizer turns into tokens")
            writer.finish(facts, vocab_size)
        finally:
            writer.close()
    except OSError as error:
        raise disk_error(error, target) from error
    remove_shares(target)
    return Corpus.open(target, verify=False)


def encode_share(
    source: Sequence[str | Path] | Iterable[list[str]],
    tokenizer: Any,
    output_dir: str | Path,
    rank: int,
    world_size: int,
    num_workers: int = 1,
    *,
    need_pairs: bool = True,
    fingerprint: str | None = None,
) -> None:
    """Encode the part of process `rank` of `world_size`, for `build_corpus(..., shares=world_size)` to join.

    The other arguments and the errors are those of `build_corpus`. Nothing is done where the corpus stands.
    """
    target = Path(output_dir)
    lines, _, key = _open_source(source, fingerprint, tokenizer)
    if _taken(target):
        return
    if need_pairs:
        lines = _with_pairs(lines, source)
    folder = share_folder(target, world_size, fingerprint_of(key))
    try:
        write_share(folder, _chunks(lines), tokenizer_json(tokenizer), rank, world_size, num_workers)
    except OSError as error:
        raise disk_error(error, folder) from error


def _taken(target: Path) -> bool:
    return target.exists() and (not target.is_dir() or any(target.iterdir()))


def _chunks(lines: Iterator[str | None]) -> Iterator[list[str | None]]:
    chunk: list[str | None] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += 1 if line is None else len(line)
        if characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _write(writer: ShardWriter, chunks: Iterator[tuple[int, Encoded]]) -> None:
    committed = time.monotonic()
    for size, encoded in chunks:
        writer.append(*encoded, events=size)
        if time.monotonic() - committed > COMMIT_SECONDS:
            writer.commit()
            committed = time.monotonic()


def _reuse(target: Path, key: dict[str, Any]) -> Corpus:
    """The corpus in `target` if it was built from the same source by the same tokenizer."""
    found = read_manifest(target)["key"]
    differing = [name for name in key if found.get(name) != key[name]]
    if differing:
        raise ValueError(
            f"{target}: holds a corpus made from other input (it differs in: {', '.join(differing)}); "
            "delete it or choose another folder"
        )
    return Corpus.open(target)


def _open_source(
    source: Sequence[str | Path] | Iterable[list[str]], fingerprint: str | None, tokenizer: Any
) -> tuple[Iterator[str | None], list[dict[str, Any]], dict[str, Any]]:
    """(the lines of the source, its description for the manifest, the key of the corpus)."""
    if isinstance(source, str | Path):
        raise ValueError(f"expected a list of files or documents, got the single {source!r}; write [{source!r}]")
    if _are_files(source):
        files = check_files(source)
        described = [{"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files]
        lines = read_lines(files)
    else:
        if fingerprint is None:
            if not isinstance(source, Sequence):
                raise ValueError("documents that are not in a list need `fingerprint`, a text that identifies them")
            fingerprint = json.dumps(list(source))
        described = [{"name": "documents", "sha256": hashlib.sha256(fingerprint.encode()).hexdigest()}]
        lines = _lines_of(source)
    key = {
        "format": FORMAT,
        "sources": [part["sha256"] for part in described],
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
    }
    return lines, described, key


def _lines_of(documents: Iterable[list[str]]) -> Iterator[str | None]:
    for number, document in enumerate(documents, 1):
        for paragraph in document:
            check_encodable(paragraph, f"document {number}")
            yield paragraph
        yield None


def _are_files(source: Sequence[str | Path] | Iterable[list[str]]) -> bool:
    return isinstance(source, Sequence) and bool(source) and isinstance(source[0], str | Path)


def _with_pairs(
    lines: Iterator[str | None], source: Sequence[str | Path] | Iterable[list[str]]
) -> Iterator[str | None]:
    """`lines`, once there turned out to be pairs in them."""
    if _are_files(source):  # read twice: looking ahead would hold an endless document in memory
        _check_pairs(read_lines(source), ", ".join(str(path) for path in source))
    else:
        lines, ahead = itertools.tee(lines)
        _check_pairs(ahead, "the documents")
    return lines


def check_text(files: Sequence[str | Path], need_pairs: bool) -> None:
    """Read files to their ends, as a build would; raises the ValueError that it would raise."""
    files = check_files(files)
    lines = read_lines(files)
    for _ in _with_pairs(lines, files) if need_pairs else lines:
        pass


def _check_pairs(lines: Iterator[str | None], where: str) -> None:
    """Read on until there are 2 documents and one of 2 sentences; ValueError when the text ends before."""
    documents, sentences, longest = 0, 0, 0
    for line in lines:
        if line is None:
            documents, sentences = documents + (sentences > 0), 0
        else:
            sentences += len(split_sentences(line))
            longest = max(longest, sentences)
        if documents >= 2 and longest >= 2:
            return
    raise ValueError(
        f"{where}: next-sentence prediction needs at least 2 documents and a document of at least 2 sentences, got "
        f"{documents} documents, the longest of {longest} sentences; add text, put blank lines between documents, or "
        "use the objective mlm"
    )
