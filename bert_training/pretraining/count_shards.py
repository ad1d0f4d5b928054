"""Count the words of a text in independent tasks, on any number of machines with a common disk, for a vocabulary.

Like a shard of a corpus (``shards.py``), the counts of a shard are a function of its bytes and of a few flags. They are
kept in a file that is sealed with its SHA-256, so that a task that is started again counts only what is missing:

    vocab.counts/shard-00017.json    the SHA-256 of what follows, and in the next line JSON: key and number of the
                                     shard, its words, the paragraphs of its spans, checksums of what was read
    vocab.counts/source-00003.json   the facts of a file (``sources.py``)

The sum of all shards is what one process counts, so the vocabulary is the same, byte for byte.
"""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tqdm import tqdm

from bert_training.files.atomic import write_text
from bert_training.files.hashing import digest, unchanged
from bert_training.inputs.texts import check_has_text
from bert_training.pretraining.encoding import results_in_order
from bert_training.pretraining.ranges import Span, plan_shards
from bert_training.pretraining.sources import check_read, checksums_of, read_sources, sources_now, write_sources
from bert_training.pretraining.word_counts import Counted, Rules, count_words_of_spans
from tokenization.errors import UserError

FORMAT = 2


@dataclass(frozen=True)
class CountPlan:
    """The shards of a text, of which the words are counted.

    Attributes:
        folder: where the counts lie.
        files: the files of the text.
        shards: the spans of each shard.
        text_column: the field of the text.
        rules: the last three arguments of ``count_words``.
    """

    folder: Path
    files: Sequence[Path]
    shards: list[list[Span]]
    text_column: str
    rules: Rules

    @classmethod
    def of(cls, folder: Path, files: Sequence[Path], text_column: str, rules: Rules) -> "CountPlan":
        """The plan, by the sizes of the files."""
        return cls(folder, files, plan_shards(files), text_column, rules)

    @functools.cached_property
    def key(self) -> dict[str, Any]:
        """What all shards have in common; those with different keys are never added up."""
        spans = [[span.number, Path(span.path).name, span.start, span.stop] for one in self.shards for span in one]
        names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
        return {
            "format": FORMAT,
            "files": digest(spans),
            "text_column": self.text_column,
            "tokenizers": tokenizers.__version__,
        } | dict(zip(names, self.rules, strict=True))

    def count(self, num_workers: int, task: int, tasks: int) -> int:
        """Count what is missing of every ``tasks``-th shard; return how many shards these are.

        The folder exists.

        Raises:
            ValueError: the text cannot be read or was changed meanwhile, or there is a shard of other counts.
            OSError: the counts could not be written.
        """
        mine = range(task, len(self.shards), tasks)
        with unchanged(*{span.path for number in mine for span in self.shards[number]}):
            write_sources(self.folder, self.files, self.text_column, task, tasks)
            missing = [number for number in mine if not self._is_counted(number)]
            work = [
                functools.partial(_counted, spans=self.shards[number], column=self.text_column, rules=self.rules)
                for number in missing
            ]
            found = results_in_order(work, min(num_workers, max(1, len(work))))
            # disable=None means that tqdm shows no bar unless stderr is a terminal.
            for number, (counted, read) in zip(
                tqdm(missing, unit=" parts", desc="counting words", disable=None), found, strict=True
            ):
                content = {"key": self.key, "number": number, "words": counted.words}
                text = json.dumps(content | {"paragraphs": counted.paragraphs, "sources": read})
                write_text(self._place(number), f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}\n")
        return len(mine)

    def total(self) -> Counter[str]:
        """The words of the text, which all tasks together have counted.

        Raises:
            ValueError: a shard is missing, damaged, one of other counts, or made from other bytes than the rest; or a
                file has no text.
        """
        if missing := [number for number in range(len(self.shards)) if not self._place(number).is_file()]:
            names = ", ".join(map(str, missing[:20])) + (", ..." if len(missing) > 20 else "")
            raise UserError(
                f"{self.folder}: the counts of {len(missing)} of {len(self.shards)} shards are missing ({names}); "
                "shard S of N tasks is counted by task S modulo N: start these tasks again, or give the command "
                "without --join"
            )
        facts = read_sources(self.folder, self.files)
        words: Counter[str] = Counter()
        paragraphs = dict.fromkeys(range(len(self.files)), 0)
        for number, spans in enumerate(self.shards):
            found = self._read(number)
            check_read(self._place(number), spans, found["sources"], facts)
            words.update(found["words"])
            for file, count in found["paragraphs"]:
                paragraphs[file] += count
        for file, count in paragraphs.items():
            check_has_text(self.files[file], count)
        return words

    def _place(self, number: int) -> Path:
        return self.folder / f"shard-{number:05}.json"

    def _is_counted(self, number: int) -> bool:
        """Whether the counts of a shard are there, and are those of what the files hold now."""
        if not self._place(number).exists():
            return False
        found = self._read(number)["sources"]
        return found == sources_now(self.shards[number], found, self.text_column)

    def _read(self, number: int) -> dict[str, Any]:
        """The counts of a shard. Raises ValueError if they are damaged, or those of another text or other flags."""
        place = self._place(number)
        seal, _, text = place.read_bytes().partition(b"\n")
        if seal.decode(errors="replace") != hashlib.sha256(text.removesuffix(b"\n")).hexdigest():
            raise UserError(
                f"{place}: expected the counts of a shard, got a damaged file; delete it and count it again"
            )
        content: dict[str, Any] = json.loads(text)
        found, key = content["key"] | {"number": content["number"]}, self.key | {"number": number}
        if differing := [name for name in sorted({*key, *found}) if found.get(name) != key.get(name)]:
            raise UserError(
                f"{place}: it has the counts of another text or with other flags (they differ in: "
                f"{', '.join(differing)}); give those that it was made with, or delete {self.folder} to begin anew"
            )
        return content


def _counted(
    _: tokenizers.Tokenizer | None, spans: Sequence[Span], column: str, rules: Rules
) -> tuple[Counted, list[dict[str, Any]]]:
    """The words of a shard, and checksums of the bytes that were read; what a worker calls."""
    counted = count_words_of_spans(None, spans, column, rules)
    return counted, [checksums_of(span.path, *read) for span, read in zip(spans, counted.read, strict=True)]
