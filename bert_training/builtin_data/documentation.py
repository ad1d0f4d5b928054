"""Write the built-in corpus and its tasks as files: real English from the user's own Python installation.

The text is the documentation that an installation contains: ``pydoc_data.topics`` (chapters of the language reference)
and the docstrings of the standard library and of those ``PACKAGES`` that are installed. Docstrings also provide
labelled data whose labels are correct by construction: which body belongs to which summary, whether a class, a function
or a method is described, what each parameter means, and which words the authors marked as code.

    bert-repro builtin_data --output_dir D

This writes corpus.txt and, for each split, pair_*.tsv, kind_*.tsv, qa_*.json and code_*.txt.

Splits: all docstrings of a module are in the same split, which a hash of the module's name decides
(``VALIDATION_SHARE`` in 100 are held out). A held-out docstring is not used if the name of its function or class also
occurs in training, or if more than ``LEAK_SHARE`` of its five-word sequences do. Pre-training uses ``documents``, which
are those of the training split only: it may see the texts of the tasks' training examples, but never those of their
validation examples. The documents that are held out to evaluate pre-training are taken from ``documents`` as well.

Near-duplicates: packages repeat themselves (all models of transformers document the same arguments). A document is
left out if more than ``NEAR_DUPLICATE_SHARE`` of its five-word sequences occur in earlier ones.

The text depends on what is installed, so scripts record its hash. None of it is stored in the repository.

A cache of the docstrings is kept on disk, so that an installation is read again in less than a second. The file is in
the folder that ``huggingface_hub`` gives to libraries for such files (``cached_assets_path``: the assets folder of
HF_HOME, or HF_ASSETS_CACHE). There is one file for each set of folders that were searched. It may be deleted at any
time.

Its first line has two hashes: that of everything that the docstrings depend on (``fingerprint``), and that of the rest
of the file, the docstrings as JSON. If one of them differs, the source files are read again, and the file is replaced.
Only one change is not noticed: that of a source file which keeps its size and its time of modification.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import cached_assets_path

from bert_training.builtin_data import docstrings, source_files
from bert_training.builtin_data.docstrings import Docstring, Parameter, tagged_words
from bert_training.files.atomic import is_occupied, make_folder, whole_file, write_text
from tokenization.errors import UserError

# --- the cache -------------------------------------------------------------------------------------------------------


def cached_docstrings(folders: Sequence[tuple[Path, str]]) -> list[Docstring]:
    """The docstrings of all source files of the folders, given as (folder, package), as ``read_files`` sorts them.

    If the cache cannot be read or written, for example because the disk is full, the source files are read.

    Raises:
        RuntimeError: a child process that reads source files fails.
    """
    files = [file for folder, package in folders for file in source_files.source_files(folder, package)]
    key, path = fingerprint(files), cache_file(folders)
    if path:
        with suppress(OSError, ValueError):  # there is no such file, it is no text, or is too large
            header, _, content = path.read_text(encoding="utf-8").partition("\n")
            if header == header_of(key, content):
                return source_files.from_records(json.loads(content))
    documents = source_files.read_files(files)
    if path:
        with suppress(OSError), whole_file(path, shared=True) as draft:
            content = json.dumps(documents, default=vars)
            draft.write_text(f"{header_of(key, content)}\n{content}", encoding="utf-8")
    return documents


def header_of(key: str, content: str) -> str:
    """The first line of a file, with the hash of what follows it."""
    return f"{key} {hashlib.sha256(content.encode()).hexdigest()}"


def cache_file(folders: Sequence[tuple[Path, str]]) -> Path | None:
    """Where the docstrings of these folders are kept; None if the folder of the cache cannot be made."""
    name = hashlib.sha256(repr([str(folder) for folder, _ in folders]).encode()).hexdigest()[:16]
    try:
        return cached_assets_path("bert_repro", "builtin_data", "docstrings") / f"{name}.txt"
    except (OSError, ValueError, RuntimeError):  # it may not be made; a file is in its place; the user has no home
        return None


def fingerprint(files: Sequence[tuple[str, str]]) -> str:
    """The SHA-256, in hexadecimal, of what the docstrings of these files depend on.

    That is the path, module, size and modification time of each file, the code that reads them, and Python's version,
    which decides what can be parsed.
    """
    states = [(path, module, (state := os.stat(path)).st_size, state.st_mtime_ns) for path, module in files]
    code = [Path(file).read_text(encoding="utf-8") for file in (docstrings.__file__, source_files.__file__)]
    return hashlib.sha256(json.dumps([states, code, sys.version]).encode()).hexdigest()


# --- documentation ---------------------------------------------------------------------------------------------------


PACKAGES = (
    "accelerate",
    "datasets",
    "huggingface_hub",
    "matplotlib",
    "networkx",
    "numpy",
    "pandas",
    "scipy",
    "sklearn",
    "tokenizers",
    "torch",
    "transformers",
)
VALIDATION_SHARE = 12
NEAR_DUPLICATE_SHARE = 0.5
LEAK_SHARE = 0.2

BODY_WORDS = 60  # with it, a pair of summary and body has about 100 word pieces
CONTEXT_CHARACTERS = 500
ANSWER_WORDS = 20
SENTENCE_WORDS = 60
QUESTIONS = (
    "What does the parameter {} mean?",
    "What is {}?",
    "What is the meaning of the argument {}?",
    "What does {} stand for?",
    "How is the argument {} described?",
    "What should one know about {}?",
)
_SENTENCE_END = re.compile(r"(?<=[a-z0-9)\]'\"])[.!?](?= +[A-Z(\[`'\"])")


class Library(NamedTuple):
    """The documentation of this installation in its two splits."""

    train: list[Docstring]
    validation: list[Docstring]


def share_seen(document: Docstring, seen: set[int]) -> float:
    """The share, from 0 to 1, of the document's fingerprint that is in ``seen``."""
    return sum(value in seen for value in document.fingerprint) / max(1, len(document.fingerprint))


def short_name(document: Docstring) -> str:
    """The last part of the dotted name of what is described."""
    return (document.name or document.module).rsplit(".", 1)[-1]


def is_held_out(document: Docstring) -> bool:
    """Whether the document's module is in the validation split; topics never are."""
    number = int(hashlib.sha256(document.module.encode()).hexdigest(), 16)
    return document.kind != "topic" and number % 100 < VALIDATION_SHARE


def split_library(all_documents: list[Docstring]) -> Library:
    """Remove near-duplicates and split by module, as the docstring of this module says; keep the order."""
    seen: set[int] = set()
    names: set[str] = set()
    train: list[Docstring] = []
    validation: list[Docstring] = []
    for document in all_documents:
        if not is_held_out(document) and share_seen(document, seen) <= NEAR_DUPLICATE_SHARE:
            train.append(document)
            seen.update(document.fingerprint)
            names.add(short_name(document))
    seen_in_validation: set[int] = set()
    for document in all_documents:
        if not is_held_out(document) or short_name(document) in names or share_seen(document, seen) > LEAK_SHARE:
            continue
        if share_seen(document, seen_in_validation) <= NEAR_DUPLICATE_SHARE:
            validation.append(document)
            seen_in_validation.update(document.fingerprint)
    return Library(train, validation)


@lru_cache(maxsize=2)
def library(include_packages: bool = True) -> Library:
    """All documents of this installation.

    The first process takes about 8 s to read twelve packages, or 2 s without them; later ones use a cache
    (``cached_docstrings``) and take less than one.

    Raises:
        ValueError: the standard library has no Python sources.
    """
    folders = [(Path(sysconfig.get_path("stdlib")), "")]
    for package in PACKAGES if include_packages else ():
        specification = importlib.util.find_spec(package)  # does not import the package
        places = (specification and specification.submodule_search_locations) or ()
        folders += [(Path(place), package) for place in places]
    all_documents = cached_docstrings(folders)
    if not all_documents:
        raise UserError(
            f"expected Python sources with docstrings under {sysconfig.get_path('stdlib')}, found none (a Python "
            "without sources): give your own text with --train_file"
        )
    return split_library(all_documents)


def side(split: str, include_packages: bool) -> list[Docstring]:
    """The documents of a split, "train" or "validation"."""
    assert split in Library._fields, split
    return getattr(library(include_packages), split)


def documents(include_packages: bool = True, joined_by_module: bool = False) -> list[list[str]]:
    """Documents for pre-training, each a list of paragraphs without line breaks (``Docstring.paragraphs``).

    A document has at least 200 characters. Documents of the tasks' validation splits are not among them. As in the
    tasks, the order is that of a hash, so that the first N are a random sample of all.
    """
    texts: dict[object, list[str]] = {}
    for number, document in enumerate(side("train", include_packages)):
        texts.setdefault(document.module if joined_by_module else number, []).extend(document.paragraphs())
    return sorted(texts.values(), key=lambda lines: stable_hash(*lines))


def first_sentence(text: str) -> str:
    """The first sentence with its full stop; the whole text if no end of a sentence is found."""
    end = _SENTENCE_END.search(text)
    return text[: end.end()] if end else text


def pair(document: Docstring) -> tuple[str, str] | None:
    """(first sentence, first ``BODY_WORDS`` words of the rest).

    None if the sentence has fewer than 4 or more than 30 words, or the rest fewer than 15.
    """
    summary = first_sentence(document.summary)
    rest = [document.summary[len(summary) :].strip(), *document.paragraphs()[1:]]
    words = " ".join(rest).split()
    if not 4 <= len(summary.split()) <= 30 or len(words) < 15:
        return None
    return summary, " ".join(words[:BODY_WORDS])


def pair_examples(split: str, include_packages: bool = True) -> list[dict]:
    """Does this body belong to this summary? Dicts of ``sentence1`` (summary), ``sentence2`` (body) and ``label``.

    The label is 1 for yes. Every summary and every body occurs twice, once with each label, so that neither of them
    alone predicts the label and the labels are balanced exactly. The wrong body comes from the same package, so that
    subject and style of the package do not predict the label either. It is half of the package's documents away, so
    that it is almost always from another module. A baseline that counts shared words, weighted by their rarity, is
    right for 88 % of the validation pairs; if the wrong body were the next docstring of the module, it would be right
    for 74 %, and if it were any docstring, for 90 %.
    """
    by_package: dict[str, list[tuple[str, str]]] = {}
    seen: set[str] = set()
    for document in side(split, include_packages):
        package = document.module.split(".")[0]
        both = pair(document)
        if both and seen.isdisjoint(both):  # if two documents had the same text, a pair with label 0 could be correct
            seen.update(both)
            by_package.setdefault(package if package in PACKAGES else "", []).append(both)
    examples = []
    for pairs in by_package.values():
        half = len(pairs) // 2
        if not half:  # a single pair, for which there is no wrong body
            continue
        for (summary, body), (_, other) in zip(pairs, pairs[half:] + pairs[:half], strict=True):
            examples.append({"sentence1": summary, "sentence2": body, "label": 1})
            examples.append({"sentence1": summary, "sentence2": other, "label": 0})
    return sorted(examples, key=lambda example: stable_hash(example["sentence1"], example["sentence2"]))


def classification_examples(split: str, include_packages: bool = True) -> list[dict]:
    """What is described here? Dicts with ``text`` (the first ``BODY_WORDS`` words) and ``label``.

    The label is "class", "function" or "method", and there are equally many of each. A logistic regression on words and
    pairs of words is right for 73 %.
    """
    by_kind: dict[str, list[dict]] = {"class": [], "function": [], "method": []}
    for document in side(split, include_packages):
        kind = "method" if document.kind == "function" and "." in document.name else document.kind
        if kind in by_kind:
            words = " ".join(document.paragraphs()).split()
            by_kind[kind].append({"text": " ".join(words[:BODY_WORDS]), "label": kind})
    for examples in by_kind.values():
        examples.sort(key=lambda example: stable_hash(example["text"]))
    rows = zip(*by_kind.values(), strict=False)  # stops at the end of the shortest list, which balances the labels
    return [example for row in rows for example in row]


def stable_hash(*parts: str) -> str:
    """SHA-256 of the parts; unlike hash(), it is the same in every process."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def contexts(entries: list[Parameter]) -> list[list[Parameter]]:
    """Groups of two or more neighbouring parameters that fit into ``CONTEXT_CHARACTERS`` characters."""
    groups: list[list[Parameter]] = [[]]
    for entry in entries:
        if len(str(entry)) > CONTEXT_CHARACTERS // 2:
            continue
        if sum(len(str(other)) + 1 for other in groups[-1]) + len(str(entry)) > CONTEXT_CHARACTERS:
            groups.append([])
        groups[-1].append(entry)
    return [group for group in groups if len(group) > 1]


def answer(entry: Parameter) -> str:
    """The first sentence of the description, without its full stop."""
    return first_sentence(entry.description).rstrip(".")


def paragraph(document: Docstring, group: list[Parameter], known: set[str]) -> dict:
    """One paragraph in the form of SQuAD: the descriptions of the group, joined, and questions about them.

    There is no question whose answer is in ``known`` or has more than ``ANSWER_WORDS`` words, and there are none at all
    if two parameters have the same name.
    """
    context = " ".join(map(str, group))
    distinct = len({entry.name for entry in group}) == len(group)
    questions = []
    start = 0
    for entry in group:
        text = answer(entry)
        begin = start + len(str(entry)) - len(entry.description)
        start += len(str(entry)) + 1
        identifier = stable_hash(document.module, document.name, entry.name, context)[:24]
        wording = QUESTIONS[int(identifier, 16) % len(QUESTIONS)]
        if len(text.split()) <= ANSWER_WORDS and text not in known and distinct:
            answers = [{"text": text, "answer_start": begin}]
            questions.append({"id": identifier, "question": wording.format(entry.name), "answers": answers})
    return {"context": context, "qas": questions}


def question_answering(split: str, include_packages: bool = True) -> dict:
    """What does this parameter mean? Questions in the form of SQuAD 1.1; an article documents one function.

    A context describes two or more parameters, so that the answer depends on the question. The answer is the first
    sentence of the parameter's description. No answer of the validation split occurs in the training split.
    """
    known = set()
    if split == "validation":
        known = {answer(entry) for document in side("train", include_packages) for entry in document.parameters}
    articles: dict[str, dict] = {}
    for document in side(split, include_packages):
        title = f"{document.module}.{document.name}"
        # A module may define a name twice, for example for two systems, and describe its parameters in the same words.
        by_context = {part["context"]: part for part in articles.get(title, {}).get("paragraphs", ())}
        new = [paragraph(document, group, known) for group in contexts(document.parameters)]
        by_context |= {part["context"]: part for part in new}
        if kept := [part for part in by_context.values() if part["qas"]]:
            articles[title] = {"title": title, "paragraphs": kept}
    return {"version": "1.1", "data": sorted(articles.values(), key=lambda article: stable_hash(article["title"]))}


def tagging_examples(split: str, include_packages: bool = True) -> list[list[tuple[str, str]]]:
    """Which words are code? Sentences of (word, tag) with the tags O, B-CODE and I-CODE, as in CoNLL-2003.

    A sentence is a paragraph of a docstring, cut after ``SENTENCE_WORDS`` words, in which the author marked at least
    one word as code and not more than half of them. The marks are removed, and all text is cut into words by one rule.
    A word that an author left unmarked is O, even if it is code elsewhere. Where a mark is left over, the author forgot
    its other half, and the paragraph is not used.
    """
    examples: dict[str, list[tuple[str, str]]] = {}
    for document in side(split, include_packages):
        for text in document.marked:
            words = tagged_words(text)[:SENTENCE_WORDS]
            marked = sum(tag != "O" for _, tag in words)
            if len(words) >= 6 and 0 < marked <= len(words) / 2 and ("`", "O") not in words:
                sentence = [(word, "O" if tag == "O" else f"{tag}-CODE") for word, tag in words]
                examples.setdefault(" ".join(word for word, _ in words), sentence)
    return [examples[text] for text in sorted(examples, key=stable_hash)]


def write_columns(path: Path, sentences: list[list[tuple[str, str]]]) -> None:
    """Write a word and its tag a line, and a blank line after each sentence, as run_ner.py reads them."""
    blocks = ("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)
    write_text(path, "\n".join(blocks))


def write_tsv(path: Path, examples: list[dict]) -> None:
    """Write tab-separated values with a header and no quoting, as in GLUE; the texts have no tabs or line breaks."""
    rows = [list(examples[0]), *(list(map(str, example.values())) for example in examples)]
    write_text(path, "".join("\t".join(row) + "\n" for row in rows))


def write_files(folder: Path, packages: bool = True, joined_by_module: bool = False) -> None:
    """Write the corpus and the tasks of both splits into a folder, and print what there is of each.

    Args:
        joined_by_module: whether the docstrings of a module are one document of the corpus.
    """
    make_folder(folder)
    texts = documents(packages, joined_by_module)
    corpus = "\n".join("".join(line + "\n" for line in document) for document in texts)
    write_text(folder / "corpus.txt", corpus)
    print(f"corpus.txt: {len(texts):,} documents, {len(corpus.split()):,} words, {len(corpus.encode()) / 1e6:.1f} MB")
    for split in Library._fields:
        for name, make in (("pair", pair_examples), ("kind", classification_examples)):
            examples = make(split, packages)
            write_tsv(folder / f"{name}_{split}.tsv", examples)
            print(f"{name}_{split}.tsv: {len(examples):,} examples")
        questions = question_answering(split, packages)
        write_text(folder / f"qa_{split}.json", json.dumps(questions, indent=1))
        count = sum(len(part["qas"]) for article in questions["data"] for part in article["paragraphs"])
        print(f"qa_{split}.json: {count:,} questions")
        sentences = tagging_examples(split, packages)
        write_columns(folder / f"code_{split}.txt", sentences)
        print(f"code_{split}.txt: {len(sentences):,} sentences")


def main(argv: list[str] | None = None) -> None:
    """The command line: write the corpus and the tasks into ``--output_dir``."""
    parser = argparse.ArgumentParser(
        prog="bert-repro builtin_data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output_dir", type=Path, required=True, help="the folder for the files")
    parser.add_argument("--standard_library_only", action="store_true", help="do not read the installed packages")
    args = parser.parse_args(argv)
    if is_occupied(args.output_dir):
        parser.error(f"--output_dir {args.output_dir}: there are files already; give a new folder")
    write_files(args.output_dir, not args.standard_library_only)
