"""Build a corpus: slices of a text -> documents -> sentences -> token ids in memory-mapped files.

    corpus = build_corpus(["wiki.txt.xz", "books.jsonl"], tokenizer, "corpus", num_workers=8)
    corpus = Corpus.open("corpus", tokenizer)

``plan_corpus`` lists the shards of files, and ``make_shard`` makes one of them: a function of the bytes of its slice
(``encoding.py``), the tokenizer and a few flags, and of nothing else. Therefore anybody may make them in any order,
such as the tasks of datatrove (``bert_tools/datatrove_blocks.py``); one that is there already is not made again.
Documents that the caller yields become shards one after the other.

Of the text, only a line, or a row of a table, is in memory as a whole. Of a shard, memory holds the lengths of its
sentences, and of a piece of 4 MB, or of a document that is longer, the ids.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tokenizers
from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import damage, make_folder, remove_folder, sealed_folder, write_json
from bert_training.files.hashing import UnchangedFiles, digest
from bert_training.inputs.texts import check_files
from bert_training.pretraining.corpus import (
    ARRAYS,
    FACTS,
    FORMAT,
    OFFSETS,
    Corpus,
    is_finished,
    read_facts,
    shard_folder,
    shard_folders,
)
from bert_training.pretraining.encoding import (
    ALL,
    SLICE_BYTES,
    Encoded,
    Side,
    Span,
    chunks_of,
    encode_chunk,
    encode_piece,
    is_divisible,
    lines_of_span,
    pieces_of,
    plan_slices,
    results_in_order,
)
from bert_training.pretraining.sentences import RULES
from tokenization.bert_tokenizer import text_tokenizer, tokenizer_json, tokenizer_sha256
from tokenization.errors import UserError

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # in typing from Python 3.13 on

# Files, or documents as lists of paragraphs, or an iterator of paragraphs with None at the end of each document.
Source = Sequence[str | Path] | Iterable[list[str]] | Iterator[str | None]
PIECE_BYTES = 1 << 22  # what a worker reads and encodes at a time


@dataclass(frozen=True)
class Job:
    """A shard that is to be made.

    Attributes:
        path: its folder.
        key: what all shards of the corpus have in common.
        last: whether it is the last one.
        spans: what it is made from.
        column: the field of the text.
        side: which documents it has.
    """

    path: Path
    key: dict[str, Any]
    last: bool
    spans: list[Span]
    column: str
    side: Side


def build_corpus(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: str | Path,
    num_workers: int = 1,
    *,
    fingerprint: str | None = None,
    unchanged: UnchangedFiles | None = None,
    text_column: str = "text",
    side: Side = ALL,
    slice_bytes: int = SLICE_BYTES,
) -> Corpus:
    """Tokenise ``source`` into a corpus in ``output_dir``, or open the one that is already there.

    A build that was interrupted continues behind its last shard when it is started again with the same arguments.

    Args:
        source: files for ``read_documents``, or documents (lists of paragraphs), or an iterator of paragraphs with None
            at the end of each document, of which none is held in memory.
        tokenizer: a tokenizer with a ``backend_tokenizer``.
        output_dir: the folder of the corpus.
        num_workers: processes to start for encoding.
        fingerprint: any text that changes when the documents do; needed for documents that are not in a list (a
            generator, a streamed data set).
        unchanged: the files that the documents come from.
        text_column: the field of the text, if ``source`` is files.
        side: which documents to take, if ``source`` is files.
        slice_bytes: the bytes of a slice, or the characters if ``source`` is documents.

    Raises:
        ValueError: the input cannot be read (see ``read_documents``), or ``output_dir`` holds another corpus or other
            files.
        OSError: the corpus could not be written.
    """
    target = Path(output_dir)
    make_folder(target)
    if others := [path.name for path in target.iterdir() if not path.name.startswith(("shard-", "."))]:
        raise UserError(f"{target}: holds other files than a corpus ({', '.join(others)[:200]}); choose another folder")
    if _are_files(source):
        jobs = plan_corpus(check_files(source), tokenizer, target, text_column, side, slice_bytes)
        if is_finished(target):
            check_made_from(target, jobs)
            return Corpus.open(target)
        for job in jobs:
            make_shard(job, tokenizer, num_workers)
        made = len(jobs)
    else:
        if fingerprint is None:
            fingerprint = _content_of(source)
        key = key_of({"documents": hashlib.sha256(fingerprint.encode()).hexdigest()}, tokenizer)
        if is_finished(target):
            check_key(target, key)
            return Corpus.open(target)
        made = _encode_stream(_lines_of(source), tokenizer, target, key, num_workers, slice_bytes, unchanged)
    for folder in shard_folders(target)[made:]:  # of an unfinished corpus of another text
        remove_folder(folder)
    return Corpus.open(target, verify=False)


def plan_corpus(
    files: Sequence[Path],
    tokenizer: PreTrainedTokenizerBase,
    target: Path,
    text_column: str = "text",
    side: Side = ALL,
    slice_bytes: int = SLICE_BYTES,
) -> list[Job]:
    """The shards of a corpus of files, by their sizes and forms; the arguments are those of ``build_corpus``.

    Raises:
        ValueError: there is no text.
    """
    slices = plan_slices(files, text_column, slice_bytes)
    if not slices:
        raise UserError(f"{', '.join(map(str, files))}: expected text, but every file is empty; give another file")
    text = {
        "sizes": [path.stat().st_size for path in files],
        "slice_bytes": slice_bytes,
        "text_column": text_column,
        "side": list(side),
    }
    key = key_of(text, tokenizer)
    return [
        Job(shard_folder(target, number), key, number == len(slices) - 1, spans, text_column, side)
        for number, spans in enumerate(slices)
    ]


def make_shard(job: Job, tokenizer: PreTrainedTokenizerBase, num_workers: int = 1) -> None:
    """Make a shard, whole or not at all; nothing is done if it is there and undamaged.

    Args:
        job: the shard.
        tokenizer: the tokenizer.
        num_workers: processes to start for encoding.

    Raises:
        ValueError: the text cannot be read, or a file was changed meanwhile.
        OSError: it could not be written.
    """
    files = UnchangedFiles({span.path for span in job.spans})
    described = [span.described() for span in job.spans]
    facts = {"key": job.key, "slice": described, "last": job.last}
    if job.path.exists() and _is_made(job.path, facts):
        return
    work = _work_on(job, tokenizer_json(text_tokenizer(tokenizer)))
    _write_shard(job.path, tokenizer, results_in_order(work, num_workers), facts, files.check)


def _work_on(job: Job, content: str) -> Iterator[Callable[[], list[Encoded]]]:
    for span in job.spans:
        if is_divisible(Path(span.path), job.column):
            for piece in pieces_of(span, PIECE_BYTES, job.column):
                yield partial(encode_piece, content, piece, job.column, job.side)
        else:  # this process reads it, and others encode
            lines = job.side.of(lines_of_span(span, job.column))
            yield from _work_on_stream(lines, content)


def _work_on_stream(lines: Iterable[str | None], content: str) -> Iterator[Callable[[], list[Encoded]]]:
    """Calls that encode lines which this process reads."""
    return (partial(encode_chunk, content, chunk) for chunk in chunks_of(lines))


def _encode_stream(
    lines: Iterator[str | None],
    tokenizer: PreTrainedTokenizerBase,
    target: Path,
    key: dict[str, Any],
    num_workers: int,
    characters: int,
    unchanged: UnchangedFiles | None,
) -> int:
    """Make the shards of a stream of documents and return their number; those that are there are read over."""
    content = tokenizer_json(text_tokenizer(tokenizer))
    stream = _Stream(lines)
    number = 0
    while not number or not stream.ended:
        part, path = stream.documents(characters), shard_folder(target, number)
        facts = {"key": key, "slice": number}
        if _is_made(path, facts):
            for _ in part:
                pass
        else:
            parts = results_in_order(_work_on_stream(part, content), num_workers)
            check = unchanged.check if unchanged else lambda: None
            _write_shard(path, tokenizer, parts, facts, check, lambda: stream.ended)
        number += 1
    return number


@dataclass
class _Stream:
    """Lines of which whole documents are taken."""

    lines: Iterator[str | None]
    ended: bool = False
    _ahead: list[str | None] = field(default_factory=list)

    def documents(self, characters: int) -> Iterator[str | None]:
        """Documents of about so many characters in all; afterwards, ``ended`` tells whether they are the last ones."""
        for line in itertools.chain(self._ahead, self.lines):
            yield line
            characters -= len(line or "")
            if line is None and characters <= 0:
                break
        self._ahead = list(itertools.islice(self.lines, 1))
        self.ended = not self._ahead


def _write_shard(
    path: Path,
    tokenizer: PreTrainedTokenizerBase,
    parts: Iterable[list[Encoded]],
    facts: dict[str, Any],
    check: Callable[[], None],
    is_last: Callable[[], bool] | None = None,
) -> None:
    """Write a shard from the ids of its pieces; sentences and documents without tokens are counted and left out."""
    dtype = ids_dtype(tokenizer)
    unigrams = np.zeros(len(tokenizer), np.int64)
    lengths, ends = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    before = 0  # the number of sentences
    make_folder(path.parent)
    with sealed_folder(path) as draft:
        with open(draft / "tokens.bin", "wb") as file:
            for part in itertools.chain.from_iterable(parts):
                file.write(part.tokens.astype(dtype).tobytes())
                unigrams += np.bincount(part.tokens, minlength=len(unigrams))
                lengths.append(part.lengths.astype(np.uint32))
                ends.append(part.ends + before)
                before += len(part.lengths)
        check()
        every, borders = np.concatenate(lengths), np.concatenate(ends)
        kept = np.concatenate([[0], np.cumsum(every > 0)])  # sentences that are kept before each
        sentences = np.concatenate([[0], np.cumsum(every[every > 0], dtype=np.int64)])
        documents = np.unique(np.concatenate([[0], kept[borders]]))  # an empty one ends where it begins
        arrays = {"sentences": sentences, "documents": documents, "unigrams": unigrams}
        for name, array in arrays.items():
            (draft / f"{name}.bin").write_bytes(array.astype(OFFSETS).tobytes())
        write_json(
            draft / FACTS,
            facts
            | ({"last": is_last()} if is_last else {})
            | {
                "dtype": dtype.str,
                "lengths": {"tokens": int(sentences[-1])} | {name: len(array) for name, array in arrays.items()},
                "empty": {"sentences": len(every) + 1 - len(sentences), "documents": len(borders) + 1 - len(documents)},
                "special_ids": sorted(set(tokenizer.all_special_ids)),
                "versions": {"tokenizers": tokenizers.__version__, "numpy": np.__version__},
            },
        )


def ids_dtype(tokenizer: PreTrainedTokenizerBase) -> np.dtype:
    """The type of the ids of a tokenizer in a file."""
    return np.dtype("<u2" if len(tokenizer) <= 1 << 16 else "<i4")


def key_of(text: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The key of a corpus; ``text`` identifies what it is made from."""
    return {
        "format": FORMAT,
        "text": digest(text),
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
        "text_tokenizer_sha256": tokenizer_sha256(text_tokenizer(tokenizer)),  # it keeps added tokens together
        "sentence_rules": RULES,
    }


def check_made_from(target: Path, jobs: Sequence[Job]) -> None:
    """Raise ValueError unless a finished corpus has these shards; the files are read for their SHA-256."""
    check_key(target, jobs[0].key)
    for job, folder in zip(jobs, shard_folders(target), strict=True):
        for span, then in zip(job.spans, read_facts(folder)["slice"], strict=True):
            if span.described() != then:
                raise UserError(f"{target}: holds a corpus made from another {Path(span.path).name}; {_GIVE}")


def check_key(target: Path, key: dict[str, Any]) -> None:
    """Raise ValueError unless a finished corpus has this key."""
    found = read_facts(shard_folders(target)[0])["key"]
    if differing := [name for name in key if found.get(name) != key[name]]:
        raise UserError(
            f"{target}: holds a corpus made from other input (it differs in: {', '.join(differing)}); {_GIVE}"
        )


_GIVE = "give the text, the tokenizer and the flags that it was made with, delete it, or choose another folder"


def _is_made(path: Path, facts: dict[str, Any]) -> bool:
    """Whether a shard is there, undamaged and made from the same."""
    if damage(path, [FACTS, *(f"{name}.bin" for name in ARRAYS)]) is not None:
        return False
    found = read_facts(path)
    return all(found[name] == value for name, value in facts.items())


def _content_of(source: Source) -> str:
    assert isinstance(source, Sequence), "documents that are not in a list need `fingerprint`, which identifies them"
    return json.dumps(list(source))


def _lines_of(source: Source) -> Iterator[str | None]:
    for item in cast("Iterable[list[str] | str | None]", source):
        yield from (item,) if item is None or isinstance(item, str) else (*item, None)


def _are_files(source: Source) -> "TypeIs[Sequence[str | Path]]":
    return isinstance(source, Sequence) and bool(source) and isinstance(source[0], str | Path)
