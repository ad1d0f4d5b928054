"""The special tokens that training needs. A vocabulary without them can still tokenize."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# purpose of a special token: (its attribute in transformers, its usual spelling)
NEEDED_TOKENS = {
    "padding": ("pad_token", "[PAD]"),
    "the beginning of every input": ("cls_token", "[CLS]"),
    "the end of every segment": ("sep_token", "[SEP]"),
    "masked-language modelling": ("mask_token", "[MASK]"),
}


def check_special_tokens(tokenizer: "PreTrainedTokenizerBase", masking: bool = False) -> None:
    """Check that the tokenizer has [PAD], [CLS] and [SEP] and, with ``masking``, [MASK].

    Raises:
        ValueError: one of them is missing.
    """
    for purpose, (name, spelling) in NEEDED_TOKENS.items():
        if getattr(tokenizer, name) is None and (masking or name != "mask_token"):
            raise ValueError(
                f"the tokenizer has no {spelling}, which {purpose} needs; take one whose vocabulary has a row for it, "
                "or learn one with python -m tokenization.train_wordpiece"
            )
