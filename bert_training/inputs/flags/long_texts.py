"""The flags of ``--long_texts``: their defaults, their checks, and how its numbers are rounded."""

from collections.abc import Mapping
from typing import Any

from bert_training.inputs.flags.checks import at_least, refuse_idle
from tokenization.errors import UserError

WINDOW_FLAGS = ("doc_stride", "window_pooling", "max_windows")
SPECIAL_TOKENS = 2  # [CLS] and [SEP]


def settled_windows(args: Any) -> dict[str, Any]:
    """The flags of windows with their defaults, so that run.json and the model's config say what was done.

    Args:
        args: the flags of run_glue.py.

    Raises:
        ValueError: a flag has no effect or is out of range, the label is not read from [CLS], or
            the network is compiled.
    """
    refuse_idle(args, (args.long_texts != "windows" and "without --long_texts windows", WINDOW_FLAGS))
    if args.long_texts != "windows":
        return {}
    if args.label_token == "last":
        raise UserError(
            "--long_texts windows pools the labels that a network reads from [CLS], not those of --label_token last; "
            "give --long_texts head_tail or cut"
        )
    if args.torch_compile:
        raise UserError(
            "--torch_compile compiles for batches of one form, but with --long_texts windows every batch has another "
            "number of windows; leave --torch_compile out"
        )
    room = max(1, args.max_seq_length - SPECIAL_TOKENS)  # a length without room is reported with the texts
    stride, most = args.doc_stride, args.max_windows
    stride = max(1, room * 3 // 4) if stride is None else stride
    if not 1 <= stride <= room:
        raise UserError(
            f"--doc_stride {stride} must be from 1 to {room}, the tokens of a text in a window (--max_seq_length "
            f"{args.max_seq_length} - {SPECIAL_TOKENS} special tokens); more would leave gaps"
        )
    if most is not None:
        at_least(args, 1, "max_windows")
    return dict(zip(WINDOW_FLAGS, (stride, args.window_pooling or "mean", 8 if most is None else most)))


def head_of(kept: int) -> int:
    """Of the tokens that ``--long_texts head_tail`` keeps of a text, how many are from its beginning: a quarter.

    Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", keep the first 128 and the last 382 of 510.
    """
    return (kept + 2) // 4


def without_idle(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that a model stores, without those that the given flags make idle or impossible."""
    windows = given.get("long_texts", "windows") == "windows"
    idle = {"doc_stride"} if "max_seq_length" in given else set()  # its default follows the length of a window
    return {name: stored[name] for name in stored if name not in (idle if windows else WINDOW_FLAGS)}
