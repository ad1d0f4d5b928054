"""Build a corpus: files -> documents -> sentences -> token ids in memory-mapped files.

    corpus = build_corpus(["wiki.txt.xz", "books.jsonl"], tokenizer, "corpus", num_workers=8)
    corpus = Corpus.open("corpus", tokenizer)

Files are streamed: the memory needed depends on the number of workers, and not on the size of the corpus or of a
document. Only a line, or a row of a table, is in memory as a whole, and a document that the caller gives as a list. The
ids are the same for any number of workers, and whether or not the build was interrupted.
"""

import collections
import contextlib
import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers
from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import is_occupied, make_folder
from bert_training.files.disk_errors import explained
from bert_training.files.hashing import sha256
from bert_training.files.locks import held, sweep
from bert_training.files.unchanged import UnchangedFiles
from bert_training.flags.objectives import Objective
from bert_training.pretraining.corpus import (
    FORMAT,
    Corpus,
    CorpusWriter,
    fingerprint_of,
    forget_progress,
    read_manifest,
)
from bert_training.pretraining.documents import check_encodable, check_files, read_lines, remedy_of_few
from bert_training.pretraining.encoding import Encoded, encoded_chunks
from bert_training.pretraining.parallel_encoding import joined_parts, parts_folder, remove_parts, write_part
from bert_training.pretraining.sentences import RULES, split_sentences
from tokenization.coverage import Sample, coverage_of
from tokenization.errors import UserError
from tokenization.fingerprint import tokenizer_json, tokenizer_sha256
from tokenization.special_tokens import text_tokenizer

if TYPE_CHECKING:
    from typing_extensions import TypeIs  # in typing from Python 3.13 on

_CHUNK_CHARACTERS = 1 << 20
CONTINUES = "give the same command again; building continues where it stopped"
COMMIT_SECONDS = 20.0  # a build that is killed loses at most about this much work
# Files, or documents as lists of paragraphs, or an iterator of paragraphs with None at the end of each document.
Source = Sequence[str | Path] | Iterable[list[str]] | Iterator[str | None]


def build_corpus(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: str | Path,
    num_workers: int = 1,
    *,
    fingerprint: str | None = None,
    processes: int = 1,
    unchanged: UnchangedFiles | None = None,
    text_column: str = "text",
    notes: Mapping[str, Any] | None = None,
) -> Corpus:
    """Tokenise ``source`` into a corpus in ``output_dir``, or open the one that is already there.

    A build that was interrupted continues when it is started again with the same arguments.

    Args:
        source: files for ``read_documents``, or documents (lists of paragraphs), or an iterator of paragraphs with None
            at the end of each document, of which none is held in memory.
        tokenizer: a tokenizer with a ``backend_tokenizer``.
        output_dir: the folder of the corpus.
        num_workers: processes to start for encoding.
        fingerprint: any text that changes when the documents do; needed for documents that are not in a list (a
            generator, a streamed data set).
        processes: how many processes called ``encode_part``; above 1, this call joins their parts.
        unchanged: the files that the documents come from, if ``source`` yields documents.
        text_column: the field of the text, if ``source`` is files.
        notes: what the manifest is to say besides.

    Raises:
        ValueError: the input cannot be read (see ``read_documents``), or ``output_dir`` holds another corpus or other
            files.
        DiskError: the corpus could not be written.
    """
    target = Path(output_dir)
    if num_workers < 1:
        raise UserError(f"num_workers is {num_workers}; expected at least 1")
    lines, sources, key, files = _open_source(source, fingerprint, tokenizer, unchanged, text_column)
    if is_occupied(target):
        return _reuse(target, key)
    rules, vocab_size = tokenizer_json(text_tokenizer(tokenizer)), len(tokenizer)
    dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")
    with explained(target, CONTINUES):
        make_folder(target.parent)
        busy = f"{target}: another process is building this corpus; wait until it is done"
        with held(_lock_of(target), busy):
            if is_occupied(target):  # by a process that has built it since the question above
                return _reuse(target, key)
            sample = Sample()
            lines = sample.passing(lines)
            with contextlib.closing(CorpusWriter(target, key, dtype)) as writer:
                if processes > 1:
                    collections.deque(lines, maxlen=0)  # for the sample; to read is fast, and to encode is slow
                    parts = parts_folder(target, processes, fingerprint_of(key | {"rules": RULES}))
                    _write(writer, joined_parts(parts, processes, writer.lines), files)
                else:
                    remaining = itertools.islice(lines, writer.lines, None)
                    _write(writer, encoded_chunks(_chunks(remaining), rules, num_workers), files)
                if writer.tokens == 0:
                    raise UserError("the source holds no text that the tokenizer turns into tokens")
                facts = _facts(sources, tokenizer) | {"coverage": coverage_of(tokenizer, sample).facts()}
                facts |= notes or {}
                writer.finish(facts, vocab_size)
    remove_parts(target)
    return Corpus.open(target, verify=False)


def encode_part(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    output_dir: str | Path,
    rank: int,
    world_size: int,
    num_workers: int = 1,
    *,
    fingerprint: str | None = None,
    unchanged: UnchangedFiles | None = None,
    text_column: str = "text",
) -> None:
    """Encode the part of process ``rank`` of ``world_size``.

    ``build_corpus(..., processes=world_size)`` joins the parts. The other arguments and the errors are those of
    ``build_corpus``. Nothing is done if the corpus already exists.
    """
    target = Path(output_dir)
    lines, _, key, files = _open_source(source, fingerprint, tokenizer, unchanged, text_column)
    if is_occupied(target):
        return
    folder = parts_folder(target, world_size, fingerprint_of(key | {"rules": RULES}))
    with explained(folder, CONTINUES):
        write_part(
            folder, _chunks(lines), tokenizer_json(text_tokenizer(tokenizer)), rank, world_size, num_workers, files
        )


def _facts(sources: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What the manifest records about the source and the tokenizer, apart from the key of the corpus."""
    return {
        "sources": sources,
        "vocab_size": len(tokenizer),
        "special_ids": sorted(set(tokenizer.all_special_ids)),
        "sentence_rules": RULES,
        "versions": {"tokenizers": tokenizers.__version__, "numpy": np.__version__},
    }


def _lock_of(target: Path) -> Path:
    """The file that a process locks while it builds the corpus ``target``."""
    return target.with_name(f".{target.name}.lock")


def _chunks(lines: Iterator[str | None]) -> Iterator[list[str | None]]:
    """Consecutive lines in lists of about ``_CHUNK_CHARACTERS`` characters."""
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


def _write(writer: CorpusWriter, chunks: Iterator[tuple[int, Encoded]], files: UnchangedFiles) -> None:
    """Append all chunks. Nothing is committed after a change of the files, so that no build continues from it."""
    committed = time.monotonic()
    for size, encoded in chunks:
        writer.append(encoded.tokens, encoded.lengths, encoded.ends, lines=size)
        if time.monotonic() - committed > COMMIT_SECONDS:
            files.check()
            writer.commit()
            committed = time.monotonic()
    files.check()


def _reuse(target: Path, key: dict[str, Any]) -> Corpus:
    """The corpus in ``target``.

    Raises:
        ValueError: it was built from another source or with another tokenizer.
    """
    built = read_manifest(target)["key"]
    differing = [name for name in key if built.get(name) != key[name]]
    if differing:
        remedy = "give the text, the tokenizer and the flags that it was made with"
        if {"format", "text_tokenizer_sha256"}.issuperset(
            differing
        ):  # an earlier version made it, which read otherwise
            remedy = "delete it"
        raise UserError(
            f"{target}: holds a corpus made from other input (it differs in: {', '.join(differing)}); "
            f"{remedy} or choose another folder"
        )
    forget_progress(target)  # the build may have been killed just after it renamed the folder
    remove_parts(target)
    sweep(_lock_of(target))
    return Corpus.open(target)


def _open_source(
    source: Source,
    fingerprint: str | None,
    tokenizer: PreTrainedTokenizerBase,
    unchanged: UnchangedFiles | None,
    text_column: str,
) -> tuple[Iterator[str | None], list[dict[str, Any]], dict[str, Any], UnchangedFiles]:
    """(lines of the source, its description for the manifest, key of the corpus, the files that must not change).

    A line is None at the end of a document, as in ``read_lines``.
    """
    if isinstance(source, str | Path):
        raise UserError(f"expected a list of files or documents, got the single {source!r}; write [{source!r}]")
    if _are_files(source):
        files = check_files(source)
        unchanged = unchanged or UnchangedFiles(files)
        described = [{"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)} for path in files]
        lines = read_lines(files, text_column)
    else:
        lines = _lines_of(source)
        if fingerprint is None:
            if not isinstance(source, Sequence):
                raise UserError("documents that are not in a list need `fingerprint`, a text that identifies them")
            fingerprint = json.dumps(list(source))
        described = [{"name": "documents", "sha256": hashlib.sha256(fingerprint.encode()).hexdigest()}]
    key = {
        "format": FORMAT,
        "sources": [part["sha256"] for part in described],
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
    }
    if (reader := text_tokenizer(tokenizer)) is not tokenizer:  # earlier versions took added tokens apart
        key["text_tokenizer_sha256"] = tokenizer_sha256(reader)
    if _are_files(source) and text_column != "text":  # the key of all others is that of earlier versions
        key["text_column"] = text_column
    return lines, described, key, unchanged or UnchangedFiles([])


def _lines_of(documents: Iterable[list[str] | str | None]) -> Iterator[str | None]:
    number = 1
    for item in documents:
        for paragraph in (item,) if item is None or isinstance(item, str) else (*item, None):
            if paragraph is None:
                number += 1
            else:
                check_encodable(paragraph, f"document {number}")
            yield paragraph


def _are_files(source: Source) -> "TypeIs[Sequence[str | Path]]":
    return isinstance(source, Sequence) and bool(source) and isinstance(source[0], str | Path)


def check_text(files: Sequence[str | Path], objective: Objective, text_column: str = "text") -> None:
    """Read the files to the end.

    Raises:
        ValueError: they cannot be read (see ``read_documents``), or they have no pairs although the objective needs
            them.
    """
    fewest_documents, fewest_sentences = objective.fewest
    files = check_files(files)
    documents, sentences, longest = 0, 0, 0
    for line in read_lines(files, text_column):
        if line is None:
            documents, sentences = documents + (sentences > 0), 0
        elif documents < fewest_documents or longest < fewest_sentences:  # splitting into sentences is slow
            sentences += len(split_sentences(line))
            longest = max(longest, sentences)
    if objective.pairs and (documents < fewest_documents or longest < fewest_sentences):
        raise UserError(
            f"{', '.join(map(str, files))}: {objective.pairs.title} prediction needs at least {fewest_documents} "
            f"documents and a document of at least {fewest_sentences} sentences, got {documents} documents, the "
            f"longest of {longest} sentences; add text, {remedy_of_few(documents, longest)}, or use the objective mlm"
        )
