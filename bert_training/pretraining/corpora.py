"""The training corpus and the held-out corpus of a run."""

import json
import os
from collections.abc import Callable
from typing import Any

from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from bert_training.engine.errors import is_for_the_user
from bert_training.engine.run import Run
from bert_training.flags.pretraining import PretrainingArguments
from bert_training.pretraining.build_corpus import build_corpus, encode_part
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.held_out import lines_of_side
from bert_training.pretraining.text import Text
from tokenization.errors import UserError


def build_corpora(
    run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase
) -> tuple[Corpus, Corpus]:
    """Build or open (training corpus, held-out corpus) in ``output_dir/corpus``. All processes call it and help.

    Raises:
        ValueError: the text cannot be read or has no pairs, or a folder holds a corpus of another text.
        SystemExit: on the other processes, when the main process raises the ValueError.
    """

    def encode_parts() -> None:
        for name in ("train", "validation"):
            encode_part(rank=run.rank, world_size=run.world_size, **_arguments(run, text, tokenizer, name))

    if run.world_size > 1:
        _run_together(run, encode_parts)

    def build(name: str) -> Corpus:
        return build_corpus(processes=run.world_size, **_arguments(run, text, tokenizer, name))

    def build_both() -> tuple[Corpus, Corpus]:
        both = build("train"), build("validation")
        text.unchanged.check()
        return both

    return run.main_first(build_both)


def _arguments(
    run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase, name: str
) -> dict[str, Any]:
    """The arguments that ``build_corpus`` and ``encode_part`` have in common, for the corpus ``name``."""
    args = run.args
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by torchrun and accelerate: processes on this machine
    arguments = {
        "tokenizer": tokenizer,
        "output_dir": run.output_dir / "corpus" / name,
        "num_workers": max(1, (os.cpu_count() or 1) // local),
        "unchanged": text.unchanged,
    }
    held_out = name == "validation"
    if held_out and args.validation_file:
        return arguments | {"source": args.validation_file, "text_column": args.text_column}
    share = 0.0 if args.validation_file else args.validation_split
    chosen = lines_of_side(text.lines(), share, held_out) if share else text.lines()
    return arguments | {"source": chosen, "fingerprint": json.dumps([text.fingerprint, share, held_out])}


def _run_together(run: Run[PretrainingArguments], work: Callable[[], None]) -> None:
    """Call ``work`` on every process, and stop all of them if it fails on one.

    Raises:
        ValueError: on the main process, with the first failure.
        SystemExit: on the other processes.
        Exception: on the process with an error that is no message for the user.
    """
    failure: ValueError | OSError | None = None
    try:
        work()
    except (ValueError, OSError) as error:
        failure = error
    failures = [message for message in gather_object([failure and str(failure)]) if message is not None]
    if failure is not None and not is_for_the_user(failure):
        raise failure
    if failures and run.is_main:
        raise UserError(failures[0])
    if failures:
        raise SystemExit(2)
