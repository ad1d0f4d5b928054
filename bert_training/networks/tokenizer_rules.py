"""What the rules in a tokenizer.json of unknown origin may do to a text, found out before the library follows them.

Forty rules that replace "a" by "aa" make a text of one letter a terabyte. The rules of real tokenizers change single
characters; how much longer they could make a text is computed from the file. A bound on time is not promised: the
library stops a regular expression only after ten million steps.
"""

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_training.files.json_files import read_object
from tokenization.errors import UserError

# The most characters that one becomes: 18 is that of Unicode (U+FDFA), and the others are rounded up.
UNICODE = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 3, "BertNormalizer": 6, "ByteLevel": 4}
SHORTER = ("Strip", "StripAccents", "Nmt", "Sequence")
# ALBERT's rules (two of a character, NFKD, Lowercase, a table of SentencePiece, and spaces) could reach 1,944.
LONGEST = 2_000  # times
MOST_SPECIAL = 64  # special tokens around a text
MOST_PROCESSORS = 4
LARGEST_ID = 10_000_000  # the library takes time for every id up to the largest; published vocabularies have a million
LONGEST_WORD = 1_000  # characters; the time for a word grows with the third power


def check_rules(path: Path) -> None:
    """Check a tokenizer.json.

    Raises:
        ValueError: it is not JSON, or its rules could make a text too long or a word too slow.
    """
    content = read_object(path)
    try:
        _check_rules(path, content)
    except (TypeError, AttributeError) as error:  # a list, say, in the place of a name
        raise UserError(f"{path}: expected the rules of a tokenizer ({error}); copy or download it again") from error


def _check_rules(path: Path, content: dict[str, Any]) -> None:
    for name in ("normalizer", "decoder"):
        times = 1
        for rule in _parts(content.get(name)):
            times *= _growth(path, rule, every=name == "normalizer")
            if times > LONGEST:
                raise UserError(
                    f"{path}: its {name} could make a text more than {LONGEST:,} times as long ({str(rule)[:60]!r}); "
                    "take the tokenizer from where it was published"
                )
    _check_processors(path, content.get("post_processor"))
    model = content.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids = [one for one in vocab.values() if isinstance(one, int)] if isinstance(vocab, dict) else []
    if max(ids, default=0) > LARGEST_ID:
        raise UserError(f"{path}: expected ids of at most {LARGEST_ID:,} in its vocabulary, got {max(ids):,}")
    longest = model.get("max_input_chars_per_word", 0) if isinstance(model, dict) else 0
    prefix = model.get("continuing_subword_prefix") if isinstance(model, dict) else None
    if not isinstance(longest, int) or longest > LONGEST_WORD or len(str(prefix)) > LONGEST_WORD:
        raise UserError(
            f"{path}: expected max_input_chars_per_word to be at most {LONGEST_WORD:,} (it is 100 in BERT), and a "
            f"short continuing_subword_prefix; got {str(longest)[:60]} and {str(prefix)[:60]!r}"
        )


def _parts(rule: Any) -> Iterator[dict[str, Any]]:
    """The rules in a rule, which may be a sequence of sequences; a sequence itself is left out."""
    waiting = [rule]
    while waiting:
        rule = waiting.pop()
        if not isinstance(rule, dict):
            continue  # no rule, or one that the library refuses
        if rule.get("type") != "Sequence":
            yield rule
        for inner in ("normalizers", "decoders", "processors"):
            if isinstance(rule.get(inner), list):
                waiting += rule[inner]


def _growth(path: Path, rule: dict[str, Any], every: bool) -> int:
    """How many characters a rule may make of one, rounded up.

    Args:
        every: whether all rules that do not replace anything must be known here, as those of normalizers.
    """
    kind, content = rule.get("type"), rule.get("content")
    if kind == "Replace":
        pattern, content = rule.get("pattern"), content if isinstance(content, str) else ""
        if isinstance(pattern, dict) and isinstance(pattern.get("String"), str) and pattern["String"]:
            return max(1, -(-len(content) // len(pattern["String"])))
        return 1 + len(content)  # it may be found between all characters
    if kind == "Prepend":
        return 1 + len(str(rule.get("prepend")))
    if kind == "Precompiled":
        return _longest_in_table(path, rule.get("precompiled_charsmap"))
    if kind in UNICODE:
        return UNICODE[kind]
    if every and kind not in SHORTER:
        raise UserError(f"{path}: its normalizer has the unknown type {str(kind)[:60]!r}; take another tokenizer")
    return 1


def _longest_in_table(path: Path, table: Any) -> int:
    """The longest text in a table of SentencePiece: the size of a trie, the trie, and texts that end in NUL."""
    try:
        content = base64.b64decode(table or "", validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise UserError(f"{path}: its precompiled_charsmap is damaged; copy or download it again") from None
    texts = content[4 + int.from_bytes(content[:4], "little") :]
    return max(1, *(len(text.decode(errors="replace")) for text in texts.split(b"\0")))


def _check_processors(path: Path, rule: Any) -> None:
    """Raise ValueError if a text could be repeated, or get many special tokens."""
    processors = [*_parts(rule)]
    for processor in processors:
        specials = processor.get("special_tokens")
        ids = {name: len(one.get("ids", [])) for name, one in specials.items()} if isinstance(specials, dict) else {}
        for name in ("single", "pair"):
            pieces = processor.get(name)
            pieces = [piece for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else []
            texts = [piece["Sequence"].get("id") for piece in pieces if isinstance(piece.get("Sequence"), dict)]
            added = [piece["SpecialToken"].get("id") for piece in pieces if isinstance(piece.get("SpecialToken"), dict)]
            if len(texts) > len(set(texts)) or sum(max(1, ids.get(one, 1)) for one in added) > MOST_SPECIAL:
                raise UserError(
                    f"{path}: its post_processor repeats a text, or adds more than {MOST_SPECIAL} special tokens; take "
                    "the tokenizer from where it was published"
                )
    if len(processors) > MOST_PROCESSORS:
        raise UserError(f"{path}: expected at most {MOST_PROCESSORS} post-processors, got {len(processors)}")
