"""The text of a pre-training run: files, a data set of the Hub, or this installation's documentation."""

import copy
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from bert_training.builtin_data import documentation
from bert_training.engine.run import Run
from bert_training.files.hashing import sha256
from bert_training.files.hub_datasets import from_hub, load_dataset
from bert_training.files.text_forms import recognised
from bert_training.files.unchanged import UnchangedFiles
from bert_training.flags.mixtures import is_mixed
from bert_training.flags.objectives import objective_of
from bert_training.flags.pretraining import PretrainingArguments
from bert_training.pretraining.documents import (
    check_encodable,
    check_files,
    form_of,
    read_lines,
    remedy_of_few,
    row_lines,
    without_empty,
)
from bert_training.pretraining.held_out import continued, in_share
from bert_training.pretraining.sentences import split_sentences
from bert_training.pretraining.word_counts import count_words_of_files
from tokenization.errors import UserError
from tokenization.train_wordpiece import CountsWords

Result = TypeVar("Result")
_SENTENCES_COUNTED = 100  # of each document, to check that there are enough of them


class Text:
    """The documents of a run, which can be read more than once.

    Attributes:
        files: the files to read; empty for a data set and for the documentation.
        held_out_files: those of --validation_file.
        held_out_by_name: the same by the names that their results have; a name has letters, digits and _ only.
        forms: names of files, or of the data set, that are read as articles of Wikipedia, and how; known after
            ``note_forms`` and, for a data set, after the first line has been read.
        limit: the greatest number of documents; None for all.
        args: the flags of the run.
        name: where the documents come from.
        held_out_name: where the held-out documents come from.
        sources: names and SHA-256 of the files or of the data set, for run.json.
        fingerprint: a text that changes when the documents do.
        unchanged: the files, which must stay as they are until the corpora have been built.
        checksum: the CRC-32 of the fingerprint in 8 hexadecimal digits, for names of files.

    Raises:
        ValueError: a file is missing, empty or of an unknown kind, or the data set cannot be opened.
    """

    def __init__(self, args: PretrainingArguments):
        self.files = check_files(args.train_file) if args.train_file else []
        self.limit = args.max_train_documents
        self.args = args
        held_out = self.held_out_files = check_files(args.validation_file) if args.validation_file else []
        self.held_out_by_name = dict(zip(names_of_results(held_out), held_out))
        self.forms: dict[str, str] = {}
        self.unchanged = UnchangedFiles([*self.files, *held_out])
        digests = [self.unchanged.sha256(path) for path in self.files]
        identity: Sequence[str | int | None]
        if self.files:
            self.name = ", ".join(path.name for path in self.files)
            identity = [*digests]
        elif args.dataset_name:
            self.name = args.dataset_name
            identity = _hub_identity(args)
        else:
            self.name = "the documentation carried by this Python installation"
            identity = [zlib.crc32(repr(documentation.documents()).encode())]
        column = [] if args.text_column == "text" else [args.text_column]
        self.fingerprint = json.dumps([*identity, self.limit, *column])
        self.checksum = f"{zlib.crc32(self.fingerprint.encode()):08x}"
        self.sources = [_describe(path, digest) for path, digest in zip(self.files, digests)] or [
            {"name": self.name, "sha256": hashlib.sha256(self.fingerprint.encode()).hexdigest()}
        ]
        self.held_out_name = self.name
        if held_out:
            self.held_out_name = ", ".join(path.name for path in held_out)
            digests = [self.unchanged.sha256(path) for path in held_out]
            described = [_describe(path, digest) for path, digest in zip(held_out, digests)]
            self.sources += [one | {"split": "validation"} for one in described]

    def of_file(self, number: int) -> "Text":
        """The text of the training file ``number``, counted from 0, as a source of a mixture."""
        path = self.files[number]
        part = copy.copy(self)
        part.files, part.name = [path], path.name
        column = [] if self.args.text_column == "text" else [self.args.text_column]
        part.fingerprint = json.dumps([self.unchanged.digests[path], None, *column])
        return part

    def check(self) -> None:
        """Check that there is enough text and, with a mixture, enough in each of its sources.

        Raises:
            ValueError: the text ends too early, or it cannot be read.
        """
        self._check_enough()
        if is_mixed(vars(self.args)):
            for number in range(len(self.files)):
                self.of_file(number)._check_enough(to_train_on=True)

    def _check_enough(self, to_train_on: bool = False) -> None:
        """Read until enough text is found for the objective, both to train on and to hold out.

        Args:
            to_train_on: nothing needs to be held out of this text.

        Raises:
            ValueError: the text ends too early, or it cannot be read.
        """
        objective = objective_of(vars(self.args))
        fewest_documents, fewest_sentences = objective.fewest
        share = 0.0 if self.args.validation_file else self.args.validation_split
        documents = {"training": 0} | ({"held-out": 0} if share and not to_train_on else {})
        longest = dict.fromkeys(documents, 0)  # number of sentences of the longest document
        sentences, checksum = 0, None
        for line in self.lines():
            if line is not None:
                checksum = continued(checksum, line)
                if sentences < _SENTENCES_COUNTED:  # splitting into sentences is slow
                    sentences += len(split_sentences(line))
                continue
            side = "held-out" if in_share(checksum, share) else "training"
            if side in documents:
                documents[side] += sentences > 0
                longest[side] = max(longest[side], sentences)
            if min(documents.values()) >= fewest_documents and min(longest.values()) >= fewest_sentences:
                return
            sentences, checksum = 0, None
        share = 0.0 if to_train_on else share
        held_out = f" and as much to hold out (--validation_split {share})" if share else ""
        enough = documents["training"] >= fewest_documents and longest["training"] >= fewest_sentences
        remedies = [] if enough else [remedy_of_few(sum(documents.values()), max(longest.values()))]
        remedies += ["give a larger --validation_split or a --validation_file"] if share else []
        remedies += ["use --objective mlm"] if objective.pairs else []
        more = {side: " or more" if longest[side] >= _SENTENCES_COUNTED else "" for side in documents}
        amounts = " and ".join(
            f"{documents[side]} for the {side} text (its longest has {longest[side]}{more[side]} sentences)"
            for side in documents
        )
        raise UserError(
            f"{self.name}: --objective {self.args.objective} needs at least {fewest_documents} documents, one of them "
            f"of at least {fewest_sentences} sentences, to train on{held_out}; got {amounts}. Add text, or "
            f"{', or '.join(remedies)}"
        )

    def lines(self) -> Iterator[str | None]:
        """Yield the paragraphs or sentences, and None at the end of each document; at most ``--max_train_documents``.

        Raises:
            ValueError: the text cannot be read; or, after the last document, a file is no longer what it was.
        """
        if self.files:
            lines = without_empty(read_lines(self.files, self.args.text_column))
        elif self.args.dataset_name:
            lines = self._hub_lines()
        else:
            lines = (line for document in documentation.documents() for line in [*document, None])
        documents = 0
        for line in lines:
            yield line
            documents += line is None
            if documents == self.limit:
                break
        self.unchanged.check()

    def word_counter(self) -> CountsWords | None:
        """What counts the words of the files in several processes; None if the text must be read as a stream."""
        if not self.files or self.limit is not None:
            return None
        workers = os.cpu_count() or 1  # the other processes of the run wait
        return partial(count_words_of_files, self.files, text_column=self.args.text_column, num_workers=workers)

    def note_forms(self) -> None:
        """Find the files that are read as articles of Wikipedia (``bert_training/files/text_forms.py``).

        Raises:
            ValueError: a file cannot be read.
        """
        for path in (*self.files, *self.held_out_files):
            if form := form_of(path, self.args.text_column):
                self.forms[path.name] = form

    def _hub_lines(self) -> Iterator[str | None]:
        name = self.args.dataset_name
        assert name is not None
        form, rows = recognised(f"--dataset_name {name}", _hub_rows(self.args), rows=True)
        lines = (line for _, line in row_lines(rows, rows=form is None))
        if form is None:
            return lines
        self.forms[name] = form
        return without_empty(lines)


def checked_text(run: Run[PretrainingArguments]) -> Text:
    """The text of the run, after the main process has checked that there is enough of it (``Text.check``)."""
    text = Text(run.args)
    run.say(f"text: {text.name}")
    run.only_main(text.note_forms)
    run.only_main(text.check)
    for name, form in text.forms.items():
        run.say(f"{name} is read as {form}")
    run.add_facts(**({"text_forms": text.forms} if text.forms else {}))
    return text


def names_of_results(paths: Sequence[Path]) -> list[str]:
    """The names of held-out files in the keys of their results, each once: ``wiki_heldout`` for wiki_heldout.txt.xz."""
    names: list[str] = []
    for path in paths:
        name = re.sub(r"\W+", "_", re.sub(r"(\.(txt|jsonl|parquet))?(\.(xz|gz))?$", "", path.name)) or "file"
        others = (f"{name}_{number}" for number in itertools.count(2))
        names.append(name if name not in names else next(other for other in others if other not in names))
    return names


def _describe(path: Path, sha256: str) -> dict[str, str | int]:
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256}


def _from_hub(args: PretrainingArguments, work: Callable[[ModuleType], Result]) -> Result:
    assert args.dataset_name is not None
    return from_hub(args.dataset_name, "give files with --train_file; it must have a split `train`", work)


def _hub_identity(args: PretrainingArguments) -> list[str | None]:
    """Values that change when the data set does.

    The library's hash covers the commit on the Hub, or the modification times of local files.
    """
    where = (args.dataset_name, args.dataset_config_name)
    if (state := Path(str(args.dataset_name)) / "state.json").is_file():  # of save_to_disk; the library refuses it here
        return [*where, sha256(state)]
    return [*where, _from_hub(args, lambda datasets: datasets.load_dataset_builder(*where).hash)]


def _hub_rows(args: PretrainingArguments) -> Iterator[tuple[int, str]]:
    """(row, text) of the data set."""
    name, options = str(args.dataset_name), {"split": "train", "streaming": args.streaming}
    rows = iter(_from_hub(args, lambda datasets: load_dataset(datasets, name, args.dataset_config_name, **options)))
    number = 0
    while (row := _from_hub(args, lambda _: next(rows, None))) is not None:  # a stream may break at any row
        number += 1
        place, text = f"--dataset_name {args.dataset_name}, row {number}", row.get(args.text_column)
        if not isinstance(text, str):
            raise UserError(
                f"{place}: expected a string in the column `{args.text_column}`, got {type(text).__name__}; its "
                f"columns are {', '.join(row)}; name that of the texts with --text_column"
            )
        check_encodable(text, place)
        yield number, text
