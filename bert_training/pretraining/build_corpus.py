"""Build a corpus: files -> documents -> sentences -> token ids in memory-mapped files.

    corpus = build_corpus(["wiki.txt.xz", "books.jsonl"], tokenizer, "corpus", num_workers=8)
    corpus = Corpus.open("corpus", tokenizer)

Files are divided into ranges of bytes (``ranges.py``), whose ids are written as shards (``shards.py``), by any number
of processes, and joined (``join.py``). Documents that the caller yields are encoded as one stream.

The memory needed depends on the number of workers, and not on the size of the corpus or of a document. Only a line, or
a row of a table, is in memory as a whole, and a document that the caller gives as a list. The ids are the same for any
number of workers and processes, and whether or not the build was interrupted.
"""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tokenizers
from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import is_occupied, make_folder, written
from bert_training.files.hashing import UnchangedFiles, sha256
from bert_training.files.locks import held, sweep
from bert_training.inputs.texts import check_files, check_has_text
from bert_training.pretraining.corpus import (
    FORMAT,
    Corpus,
    CorpusWriter,
    forget_progress,
    ids_dtype,
    read_manifest,
)
from bert_training.pretraining.encoding import Encoded, encoded_chunks
from bert_training.pretraining.join import join_shards
from bert_training.pretraining.sentences import RULES
from bert_training.pretraining.shard_plan import ShardPlan, plan_of
from bert_training.pretraining.shards import CHUNK_CHARACTERS, Shard, remove_shards, shards_folder
from tokenization.coverage import Sample, coverage_of
from tokenization.errors import UserError
from tokenization.fingerprint import tokenizer_json, tokenizer_sha256
from tokenization.special_tokens import text_tokenizer

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # in typing from Python 3.13 on

# Files, or documents as lists of paragraphs, or an iterator of paragraphs with None at the end of each document.
Source = Sequence[str | Path] | Iterable[list[str]] | Iterator[str | None]


@dataclass(frozen=True)
class Side:
    """Which documents of files a corpus has.

    Attributes:
        share: the share of documents to hold out; None: all documents are in one corpus.
        held_out: whether the corpus has the held-out documents or the others.
        drop_empty: leave documents without a paragraph uncounted.
        shards: the folder of the shards, if several corpora are made of them; the caller deletes it. Default: one of
            this corpus, which is deleted in the end.
    """

    share: float | None = None
    held_out: bool = False
    drop_empty: bool = False
    shards: Path | None = None


def build_corpus(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: str | Path,
    num_workers: int = 1,
    *,
    fingerprint: str | None = None,
    unchanged: UnchangedFiles | None = None,
    text_column: str = "text",
    side: Side = Side(),
    shard_bytes: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Corpus:
    """Tokenise ``source`` into a corpus in ``output_dir``, or open the one that is already there.

    A build that was interrupted continues when it is started again with the same arguments. Shards of files that other
    processes have made (``encode_part``) are not made again.

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
        shard_bytes: the bytes of a shard; by default the text decides.
        notes: what the manifest is to say besides, if ``source`` is documents.

    Raises:
        ValueError: the input cannot be read (see ``read_documents``), or ``output_dir`` holds another corpus or other
            files.
        OSError: the corpus could not be written.
    """
    target = Path(output_dir)
    opened = _open_source(source, fingerprint, tokenizer, unchanged, text_column)
    if is_occupied(target):
        return _reuse(target, opened.key)
    with written(target):
        make_folder(target.parent)
        busy = f"{target}: another process is building this corpus; wait until it is done"
        with held(lock_of(target), busy):
            if is_occupied(target):  # by a process that has built it since the question above
                return _reuse(target, opened.key)
            if opened.files:
                folder = side.shards or shards_folder(target)
                plan = plan_of(opened.files, tokenizer, folder, text_column, side.share, shard_bytes)
                _begin_anew(plan)
                plan.make(num_workers)
                opened.unchanged.check()
                join(plan, opened, tokenizer, target, side)
            else:
                _encode_stream(opened, tokenizer, target, num_workers, notes)
    if side.shards is None:
        remove_shards(shards_folder(target))
    return Corpus.open(target, verify=False)


def encode_part(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: str | Path,
    rank: int,
    world_size: int,
    num_workers: int = 1,
    *,
    text_column: str = "text",
    side: Side = Side(),
    shard_bytes: int | None = None,
    **unused: Any,
) -> None:
    """Make the shards of process ``rank`` of ``world_size``, which ``build_corpus`` then finds and joins.

    It takes all arguments of ``build_corpus``; the errors are the same. Nothing is done if the corpus already exists,
    or if ``source`` is no list of files.
    """
    if plan := _plan_of_part(source, tokenizer, output_dir, text_column, side, shard_bytes):
        plan.make(num_workers, rank, world_size)


def forget_other_shards(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: str | Path,
    *,
    text_column: str = "text",
    side: Side = Side(),
    **unused: Any,
) -> None:
    """Delete the shards of another text or tokenizer, before several processes call ``encode_part``."""
    if plan := _plan_of_part(source, tokenizer, output_dir, text_column, side, None):
        _begin_anew(plan)


def _plan_of_part(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: str | Path,
    text_column: str,
    side: Side,
    shard_bytes: int | None,
) -> ShardPlan | None:
    """The shards of a corpus that is to be built from files; None for every other one."""
    target = Path(output_dir)
    if not _are_files(source) or is_occupied(target):
        return None
    folder = side.shards or shards_folder(target)
    return plan_of(check_files(source), tokenizer, folder, text_column, side.share, shard_bytes)


@dataclass(frozen=True)
class Opened:
    """A source.

    Attributes:
        lines: of documents; of files, they are not read.
        files: the files; empty for documents.
        described: what the manifest says of the source.
        key: the key of the corpus.
        unchanged: the files that must not change.
    """

    lines: Iterator[str | None]
    files: list[Path]
    described: list[dict[str, Any]]
    key: dict[str, Any]
    unchanged: UnchangedFiles


def join(
    plan: ShardPlan, opened: Opened, tokenizer: PreTrainedTokenizerBase, target: Path, side: Side = Side()
) -> None:
    """Write the corpus from its shards; the caller holds the lock.

    Raises:
        ValueError: a shard is missing, damaged or one of another corpus, or there is no text.
        OSError: the corpus could not be written.
    """
    made_of = {"shards": plan.key, "side": [side.share, side.held_out, side.drop_empty]}
    with contextlib.closing(CorpusWriter(target, opened.key, ids_dtype(tokenizer), made_of)) as writer:
        held_out = None if side.share is None else side.held_out
        sample = join_shards(writer, plan.jobs, held_out, side.drop_empty)
        paragraphs = dict.fromkeys(range(len(plan.files)), 0)
        for job in plan.jobs:
            for span, count in zip(job.spans, Shard(job.path).footer["paragraphs"], strict=True):
                paragraphs[span.number] += count
        for number, count in paragraphs.items():
            check_has_text(plan.files[number], count)
        _finish(writer, opened, tokenizer, sample)


def _begin_anew(plan: ShardPlan) -> None:
    """Delete shards of another text or tokenizer, which an unfinished build has left."""
    try:
        plan.is_begun()
    except ValueError:
        remove_shards(plan.folder)


def _encode_stream(
    opened: Opened,
    tokenizer: PreTrainedTokenizerBase,
    target: Path,
    num_workers: int,
    notes: Mapping[str, Any] | None,
) -> None:
    sample = Sample()
    lines = sample.passing(opened.lines)
    with contextlib.closing(CorpusWriter(target, opened.key, ids_dtype(tokenizer))) as writer:
        remaining = itertools.islice(lines, writer.lines, None)
        rules = tokenizer_json(text_tokenizer(tokenizer))
        _write(writer, encoded_chunks(_chunks(remaining), rules, num_workers), opened.unchanged)
        _finish(writer, opened, tokenizer, sample, notes)


def _finish(
    writer: CorpusWriter,
    opened: Opened,
    tokenizer: PreTrainedTokenizerBase,
    sample: Sample,
    notes: Mapping[str, Any] | None = None,
) -> None:
    if writer.tokens == 0:
        raise UserError("the source holds no text that the tokenizer turns into tokens")
    facts = _facts(opened.described, tokenizer) | {"coverage": coverage_of(tokenizer, sample).facts()}
    writer.finish(facts | dict(notes or {}), len(tokenizer))


def _facts(sources: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What the manifest records about the source and the tokenizer, apart from the key of the corpus."""
    return {
        "sources": sources,
        "vocab_size": len(tokenizer),
        "special_ids": sorted(set(tokenizer.all_special_ids)),
        "sentence_rules": RULES,
        "versions": {"tokenizers": tokenizers.__version__, "numpy": np.__version__},
    }


def lock_of(target: Path) -> Path:
    """The file that a process locks while it builds the corpus ``target``."""
    return target.with_name(f".{target.name}.lock")


def _chunks(lines: Iterator[str | None]) -> Iterator[list[str | None]]:
    """Consecutive lines in lists of about ``CHUNK_CHARACTERS`` characters."""
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


def _write(writer: CorpusWriter, chunks: Iterator[tuple[int, Encoded]], files: UnchangedFiles) -> None:
    """Append all chunks. Nothing is committed after a change of the files, so that no build continues from it."""
    for size, encoded in chunks:
        writer.append(encoded.tokens, encoded.lengths, encoded.ends, lines=size)
        writer.commit_sometimes(files.check)
    files.check()


def _reuse(target: Path, key: dict[str, Any]) -> Corpus:
    """The corpus in ``target``.

    Raises:
        ValueError: it was built from another source or with another tokenizer.
    """
    built = read_manifest(target)["key"]
    differing = [name for name in key if built.get(name) != key[name]]
    if differing:
        raise UserError(
            f"{target}: holds a corpus made from other input (it differs in: {', '.join(differing)}); give the text, "
            "the tokenizer and the flags that it was made with, or choose another folder"
        )
    forget_progress(target)  # the build may have been killed just after it renamed the folder
    remove_shards(shards_folder(target))
    sweep(lock_of(target))
    return Corpus.open(target)


def _open_source(
    source: Source,
    fingerprint: str | None,
    tokenizer: PreTrainedTokenizerBase,
    unchanged: UnchangedFiles | None,
    text_column: str,
) -> Opened:
    files = check_files(source) if _are_files(source) else []
    unchanged = unchanged or UnchangedFiles(files)
    if files and fingerprint is None:
        described = [{"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)} for path in files]
        return Opened(iter(()), files, described, key_of(described, tokenizer, text_column), unchanged)
    if fingerprint is None:
        assert isinstance(source, Sequence), (
            "documents that are not in a list need `fingerprint`, which identifies them"
        )
        fingerprint = json.dumps(list(source))
    lines: Iterator[str | None] = iter(()) if files else _lines_of(cast("Iterable[list[str] | str | None]", source))
    described = described_by(fingerprint)
    return Opened(lines, files, described, key_of(described, tokenizer), unchanged)


def described_by(fingerprint: str) -> list[dict[str, Any]]:
    """What the manifest says of a source that has a fingerprint."""
    return [{"name": "documents", "sha256": hashlib.sha256(fingerprint.encode()).hexdigest()}]


def key_of(
    described: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase, text_column: str = "text"
) -> dict[str, Any]:
    """The key of a corpus; ``described`` is what the manifest says of the source."""
    key = {
        "format": FORMAT,
        "sources": [part["sha256"] for part in described],
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
    }
    if (reader := text_tokenizer(tokenizer)) is not tokenizer:  # it keeps added tokens together
        key["text_tokenizer_sha256"] = tokenizer_sha256(reader)
    if text_column != "text":
        key["text_column"] = text_column
    return key


def _lines_of(documents: Iterable[list[str] | str | None]) -> Iterator[str | None]:
    for item in documents:
        yield from (item,) if item is None or isinstance(item, str) else (*item, None)


def _are_files(source: Source) -> "TypeIs[Sequence[str | Path]]":
    return isinstance(source, Sequence) and bool(source) and isinstance(source[0], str | Path)
