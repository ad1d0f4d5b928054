"""A corpus is a list of shards, each the token ids of one slice of a text, read through memory maps.

    corpus/shard-00000/tokens.bin      every token id, end to end          uint16 (int32 if the vocabulary is larger)
    corpus/shard-00000/sentences.bin   token offset of every sentence      int64 (S + 1)
    corpus/shard-00000/documents.bin   sentence offset of every document   int64 (D + 1)
    corpus/shard-00000/unigrams.bin    how often each id occurs            int64 (V)
    corpus/shard-00000/shard.json      what it was made from, by SHA-256; counts; whether it is the last one
    corpus/shard-00000/manifest.json   the SHA-256 of these files
    corpus/shard-00001/...

Nothing joins the shards: whoever made them, and in whichever order, the corpus is finished when all of them are there
(``build_corpus.py`` makes them). The offsets of a shard are those within it, and an epoch is planned shard by shard.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import damage
from bert_training.inputs.reading import read_object
from tokenization.bert_tokenizer import tokenizer_sha256
from tokenization.errors import UserError

FORMAT = 1  # increase it when the files change; bert_training/pretraining/sentences.py has a number for its rules
ARRAYS = ("tokens", "sentences", "documents", "unigrams")
FACTS = "shard.json"
OFFSETS = np.dtype("<i8")


@dataclass(frozen=True, eq=False)
class Offsets:
    """Consecutive documents: what a plan of an epoch needs of them.

    Attributes:
        path: the folder, for messages.
        sentences: (S + 1) offsets of sentences into the tokens.
        documents: (D + 1) offsets into ``sentences``.
    """

    path: Path
    sentences: np.ndarray
    documents: np.ndarray

    @property
    def num_documents(self) -> int:
        """The number of documents, D."""
        return len(self.documents) - 1

    @property
    def num_sentences(self) -> int:
        """The number of sentences in the documents."""
        return int(self.documents[-1] - self.documents[0])

    @property
    def num_tokens(self) -> int:
        """The number of tokens in the documents."""
        return int(self.sentences[self.documents[-1]] - self.sentences[self.documents[0]])

    def first_document(self, token: int) -> int:
        """The number of the first document that begins at ``token`` or after it; D if there is none."""
        # Not searchsorted, which would need the first token of every document in memory.
        return bisect.bisect_left(
            range(self.num_documents), token, key=lambda number: int(self.sentences[self.documents[number]])
        )


@dataclass(frozen=True, eq=False)
class Shard(Offsets):
    """A shard, opened with ``Shard.open``.

    Attributes:
        tokens: (T) ids.
        unigrams: (V) how often each id occurs.
        facts: the content of shard.json.
        states: size and time of change of each file when it was opened.
    """

    tokens: np.ndarray
    unigrams: np.ndarray
    facts: dict[str, Any]
    states: dict[str, tuple[int, ...]]

    @classmethod
    def open(cls, path: Path, verify: bool = True) -> "Shard":
        """Open the shard in a folder; the arguments and the errors are those of ``Corpus.open``."""
        facts = read_facts(path)
        dtypes = dict.fromkeys(ARRAYS, OFFSETS) | {"tokens": np.dtype(facts["dtype"])}
        files = [FACTS, *(f"{name}.bin" for name in ARRAYS)]
        if wrong := damage(path, files) if verify else _of_another_size(path, dtypes, facts):
            raise UserError(f"{path}: {wrong}; delete this folder and build the corpus again")
        states = {name: _state(path / f"{name}.bin") for name in ARRAYS}
        arrays = {name: _mapped(path / f"{name}.bin", dtype) for name, dtype in dtypes.items()}
        arrays["unigrams"] = arrays["unigrams"].copy()  # a map takes one of the files that a process may have open
        return cls(path, facts=facts, states=states, **arrays)

    def check_unchanged(self) -> None:
        """Raise ValueError if a file has been written to since the shard was opened.

        Memory maps show such a change at once, and the system ends the process when a file has become shorter than its
        map. A corpus that is deleted or replaced does no harm, because the maps keep the old files.
        """
        for name, state in self.states.items():
            file = self.path / f"{name}.bin"
            if file.exists() and (now := _state(file)) != state and now[0] == state[0]:
                raise UserError(
                    f"{file}: it was written to while this run read it; restore it or delete {self.path}, and continue "
                    "with --resume_from_checkpoint auto"
                )


class Corpus:
    """A finished corpus, opened with ``Corpus.open``.

    It is pickled as its path, so that data-loading workers map the same files instead of copying them.

    Attributes:
        path: the folder.
        shards: those with tokens, in order.
        facts: of all shards, the contents of their shard.json.
    """

    def __init__(self, path: Path, shards: Sequence[Shard]):
        self.path = path
        self.facts = [shard.facts for shard in shards]
        self.shards = [shard for shard in shards if shard.num_tokens]
        if not self.shards:
            raise UserError(
                f"{path}: holds no text: no document fell into this part, or the tokenizer knows no character of it; "
                "give more documents, with blank lines between them, or --validation_file, and a new --output_dir"
            )

    @classmethod
    def open(cls, path: str | Path, tokenizer: PreTrainedTokenizerBase | None = None, verify: bool = True) -> "Corpus":
        """Open the corpus in ``path``.

        Args:
            path: the folder.
            tokenizer: the tokenizer that made the ids, if this is to be checked.
            verify: also read every file and compare its SHA-256 with the manifest (sizes are always compared).

        Raises:
            ValueError: a shard is missing or was changed, or ``tokenizer`` is not the one that made the ids.
        """
        path = Path(path)
        if not is_finished(path):
            raise UserError(f"{path}: not a finished corpus: {_missing(path)}; build it with build_corpus")
        corpus = cls(path, [Shard.open(folder, verify) for folder in shard_folders(path)])
        keys = [facts["key"] for facts in corpus.facts]
        if any(key != keys[0] for key in keys):
            raise UserError(f"{path}: it has shards of several corpora; delete it and build the corpus again")
        if tokenizer is not None and (now := tokenizer_sha256(tokenizer)) != corpus.tokenizer_sha256:
            raise UserError(
                f"{path}: its token ids were made with another tokenizer (sha256 {corpus.tokenizer_sha256[:12]}, got "
                f"{now[:12]}); build the corpus again with this tokenizer in another folder"
            )
        return corpus

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (self.path, [shard.states for shard in self.shards])

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return sum(shard.num_documents for shard in self.shards)

    @property
    def num_sentences(self) -> int:
        """The number of sentences."""
        return sum(shard.num_sentences for shard in self.shards)

    @property
    def num_tokens(self) -> int:
        """The number of tokens."""
        return sum(shard.num_tokens for shard in self.shards)

    @cached_property
    def unigrams(self) -> np.ndarray:
        """(V) how often each id occurs."""
        return np.sum([shard.unigrams for shard in self.shards], axis=0)

    @property
    def tokenizer_sha256(self) -> str:
        """SHA-256 of the tokenizer."""
        return str(self.facts[0]["key"]["tokenizer_sha256"])

    @property
    def special_ids(self) -> list[int]:
        """The ids of the special tokens, [UNK] among them."""
        return list(self.facts[0]["special_ids"])


def unigram_entropy(corpora: Sequence[Corpus], shares: Sequence[float]) -> float:
    """Entropy in nats per token of a text of which each corpus has its share.

    Of the tokens that can be masked, which are all but the special ones and [UNK]: the lowest MLM loss that a model can
    reach if it knows only how frequent each token is.
    """
    mixed = np.zeros(0)
    for corpus, weight in zip(corpora, shares, strict=True):
        counts = corpus.unigrams.astype(np.float64)
        counts[corpus.special_ids] = 0
        share = counts / counts.sum()
        mixed = weight * share if not len(mixed) else mixed + weight * share
    share = mixed[mixed > 0]
    return float(-(share * np.log(share)).sum())


def shard_folder(path: Path, number: int) -> Path:
    """The folder of a shard."""
    return path / f"shard-{number:05}"


def shard_folders(path: Path) -> list[Path]:
    """The folders of all shards that are there, in order."""
    return sorted(folder for folder in path.glob("shard-*") if folder.suffix == "")


def is_finished(path: Path) -> bool:
    """Whether the folder ``path`` has all shards of a corpus."""
    return not _missing(path)


def _missing(path: Path) -> str:
    """Which shards are missing, in words."""
    folders = shard_folders(path)
    present = {folder.name for folder in folders}
    absent = [name for number in range(len(folders)) if (name := shard_folder(path, number).name) not in present]
    if folders and not absent and not read_facts(folders[-1])["last"]:
        absent = [shard_folder(path, len(folders)).name]
    return "" if folders and not absent else f"{', '.join(absent[:9]) or 'shard-00000'} and perhaps others are missing"


def read_facts(path: Path) -> dict[str, Any]:
    """The content of the shard.json of a shard.

    Raises:
        ValueError: it is missing, damaged or of another format.
    """
    try:
        facts = read_object(path / FACTS)
        known = facts["key"]["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise UserError(f"{path / FACTS}: missing, damaged or of another format; delete {path} and build it again")
    return facts


def _of_another_size(path: Path, dtypes: dict[str, np.dtype], facts: dict[str, Any]) -> str | None:
    """What is wrong with the sizes of the files; None if nothing is."""
    for name, dtype in dtypes.items():
        file = path / f"{name}.bin"
        size, expected = file.stat().st_size if file.is_file() else -1, facts["lengths"][name] * dtype.itemsize
        if size != expected:
            return f"{file.name} has {size} bytes, expected {expected}"
    return None


def _opened_again(path: Path, states: list[dict[str, tuple[int, ...]]]) -> Corpus:
    """The corpus in another process, which must find the files that the first one had opened."""
    corpus = Corpus.open(path, verify=False)
    if [shard.states for shard in corpus.shards] != states:
        raise UserError(f"{path}: the corpus was changed or replaced while this run read it; start the run again")
    return corpus


def _mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    # asarray, because every slice of a memmap is a new memmap, which takes longer than reading a sentence.
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")) if path.stat().st_size else np.zeros(0, dtype)


def _state(file: Path) -> tuple[int, ...]:
    """The number of a file, its size and the time at which it was last written to."""
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
