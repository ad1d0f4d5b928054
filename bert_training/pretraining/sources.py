"""Checksums of the files of a text, which show whether shards of different processes were made from the same bytes.

A time of change does not show it, since machines have clocks of their own. A checksum of each block of a file is
compared instead: those of the blocks that a shard was made from with those of the whole file.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_training.files.compressed_files import open_regular
from bert_training.files.hashing import digest

BLOCK = 1 << 20
_BYTES = 8  # of a checksum, which is to notice a mistake and no attack


def _checksum(block: bytes) -> str:
    return hashlib.blake2b(block, digest_size=_BYTES).hexdigest()


def checksums_of(path: str | Path, extents: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The checksums of all blocks that have a byte of the extents, pairs (first byte, byte behind the last one)."""
    found: dict[str, str] = {}
    with open_regular(path) as file:
        for start, stop in extents:
            for number in range(start // BLOCK, -(-stop // BLOCK)):
                if str(number) not in found:
                    file.seek(number * BLOCK)
                    found[str(number)] = _checksum(file.read(BLOCK))
    return {"extents": [list(extent) for extent in extents], "blocks": found}


def facts_of(path: str | Path) -> dict[str, Any]:
    """Name, bytes and SHA-256 of a whole file, and the checksums of its blocks, all from one reading."""
    whole, blocks, size = hashlib.sha256(), [], 0
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            whole.update(block)
            blocks.append(_checksum(block))
            size += len(block)
    facts = {"name": Path(path).name, "bytes": size, "sha256": whole.hexdigest(), "blocks": "".join(blocks)}
    return facts | {"seal": digest(facts)}


def is_sealed(facts: dict[str, Any]) -> bool:
    """Whether ``facts_of`` wrote these facts."""
    return facts.get("seal") == digest({name: value for name, value in facts.items() if name != "seal"})


def agrees(facts: dict[str, Any], read: dict[str, Any]) -> bool:
    """Whether what ``checksums_of`` found is a part of the file with these facts."""
    width = 2 * _BYTES
    blocks = read["blocks"].items()
    return all(facts["blocks"][int(number) * width : int(number) * width + width] == one for number, one in blocks)
