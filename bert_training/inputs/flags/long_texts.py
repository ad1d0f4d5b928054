"""The numbers of ``--long_texts``: how a text is divided, and which stored flags it makes idle."""

from collections.abc import Mapping
from typing import Any

SPECIAL_TOKENS = 2  # [CLS] and [SEP]
MOST_WINDOWS = 8


def head_of(kept: int) -> int:
    """Of the tokens that ``--long_texts head_tail`` keeps of a text, how many are from its beginning: a quarter.

    Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", keep the first 128 and the last 382 of 510.
    """
    return (kept + 2) // 4


def stride_of(room: int) -> int:
    """Tokens from the start of a window with ``room`` tokens of a text to the start of the next: three quarters."""
    return max(1, room * 3 // 4)


def without_idle(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that a model stores, without those that the given flags make idle."""
    idle = () if given.get("long_texts", "windows") == "windows" else ("max_windows",)
    return {name: value for name, value in stored.items() if name not in idle}
