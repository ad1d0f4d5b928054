"""The text of a pre-training run: files, a data set of the Hub, or this installation's documentation."""

import copy
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bert_training.engine.run import Run
from bert_training.files.hashing import UnchangedFiles
from bert_training.files.process import usable_cores
from bert_training.inputs.compressed_files import PACKED, without_query
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import is_mixed
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.texts import Documents, Entry, is_pattern, read_lines, without_empty
from bert_training.pretraining.deduplication import BOILERPLATE, RULES, Repeated, find_repeated, left_out_text
from bert_training.pretraining.held_out import continued, in_share
from bert_training.pretraining.sentences import split_sentences
from bert_training.pretraining.word_counts import count_words_of_files
from tokenization.errors import UserError
from tokenization.train_wordpiece import CountsWords

_PACKED = "|".join(map(re.escape, PACKED))
_NAMED = 3  # files in a message
_SENTENCES_COUNTED = 100  # of each document, to check that there are enough of them


class Text:
    """The documents of a run, which can be read more than once.

    Attributes:
        documents: the documents.
        held_out: those of --validation_file.
        held_out_by_name: the files of each entry of --validation_file by the name that its results have; a name has
            letters, digits and _ only.
        remarks: sentences about files in folders that are not read.
        stands_for_more: whether one of the entries is not simply the path of a file.
        repeated: what is left out by --deduplicate, once ``find_repeated`` has found it.
        parts: which of the parts that ``find_repeated`` read are this text: from the first to before the second (None:
            to the end).
        limit: the greatest number of documents; None for all.
        args: the flags of the run.
        sources: names and SHA-256 of the files or of the data set, for run.json.
        fingerprint: a text that changes when the documents do.
        unchanged: the files, which must stay as they are until the corpora have been built.
        checksum: the CRC-32 of the fingerprint in 8 hexadecimal digits, for names of files.

    Raises:
        ValueError: a file is missing, empty or of an unknown kind, or the data set cannot be opened.
    """

    def __init__(self, args: PretrainingArguments):
        self.args, self.limit = args, args.max_train_documents
        column = args.text_column
        self.documents = Documents(
            args.train_file, column, args.dataset_name, args.dataset_config_name, bool(args.streaming)
        )
        self.held_out = Documents(args.validation_file, column)
        check_apart(self.entries, self.held_out.entries)
        names = names_of_results([entry.given for entry in self.held_out.entries])
        self.held_out_by_name = {name: entry.files for name, entry in zip(names, self.held_out.entries)}
        every = [*self.entries, *self.held_out.entries]
        self.stands_for_more = any(entry.files != [Path(entry.given)] for entry in every)
        self.unchanged = UnchangedFiles([*self.files, *self.held_out_files])
        digests = [self.unchanged.sha256(path) for path in self.files]
        identity = digests or self.documents.identity()
        self.repeated: Repeated | None = None
        self.parts: tuple[int, int | None] = (0, None)
        self.fingerprint = json.dumps([*identity, self.limit, *self._choices()])
        self.checksum = f"{zlib.crc32(self.fingerprint.encode()):08x}"
        self.sources = _described(self.entries, self.unchanged) or [
            {"name": self.name, "sha256": hashlib.sha256(self.fingerprint.encode()).hexdigest()}
        ]
        self.sources += [one | {"split": "validation"} for one in _described(self.held_out.entries, self.unchanged)]

    @property
    def entries(self) -> list[Entry]:
        """Those of --train_file."""
        return self.documents.entries

    @property
    def files(self) -> list[Path]:
        """The files of all entries; none for a data set and for the documentation."""
        return self.documents.files

    @property
    def name(self) -> str:
        """Where the documents come from."""
        return self.documents.name

    @property
    def held_out_files(self) -> list[Path]:
        """Those of --validation_file."""
        return self.held_out.files

    @property
    def held_out_name(self) -> str:
        """Where the held-out documents come from."""
        return self.held_out.name if self.held_out.entries else self.name

    @property
    def forms(self) -> dict[str, str]:
        """Names of files, or of the data set, that are read as articles of Wikipedia, and how (``Documents.forms``)."""
        return self.documents.forms | self.held_out.forms

    def _choices(self) -> list[str]:
        """The flags that choose what is read of the files; those of a run without them are none, as ever."""
        column = [] if self.args.text_column == "text" else [self.args.text_column]
        mode = self.args.deduplicate
        return [*column, *([f"without repeated {mode} {RULES} {BOILERPLATE}"] if mode else [])]

    def of_file(self, number: int) -> "Text":
        """The text of the entry ``number`` of --train_file, counted from 0, as a source of a mixture."""
        entry = self.entries[number]
        part = copy.copy(self)
        part.documents = self.documents.of_entry(number)
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
        documents = 0
        for line in self.documents.lines():
            yield line
            documents += line is None
            if documents == self.limit:
                break

    def check(self) -> None:
        """Check that there is enough text to train on and to hold out and, with a mixture, in each of its sources.

        Raises:
            UserError: a text ends too early, or it cannot be read.
        """
        self._check_enough(self.name, self.lines(), 0.0 if self.args.validation_file else self.args.validation_split)
        if self.held_out.entries:
            self._check_enough(self.held_out_name, self.held_out.lines(), 1.0)
        for number in range(len(self.entries)) if is_mixed(vars(self.args)) else ():
            part = self.of_file(number)
            self._check_enough(part.name, part.lines(), 0.0)

    def _check_enough(self, name: str, lines: Iterable[str | None], share: float) -> None:
        """Read until enough text is found for the objective, with a share that is held out (0: none, 1: all)."""
        objective = objective_of(vars(self.args))
        fewest_documents, fewest_sentences = objective.fewest
        documents = {side: 0 for side, there in (("training", share < 1), ("held-out", share > 0)) if there}
        longest = dict.fromkeys(documents, 0)  # number of sentences of the longest document
        sentences, checksum = 0, None
        for line in lines:
            if line is not None:
                checksum = continued(checksum, line)
                if sentences < _SENTENCES_COUNTED:  # splitting into sentences is slow
                    sentences += len(split_sentences(line))
                continue
            side = "held-out" if in_share(checksum, share) else "training"
            documents[side] += sentences > 0
            longest[side] = max(longest[side], sentences)
            if min(documents.values()) >= fewest_documents and min(longest.values()) >= fewest_sentences:
                return
            sentences, checksum = 0, None
        first = next(iter(documents))
        enough = documents[first] >= fewest_documents and longest[first] >= fewest_sentences
        remedies = [] if enough else [remedy_of_few(sum(documents.values()), max(longest.values()))]
        remedies += ["give a larger --validation_split or a --validation_file"] if 0 < share < 1 else []
        remedies += ["use --objective mlm"] if objective.pairs else []
        amounts = " and ".join(
            f"{documents[side]} for the {side} text (its longest has {longest[side]}"
            f"{' or more' if longest[side] >= _SENTENCES_COUNTED else ''} sentences)"
            for side in documents
        )
        held_out = f" and as much to hold out (--validation_split {share})" if 0 < share < 1 else ""
        raise UserError(
            f"{name}: --objective {self.args.objective} needs at least {fewest_documents} documents, one of them "
            f"of at least {fewest_sentences} sentences{held_out}; got {amounts}. Add text, or {', or '.join(remedies)}"
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


def checked_text(run: Run[PretrainingArguments]) -> Text:
    """The text of the run, after the main process has checked that there is enough of it (``Text.check``)."""
    text = Text(run.args)
    run.say(f"text: {text.name}")
    run.only_main(text.documents.note_forms)
    run.only_main(text.held_out.note_forms)
    run.main_first(lambda: text.find_repeated(run.output_dir / "corpus"))
    if counts := text.left_out():
        run.add_facts(deduplicated=counts)
        run.say(left_out_text(counts))
    run.only_main(text.check)
    for line in forms_in_words(text.forms):
        run.say(line)
    run.add_facts(**({"text_forms": text.forms} if text.forms else {}))
    if text.stands_for_more:
        held_out = {"validation": text.held_out_name} if text.held_out_files else {}
        run.add_facts(text_names={"train": text.name, **held_out})
    return text


def remedy_of_few(documents: int, sentences: int) -> str:
    """What to do about a text of too few documents, or of documents with too few sentences, for pairs."""
    if documents > 1 and sentences == 1:
        return (
            "remove the blank lines between the sentences of a document (each document here is a single sentence; a "
            "row of a table is a document), or put each sentence on a line of its own if these are paragraphs"
        )
    return "put blank lines between documents"


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
        parts = [re.sub(rf"(\.(txt|jsonl|parquet))?({_PACKED})?$", "", part) for part in place.parts[::-1]]
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


def _described(entries: Sequence[Entry], unchanged: UnchangedFiles) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of the files."""
    described = []
    for entry in entries:
        for name, path in zip(entry.names(), entry.files):
            digest = unchanged.digests.get(path) or unchanged.sha256(path)
            described.append({"name": name, "bytes": path.stat().st_size, "sha256": digest})
    return described
