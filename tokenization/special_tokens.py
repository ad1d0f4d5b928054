"""The special tokens: those that training needs, and how they are read where they occur in a text.

A vocabulary without them can still tokenize.
"""

import copy
import json
from typing import TYPE_CHECKING

import tokenizers

from .errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# purpose of a special token: (its attribute in transformers, its usual spelling)
NEEDED_TOKENS = {
    "padding": ("pad_token", "[PAD]"),
    "text that the vocabulary cannot spell": ("unk_token", "[UNK]"),
    "the beginning of every input": ("cls_token", "[CLS]"),
    "the end of every segment": ("sep_token", "[SEP]"),
    "masked-language modelling": ("mask_token", "[MASK]"),
}


def check_special_tokens(tokenizer: "PreTrainedTokenizerBase", masking: bool = False) -> None:
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


def text_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerBase":
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
