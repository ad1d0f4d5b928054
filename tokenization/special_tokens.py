"""Which special tokens training needs. A vocabulary without them still tokenizes."""

from typing import Any

# What a special token is for -> its attribute in transformers, its usual spelling
NEEDED_TOKENS = {
    "padding": ("pad_token", "[PAD]"),
    "the beginning of every input": ("cls_token", "[CLS]"),
    "the end of every segment": ("sep_token", "[SEP]"),
    "masked-language modelling": ("mask_token", "[MASK]"),
}


def check_special_tokens(tokenizer: Any, masking: bool = False) -> None:
    """Raise ValueError unless the tokenizer has the tokens that inputs are made of, and with `masking` [MASK]."""
    for purpose, (name, spelling) in NEEDED_TOKENS.items():
        if getattr(tokenizer, name) is None and (masking or name != "mask_token"):
            raise ValueError(
                f"the tokenizer has no {spelling}, which {purpose} needs; take one whose vocabulary has a row for it, "
                "or learn one with python -m tokenization.train_wordpiece"
            )
