"""The text of a pre-training run: files, a data set of the Hub, or this installation's documentation."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from training.builtin_data import documentation
from training.engine.run import Run
from training.files.hashing import sha256
from training.files.hub_datasets import from_hub, load_dataset
from training.files.unchanged import UnchangedFiles
from training.flags.pretraining import PretrainingArguments
from training.pretraining.documents import check_files, read_documents
from training.pretraining.sentences import split_sentences

Result = TypeVar("Result")


class Text:
    """The documents of a run, which can be read more than once.

    Attributes:
        files: the files to read; empty for a data set and for the documentation.
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
        held_out = check_files(args.validation_file) if args.validation_file else []
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
        self.fingerprint = json.dumps([*identity, self.limit])
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

    def check(self) -> None:
        """Read until enough text is found for the objective, both to train on and to hold out.

        Raises:
            ValueError: the text ends too early, or it cannot be read.
        """
        least = 2 if self.args.objective == "mlm_nsp" else 1  # of documents, and of sentences in the longest document
        share = 0.0 if self.args.validation_file else self.args.validation_split
        documents = {"training": 0} | ({"held-out": 0} if share else {})
        longest = dict.fromkeys(documents, 0)  # number of sentences of the longest document
        for document in self.documents():
            side = "held-out" if is_held_out(document, share) else "training"
            if documents[side] >= least and longest[side] >= least:
                documents[side] += 1  # splitting into sentences is slow, and this side already has enough
            elif sentences := sum(len(split_sentences(paragraph)) for paragraph in document):
                documents[side] += 1
                longest[side] = max(longest[side], sentences)
                if min(documents.values()) >= least and min(longest.values()) >= least:
                    return
        held_out = f" and as much to hold out (--validation_split {share})" if share else ""
        remedies = ["put blank lines between documents"]
        remedies += ["give a larger --validation_split or a --validation_file"] if share else []
        remedies += ["use --objective mlm"] if least == 2 else []
        amounts = " and ".join(
            f"{documents[side]} for the {side} text (its longest has {longest[side]} sentences)" for side in documents
        )
        raise ValueError(
            f"{self.name}: --objective {self.args.objective} needs at least {least} documents, one of them of at least "
            f"{least} sentences, to train on{held_out}; got {amounts}. Add text, or {', or '.join(remedies)}"
        )

    def documents(self) -> Iterator[list[str]]:
        """Yield each document as the list of its paragraphs or sentences, at most ``--max_train_documents``.

        Raises:
            ValueError: the text cannot be read; or, after the last document, a file is no longer what it was.
        """
        if self.files:
            documents: Iterable[list[str]] = read_documents(self.files)
        elif self.args.dataset_name:
            documents = _hub_documents(self.args)
        else:
            documents = documentation.documents()
        yield from islice(documents, self.limit)
        self.unchanged.check()


def checked_text(run: Run[PretrainingArguments]) -> Text:
    """The text of the run, after the main process has checked that there is enough of it (``Text.check``)."""
    text = Text(run.args)
    run.say(f"text: {text.name}")
    run.only_main(text.check)
    return text


def is_held_out(document: list[str], share: float) -> bool:
    """Whether a document is held out. Its content decides, so that copies of it are never on both sides.

    Args:
        document: its paragraphs.
        share: the proportion of documents to hold out, from 0 to 1.
    """
    return zlib.crc32("\n".join(document).encode()) < share * 2**32


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


def _hub_documents(args: PretrainingArguments) -> Iterator[list[str]]:
    name, options = str(args.dataset_name), {"split": "train", "streaming": args.streaming}
    rows = iter(_from_hub(args, lambda datasets: load_dataset(datasets, name, args.dataset_config_name, **options)))
    number = 0
    while (row := _from_hub(args, lambda _: next(rows, None))) is not None:  # a stream may break at any row
        number += 1
        if not isinstance(row.get("text"), str):
            raise ValueError(
                f"--dataset_name {args.dataset_name}, row {number}: expected a string in the column `text`, got "
                f"{type(row.get('text')).__name__}; its columns are {', '.join(row)}"
            )
        yield [stripped for line in row["text"].split("\n") if (stripped := line.strip())]
