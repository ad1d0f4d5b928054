"""transformers' BertTokenizer for a vocabulary of one's own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import transformers
from tokenizers.models import WordPiece

from .wordpiece import load_vocab

# Names of transformers -> the tokens that a vocabulary may lack; it only has to have [UNK].
OPTIONAL_TOKENS = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


class BertTokenizer(transformers.BertTokenizer):
    """transformers' class, which saves tokenizer.json only, plus the vocab.txt that older readers want.

    Google's code, TensorFlow and older libraries read vocab.txt. The class keeps its name: a saved folder asks for
    "BertTokenizer" and opens without this package. `from_pretrained` opens one as this class.
    """

    def _encode_plus(
        self, text: Any, text_pair: Any = None, add_special_tokens: bool = True, *args: Any, **kwargs: Any
    ) -> transformers.BatchEncoding:
        if add_special_tokens:
            self._check_ends("encode with add_special_tokens=False")
        try:
            return super()._encode_plus(text, text_pair, add_special_tokens, *args, **kwargs)
        except TypeError as error:
            # the library's words for half a surrogate pair are "TextEncodeInput must be Union[...]"
            for string in _strings((text, text_pair)):
                if any("\ud800" <= char <= "\udfff" for char in string):
                    shown = ascii(string[:80])
                    raise ValueError(f"expected characters, got a lone surrogate in {shown}") from error
            raise

    def _check_ends(self, otherwise: str) -> None:
        """ValueError without [CLS] and [SEP]: transformers would put rows 2 and 3 there, whatever these hold."""
        if missing := [OPTIONAL_TOKENS[name] for name in ("cls_token", "sep_token") if getattr(self, name) is None]:
            raise ValueError(f"the vocabulary has no row for {', '.join(missing)}; add it, or {otherwise}")

    def _save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        self._check_ends("write only vocab.txt, with write_vocab")
        # here and not in save_pretrained, which has uploaded the folder by the time it returns
        names = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        return (*names, *self.save_vocabulary(save_directory, filename_prefix))

    # The type that transformers' base class names; its class in between, the parent of BertTokenizer, narrows it.
    def save_vocabulary(  # type: ignore[override]
        self, save_directory: str | os.PathLike[str], filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write vocab.txt as `write_vocab` does; returns its path, or no path where there is nothing to write."""
        path = write_vocab(self, save_directory, filename_prefix)
        return () if path is None else (path,)


def write_vocab(
    tokenizer: transformers.PreTrainedTokenizerBase,
    folder: str | os.PathLike[str],
    filename_prefix: str | None = None,
) -> str | None:
    """Writes [prefix-]vocab.txt into the folder, one piece a line in the order of ids; returns its path.

    For any BertTokenizer, such as one that AutoTokenizer opened. Tokens that a user added are not WordPiece
    vocabulary: they are in tokenizer.json only, as in the vocab.txt of earlier versions of transformers.
    Writes nothing and returns None for tokenizers of another kind, which a BERT checkpoint may have:
    byte-pair ones, and BertJapaneseTokenizer, which writes its own vocab.txt.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, WordPiece):
        return None
    vocab = backend.get_vocab(with_added_tokens=False)
    pieces = sorted(vocab, key=vocab.__getitem__)
    path = Path(folder) / (f"{filename_prefix}-vocab.txt" if filename_prefix else "vocab.txt")
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{piece}\n" for piece in pieces)
    return str(path)


def build_tokenizer(
    vocab: str | os.PathLike[str] | Sequence[str] | Mapping[str, int],
    do_lower_case: bool = True,
    model_max_length: int = 512,
    tokenize_chinese_chars: bool = True,
    strip_accents: bool | None = None,
) -> BertTokenizer:
    """A transformers.BertTokenizer over the vocabulary; its save_pretrained also writes vocab.txt.

    vocab: path of a vocab.txt, pieces in the order of their ids, or piece -> id.
    model_max_length: where `truncation=True` cuts, [CLS] and [SEP] counted: max_position_embeddings.
    strip_accents: None follows do_lower_case, as Google's code does.
    Only [UNK] is needed to tokenize. Of the other special tokens, one without a row is None in the tokenizer, and
    what needs it raises ValueError: padding [PAD], encoding with special tokens [CLS] and [SEP], masking [MASK].
    Raises ValueError: missing file, empty or repeated pieces, ids with gaps, no row for [UNK].
    """
    if isinstance(vocab, str | os.PathLike):
        ids = load_vocab(vocab)
    elif isinstance(vocab, Mapping):
        ids = dict(vocab)
    else:
        ids = {piece: index for index, piece in enumerate(vocab)}
        if len(ids) < len(vocab):
            raise ValueError(f"vocab: {len(vocab)} pieces, of which only {len(ids)} are different")
    _check_ids(ids)
    if "[UNK]" not in ids:
        raise ValueError("vocab: no row for [UNK]; add it, or learn a vocabulary with train_wordpiece")
    # Left to itself, transformers adds rows for the missing ones behind the vocabulary.
    present: dict[str, Any] = {name: token if token in ids else None for name, token in OPTIONAL_TOKENS.items()}
    return BertTokenizer(
        vocab=ids,
        do_lower_case=do_lower_case,
        tokenize_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        model_max_length=model_max_length,
        **present,
    )


def _strings(nested: Any) -> Iterator[str]:
    if isinstance(nested, str):
        yield nested
    elif isinstance(nested, list | tuple):
        for item in nested:
            yield from _strings(item)


def _check_ids(vocab: Mapping[str, int]) -> None:
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise ValueError(f"vocab: expected the ids 0 to {len(vocab) - 1}, each once")
    if "" in vocab:
        raise ValueError(f"vocab: id {vocab['']} is an empty piece")
