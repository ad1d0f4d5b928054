"""What tells one tokenizer from another: its content, not the state of its last call."""

import hashlib
import json
from typing import Any


def tokenizer_json(tokenizer: Any) -> str:
    """The content of tokenizer.json in canonical form.

    Truncation and padding are left out: they are the state of the last call, not part of the vocabulary.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["truncation"] = content["padding"] = None
    return json.dumps(content, sort_keys=True, ensure_ascii=False)


def tokenizer_sha256(tokenizer: Any) -> str:
    """SHA-256 of `tokenizer_json`, by which a corpus and a checkpoint know their tokenizer."""
    return hashlib.sha256(tokenizer_json(tokenizer).encode()).hexdigest()
