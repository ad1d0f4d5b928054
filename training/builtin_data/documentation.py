"""The embedded default: real English for every script, from the user's own Python installation, offline.

The text is the documentation that an installation carries: `pydoc_data.topics` (chapters of the language
reference) and the docstrings of the standard library and of those PACKAGES that are installed. Docstrings also
hold labelled data that are true by construction: which body belongs to which summary, what kind of thing is
described, and what each parameter means.

    python -m training builtin_data --output_dir D     # corpus.txt, {pair,kind}_{train,validation}.tsv, qa_*.json

Splits. A module's docstrings are on one side, decided by a hash of the module's name (VALIDATION_SHARE in 100 are
held out). Of the held-out ones, those whose function or class name also occurs in training, or that share more
than LEAK_SHARE of their five-word sequences with it, are not used. `documents` (for pre-training) are the
documents of the training side only: pre-training may read the texts of the tasks' training examples, never those
of their validation examples. Whoever holds out documents for evaluating pre-training takes them from `documents`.

Near-duplicates. Packages repeat themselves (each of transformers' models documents the same arguments): a
document that shares more than NEAR_DUPLICATE_SHARE of its five-word sequences with earlier ones is dropped.

What is read depends on what is installed; scripts record the hash of the text. Nothing of it is committed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from training.builtin_data.docstrings import Docstring, Parameter, read_files, source_files

PACKAGES = (
    *("accelerate", "datasets", "huggingface_hub", "matplotlib", "networkx", "numpy"),
    *("pandas", "scipy", "sklearn", "tokenizers", "torch", "transformers"),
)
VALIDATION_SHARE = 12
NEAR_DUPLICATE_SHARE = 0.5
LEAK_SHARE = 0.2

BODY_WORDS = 60  # a pair of summary and body is about 100 word pieces
CONTEXT_CHARACTERS = 500
ANSWER_WORDS = 20
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
    train: list[Docstring]
    validation: list[Docstring]


def share_seen(document: Docstring, seen: set[int]) -> float:
    return sum(value in seen for value in document.fingerprint) / max(1, len(document.fingerprint))


def short_name(document: Docstring) -> str:
    return (document.name or document.module).rsplit(".", 1)[-1]


def is_held_out(document: Docstring) -> bool:
    number = int(hashlib.sha256(document.module.encode()).hexdigest(), 16)
    return document.kind != "topic" and number % 100 < VALIDATION_SHARE


def split_library(found: list[Docstring]) -> Library:
    """Near-duplicates dropped, then cut by module as the header says. The order of `found` is kept."""
    seen: set[int] = set()
    names: set[str] = set()
    train: list[Docstring] = []
    validation: list[Docstring] = []
    for document in found:
        if not is_held_out(document) and share_seen(document, seen) <= NEAR_DUPLICATE_SHARE:
            train.append(document)
            seen.update(document.fingerprint)
            names.add(short_name(document))
    seen_in_validation: set[int] = set()
    for document in found:
        if not is_held_out(document) or short_name(document) in names or share_seen(document, seen) > LEAK_SHARE:
            continue
        if share_seen(document, seen_in_validation) <= NEAR_DUPLICATE_SHARE:
            validation.append(document)
            seen_in_validation.update(document.fingerprint)
    return Library(train, validation)


@lru_cache(maxsize=2)
def library(include_packages: bool = True) -> Library:
    """All documents of this installation; about 15 s with twelve packages, 2 s without, then remembered."""
    files = list(source_files(Path(sysconfig.get_path("stdlib")), ""))
    for package in PACKAGES if include_packages else ():
        specification = importlib.util.find_spec(package)  # finds, does not import
        for folder in (specification and specification.submodule_search_locations) or ():
            files += source_files(Path(folder), package)
    found = read_files(files)
    if not found:
        raise ValueError(
            f"expected Python sources with docstrings under {sysconfig.get_path('stdlib')}, found none (a Python "
            "without sources): give your own text with --train_file"
        )
    return split_library(found)


def side(split: str, include_packages: bool) -> list[Docstring]:
    if split not in Library._fields:
        raise ValueError(f"expected split 'train' or 'validation', got {split!r}")
    return getattr(library(include_packages), split)


def documents(include_packages: bool = True) -> list[list[str]]:
    """Documents for pre-training, each a list of paragraphs without line breaks, at least 200 characters in all:
    summary, prose, then one paragraph for each parameter. Validation documents of the tasks are not among them.
    As in the tasks, the order is by hash: the first N are a sample of all."""
    return sorted(
        (document.paragraphs() for document in side("train", include_packages)), key=lambda d: stable_hash(*d)
    )


def first_sentence(text: str) -> str:
    end = _SENTENCE_END.search(text)
    return text[: end.end()] if end else text


def pair(document: Docstring) -> tuple[str, str] | None:
    """(summary line, start of the body); None where either is too short to tell anything."""
    summary = first_sentence(document.summary)
    rest = [document.summary[len(summary) :].strip(), *document.paragraphs()[1:]]
    words = " ".join(rest).split()
    if not 4 <= len(summary.split()) <= 30 or len(words) < 15:
        return None
    return summary, " ".join(words[:BODY_WORDS])


def pair_examples(split: str, include_packages: bool = True) -> list[dict]:
    """Does this body belong to this summary? dicts of sentence1 (summary), sentence2 (body) and label (1: yes).

    Every summary and every body occurs twice, once with each label, so that neither alone tells anything and the
    labels are balanced exactly. The wrong body is from the same package, half its documents away, so that the
    package's subject and style do not tell either, but (modules being neighbours) almost always from another
    module. Weighing shared words by their rarity answers 88 % of the validation pairs; with the next docstring
    of the same module as the wrong body it answers 74 %, with any docstring 90 %."""
    by_package: dict[str, list[tuple[str, str]]] = {}
    seen: set[str] = set()
    for document in side(split, include_packages):
        package = document.module.split(".")[0]
        both = pair(document)
        if both and seen.isdisjoint(both):  # a text that two share would make wrong pairs right
            seen.update(both)
            by_package.setdefault(package if package in PACKAGES else "", []).append(both)
    examples = []
    for pairs in by_package.values():
        half = len(pairs) // 2
        if not half:  # there is no other body
            continue
        for (summary, body), (_, other) in zip(pairs, pairs[half:] + pairs[:half], strict=True):
            examples.append({"sentence1": summary, "sentence2": body, "label": 1})
            examples.append({"sentence1": summary, "sentence2": other, "label": 0})
    return sorted(examples, key=lambda example: stable_hash(example["sentence1"], example["sentence2"]))


def classification_examples(split: str, include_packages: bool = True) -> list[dict]:
    """What is described here? dicts of sentence (summary and start of the body) and label ("class", "function" or
    "method"), as many of each label. Logistic regression on words and word pairs answers 73 %."""
    by_kind: dict[str, list[dict]] = {"class": [], "function": [], "method": []}
    for document in side(split, include_packages):
        kind = "method" if document.kind == "function" and "." in document.name else document.kind
        if kind in by_kind:
            words = " ".join(document.paragraphs()).split()
            by_kind[kind].append({"sentence": " ".join(words[:BODY_WORDS]), "label": kind})
    for examples in by_kind.values():
        examples.sort(key=lambda example: stable_hash(example["sentence"]))
    rows = zip(*by_kind.values(), strict=False)  # as long as the shortest
    return [example for row in rows for example in row]


def stable_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def contexts(entries: list[Parameter]) -> list[list[Parameter]]:
    """Neighbouring parameters in groups that fit CONTEXT_CHARACTERS, each group of at least two."""
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
    """One SQuAD paragraph: the group's descriptions in a row, a question for each that is not in `known`."""
    context = " ".join(map(str, group))
    questions = []
    start = 0
    for entry in group:
        text = answer(entry)
        begin = start + len(str(entry)) - len(entry.description)
        start += len(str(entry)) + 1
        identifier = stable_hash(document.module, document.name, entry.name, context)[:24]
        wording = QUESTIONS[int(identifier, 16) % len(QUESTIONS)]
        if len(text.split()) <= ANSWER_WORDS and text not in known and len({e.name for e in group}) == len(group):
            answers = [{"text": text, "answer_start": begin}]
            questions.append({"id": identifier, "question": wording.format(entry.name), "answers": answers})
    return {"context": context, "qas": questions}


def question_answering(split: str, include_packages: bool = True) -> dict:
    """What does this parameter mean? In the form of SQuAD 1.1; an article is the documentation of one function.

    A context describes two or more parameters, so that the answer depends on the question. The answer is the
    first sentence of the parameter's description. No answer of the validation side occurs in training."""
    known = set()
    if split == "validation":
        known = {answer(entry) for document in side("train", include_packages) for entry in document.parameters}
    articles: dict[str, dict] = {}
    for document in side(split, include_packages):
        title = f"{document.module}.{document.name}"
        # A name can be defined twice in a module, for two systems say, with the same words about its parameters.
        made = {one["context"]: one for one in articles.get(title, {}).get("paragraphs", ())}
        made |= {one["context"]: one for one in (paragraph(document, g, known) for g in contexts(document.parameters))}
        if kept := [one for one in made.values() if one["qas"]]:
            articles[title] = {"title": title, "paragraphs": kept}
    return {"version": "1.1", "data": sorted(articles.values(), key=lambda article: stable_hash(article["title"]))}


def write_tsv(path: Path, examples: list[dict]) -> None:
    """Tab-separated with a header and no quoting, as GLUE's files are; the texts hold no tabs or line breaks."""
    rows = [list(examples[0]), *(list(map(str, example.values())) for example in examples)]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Write the corpus and the tasks into --output_dir."""
    parser = argparse.ArgumentParser(
        prog="python -m training builtin_data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--standard_library_only", action="store_true")
    args = parser.parse_args(argv)
    packages = not args.standard_library_only
    args.output_dir.mkdir(parents=True, exist_ok=True)
    texts = documents(packages)
    corpus = "\n".join("".join(line + "\n" for line in document) for document in texts)
    (args.output_dir / "corpus.txt").write_text(corpus, encoding="utf-8")
    print(f"corpus.txt: {len(texts):,} documents, {len(corpus.split()):,} words, {len(corpus.encode()) / 1e6:.1f} MB")
    for split in Library._fields:
        for name, make in (("pair", pair_examples), ("kind", classification_examples)):
            examples = make(split, packages)
            write_tsv(args.output_dir / f"{name}_{split}.tsv", examples)
            print(f"{name}_{split}.tsv: {len(examples):,} examples")
        questions = question_answering(split, packages)
        (args.output_dir / f"qa_{split}.json").write_text(json.dumps(questions, indent=1), encoding="utf-8")
        count = sum(len(part["qas"]) for article in questions["data"] for part in article["paragraphs"])
        print(f"qa_{split}.json: {count:,} questions")
