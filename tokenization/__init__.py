"""Tokenization: the readable reference, the fast tokenizer, and learning a vocabulary.

``train_wordpiece`` is in the module of that name: ``from tokenization.train_wordpiece import train_wordpiece``.
"""

from typing import TYPE_CHECKING, Any

from .wordpiece import (
    BasicTokenizer,
    FullTokenizer,
    WordpieceTokenizer,
    convert_ids_to_tokens,
    convert_to_unicode,
    convert_tokens_to_ids,
    load_vocab,
    whitespace_tokenize,
)

# Google's tokenization_test.py runs `import tokenization` and uses these three functions.
from .wordpiece import _is_control as _is_control
from .wordpiece import _is_punctuation as _is_punctuation
from .wordpiece import _is_whitespace as _is_whitespace

if TYPE_CHECKING:
    from .bert_tokenizer import BertTokenizer, build_tokenizer, write_vocab

__all__ = [
    "BasicTokenizer",
    "BertTokenizer",
    "FullTokenizer",
    "WordpieceTokenizer",
    "build_tokenizer",
    "convert_ids_to_tokens",
    "convert_to_unicode",
    "convert_tokens_to_ids",
    "load_vocab",
    "whitespace_tokenize",
    "write_vocab",
]


def __getattr__(name: str) -> Any:
    """Import bert_tokenizer when one of its names is used, because transformers takes a second to import."""
    if name in ("BertTokenizer", "build_tokenizer", "write_vocab"):
        from . import bert_tokenizer

        return getattr(bert_tokenizer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
