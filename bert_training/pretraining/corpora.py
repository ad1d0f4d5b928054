"""The training corpora and the held-out corpora of a run."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.files.atomic import is_occupied, make_folder, new_folder
from bert_training.files.process import usable_cores
from bert_training.inputs.flags.phases import is_mixed
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.build_corpus import build_corpus, check_made_from, plan_corpus
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.held_out import Side
from bert_training.pretraining.text import Text


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
    """Build or open the corpora in ``output_dir/corpus``. All processes call it; the main process builds.

    Raises:
        ValueError: the text cannot be read or has no pairs, or a folder holds a corpus of another text.
        SystemExit: on the other processes, when the main process raises the ValueError.
    """

    def built(name: str) -> Corpus:
        folder = run.output_dir / "corpus" / name
        if not run.is_main:
            return Corpus.open(folder, tokenizer, verify=False)
        if name == "train" and run.args.corpus_dir and not is_occupied(folder):
            adopt(Path(run.args.corpus_dir), folder, tokenizer, text.files, run.args.text_column)
            return Corpus.open(folder, verify=False)  # which adopt has compared
        source = _source(text, run.args, folder)
        return build_corpus(tokenizer=tokenizer, output_dir=folder, num_workers=usable_cores(), **source)

    def build_all() -> dict[str, Corpus]:
        found = {name: built(name) for name in corpus_folders(vars(run.args))}
        if run.is_main:
            text.unchanged.check()
        return found

    found = run.main_first(build_all)
    train = [found.pop(name) for name in training_folders(vars(run.args))]
    return Corpora(train, found.pop("validation"), dict(zip(text.held_out_by_name, found.values())))


def _source(text: Text, args: PretrainingArguments, folder: Path) -> dict[str, Any]:
    """What ``build_corpus`` makes the corpus in ``folder`` from."""
    kind, _, number = folder.name.partition("-")
    held_out = kind == "validation"
    if held_out and args.validation_file:
        files = [*text.held_out_by_name.values()][int(number) - 1] if number else text.held_out_files
        return {"source": files, "text_column": args.text_column}
    source = text.of_file(int(number) - 1) if number else text  # with a number, from 1, an entry of a mixture
    side = Side(None if args.validation_file else args.validation_split, held_out)
    if source.files and source.limit is None and not args.deduplicate:
        return {"source": source.files, "text_column": args.text_column, "side": side}
    counts = source.left_out()
    return {
        "source": side.of(source.lines()),
        "fingerprint": json.dumps([source.fingerprint, *side]),
        "unchanged": text.unchanged,
        "notes": {"deduplicated": counts} if counts else {},
    }


def adopt(
    prepared: Path, target: Path, tokenizer: PreTrainedTokenizerBase, files: Sequence[Path], text_column: str
) -> None:
    """Make the corpus that ``bert-repro corpus`` has prepared (--corpus_dir) that of a run, which has none.

    The run gets files of its own: other names of the same files where the disk allows that, and copies elsewhere. The
    prepared folder may therefore be deleted or used by other runs, and everything that reads the folder of a run finds
    the corpus where it always is.

    Raises:
        ValueError: ``prepared`` is no finished corpus, is damaged, or is one of another text or tokenizer.
        OSError: ``target`` could not be written.
    """
    Corpus.open(prepared, tokenizer)
    check_made_from(prepared, plan_corpus(files, tokenizer, target, text_column))
    make_folder(target.parent)
    with new_folder(target) as draft:
        shutil.copytree(prepared, draft, copy_function=_linked, dirs_exist_ok=True)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)
