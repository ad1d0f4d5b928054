"""The text of a pre-training run (files, a data set, or this installation's documentation), and its corpora."""

import copy
import hashlib
import itertools
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.files.atomic import is_occupied, make_folder, new_folder
from bert_training.files.hashing import UnchangedFiles
from bert_training.files.processes import usable_cores
from bert_training.inputs.flags.phases import is_mixed
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.reading import PACKED, without_query
from bert_training.inputs.texts import Documents, Entry, is_pattern
from bert_training.pretraining.build_corpus import build_corpus, check_made_from, plan_corpus
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.encoding import Side, count_words_of_files
from tokenization.coverage import SAMPLE
from tokenization.errors import UserError
from tokenization.train_wordpiece import CountsWords

_PACKED = "|".join(map(re.escape, PACKED))
_NAMED = 3  # files in a message


class Text:
    """The documents of a run, which can be read more than once.

    Attributes:
        documents: the documents.
        held_out: those of --validation_file.
        held_out_by_name: the files of each entry of --validation_file by the name that its results have; a name has
            letters, digits and _ only.
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
        self.held_out_by_name: dict[str, list[Path]] = {}
        if self.held_out.entries:
            check_apart(self.entries, self.held_out.entries)
            names = names_of_results([entry.given for entry in self.held_out.entries])
            self.held_out_by_name = {name: entry.files for name, entry in zip(names, self.held_out.entries)}
        self.unchanged = UnchangedFiles([*self.files, *self.held_out_files])
        digests = [self.unchanged.sha256(path) for path in self.files]
        identity = digests or self.documents.identity()
        self.fingerprint = json.dumps([*identity, self.limit, *self._column()])
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

    def _column(self) -> list[str]:
        return [] if self.args.text_column == "text" else [self.args.text_column]

    def of_file(self, number: int) -> "Text":
        """The text of the entry ``number`` of --train_file, counted from 0, as a source of a mixture."""
        entry = self.entries[number]
        part = copy.copy(self)
        part.documents = self.documents.of_entry(number)
        digests = [self.unchanged.digests[path] for path in entry.files]
        part.fingerprint = json.dumps([*digests, None, *self._column()])
        return part

    def lines(self) -> Iterator[str | None]:
        """Yield the paragraphs or sentences, and None at the end of each document; at most ``--max_train_documents``.

        Raises:
            ValueError: the text cannot be read; or, after the last document, a file is no longer what it was.
        """
        documents = 0
        for line in self.documents.lines():
            yield line
            documents += line is None
            if documents == self.limit:
                break
        self.unchanged.check()

    def parts(self) -> dict[str, Documents]:
        """The documents of every source of a mixture, or of the training text, and the held-out ones, by a title."""
        parts = {"train text": self.documents}
        if is_mixed(vars(self.args)):
            parts = {f"train text {one.name}": self.documents.of_entry(n) for n, one in enumerate(self.entries)}
        return parts | ({"held-out text": self.held_out} if self.held_out.entries else {})

    def word_counter(self) -> CountsWords | None:
        """What counts the words of the files in several processes; None if the text must be read as a stream."""
        if not self.files or self.limit is not None:
            return None
        workers = usable_cores()  # the other processes of the run wait
        return partial(count_words_of_files, self.files, text_column=self.args.text_column, num_workers=workers)


def beginning(lines: Iterable[str | None], characters: int = SAMPLE) -> Iterator[str]:
    """The lines of the first documents, up to about so many characters."""
    for line in lines:
        yield line or ""
        characters -= len(line or "")
        if characters < 0:
            break


def text_of(run: Run[PretrainingArguments]) -> Text:
    """The text of the run; what it is, is printed and recorded."""
    text = Text(run.args)
    run.say(f"text: {text.name}")
    run.only_main(text.documents.note_forms)
    run.only_main(text.held_out.note_forms)
    if text.forms:
        for line in forms_in_words(text.forms):
            run.say(line)
        run.add_facts(text_forms=text.forms)
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


# --- corpora ---------------------------------------------------------------------------------------------------------


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
    folder: Path, flags: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase | None = None
) -> list[Corpus]:
    """The training corpora of a run in ``folder``; the tokenizer and the errors are those of ``Corpus.open``."""
    return [Corpus.open(folder / "corpus" / name, tokenizer, verify=True) for name in training_folders(flags)]


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
    if source.files and source.limit is None:
        return {"source": source.files, "text_column": args.text_column, "side": side}
    fingerprint = json.dumps([source.fingerprint, *side])
    return {"source": side.of(source.lines()), "fingerprint": fingerprint, "unchanged": text.unchanged}


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
