"""Identify a tokenizer by its content, without the state of its last call."""

import hashlib
import json
from typing import TYPE_CHECKING

from tokenization.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def tokenizer_json(tokenizer: "PreTrainedTokenizerBase") -> str:
    """The content of tokenizer.json in canonical form, for any tokenizer of transformers with a ``backend_tokenizer``.

    Truncation and padding are set to null: they are the state of the last call and do not identify the tokenizer.

    Raises:
        ValueError: it has none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(
            f"expected a fast tokenizer, which has a tokenizer.json, got {type(tokenizer).__name__}; give another with "
            "--tokenizer_name"
        )
    content = json.loads(backend.to_str())
    content["truncation"] = content["padding"] = None
    return json.dumps(content, sort_keys=True, ensure_ascii=False)


def tokenizer_sha256(tokenizer: "PreTrainedTokenizerBase") -> str:
    """SHA-256 of ``tokenizer_json``, by which a corpus and a checkpoint recognise their tokenizer."""
    return hashlib.sha256(tokenizer_json(tokenizer).encode()).hexdigest()
