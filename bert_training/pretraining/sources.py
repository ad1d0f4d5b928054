"""Checksums of the files of a text, which show whether shards of different processes were made from the same bytes.

A time of change does not show it, since machines have clocks of their own. A checksum of each block of a file is
compared instead: those of the blocks that a shard was made from with those of the whole file.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bert_training.files.atomic import make_folder, write_json
from bert_training.files.hashing import digest, unchanged
from bert_training.inputs.json_files import read_object
from bert_training.pretraining.ranges import Rule, Span, rule_of
from tokenization.errors import UserError

BLOCK = 1 << 20
_BYTES = 8  # of a checksum, which is to notice a mistake and no attack


def _checksum(block: bytes) -> str:
    return hashlib.blake2b(block, digest_size=_BYTES).hexdigest()


def checksums_of(path: str | Path, extents: Sequence[Sequence[int]], rule: Rule) -> dict[str, Any]:
    """The checksums of all blocks that have a byte of the extents, pairs (first byte, byte behind the last one).

    Args:
        rule: by which the file was read (``rule_of``); what decided it may be in other blocks.
    """
    found: dict[str, str] = {}
    with open(path, "rb") as file:
        for start, stop in extents:
            for number in range(start // BLOCK, -(-stop // BLOCK)):
                if str(number) not in found:
                    file.seek(number * BLOCK)
                    found[str(number)] = _checksum(file.read(BLOCK))
    return {"extents": [list(extent) for extent in extents], "blocks": found, "rule": rule}


def sources_now(spans: Sequence[Span], read: Sequence[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """What ``checksums_of`` finds today for spans of which it found ``read``."""
    rules = [rule_of(Path(span.path), column) for span in spans]
    return [checksums_of(span.path, one["extents"], rule) for span, one, rule in zip(spans, read, rules, strict=True)]


def facts_of(path: Path, column: str) -> dict[str, Any]:
    """Name, bytes and SHA-256 of a whole file, the checksums of its blocks, and the rule by which it is read."""
    whole, blocks, size = hashlib.sha256(), [], 0
    with unchanged(path), open(path, "rb") as file:
        rule = rule_of(path, column)
        while block := file.read(BLOCK):
            whole.update(block)
            blocks.append(_checksum(block))
            size += len(block)
    facts = {"name": path.name, "bytes": size, "sha256": whole.hexdigest(), "blocks": "".join(blocks), "rule": rule}
    return facts | {"seal": digest(facts)}


def write_sources(folder: Path, files: Sequence[Path], column: str, task: int, tasks: int) -> None:
    """Write what a join needs to know of every ``tasks``-th file, which is read to its end for that."""
    make_folder(folder)
    for number in range(task, len(files), tasks):
        write_json(_place(folder, number), facts_of(files[number], column))


def read_sources(folder: Path, files: Sequence[Path]) -> list[dict[str, Any]]:
    """The facts of each file, as the tasks found them.

    Raises:
        ValueError: some are missing or damaged.
    """
    found = []
    for number, path in enumerate(files):
        where = _place(folder, number)
        try:
            facts = read_object(where)
        except (OSError, ValueError):
            facts = {}
        if facts.get("seal") != digest({name: value for name, value in facts.items() if name != "seal"}):
            raise UserError(
                f"{where}: missing or damaged, so that {path.name} has no SHA-256; file F of N tasks is read by "
                "task F modulo N: start this task again, or give the command without --join"
            )
        found.append(facts)
    return found


def check_read(shard: Path, spans: Sequence[Span], read: Iterable[dict[str, Any]], facts: list[dict[str, Any]]) -> None:
    """Raise ValueError unless a shard was made from the files with these facts.

    Args:
        shard: its file.
        spans: what it was made from.
        read: for each of the spans, what ``checksums_of`` found.
        facts: of all files of the text.
    """
    for span, found in zip(spans, read, strict=True):
        if not _agrees(facts[span.number], found):
            raise UserError(
                f"{shard}: {span.path} was changed between two tasks: this shard was made from other bytes than the "
                "SHA-256 of the file; start all tasks again when the file no longer changes (they keep what is right)"
            )


def _place(folder: Path, number: int) -> Path:
    return folder / f"source-{number:05}.json"


def _agrees(facts: dict[str, Any], read: dict[str, Any]) -> bool:
    """Whether what ``checksums_of`` found is a part of the file with these facts."""
    width = 2 * _BYTES
    blocks = ((int(number) * width, one) for number, one in read["blocks"].items())
    return read["rule"] == facts["rule"] and all(facts["blocks"][at : at + width] == one for at, one in blocks)
