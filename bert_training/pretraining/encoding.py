"""From the bytes of files to token ids and counts of words, in one process or several.

The files of a text are divided into slices, of which each becomes a shard of the corpus.

The slices follow from the files alone, so that every process makes the same ones without asking another. A slice is a
list of spans, ranges of bytes, and has the documents that begin in them: a document is never divided. It is read up to
its end, wherever that is, and a span in which none begins is empty.

- Plain text and rows of JSON are divided behind a blank line and between rows, the output of WikiExtractor before an
  opening tag.
- All else is read from its beginning and never divided: packed files, Parquet, wikitext (``Reading.begins``).

The workers are those of loky, which joblib brings. Workers of ``multiprocessing`` would first import the whole script
that started them, including torch. What they call is in modules that import neither torch nor transformers.
"""

import functools
import hashlib
import itertools
import os
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import tokenizers
from joblib.externals.loky import ProcessPoolExecutor
from tqdm import tqdm

from bert_training.files.hashing import unchanged
from bert_training.inputs.reading import PACKED, decoded_lines, kind_of
from bert_training.inputs.texts import Reading, json_rows, read_lines, reading_of, row_lines, text_kind, without_empty
from bert_training.pretraining.sentences import split_sentences
from tokenization.errors import UserError
from tokenization.train_wordpiece import count_words

# --- slices ----------------------------------------------------------------------------------------------------------


SLICE_BYTES = 1 << 29  # about 120 million tokens of English
UNPACKED = 4  # times its size on the disk is about what comes out of a packed file
_BLOCK = 1 << 20


class Span(NamedTuple):
    """The bytes from ``start`` up to ``stop`` of a file of ``size`` bytes, the file ``number`` of a text."""

    number: int
    path: str
    start: int
    stop: int
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return (self.start, self.stop) == (0, self.size)

    def sha256(self) -> str:
        """SHA-256 of its bytes."""
        found = hashlib.sha256()
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for place in range(self.start, self.stop, _BLOCK):
                found.update(file.read(min(_BLOCK, self.stop - place)))
        return found.hexdigest()

    def described(self) -> dict[str, str | int]:
        """Place and content, as the shard records them; a file may be renamed."""
        return {"file": self.number, "start": self.start, "stop": self.stop, "sha256": self.sha256()}


def plan_slices(files: Sequence[Path], column: str = "text", size: int = SLICE_BYTES) -> list[list[Span]]:
    """The spans of each slice. All of them together, in order, are the files.

    Args:
        files: the files of the text.
        column: the field of the text.
        size: the bytes of a slice; a larger file that cannot be divided is a slice of its own.
    """
    slices: list[list[Span]] = []
    room = 0
    for number, path in enumerate(files):
        whole = path.stat().st_size
        packed = is_packed(path)
        weight = whole * UNPACKED if packed else whole
        divided = weight > room and is_divisible(path, column)
        start = 0
        while start < whole:
            if room <= 0 or (not divided and room < min(weight, size)):
                slices.append([])
                room = size
            stop = min(whole, start + room) if divided else whole
            slices[-1].append(Span(number, str(path), start, stop, whole))
            room -= stop - start if divided else weight
            start = stop
    return slices


def is_packed(path: Path) -> bool:
    """Whether more text comes out of a file than its bytes say; Parquet is packed, too."""
    return path.suffix in PACKED or kind_of(path) == ".parquet"


def is_divisible(path: Path, column: str = "text") -> bool:
    """Whether the documents of a file can be found from any byte on."""
    return not is_packed(path) and reading_of(path, column).begins is not None


def pieces_of(span: Span, size: int, column: str = "text") -> list[Span]:
    """The span in parts of ``size`` bytes, each with the documents that begin in it; one that cannot be divided."""
    if not is_divisible(Path(span.path), column):
        return [span]
    return [
        span._replace(start=start, stop=min(start + size, span.stop)) for start in range(span.start, span.stop, size)
    ]


def lines_of_span(span: Span, column: str = "text") -> Iterator[str | None]:
    """The paragraphs of the documents that begin in a span, and None at the end of each document; none is empty.

    Raises:
        ValueError: as ``read_lines`` does, with the number of the line in the whole file.
    """
    path = Path(span.path)
    if span.is_whole:
        yield from without_empty(read_lines([path], column))
        return
    reading, rows = reading_of(path, column), text_kind(path) == ".jsonl"
    try:
        with open(path, "rb") as stream:
            lines = _Lines(_lines_between(stream, span.start, span.stop, reading))
            texts = decoded_lines(path, lines, first=2 if span.start else 1)
            if rows:
                texts = json_rows(path, texts, column)
            yield from without_empty(line for _, line in row_lines(reading.read(texts), rows))
    except UserError:
        for _ in read_lines([path], column):  # which counts the lines from the beginning of the file
            pass
        raise


class _Lines:
    """What ``decoded_lines`` reads."""

    def __init__(self, lines: Iterator[bytes]):
        self._lines = lines

    def readline(self) -> bytes:
        return next(self._lines, b"")


def _lines_between(stream: IO[bytes], start: int, stop: int, reading: Reading) -> Iterator[bytes]:
    """The lines of the documents that begin in the bytes from ``start`` up to ``stop``."""

    def begins(line: bytes) -> bool:
        assert reading.begins is not None
        return reading.begins(line.decode(errors="replace").strip())

    place, inside = start, not start
    if start:
        stream.seek(start - 1)
        place += len(stream.readline()) - 1  # the first line that begins at ``start`` or behind it
    while line := stream.readline():
        if (not inside or place >= stop) and begins(line):
            if place >= stop:
                return
            inside = True
            if not reading.behind:
                yield line
        elif inside:
            yield line
        elif place >= stop:
            return
        place += len(line)


# --- which documents are held out ------------------------------------------------------------------------------------


def is_held_out(document: Iterable[str], share: float) -> bool:
    """Whether a document, as its paragraphs, is held out: its content decides, so copies of one are on the same side.

    Args:
        share: the proportion of documents to hold out, from 0 to 1.
    """
    return zlib.crc32("\n".join(document).encode()) < share * 2**32


class Side(NamedTuple):
    """Which documents of a text are meant.

    Attributes:
        share: the share of documents to hold out, from 0 to 1; None: all documents are meant.
        held_out: whether the held-out documents are meant or the others.
    """

    share: float | None = None
    held_out: bool = False

    def of(self, lines: Iterable[str | None]) -> Iterator[str | None]:
        """Those of ``lines`` (paragraphs, and None at the end of each document) that are meant.

        A document is in memory until its side is known, unless all are meant.
        """
        if self.share is None:
            yield from lines
            return
        document: list[str] = []
        for line in lines:
            if line is not None:
                document.append(line)
                continue
            if is_held_out(document, self.share) == self.held_out:
                yield from document
                yield None
            document = []


ALL = Side()


# --- encoding --------------------------------------------------------------------------------------------------------


CHUNK_CHARACTERS = 1 << 20


class Encoded(NamedTuple):
    """T tokens of S sentences, and the ends of D documents among them."""

    tokens: np.ndarray  # (T) int32, ids of all sentences, end to end
    lengths: np.ndarray  # (S) int64, tokens in each sentence
    ends: np.ndarray  # (D) int64, for each end of a document the number of sentences before it


@functools.lru_cache(1)
def load_backend(content: str) -> tokenizers.Tokenizer:
    """The ``tokenizers`` object for the content of a tokenizer.json; it treats "[SEP]" in a text as ordinary text."""
    backend = tokenizers.Tokenizer.from_str(content)
    backend.encode_special_tokens = True
    return backend


def encode_lines(content: str, lines: Sequence[str | None]) -> Encoded:
    """Split ``lines``, paragraphs with None at the end of each document, into sentences and encode them.

    Args:
        content: the content of a tokenizer.json.
        lines: the lines.
    """
    sentences: list[str] = []
    ends: list[int] = []
    for line in lines:
        if line is None:
            ends.append(len(sentences))
        else:
            sentences.extend(split_sentences(line))
    found = [_ids(load_backend(content), batch) for batch in _batches(sentences)]
    tokens = np.concatenate([tokens for tokens, _ in found] or [np.zeros(0, np.int32)])
    lengths = np.concatenate([lengths for _, lengths in found] or [np.zeros(0, np.int64)])
    return Encoded(tokens, lengths, np.array(ends, np.int64))


def _batches(sentences: list[str]) -> Iterator[list[str]]:
    """The sentences in lists of about a million characters, since what the library returns is large."""
    start = characters = 0
    for place, sentence in enumerate(sentences):
        characters += len(sentence)
        if characters >= CHUNK_CHARACTERS:
            yield sentences[start : place + 1]
            start, characters = place + 1, 0
    if start < len(sentences):
        yield sentences[start:]


def _ids(backend: tokenizers.Tokenizer, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
    ids = [encoding.ids for encoding in backend.encode_batch_fast(sentences, add_special_tokens=False)]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    return np.fromiter(itertools.chain.from_iterable(ids), np.int32, int(lengths.sum())), lengths


def chunks_of(lines: Iterable[str | None]) -> Iterator[list[str | None]]:
    """Consecutive lines in lists of about a million characters."""
    chunk: list[str | None] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += 1 if line is None else len(line)
        if characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def encode_piece(content: str, piece: Span, column: str, side: Side) -> list[Encoded]:
    """Read and encode a piece; what a worker calls."""
    return [encode_lines(content, chunk) for chunk in chunks_of(side.of(lines_of_span(piece, column)))]


def encode_chunk(content: str, lines: list[str | None]) -> list[Encoded]:
    """Encode lines that another process has read."""
    return [encode_lines(content, lines)]


def results_in_order(work: Iterable[Callable[[], Any]], num_workers: int) -> Iterator[Any]:
    """What each call returns, in order; at most ``2 * num_workers`` calls and results are in memory at a time.

    A single call is done by this process, because starting a worker takes longer.

    Args:
        work: what is called.
        num_workers: the most processes to start; with 1 this process does the work.
    """
    work = iter(work)
    ahead = list(itertools.islice(work, num_workers))
    calls = itertools.chain(ahead, work)
    if len(ahead) < 2:
        for call in calls:
            yield call()
        return
    pool = ProcessPoolExecutor(len(ahead), initializer=_begin_worker)
    try:
        pending: deque[Future[Any]] = deque()
        for call in calls:
            pending.append(pool.submit(call))
            if len(pending) == 2 * num_workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BaseException:
        pool.shutdown(kill_workers=True)  # nobody will read their results
        raise
    pool.shutdown()


def _begin_worker() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread for each worker, since there are as many as cores


# --- words, for a vocabulary -----------------------------------------------------------------------------------------


_COUNTED_BYTES = 1 << 24
Rules = tuple[bool, bool | None, bool]  # do_lower_case, strip_accents, tokenize_chinese_chars


def count_words_of_files(
    files: Sequence[Path],
    do_lower_case: bool,
    strip_accents: bool | None,
    tokenize_chinese_chars: bool,
    *,
    text_column: str = "text",
    num_workers: int = 1,
    progress: bool = True,
) -> Counter[str]:
    """The words of the files as ``count_words`` counts them.

    Args:
        files: the files.
        do_lower_case: see ``count_words``, as for the next two.
        text_column: the field of the text.
        num_workers: processes to start; with 1 this process does the work.
        progress: show a progress bar if standard error is a terminal.

    Raises:
        ValueError: a file cannot be read, has no text, or is changed meanwhile.
    """
    rules = (do_lower_case, strip_accents, tokenize_chinese_chars)
    spans = [span for one in plan_slices(files, text_column) for span in one]
    pieces = [piece for span in spans for piece in pieces_of(span, _COUNTED_BYTES, text_column)]
    words: Counter[str] = Counter()
    with unchanged(*files):
        counts = results_in_order(
            (functools.partial(_count, piece, text_column, rules) for piece in pieces), num_workers
        )
        # disable=None means that tqdm shows no bar unless stderr is a terminal.
        disable = None if progress else True
        for counted in tqdm(counts, total=len(pieces), unit=" parts", desc="counting words", disable=disable):
            words.update(counted)
    return words


def _count(piece: Span, column: str, rules: Rules) -> Counter[str]:
    """The words of a piece; what a worker calls."""
    return count_words((line for line in lines_of_span(piece, column) if line is not None), *rules)
