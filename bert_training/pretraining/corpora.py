"""The training corpora and the held-out corpora of a run."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from bert_training.engine.errors import is_for_the_user
from bert_training.engine.run import Run, gather_object
from bert_training.files.cores import usable_cores
from bert_training.inputs.flags.mixtures import is_mixed
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.build_corpus import Side, build_corpus, encode_part, forget_other_shards
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.held_out import lines_of_side
from bert_training.pretraining.prepared import adopt
from bert_training.pretraining.shards import remove_shards
from bert_training.pretraining.text import Text
from tokenization.errors import UserError


@dataclass(frozen=True)
class Corpora:
    """The corpora of a run.

    Attributes:
        train: the training text; with a mixture, one for each of its sources.
        held_out: the held-out text.
        held_out_files: if it is in several files, one for each of them, by ``Text.held_out_by_name``.
    """

    train: list[Corpus]
    held_out: Corpus
    held_out_files: dict[str, Corpus]

    @property
    def num_documents(self) -> int:
        """The number of documents of the training text."""
        return sum(corpus.num_documents for corpus in self.train)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the training text."""
        return sum(corpus.num_tokens for corpus in self.train)


def training_folders(flags: Mapping[str, Any]) -> list[str]:
    """The folders, below ``corpus``, of the training text: one, or one for each source of a mixture."""
    return [f"train-{number}" for number, _ in enumerate(flags["train_file"], 1)] if is_mixed(flags) else ["train"]


def corpus_folders(flags: Mapping[str, Any]) -> list[str]:
    """The names of all folders below ``corpus`` that the run builds, in the order in which they are built."""
    files = flags["validation_file"]
    parts = [f"validation-{number}" for number, _ in enumerate(files, 1)] if len(files) > 1 else []
    return [*training_folders(flags), "validation", *parts]


def open_training_corpora(
    folder: Path, flags: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase | None = None, verify: bool = True
) -> list[Corpus]:
    """The training corpora of a run in ``folder``; the other arguments and the errors are those of ``Corpus.open``."""
    return [Corpus.open(folder / "corpus" / name, tokenizer, verify) for name in training_folders(flags)]


def build_corpora(run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase) -> Corpora:
    """Build or open the corpora in ``output_dir/corpus``. All processes call it and help.

    Raises:
        ValueError: the text cannot be read or has no pairs, or a folder holds a corpus of another text.
        SystemExit: on the other processes, when the main process raises the ValueError.
    """
    names = corpus_folders(vars(run.args))

    def encode_parts() -> None:
        for name in names:
            encode_part(rank=run.rank, world_size=run.world_size, **_arguments(run, text, tokenizer, name))
        text.unchanged.check()

    def begin_anew() -> None:
        for name in names:
            forget_other_shards(**_arguments(run, text, tokenizer, name))

    if run.args.corpus_dir:
        run.only_main(lambda: _adopt(run, text, tokenizer))
    if run.world_size > 1:
        run.only_main(begin_anew)
        _run_together(run, encode_parts)

    def build_all() -> dict[str, Corpus]:
        built = {
            name: build_corpus(notes=_notes(text, name), **_arguments(run, text, tokenizer, name)) for name in names
        }
        text.unchanged.check()
        if run.rank == 0:
            remove_shards(_common_shards(run))
        return built

    built = run.main_first(build_all)
    train = [built.pop(name) for name in training_folders(vars(run.args))]
    return Corpora(train, built.pop("validation"), dict(zip(text.held_out_by_name, built.values())))


def _adopt(run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase) -> None:
    assert run.args.corpus_dir is not None
    arguments = _arguments(run, text, tokenizer, "train")
    sources = text.sources[: len(text.files)]
    adopt(
        run.args.corpus_dir,
        arguments["output_dir"],
        tokenizer,
        sources,
        run.args.text_column,
        arguments["fingerprint"],
    )


def _arguments(
    run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase, name: str
) -> dict[str, Any]:
    """The arguments that ``build_corpus`` and ``encode_part`` have in common, for the corpus ``name``.

    Only files of which everything is read are divided among the processes; the main process encodes everything else.
    """
    args = run.args
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by torchrun and accelerate: processes on this machine
    arguments = {
        "tokenizer": tokenizer,
        "output_dir": run.output_dir / "corpus" / name,
        "num_workers": max(1, usable_cores() // local),
        "unchanged": text.unchanged,
    }
    kind, _, number = name.partition("-")
    held_out = kind == "validation"
    if held_out and args.validation_file:
        files = [*text.held_out_by_name.values()][int(number) - 1] if number else text.held_out_files
        return arguments | {"source": files, "text_column": args.text_column}
    source = _source(text, number)
    share = 0.0 if args.validation_file else args.validation_split
    arguments |= {"fingerprint": json.dumps([source.fingerprint, share, held_out])}
    if source.files and source.limit is None and not args.deduplicate:
        common = None if number else _common_shards(run)
        side = Side(share or None, held_out, drop_empty=True, shards=common if share else None)
        return arguments | {"source": source.files, "text_column": args.text_column, "side": side}
    chosen = lines_of_side(source.lines(), share, held_out) if share else source.lines()
    return arguments | {"source": chosen, "num_workers": usable_cores()}  # the other processes wait


def _common_shards(run: Run[PretrainingArguments]) -> Path:
    """The folder of the shards from which both the training text and the held-out text are made."""
    return run.output_dir / "corpus" / "text.shards"


def _source(text: Text, number: str) -> Text:
    """The training text, or with a number, from 1, that of one entry of a mixture."""
    return text.of_file(int(number) - 1) if number else text


def _notes(text: Text, name: str) -> dict[str, Any]:
    """What the manifest of the corpus ``name`` says besides: what was left out of the text that it is taken from."""
    kind, _, number = name.partition("-")
    if kind == "validation" and text.args.validation_file:
        return {}
    counts = _source(text, number).left_out()
    return {"deduplicated": counts} if counts else {}


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
    if failures:  # the main process says it
        raise SystemExit(2)
