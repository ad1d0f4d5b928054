"""The text of a pre-training run: files, a data set of the Hub, or this installation's documentation."""

import copy
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from bert_training.builtin_data import documentation
from bert_training.engine.run import Run
from bert_training.files.compressed_files import PACKED
from bert_training.files.cores import usable_cores
from bert_training.files.hashing import sha256
from bert_training.files.hub_datasets import from_hub, load_dataset
from bert_training.files.text_forms import recognised
from bert_training.files.text_paths import Entry, entries_of, is_pattern, is_url, without_query
from bert_training.files.unchanged import UnchangedFiles
from bert_training.inputs.flags.mixtures import is_mixed
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.deduplication import BOILERPLATE, RULES, Repeated, find_repeated, in_words
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
_PACKED = "|".join(map(re.escape, PACKED))
_NAMED = 3  # files in a message
_SENTENCES_COUNTED = 100  # of each document, to check that there are enough of them


class Text:
    """The documents of a run, which can be read more than once.

    Attributes:
        entries: those of --train_file, each with its files; empty for a data set and for the documentation.
        files: the files of all entries.
        held_out_entries, held_out_files: those of --validation_file.
        held_out_by_name: the files of each entry of --validation_file by the name that its results have; a name has
            letters, digits and _ only.
        remarks: sentences about files in folders that are not read.
        stands_for_more: whether one of the entries is not simply the path of a file.
        repeated: what is left out by --deduplicate, once ``find_repeated`` has found it.
        parts: which of the parts that ``find_repeated`` read are this text: from the first to before the second (None:
            to the end).
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
        self.entries, held_out_entries = entries_of(args.train_file), entries_of(args.validation_file)
        self.held_out_entries = held_out_entries
        check_apart(self.entries, held_out_entries)
        self.files = _checked(self.entries)
        self.limit = args.max_train_documents
        self.args = args
        held_out = self.held_out_files = _checked(held_out_entries)
        names = names_of_results([entry.given for entry in held_out_entries])
        self.held_out_by_name = {name: entry.files for name, entry in zip(names, held_out_entries)}
        every = [*self.entries, *held_out_entries]
        self.stands_for_more = any(entry.files != [Path(entry.given)] for entry in every)
        self.remarks = [remark for entry in every for remark in entry.remarks()]
        self.forms: dict[str, str] = {}
        self.unchanged = UnchangedFiles([*self.files, *held_out])
        digests = [self.unchanged.sha256(path) for path in self.files]
        identity: Sequence[str | int | None]
        if self.files:
            self.name = ", ".join(entry.name for entry in self.entries)
            identity = [*digests]
        elif args.dataset_name:
            self.name = args.dataset_name
            identity = _hub_identity(args)
        else:
            self.name = "the documentation carried by this Python installation"
            identity = [zlib.crc32(repr(documentation.documents()).encode())]
        self.repeated: Repeated | None = None
        self.parts: tuple[int, int | None] = (0, None)
        self.fingerprint = json.dumps([*identity, self.limit, *self._choices()])
        self.checksum = f"{zlib.crc32(self.fingerprint.encode()):08x}"
        self.sources = _described(self.entries, self.unchanged) or [
            {"name": self.name, "sha256": hashlib.sha256(self.fingerprint.encode()).hexdigest()}
        ]
        self.held_out_name = self.name
        if held_out:
            self.held_out_name = ", ".join(entry.name for entry in held_out_entries)
            described = _described(held_out_entries, self.unchanged)
            self.sources += [one | {"split": "validation"} for one in described]

    def _choices(self) -> list[str]:
        """The flags that choose what is read of the files; those of a run without them are none, as ever."""
        column = [] if self.args.text_column == "text" else [self.args.text_column]
        mode = self.args.deduplicate
        return [*column, *([f"without repeated {mode} {RULES} {BOILERPLATE}"] if mode else [])]

    def of_file(self, number: int) -> "Text":
        """The text of the entry ``number`` of --train_file, counted from 0, as a source of a mixture."""
        entry = self.entries[number]
        part = copy.copy(self)
        part.entries, part.files, part.name = [entry], entry.files, entry.name
        first = sum(len(earlier.files) for earlier in self.entries[:number])
        part.parts = (first, first + len(entry.files))
        digests = [self.unchanged.digests[path] for path in entry.files]
        whole = [self.fingerprint, number] if self.args.deduplicate else []  # it decides what occurs again
        part.fingerprint = json.dumps([*digests, None, *self._choices(), *whole])
        return part

    def find_repeated(self, folder: Path) -> None:
        """Find what --deduplicate leaves out, below ``folder``, or open what was found there before.

        Raises:
            ValueError: the text cannot be read.
            OSError: the disk is full.
        """
        mode = self.args.deduplicate
        if mode is None:
            return
        self.repeated = find_repeated(self._named_parts(), mode, folder / f"repeated-{mode}-{self.checksum}")
        self.unchanged.check()

    def left_out(self) -> dict[str, Any] | None:
        """What --deduplicate leaves out of this text, for records; None without it."""
        return self.repeated.counts(*self.parts) if self.repeated else None

    def _named_parts(self) -> Iterator[tuple[str, Iterator[str | None]]]:
        """(name, lines) of each file; the whole if it is no files, or only the first documents of them."""
        if not self.files or self.limit is not None:
            yield self.name, without_empty(self._read())
            return
        for path in self.files:
            yield path.name, without_empty(read_lines([path], self.args.text_column))

    def _read(self) -> Iterator[str | None]:
        """The lines as they are read, with those that --deduplicate leaves out."""
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

    def check(self) -> None:
        """Check that there is enough text and, with a mixture, enough in each of its sources.

        Raises:
            ValueError: the text ends too early, or it cannot be read.
        """
        self._check_enough()
        if is_mixed(vars(self.args)):
            for number in range(len(self.entries)):
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
        """Yield the paragraphs or sentences, and None at the end of each document.

        At most ``--max_train_documents`` are read, of which --deduplicate leaves some out.

        Raises:
            ValueError: the text cannot be read; or, after the last document, a file is no longer what it was.
        """
        lines = self._read()
        if self.args.deduplicate:
            assert self.repeated is not None, "find_repeated comes first"
            lines = self.repeated.without(without_empty(lines), self.repeated.start_of(self.parts[0]))
        yield from lines
        self.unchanged.check()

    def word_counter(self) -> CountsWords | None:
        """What counts the words of the files in several processes; None if the text must be read as a stream."""
        if not self.files or self.limit is not None or self.args.deduplicate:
            return None
        workers = usable_cores()  # the other processes of the run wait
        return partial(count_words_of_files, self.files, text_column=self.args.text_column, num_workers=workers)

    def note_forms(self) -> None:
        """Find the files that are read as articles of Wikipedia (``bert_training/files/text_forms.py``).

        Raises:
            ValueError: a file cannot be read.
        """
        for entry in (*self.entries, *self.held_out_entries):
            for name, path in zip(names_of_files(entry), entry.files):
                if form := form_of(path, self.args.text_column):
                    self.forms[name] = form

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
    for remark in text.remarks:
        run.say(remark)
    run.only_main(text.note_forms)
    run.main_first(lambda: text.find_repeated(run.output_dir / "corpus"))
    if counts := text.left_out():
        run.add_facts(deduplicated=counts)
        run.say(in_words(counts))
    run.only_main(text.check)
    for line in forms_in_words(text.forms):
        run.say(line)
    run.add_facts(**({"text_forms": text.forms} if text.forms else {}))
    if text.stands_for_more:
        held_out = {"validation": text.held_out_name} if text.held_out_files else {}
        run.add_facts(text_names={"train": text.name, **held_out})
    return text


def forms_in_words(forms: Mapping[str, str]) -> Iterator[str]:
    """A line for each file with a form of its own (``Text.forms``), or for a form of many files."""
    for form in dict.fromkeys(forms.values()):
        names = [name for name in forms if forms[name] == form]
        if len(names) > _NAMED:
            yield f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED:,} more are read as {form}"
        else:
            yield from (f"{name} is read as {form}" for name in names)


def names_of_results(entries: Sequence[str | Path]) -> list[str]:
    """The names of held-out texts in the keys of their results, each once: ``wiki_heldout`` for wiki_heldout.txt.xz.

    A pattern without letters in its last part has the name of its folder: ``news`` for news/*.txt.
    """
    names: list[str] = []
    for entry in entries:
        place = Path(without_query(str(entry)))
        parts = [re.sub(rf"(\.(txt|jsonl|parquet|arrow))?({_PACKED})?$", "", part) for part in place.parts[::-1]]
        last = (
            next((part for part in parts if re.search(r"[^\W_]", part)), "file")
            if is_pattern(str(place))
            else next(iter(parts), "file")  # the current folder has no part
        )
        name = re.sub(r"\W+", "_", last) or "file"
        others = (f"{name}_{number}" for number in itertools.count(2))
        names.append(name if name not in names else next(other for other in others if other not in names))
    return names


def check_apart(entries: Sequence[Entry], held_out: Sequence[Entry]) -> None:
    """Raise ValueError if a held-out file is among the training files because of a folder or a pattern."""
    given = {os.path.realpath(path): entry for entry in entries for path in entry.files}
    for entry in held_out:
        for path in entry.files:
            other = given.get(os.path.realpath(path))
            if other and not Path(other.given) == Path(entry.given) == path:  # to name one file twice is on purpose
                raise UserError(
                    f"{path}: --validation_file {entry.given} holds it out, and --train_file {other.given} trains on "
                    "it; keep the held-out text in another folder, or name the files one by one"
                )


def _checked(entries: Sequence[Entry]) -> list[Path]:
    return check_files([path for entry in entries for path in entry.files]) if entries else []


def _described(entries: Sequence[Entry], unchanged: UnchangedFiles) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of the files."""
    described = []
    for entry in entries:
        for name, path in zip(names_of_files(entry), entry.files):
            digest = unchanged.digests.get(path) or unchanged.sha256(path)
            described.append({"name": name, "bytes": path.stat().st_size, "sha256": digest})
    return described


def names_of_files(entry: Entry) -> list[str]:
    """The names that run.json gives to the files of an entry, with the folders in which they are below a common one."""
    if is_url(entry.given):  # the folders of the cache say nothing
        return [path.name for path in entry.files]
    above = os.path.commonpath([path.parent for path in entry.files])
    return [path.relative_to(above).as_posix() for path in entry.files]


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
