"""The shards of a text: which there are, where they lie, and what all of them have in common."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import make_folder
from bert_training.pretraining.corpus import ids_dtype
from bert_training.pretraining.join import opened_shards
from bert_training.pretraining.parallel_encoding import write_shards
from bert_training.pretraining.ranges import is_packed, plan_shards
from bert_training.pretraining.sentences import RULES
from bert_training.pretraining.shards import FORMAT, Job, Shard
from bert_training.pretraining.sources import check_read, read_sources, write_sources
from tokenization.coverage import SAMPLE
from tokenization.fingerprint import tokenizer_json, tokenizer_sha256
from tokenization.special_tokens import text_tokenizer

# So much more than the characters of a sample is drawn at first, because a character may take some bytes.
_DRAWN = 16


@dataclass(frozen=True)
class ShardPlan:
    """The shards of a text.

    Attributes:
        folder: where they lie.
        files: the files of the text.
        jobs: the shards.
        content: the content of a tokenizer.json.
    """

    folder: Path
    files: list[Path]
    jobs: list[Job]
    content: str

    @property
    def key(self) -> dict[str, Any]:
        """What all shards have in common."""
        return self.jobs[0].key

    def make(self, num_workers: int, task: int = 0, tasks: int = 1) -> None:
        """Make those shards of ``task`` that are not there: every ``tasks``-th one.

        Raises:
            ValueError, OSError: as ``write_shard`` does; or the folder has shards of another corpus.
        """
        make_folder(self.folder)
        write_shards(self.jobs[task::tasks], self.content, num_workers)

    def is_begun(self) -> bool:
        """Whether the folder has shards, and all of them belong to this text.

        Raises:
            ValueError: some belong to another one.
        """
        begun = False
        for path in sorted(self.folder.glob("shard-*.bin")):
            shard = Shard(path)
            shard.check(self.key, shard.footer["number"])
            begun = True
        return begun

    def write_sources(self, task: int, tasks: int) -> None:
        """Write what the join needs to know of every ``tasks``-th file, which is read to its end for that."""
        write_sources(self.folder, self.files, self.jobs[0].text_column, task, tasks)

    def sources(self) -> list[dict[str, Any]]:
        """Name, bytes and SHA-256 of each file, as the tasks found them.

        Raises:
            ValueError: the facts of a file are missing or damaged, or a shard was made from other bytes than these.
        """
        shards = opened_shards(self.jobs)
        found = read_sources(self.folder, self.files)
        for job, shard in zip(self.jobs, shards, strict=True):
            check_read(job.path, job.spans, shard.footer["sources"], found)
        return [{name: facts[name] for name in ("name", "bytes", "sha256")} for facts in found]

    def notes(self) -> list[str]:
        """A sentence for each file that cannot be divided."""
        return [
            f"{path.name} is packed, so one process reads it from its beginning"
            for path in self.files
            if is_packed(path)
        ]


def plan_of(
    files: Sequence[Path],
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    text_column: str = "text",
    share: float | None = None,
    shard_bytes: int | None = None,
) -> ShardPlan:
    """The shards of a text.

    Args:
        files: its files.
        tokenizer: the tokenizer.
        folder: where the shards lie.
        text_column: the field of the text.
        share: the share of documents to hold out, if one corpus is to be made of these and one of the others.
        shard_bytes: see ``plan_shards``.
    """
    spans = plan_shards(files, shard_bytes)
    total = sum(path.stat().st_size for path in files)
    dtype = ids_dtype(tokenizer).str
    key = {
        "format": FORMAT,
        "files": _digest([(span.number, Path(span.path).name, span.start, span.stop) for one in spans for span in one]),
        "shards": len(spans),
        "text_column": text_column,
        "validation_split": share,
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
        "text_tokenizer_sha256": tokenizer_sha256(text_tokenizer(tokenizer)),
        "sentence_rules": RULES,
        "tokenizers": tokenizers.__version__,
        "dtype": dtype,
    }
    below = min(1 << 64, (1 << 64) * _DRAWN * SAMPLE // max(1, total))
    jobs = [
        Job(folder / f"shard-{number:05}.bin", number, key, one, text_column, share, below, dtype)
        for number, one in enumerate(spans)
    ]
    return ShardPlan(folder, list(files), jobs, tokenizer_json(text_tokenizer(tokenizer)))


def _digest(plan: list[tuple[int, str, int, int]]) -> str:
    """SHA-256 of the names and the ranges of a text, of which its shards must have the same."""
    spans: list[Any] = [list(span) for span in plan]
    return hashlib.sha256(json.dumps(spans).encode()).hexdigest()
