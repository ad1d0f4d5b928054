"""Make a BertTokenizer of transformers from a vocabulary, save it with its vocab.txt, and know it by its content."""

import copy
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import transformers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from .errors import UserError
from .wordpiece import BLANKS, load_vocab

# Attributes of transformers -> tokens that a vocabulary may lack. Only [UNK] is required.
OPTIONAL_TOKENS = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}

# What transformers makes of the truncation and the padding in a tokenizer.json, and stores in tokenizer_config.json.
CALL_SETTINGS = ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "pad_token_type_id")


class BertTokenizer(transformers.BertTokenizer):
    """transformers' class, with a ``save_pretrained`` that also writes vocab.txt besides tokenizer.json.

    Google's code, TensorFlow and older libraries read vocab.txt. The name of the class stays the same because a saved
    folder records it: the folder then opens without this package, as transformers' class. ``from_pretrained`` of this
    class opens a folder as this class.

    Raises:
        ValueError: special tokens that the vocabulary does not have are asked for.
    """

    def _encode_plus(
        self, text: Any, text_pair: Any = None, add_special_tokens: bool = True, *args: Any, **kwargs: Any
    ) -> transformers.BatchEncoding:
        if add_special_tokens:
            self._check_ends("encode with add_special_tokens=False")
        return super()._encode_plus(text, text_pair, add_special_tokens, *args, **kwargs)

    def _check_ends(self, otherwise: str) -> None:
        """Refuse a vocabulary without [CLS] or [SEP], for which transformers would use the ids 2 and 3.

        Args:
            otherwise: what the user can do instead, for the error message.

        Raises:
            ValueError: one of them is missing.
        """
        if missing := [OPTIONAL_TOKENS[name] for name in ("cls_token", "sep_token") if getattr(self, name) is None]:
            raise UserError(f"the vocabulary has no row for {', '.join(missing)}; add it, or {otherwise}")

    def _save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        self._check_ends("write only vocab.txt, with write_vocab")
        # vocab.txt is written here because save_pretrained may upload the folder before it returns.
        names = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        return (*names, *self.save_vocabulary(save_directory, filename_prefix))

    # The types are those of the base class PreTrainedTokenizerBase, which the parent of BertTokenizer narrows.
    def save_vocabulary(  # type: ignore[override]
        self, save_directory: str | os.PathLike[str], filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write vocab.txt as ``write_vocab`` does, and return its path, or no path if nothing is written."""
        path = write_vocab(self, save_directory, filename_prefix)
        return () if path is None else (path,)


def write_vocab(
    tokenizer: transformers.PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    filename_prefix: str | None = None,
) -> str | None:
    """Write [prefix-]vocab.txt into the folder, one piece per line in the order of ids, and return its path.

    It works for any BertTokenizer, for instance one that AutoTokenizer opened. Tokens that a user added follow the
    pieces, so that the file has a row for every id. It ends before the first of them that no row can hold, because it
    contains a line break or begins or ends with a blank: that token is in tokenizer.json only. For other kinds of
    tokenizers that a BERT checkpoint may have, nothing is written and None is returned: byte-pair encodings, and
    BertJapaneseTokenizer, which writes its own vocab.txt.

    Raises:
        ValueError: an id has no piece, so that all later rows would stand for other ids.
    """
    backend: tokenizers.Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, WordPiece):
        return None
    vocab, all_ids = backend.get_vocab(with_added_tokens=False), backend.get_vocab(with_added_tokens=True)
    pieces = sorted(all_ids, key=all_ids.__getitem__)
    stop = next((row for row, piece in enumerate(pieces) if piece not in vocab and not _is_row(piece)), len(pieces))
    pieces = pieces[:stop]
    gap = next((row for row, piece in enumerate(pieces) if all_ids[piece] != row), None)
    if gap is not None:
        raise UserError(f"vocab.txt needs a piece for every id, but the tokenizer has none with the id {gap}")
    path = Path(folder) / (f"{filename_prefix}-vocab.txt" if filename_prefix else "vocab.txt")
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{piece}\n" for piece in pieces)
    return str(path)


def _is_row(piece: str) -> bool:
    """Whether a line of vocab.txt can hold the piece."""
    return bool(piece.strip(BLANKS)) and piece == piece.strip(BLANKS) and not set(piece) & set("\r\n\0")


def forget_calls(tokenizer: transformers.PreTrainedTokenizerBase) -> None:
    """Switch off the truncation and the padding that a tokenizer.json may hold, and those of the last call.

    They are the state of somebody's last call. Left on, they would be saved again, and whoever uses the library
    directly would get texts that are cut or padded.
    """
    backend: tokenizers.Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_truncation()
        backend.no_padding()
    for name in CALL_SETTINGS:
        tokenizer.init_kwargs.pop(name, None)


def save_tokenizer_files(
    tokenizer: transformers.PreTrainedTokenizerBase, folder: str | os.PathLike[str], positions: int, segments: int = 2
) -> None:
    """Write the files of a tokenizer, with vocab.txt, for a network with this many positions and segments.

    They hold no truncation and no padding, and ``truncation=True`` cuts to what the network can read. Segments are
    returned if the network has several.
    """
    forget_calls(tokenizer)
    tokenizer.model_max_length = positions
    if ("token_type_ids" in tokenizer.model_input_names) != (segments > 1):
        names = ["input_ids", *["token_type_ids"] * (segments > 1), "attention_mask"]
        tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    tokenizer.save_pretrained(folder)
    write_vocab(tokenizer, folder)


def build_tokenizer(
    vocab: str | os.PathLike[str] | Sequence[str] | Mapping[str, int],
    do_lower_case: bool = True,
    model_max_length: int = 512,
    tokenize_chinese_chars: bool = True,
    strip_accents: bool | None = None,
) -> BertTokenizer:
    """A ``BertTokenizer`` with the given vocabulary.

    Tokenizing needs only [UNK]. Other special tokens may be missing: they are None in the tokenizer, and what needs
    them raises ValueError (padding needs [PAD], encoding with special tokens [CLS] and [SEP], masking [MASK]).

    Args:
        vocab: path of a vocab.txt, a sequence of pieces in the order of their ids, or a mapping from pieces to ids.
        do_lower_case: lower the case and, unless ``strip_accents`` is False, drop accents.
        model_max_length: the length to which ``truncation=True`` cuts, including [CLS] and [SEP]; usually
            ``max_position_embeddings`` of the network.
        tokenize_chinese_chars: make each CJK ideograph a word.
        strip_accents: None means the value of ``do_lower_case``, as in Google's code.

    Raises:
        ValueError: the file is missing, pieces are empty or repeated, ids have gaps, or [UNK] is missing.
    """
    if isinstance(vocab, str | os.PathLike):
        ids = load_vocab(vocab)
    elif isinstance(vocab, Mapping):
        ids = dict(vocab)
    else:
        ids = {piece: index for index, piece in enumerate(vocab)}
    if sorted(ids.values()) != list(range(len(ids))) or "" in ids:  # a piece that is repeated leaves a gap
        raise UserError(f"vocab: expected the ids 0 to {len(ids) - 1}, each once and for a piece that is not empty")
    if "[UNK]" not in ids:
        raise UserError("vocab: no row for [UNK]; add it, or learn one with bert-repro vocabulary")
    # By default, transformers would append rows for the missing tokens to the vocabulary.
    present: dict[str, Any] = {name: token if token in ids else None for name, token in OPTIONAL_TOKENS.items()}
    return BertTokenizer(
        vocab=ids,
        do_lower_case=do_lower_case,
        tokenize_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        model_max_length=model_max_length,
        **present,
    )


# --- the content of a tokenizer --------------------------------------------------------------------------------------


def backend_of(tokenizer: transformers.PreTrainedTokenizerBase) -> tokenizers.Tokenizer:
    """The ``backend_tokenizer``. Raises UserError if it has none, as tokenizers that are written in Python."""
    backend: tokenizers.Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(
            f"expected a fast tokenizer, which has a tokenizer.json, got {type(tokenizer).__name__}; give another with "
            "--tokenizer_name"
        )
    return backend


def tokenizer_json(tokenizer: transformers.PreTrainedTokenizerBase) -> str:
    """The content of tokenizer.json in canonical form; raises as ``backend_of``.

    Truncation and padding are set to null: they are the state of the last call and do not identify the tokenizer.
    """
    content = json.loads(backend_of(tokenizer).to_str()) | {"truncation": None, "padding": None}
    return json.dumps(content, sort_keys=True, ensure_ascii=False)


def tokenizer_sha256(tokenizer: transformers.PreTrainedTokenizerBase) -> str:
    """SHA-256 of ``tokenizer_json``, by which a corpus and a checkpoint recognise their tokenizer."""
    return hashlib.sha256(tokenizer_json(tokenizer).encode()).hexdigest()


# --- special tokens --------------------------------------------------------------------------------------------------

# purpose of a special token: (its attribute in transformers, its usual spelling)
NEEDED_TOKENS = {
    "padding": ("pad_token", "[PAD]"),
    "text that the vocabulary cannot spell": ("unk_token", "[UNK]"),
    "the beginning of every input": ("cls_token", "[CLS]"),
    "the end of every segment": ("sep_token", "[SEP]"),
    "masked-language modelling": ("mask_token", "[MASK]"),
}


def check_special_tokens(tokenizer: transformers.PreTrainedTokenizerBase, masking: bool = False) -> None:
    """Check that the tokenizer has [PAD], [UNK], [CLS] and [SEP] and, with ``masking``, [MASK].

    Raises:
        ValueError: one of them is missing.
    """
    for purpose, (name, spelling) in NEEDED_TOKENS.items():
        if not getattr(tokenizer, name) and (masking or name != "mask_token"):
            raise UserError(
                f"the tokenizer has no {spelling}, which {purpose} needs; take one whose vocabulary has a row for it, "
                "or learn one with bert-repro vocabulary"
            )


def text_tokenizer(tokenizer: transformers.PreTrainedTokenizerBase) -> transformers.PreTrainedTokenizerBase:
    """A tokenizer for texts that are encoded with ``split_special_tokens=True``.

    That option makes ordinary text of every special token: of BERT's own marks, such as a "[SEP]" that somebody wrote,
    but also of tokens that the user has added as special ones, such as "[E1]", whose embeddings would never be trained.
    With the returned tokenizer, it only concerns BERT's marks.

    Returns:
        A copy whose added tokens, except BERT's marks, are no special ones; ``tokenizer`` itself if there are none. For
        encoding only: its ``tokenizer.json`` would differ.
    """
    backend = tokenizer.backend_tokenizer
    marks = {str(getattr(tokenizer, name)) for name, _ in NEEDED_TOKENS.values()}
    if all(token.content in marks or not token.special for token in backend.get_added_tokens_decoder().values()):
        return tokenizer
    rules = json.loads(backend.to_str())
    for token in rules["added_tokens"]:
        token["special"] = token["content"] in marks
    reader = copy.deepcopy(tokenizer)
    reader._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(rules))
    return reader


# --- from texts to ids -----------------------------------------------------------------------------------------------

WORDS_AT_ONCE = 100  # in one text for the tokenizer
MOST_CHARACTERS = 1 << 22  # of the words whose pieces are kept, some 400,000 words


def splits_at_spaces(tokenizer: transformers.PreTrainedTokenizerBase) -> bool:
    """Whether the pieces of a text are those of its words between spaces, as by BERT's own rules.

    An added token may have the white space beside it or inside it, and is then found across words.
    """
    backend = tokenizer.backend_tokenizer
    rules = {BertNormalizer: backend.normalizer, BertPreTokenizer: backend.pre_tokenizer, WordPiece: backend.model}
    added = [token for token in backend.get_added_tokens_decoder().values() if not token.special]
    return all(isinstance(rule, kind) for kind, rule in rules.items()) and not any(
        token.lstrip or token.rstrip or token.content.split() != [token.content] for token in added
    )


class TextEncoder:
    """From texts to the ids of their pieces, without special tokens. A "[SEP]" in a text is five ordinary characters.

    Beside a dictionary, the tokenizer is slow. So it reads every distinct word once, many of them as one text, and a
    text is put together from the pieces of its words. With rules other than BERT's, a text is one word.
    """

    def __init__(self, tokenizer: transformers.PreTrainedTokenizerBase):
        self.tokenizer = text_tokenizer(tokenizer)
        self.by_words = splits_at_spaces(self.tokenizer)
        self.known: dict[str, bytes] = {}  # word -> its ids, as int32
        self.characters = 0  # of the known words

    def __call__(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of every text, int32."""
        if self.characters > MOST_CHARACTERS:
            self.known, self.characters = {}, 0
        rows = [text.split(" ") if self.by_words else [text] for text in texts]
        if new := [*set().union(*rows).difference(self.known)]:
            self._read(new)
        return [np.frombuffer(b"".join(map(self.known.__getitem__, words)), dtype=np.int32) for words in rows]

    def _read(self, words: Sequence[str]) -> None:
        size = WORDS_AT_ONCE if self.by_words else 1
        parts = [words[first : first + size] for first in range(0, len(words), size)]
        options = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": True}
        options |= {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        coded = self.tokenizer([" ".join(part) for part in parts], **options)
        for part, ids, offsets in zip(parts, coded["input_ids"], coded["offset_mapping"]):
            after = np.cumsum([len(word) + 1 for word in part])  # where in the text the next word begins
            stops = np.searchsorted([start for start, _ in offsets], after)
            found = np.array(ids, dtype=np.int32)
            for word, begin, end in zip(part, [0, *stops], stops):
                self.known[word] = found[begin:end].tobytes()
        self.characters += sum(map(len, words))
