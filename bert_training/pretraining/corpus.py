"""The files of a tokenised corpus: written in bounded memory, resumable, read through memory maps.

    corpus/manifest.json   sources and tokenizer by sha256, counts, checksums of the files below; written last
    corpus/tokens.bin      every token id, end to end      uint16 (int32 when the vocabulary does not fit)
    corpus/sentences.bin   token offset of every sentence   int64 (S + 1)
    corpus/documents.bin   sentence offset of every document int64 (D + 1)
    corpus/unigrams.bin    how often each id occurs         int64 (V)

During the build the folder is called ``<name>.building`` and also holds progress.json, from which a build that was
killed continues. When everything is written, one rename gives the folder its final name.
"""

import hashlib
import json
import os
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import delete, make_folder, open_own, sync, write_json
from bert_training.files.hashing import sha256
from bert_training.inputs.json_files import read_object
from bert_training.pretraining.sentences import RULES
from tokenization.errors import UserError
from tokenization.fingerprint import tokenizer_sha256

FORMAT = 1  # increase it when the files change; bert_training/pretraining/sentences.py has a number for its rules
COMMIT_SECONDS = 20.0  # a build that is killed loses at most about this much work
_OFFSETS = np.dtype("<i8")
_BLOCK = 1 << 24  # bytes read at a time, so that memory stays bounded


def ids_dtype(tokenizer: PreTrainedTokenizerBase) -> np.dtype:
    """The type of the ids of a tokenizer in a file."""
    return np.dtype("<u2" if len(tokenizer) <= 1 << 16 else "<i4")


def fingerprint_of(key: dict[str, Any]) -> str:
    """SHA-256 of a corpus's key: its sources, its tokenizer and the format.

    The rules of sentences are not part of it, so that a run that was begun with earlier ones can go on with its corpus;
    the manifest has their number.
    """
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


class Corpus:
    """A finished corpus, opened with ``Corpus.open``; T tokens, S sentences, D documents, V rows of the vocabulary.

    It is pickled as its path, so that data-loading workers map the same files instead of copying them.

    Attributes:
        path: the folder.
        manifest: the content of manifest.json.
        tokens: (T) ids.
        sentences: (S + 1) offsets into ``tokens``.
        documents: (D + 1) offsets into ``sentences``.
        unigrams: (V) how often each id occurs.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]):
        self.path = path
        self.manifest = manifest
        dtypes = dict.fromkeys(("tokens", "sentences", "documents", "unigrams"), _OFFSETS)
        dtypes["tokens"] = np.dtype(manifest["dtype"])
        maps = {}
        self._files: dict[str, int] = {}  # descriptors, which stay open as long as the maps
        for name, dtype in dtypes.items():
            with open(path / f"{name}.bin", "rb") as file:
                maps[name] = _map_file(file, dtype)
                self._files[name] = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._files[name])
        self._states = {name: _state(file) for name, file in self._files.items()}
        self.tokens, self.sentences = maps["tokens"], maps["sentences"]
        self.documents, self.unigrams = maps["documents"], maps["unigrams"]

    @classmethod
    def open(cls, path: str | Path, tokenizer: PreTrainedTokenizerBase | None = None, verify: bool = True) -> "Corpus":
        """Open the corpus in ``path``.

        Args:
            path: the folder.
            tokenizer: the tokenizer that made the ids, if this is to be checked.
            verify: also read every file and compare its SHA-256 with the manifest (sizes are always compared).

        Raises:
            ValueError: the folder is not a complete corpus, a file was changed, or ``tokenizer`` is not the one that
                made the ids.
        """
        path = Path(path)
        manifest = read_manifest(path)
        if tokenizer is not None and tokenizer_sha256(tokenizer) != manifest["key"]["tokenizer_sha256"]:
            raise UserError(
                f"{path}: its token ids were made with another tokenizer (sha256 "
                f"{manifest['key']['tokenizer_sha256'][:12]}, got {tokenizer_sha256(tokenizer)[:12]}); "
                "build the corpus again with this tokenizer in another folder"
            )
        for name, expected in manifest["files"].items():
            file = path / name
            size = file.stat().st_size if file.is_file() else -1
            if size != expected["bytes"] or (verify and sha256(file) != expected["sha256"]):
                raise UserError(
                    f"{file}: differs from its manifest ({size} bytes, expected {expected['bytes']} with sha256 "
                    f"{expected['sha256'][:12]}); delete {path} and build the corpus again"
                )
        return cls(path, manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (self.path, self._states)

    def check_unchanged(self) -> None:
        """Raise ValueError if a file has been written to since the corpus was opened.

        Memory maps show such a change at once, and the system ends the process when a file has become shorter than its
        map. A corpus that is deleted or replaced does no harm, because the maps keep the old files.
        """
        for name, file in self._files.items():
            if _state(file) != self._states[name]:
                raise UserError(
                    f"{self.path / name}.bin: it was written to while this run read it; restore it or delete "
                    f"{self.path}, and continue with --resume_from_checkpoint auto"
                )

    @property
    def num_documents(self) -> int:
        """The number of documents, D."""
        return len(self.documents) - 1

    @property
    def num_sentences(self) -> int:
        """The number of sentences, S."""
        return len(self.sentences) - 1

    @property
    def num_tokens(self) -> int:
        """The number of tokens, T."""
        return len(self.tokens)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of sources, tokenizer and format; corpora with equal fingerprints and rules have equal ids."""
        return fingerprint_of(self.manifest["key"])

    def unigram_entropy(self) -> float:
        """Entropy in nats per token of the tokens that can be masked, which are all but the special ones and [UNK].

        It is the lowest MLM loss that a model can reach if it knows only how frequent each token is.
        """
        return unigram_entropy([self], [1.0])


def unigram_entropy(corpora: Sequence[Corpus], shares: Sequence[float]) -> float:
    """``Corpus.unigram_entropy`` of a text of which each corpus has its share."""
    mixed = np.zeros(0)
    for corpus, weight in zip(corpora, shares, strict=True):
        counts = corpus.unigrams.astype(np.float64)
        counts[corpus.manifest["special_ids"]] = 0
        share = counts / counts.sum()
        mixed = weight * share if not len(mixed) else mixed + weight * share
    share = mixed[mixed > 0]
    return float(-(share * np.log(share)).sum())


def _opened_again(path: Path, states: dict[str, tuple[int, int]]) -> Corpus:
    """The corpus in another process, which must find the files that the first one had opened."""
    corpus = Corpus.open(path, verify=False)
    if corpus._states != states:
        raise UserError(f"{path}: the corpus was changed or replaced while this run read it; start the run again")
    return corpus


def _map_file(file: IO[bytes], dtype: np.dtype) -> np.ndarray:
    # asarray, because every slice of a memmap is a new memmap, which takes longer than reading a sentence.
    return np.asarray(np.memmap(file, dtype=dtype, mode="r"))


def _state(descriptor: int) -> tuple[int, int]:
    """The size of an open file and the time at which it was last written to."""
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the corpus in ``path``.

    Raises:
        ValueError: it is missing, damaged or of another format.
    """
    file = path / "manifest.json"
    if not file.is_file():
        raise UserError(f"{path}: not a finished corpus (no manifest.json); build it with build_corpus")
    try:
        manifest = read_object(file)
        checksum = manifest.pop("manifest_sha256")
        intact = checksum == _manifest_checksum(manifest)
    except (ValueError, KeyError, TypeError):
        intact = False
    if not intact or manifest["key"]["format"] != FORMAT:
        raise UserError(f"{file}: damaged, edited or of another format; delete {path} and build the corpus again")
    return manifest


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a corpus, with a checksum of itself."""
    write_json(folder / "manifest.json", manifest | {"manifest_sha256": _manifest_checksum(manifest)})


def _manifest_checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


class CorpusWriter:
    """Writes a corpus into ``<target>.building``, records its progress, and renames the folder to ``target``.

    After a kill, the next writer with an equal key continues at the last ``commit``, and everything that was written
    after it is cut off; with another key or other rules of sentences the build starts anew. ``build_corpus`` holds the
    lock of the corpus.

    Args:
        target: the folder of the finished corpus.
        key: what identifies the corpus: its format, the sources and the tokenizer.
        dtype: the type of the ids in tokens.bin.
        made_of: what ``lines`` counts, if these are no lines; a draft that was made of something else is not continued.

    Attributes:
        lines: number of lines of the source that have been appended, counting the end of a document as a line; or the
            number of shards.
        tokens: number of tokens that have been written.
        sentences: number of sentences that have been written.
        closed_sentences: number of sentences before the end of the last document that has ended.
        empty: numbers of sentences and documents without tokens, which were left out.

    Raises:
        ValueError: the unfinished files are damaged.
    """

    def __init__(self, target: Path, key: dict[str, Any], dtype: np.dtype, made_of: dict[str, Any] | None = None):
        self.target, self.key, self.dtype = target, key, dtype
        self._draft_key = key | {"made_of": made_of} if made_of else key
        self.folder = target.with_name(target.name + ".building")
        make_folder(self.folder)
        progress = self._read_progress()
        if progress is None:
            for file in self.folder.iterdir():
                delete(file)
        self.files: dict[str, IO[bytes]] = {}
        for name in ("tokens", "sentences", "documents"):
            self.files[name] = open_own(self.folder / f"{name}.bin", "ab")
        if progress is None:
            self.lines = 0
            self.empty = {"sentences": 0, "documents": 0}
            self.files["sentences"].write(np.zeros(1, _OFFSETS).tobytes())
            self.files["documents"].write(np.zeros(1, _OFFSETS).tobytes())
        else:
            self.lines, self.empty = progress["lines"], progress["empty"]
            for name, size in progress["bytes"].items():
                self.files[name].truncate(size)
                self.files[name].seek(size)  # where tell, which the next commit records, would else be the old end
        self.tokens = self.files["tokens"].seek(0, os.SEEK_END) // dtype.itemsize
        self.sentences = self.files["sentences"].seek(0, os.SEEK_END) // 8 - 1
        self.closed_sentences = self._last_document_end()
        self._committed = time.monotonic()

    def _read_progress(self) -> dict[str, Any] | None:
        file = self.folder / "progress.json"
        if not file.is_file():
            return None
        try:
            progress = read_object(file)
            checksum = progress.pop("progress_sha256")
            intact = checksum == _manifest_checksum(progress)
        except (ValueError, KeyError, AttributeError, TypeError):
            intact = False
        parts = {self.folder / f"{name}.bin": size for name, size in progress["bytes"].items()} if intact else {}
        short = [part for part, size in parts.items() if not part.is_file() or part.stat().st_size < size]
        if not intact or short:
            raise UserError(
                f"{', '.join(map(str, short or [file]))}: damaged or cut short; delete {self.folder} and build the "
                "corpus again"
            )
        return progress if (progress["key"], progress.get("rules")) == (self._draft_key, RULES) else None

    def _last_document_end(self) -> int:
        self.files["documents"].flush()
        with open(self.folder / "documents.bin", "rb") as file:
            file.seek(-8, os.SEEK_END)
            return int(np.frombuffer(file.read(), _OFFSETS)[0])

    def append(self, tokens: np.ndarray, lengths: np.ndarray, ends: np.ndarray, lines: int) -> None:
        """Append sentences and ends of documents.

        Args:
            tokens: (T) ids of all new sentences, end to end.
            lengths: (S) tokens in each sentence; empty sentences are counted and left out.
            ends: (D) for each document that ends, how many of the new sentences are before its end.
            lines: lines of the source that this covers.
        """
        kept = np.concatenate([[0], np.cumsum(lengths > 0)])
        lengths = lengths[lengths > 0]
        self.empty["sentences"] += len(kept) - 1 - len(lengths)
        boundaries = np.concatenate([[self.closed_sentences], self.sentences + kept[ends]])
        documents = boundaries[1:][boundaries[1:] > boundaries[:-1]]
        self.empty["documents"] += len(ends) - len(documents)
        self.files["tokens"].write(tokens.astype(self.dtype).tobytes())
        self.files["sentences"].write((self.tokens + np.cumsum(lengths)).astype(_OFFSETS).tobytes())
        self.files["documents"].write(documents.astype(_OFFSETS).tobytes())
        self.tokens += len(tokens)
        self.sentences += len(lengths)
        self.closed_sentences = int(boundaries[-1])
        self.lines += lines

    def commit_sometimes(self, check: Callable[[], None] = lambda: None) -> None:
        """Commit if the last commit is more than ``COMMIT_SECONDS`` ago; ``check`` is called before, and may raise."""
        if time.monotonic() - self._committed > COMMIT_SECONDS:
            check()
            self.commit()
            self._committed = time.monotonic()

    def commit(self) -> None:
        """Write everything appended so far to the disk; a build that is killed later continues from here."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        sizes = {name: file.tell() for name, file in self.files.items()}
        progress = {"key": self._draft_key, "lines": self.lines, "empty": self.empty, "bytes": sizes}
        progress["rules"] = RULES
        write_json(self.folder / "progress.json", progress | {"progress_sha256": _manifest_checksum(progress)})

    def finish(self, facts: dict[str, Any], vocab_size: int) -> None:
        """Write the unigram counts (V) and the manifest with ``facts``, and give the folder its final name."""
        self.commit()
        unigrams = self._count_unigrams(vocab_size)
        with open_own(self.folder / "unigrams.bin", "wb") as file:
            file.write(unigrams.astype(_OFFSETS).tobytes())
            file.flush()
            os.fsync(file.fileno())
        names = [f"{name}.bin" for name in ("tokens", "sentences", "documents", "unigrams")]
        files = {
            name: {"bytes": (self.folder / name).stat().st_size, "sha256": sha256(self.folder / name)} for name in names
        }
        counts = {
            "documents": (self.folder / "documents.bin").stat().st_size // 8 - 1,
            "sentences": self.sentences,
            "tokens": self.tokens,
            "empty_sentences": self.empty["sentences"],
            "empty_documents": self.empty["documents"],
        }
        manifest = {"key": self.key, "dtype": self.dtype.str, "counts": counts, "files": files, **facts}
        write_manifest(self.folder, manifest)
        if self.target.exists():
            self.target.rmdir()  # build_corpus has checked that it is empty
        os.rename(self.folder, self.target)
        sync(self.target.parent)
        forget_progress(self.target)  # last, because a build that is killed before this line continues from it

    def _count_unigrams(self, vocab_size: int) -> np.ndarray:
        counts = np.zeros(vocab_size, np.int64)
        with open(self.folder / "tokens.bin", "rb") as file:  # the pages of a memory map would count as resident memory
            while block := file.read(_BLOCK):
                counts += np.bincount(np.frombuffer(block, self.dtype), minlength=vocab_size)
        return counts

    def close(self) -> None:
        """Close the files; the unfinished folder stays, to be continued."""
        for file in self.files.values():
            file.close()


def forget_progress(folder: Path) -> None:
    """Remove progress.json, which only an unfinished build needs, from the finished corpus in ``folder``."""
    (folder / "progress.json").unlink(missing_ok=True)
