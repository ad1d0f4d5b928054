"""The sentences of run_ner.py, from files in columns, JSON, Parquet or the Hub, and the names of their tags."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bert_training.builtin_data import documentation
from bert_training.files.hashing import digest, unchanged
from bert_training.inputs.conll import read_conll
from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.inputs.flags.parsing import refuse
from bert_training.inputs.hub_datasets import load_from_hub
from bert_training.inputs.reading import kind_of
from bert_training.inputs.rows import Column, Rows, bar, hub_rows, read_rows
from bert_training.tasks.ner.raw_text import (
    AS_PIPELINES,
    USUAL,
    Cutting,
    cutting_of,
    is_cut_by_pipelines,
    is_raw_text,
    read_raw_text,
    words_of,
)
from bert_training.tasks.ner.schemes import AUTO, IO, plain_labels, to_bio
from bert_training.tasks.ner.spans import SPANS, TEXT, spans_of_cell, tags_of_words, text_of_task
from bert_training.tasks.ner.tagged_text import PLAIN, Sentence, Split, one_document_each
from bert_training.tasks.task_data import (
    SPLIT_SEED,
    asks_to_divide,
    check_cell,
    facts_of,
    files_or_hub,
    folds_of_units,
    rows_of_units,
    sample_limit,
    summary_of,
)
from tokenization.errors import UserError

WORDS, TAGS = ("tokens", "words"), ("ner_tags", "tags")
IN_TEXTS = "spans"  # the scheme of texts with spans of characters
SCHEMES_IN_WORDS = {scheme: f"{scheme}, turned into BIO" for scheme in ("IOB1", "BIOES", "BMES", "IO")}
SCHEMES_IN_WORDS |= {PLAIN: "plain, a class for every word", IN_TEXTS: "from spans in texts, in BIO"}
BUILTIN = "the documentation carried by this Python installation"
GIVE_FILES = (
    "give --train_file and --validation_file in columns (a word a line, its tag last, blank line after a sentence), or "
    "JSON lines with text and spans"
)
METRICS = ("f1", "precision", "recall", "accuracy", "loss")
METRICS_OF_PLAIN = ("accuracy", "f1_macro", "loss")


@dataclass
class NerData:
    """The data of a run: its name, its splits, and the classes: plain tags, or "O", and B- and I- for every type.

    ``cutting`` says how texts become words of the training data, and ``class_weights`` are those of the training loss,
    if it has any.
    """

    name: str
    splits: dict[str, Split]
    label_names: tuple[str, ...]
    cutting: Cutting = USUAL
    class_weights: dict[str, float] | None = None

    @property
    def plain(self) -> bool:
        """Whether the tags are classes of words and not those of spans."""
        return plain_labels(self.label_names)

    def facts(self) -> dict:
        """The facts for run.json: sources, counts, hashes and label names."""
        facts = {}
        for split, part in self.splits.items():
            words = part.words
            counts = {"words": len(words), "words_with_punctuation": sum(map(is_cut_by_pipelines, words))}
            facts[split] = {"examples": len(part)} | counts | part.facts
        return {"labels": self.label_names, "splits": facts} | facts_of(self.class_weights)

    def summary(self) -> str:
        """A few lines for the user: what was read from where."""
        lines = []
        known = _types(self.splits["train"]) if "train" in self.splits else None
        for name, part in self.splits.items():
            documents = part.facts["documents"]
            line = f"{name}: {len(part):,} sentences, {part.num_words:,} words, "
            line += f"{documents:,} documents, " if documents else "no documents marked: each sentence stands alone, "
            scheme = part.facts.get("tag_scheme")
            line += f"tags {SCHEMES_IN_WORDS.get(scheme, scheme)}" if scheme else "no tags"
            line += ", plain sentences, one a line" if part.facts.get("raw_text") else ""
            if cut := part.facts.get("cut_words"):
                line += f"; words that a span cuts, and that belong to it as a whole: {cut:,}, "
                line += f"the first {part.facts['first_cut_word']}"
            if lost := part.facts.get("spans_without_a_word"):
                line += f"; spans that have no word of their own, and are left out: {lost:,}"
            if comments := part.facts.get("comment_lines"):
                line += f", {comments:,} lines of comments left out"
            unknown = _types(part) - known if known is not None and part.tagged else ()
            if unknown:
                what = "tag" if self.plain else "entities of type"
                line += f"; the training data has no {what} {', '.join(sorted(unknown))}"
            if breaks := part.facts.get("entities_that_break_the_scheme"):
                line += f"; {breaks} entities that violate the scheme are read as conlleval reads them"
            held_out = f"; {part.facts['divided']}" if "divided" in part.facts else ""
            lines.append(f"{line}, {part.source}{held_out}")
            if held_out and unknown:
                lines.append(
                    "warning: the model cannot learn these, so they count as missed; hold out less, or tag more of them"
                )
        if "train" in self.splits and "validation" not in self.splits:
            lines.append("no validation data: nothing will say how good the model is")
        return "\n".join([*lines, f"labels: {', '.join(self.label_names)}", *summary_of(self.class_weights)])

    def texts(self, split: str) -> Iterator[str]:
        """The words of every sentence of a split, as one text."""
        return (" ".join(sentence.words) for sentence in self.splits[split].sentences)

    def metric_names(self) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        if self.plain:
            return [f"eval_{name}" for name in METRICS_OF_PLAIN], "eval_accuracy"
        return [f"eval_{name}" for name in METRICS], "eval_f1"

    def baselines(self) -> dict[str, float]:
        """The results of a model that finds no entity, or always gives the most frequent tag of the validation data."""
        if self.plain:
            sentences = self.splits["validation"].sentences if "validation" in self.splits else []
            tags = Counter(tag for sentence in sentences for tag in sentence.known_tags)
            return {"eval_accuracy": max(tags.values()) / tags.total()} if tags else {}
        return {"eval_f1": 0.0}


@dataclass(frozen=True)
class Reading:
    """How the tags of a source are read.

    Attributes:
        scheme: ``AUTO``, ``PLAIN`` or ``IO`` (``schemes.py``).
        mixed_tags: whether an I- that continues nothing begins an entity.
        tag_names: the names that numbers stand for, if --tag_names gives some.
        column: the name of the column of tags or spans in JSON and data sets of the Hub, if --label_column names it.
        text: the name of the column of texts, if --text_column names it.
        known: the tags of the training data or of the model.
        cutting: how texts become words.
    """

    scheme: str = AUTO
    mixed_tags: bool = False
    tag_names: list[str] | None = None
    column: str | None = None
    text: str | None = None
    known: frozenset[str] = frozenset()
    cutting: Cutting = AS_PIPELINES

    def knowing(self, tags: Iterable[str], plain: bool) -> "Reading":
        """The same for further data, whose tags are of the kind of these."""
        return replace(self, scheme=PLAIN if plain else IO, known=frozenset(tags))

    def columns(self, header: Sequence[str]) -> list[Column]:
        """The columns of words with tags, of texts with spans, or of the tasks of Label Studio, whichever are there."""
        tags, spans = ((self.column,) if self.column else names for names in (TAGS, SPANS))
        texts, named = (self.text,) if self.text else TEXT, self.column is not None
        words, tagged, has_texts, spanned = (not {*names}.isdisjoint(header) for names in (WORDS, tags, texts, spans))
        document = Column("document", ("document_id", "doc_id"), needed=False)
        if "data" in header and not words and not has_texts:
            of_tasks = [Column(name, (name,), needed=False, as_json=True) for name in ("data", "annotations")]
            return [document, *of_tasks]
        if has_texts and (self.text or not words or (spanned and not tagged)):
            of_spans = Column("spans", spans, "--label_column", needed=named, as_json=True)
            return [document, Column("text", texts, "--text_column"), of_spans]
        of_words = Column("tokens", (*WORDS, *texts), "--text_column", lists=True)
        return [document, of_words, Column("tags", tags, "--label_column", needed=named, lists=True)]


def load_data(args: NerArguments, model_labels: tuple[str, ...] | None = None, cutting: Cutting = USUAL) -> NerData:
    """Read the sentences that the flags ask for, with tags in BIO.

    Args:
        model_labels: the label names of the model, if it has any. If they are the names in the data in another order,
            the model's order is used, so that a trained head keeps its meaning.
        cutting: how texts become words without training data, as the model stores it.

    Raises:
        UserError: data that is missing or malformed, with file and line or row; or tags that the model cannot learn or
            be scored by.
    """
    files = files_or_hub(args, GIVE_FILES, "sentences", divides=True)
    reading = Reading(args.tag_scheme, args.mixed_tags, args.tag_names, args.label_column, args.text_column)
    if files:
        with unchanged(*files.values()):
            splits = _read(files, reading, model_labels, cutting)
    elif args.dataset_name:
        from_hub = load_from_hub(args.dataset_name, args.dataset_config_name, GIVE_FILES, asks_to_divide(args))
        rows = {
            split: hub_rows(part, reading.columns, f"{args.dataset_name} {split}") for split, part in from_hub.items()
        }
        splits = _read(rows, reading, model_labels, cutting)
    else:
        splits = {split: _builtin(split) for split in ("train", "validation")}
    problems = {
        f"{part.source}: expected a tag for every word, got words only; give sentences with their tags, or give words "
        "alone as --test_file": not part.tagged
        for split, part in splits.items()
        if split != "test"
    }
    divides_twice = asks_to_divide(args) and "validation" in splits
    given = "--validation_split and --folds divide training data without validation data of its own"
    refuse(problems | {f"{given}; leave the flag out": divides_twice})
    labels, cutting = _labels(splits, model_labels), cutting_of(splits.get("train"), cutting)
    if args.validation_split or args.folds:
        test = {split: part for split, part in splits.items() if split != "train"}
        splits = _divided(splits["train"], args) | test
    for split, part in splits.items():
        part.sentences = part.sentences[: sample_limit(args, split)]
        written = part.sentences if split != "train" or args.folds else []  # beside their predicted tags
        for sentence in written:
            for number, word in enumerate(sentence.words):
                check_cell(word, sentence.place(number), "a word")
    if train := splits.get("train"):
        tags = {tag for sentence in train.sentences for tag in sentence.known_tags}
        nothing = tags <= {"O"} or (train.plain and len(tags) == 1)
        of_training = {
            f"{train.source}: all tags to train on are {', '.join(tags)}; there is nothing to learn. Give more "
            "sentences, or raise --max_train_samples": nothing,
            f"{train.source}: --tag_scheme plain is for tags without a prefix, got {', '.join(labels)[:200]}; "
            "leave it out, or rename the tags that begin with a prefix such as B-": train.plain
            and not plain_labels(labels),
        }
        refuse(of_training)
    return NerData(args.dataset_name or ("custom" if files else BUILTIN), splits, labels, cutting)


def _read(
    sources: Mapping[str, str | Rows], reading: Reading, model_labels: tuple[str, ...] | None, cutting: Cutting
) -> dict[str, Split]:
    """The sentences of files, or of rows of the Hub. The training data, or else the model, says what the tags are."""
    splits: dict[str, Split] = {}
    if "train" in sources:
        splits["train"] = read_file(sources["train"], reading)
        if splits["train"].tagged:
            tags = (tag for sentence in splits["train"].sentences for tag in sentence.known_tags)
            reading = reading.knowing(tags, splits["train"].plain)
    elif model_labels:
        reading = reading.knowing(model_labels, plain_labels(model_labels))
    reading = replace(reading, cutting=cutting_of(splits.get("train"), cutting))
    for split, source in sources.items():
        if split == "test" and isinstance(source, str) and is_raw_text(source, reading.known):
            splits[split] = read_raw_text(source, reading.cutting)
        elif split != "train":
            splits[split] = read_file(source, reading)
    return {split: splits[split] for split in sources}


def read_file(source: str | Path | Rows, reading: Reading = Reading()) -> Split:
    """The sentences of a file, JSON or Parquet (.jsonl, .json, .parquet) or else columns, or of rows of the Hub.

    Raises:
        UserError: with file and line or row: the file is malformed, or its tags are (see ``to_bio``).
    """
    if isinstance(source, Rows):
        return _sentences(source, source.facts["source"], reading, in_rows=True)
    in_rows = kind_of(source) in (".jsonl", ".json", ".parquet")
    rows = read_rows(source, reading.columns) if in_rows else read_conll(source)
    return _sentences(rows, str(source), reading, in_rows)


def _sentences(rows: Rows, source: str, reading: Reading, in_rows: bool) -> Split:
    """The sentences of rows.

    Args:
        in_rows: whether a place is a row, and tags may be numbers, as in JSON and data sets of the Hub.
    """
    columns = rows.data.to_pydict()
    if "tokens" not in columns:
        return _texts(rows, columns, source, reading)
    words = columns["tokens"]
    tags = _named(columns["tags"], reading.tag_names, source, in_rows) if "tags" in columns else [None] * len(words)
    tagged, documents, sentences = any(tags), dict[str, int](), []
    for row, (sentence, given) in enumerate(zip(words, tags)):
        place = f"{source}, row {row + 1}" if in_rows else source
        fits = isinstance(sentence, list) and isinstance(given or [], list)
        tags_of_row = [*(given or ())]
        if not fits or not all(map(str.strip, [*sentence, *tags_of_row])) or len(tags_of_row) != tagged * len(sentence):
            raise UserError(
                f"{place}: expected words and a tag for each, in two lists, in all rows or in none; got "
                f"{str(sentence)[:60]!r} and {str(given)[:60]!r}; correct the row"
            )
        document = _document(documents, columns, row)
        known = tags_of_row if tagged else None
        sentences.append(Sentence(sentence, known, document, place, None if in_rows else columns["line"][row]))
    kept = {name: rows.facts[name] for name in ("comment_lines",) if name in rows.facts}
    split = _split_of(rows, source, sentences, documents, kept)
    if tagged:
        to_bio(split, reading.mixed_tags, reading.scheme)
    return split


def _document(documents: dict[str, int], columns: dict[str, list[Any]], row: int) -> int:
    """The number of the document of a row, counted as they come."""
    return documents.setdefault(columns["document"][row], len(documents)) if "document" in columns else 0


def _split_of(
    rows: Rows, source: str, sentences: list[Sentence], documents: dict[str, int], facts: dict[str, Any]
) -> Split:
    content = rows.facts.get("sha256") or rows.facts["content_sha256"]
    split = Split(source, sentences, {"documents": len(documents), "sha256": content} | facts)
    if not documents:
        one_document_each(split)
    return split


def _texts(rows: Rows, columns: dict[str, list[Any]], source: str, reading: Reading) -> Split:
    """The texts of rows as sentences, cut into words; one without a word is left out.

    Raises:
        UserError: some texts have spans and some have not, or spans are malformed or overlap.
    """
    sentences, documents, cut, overlaps, lost = list[Sentence](), dict[str, int](), list[str](), list[str](), 0
    for row in bar(range(len(rows.data)), "cutting texts into words", "texts"):
        place = f"{source}, row {row + 1}"
        given = {name: cells[row] for name, cells in columns.items()}
        if "text" in given:
            text, spans = given["text"], given.get("spans")
        else:
            text, spans = text_of_task(given, reading.text or TEXT[0], place)
        places, tags = [*words_of(text, reading.cutting)], None
        words = [text[begin:end] for begin, end in places]
        if spans is not None:
            found = tags_of_words(places, spans_of_cell(spans, text, place))
            overlaps += [f"{place}: {' and '.join(map(str, map(tuple, found.overlap)))}"] if found.overlap else []
            cut += [f"{words[number]!r:.40} in row {row + 1}" for number in found.cut]
            tags, lost = found.tags, lost + len(found.lost)
        if words:
            document = _document(documents, columns, row)
            sentences.append(Sentence(words, tags, document, place, raw=(row + 1, text, places)))
    with_spans = [sentence.tags is not None for sentence in sentences]
    problems = {
        f"{source}: expected texts with words, got none": not sentences,
        f"{source}: expected spans of every text, [] if it has none, or of no text; {with_spans.count(False):,} of "
        f"{len(sentences):,} have none": len({*with_spans}) > 1,
        f"{source}: expected spans that do not overlap, because a word has one tag; got some that do in "
        f"{len(overlaps):,} texts, the first in {next(iter(overlaps), '')}": overlaps,
    }
    refuse(problems)
    facts: dict[str, Any] = {"tag_scheme": IN_TEXTS} if with_spans[0] else {}
    facts |= {"cut_words": len(cut), "first_cut_word": cut[0]} if cut else {}
    return _split_of(rows, source, sentences, documents, facts | ({"spans_without_a_word": lost} if lost else {}))


def _named(tags: list[Any], names: list[str] | None, source: str, in_rows: bool) -> list[Any]:
    """The tags, with their names if all are numbers; None for a row of hidden ones, -1 or empty, as in test sets."""
    shown = [None if given and {*given} <= {"-1", ""} else given for given in tags]
    found = {tag for given in shown if isinstance(given, list) for tag in given}
    if not in_rows or not found or not all(re.fullmatch("-?[0-9]+", tag) for tag in found):
        return shown
    named = {str(number): name for number, name in enumerate(names or ())}
    if wrong := sorted(found - named.keys()):
        raise UserError(
            f"{source}: expected tags by name, or numbers of the names that --tag_names gives "
            f"({', '.join(names or ())}), got {wrong[0]}; give them in the order of their numbers, such as "
            "--tag_names O B-PER I-PER"
        )
    return [given if given is None else [named[tag] for tag in given] for given in shown]


def _builtin(split: str) -> Split:
    """The words that this installation's documentation marks as code; every sentence stands alone."""
    examples = documentation.tagging_examples(split)
    sentences = [
        Sentence([word for word, _ in example], [tag for _, tag in example], number, f"{BUILTIN} {split} {number}")
        for number, example in enumerate(examples)
    ]
    return Split(BUILTIN, sentences, {"documents": 0, "sha256": digest(examples), "tag_scheme": "BIO"})


def _labels(splits: dict[str, Split], model_labels: tuple[str, ...] | None) -> tuple[str, ...]:
    """The classes: "O" and B- and I- of every type in the data, or the model's names if they cover these.

    With training data, what only the test data has is no class: a model does not depend on what it is tested on.
    """
    types = {split: _types(part) for split, part in splits.items() if part.tagged}
    if train := splits.get("train"):
        for split, found in types.items():
            if found and types["train"] and found.isdisjoint(types["train"]):
                raise UserError(
                    f"{splits[split].source}: expected tags of the training data ({', '.join(sorted(types['train']))}),"
                    f" got {', '.join(sorted(found))[:200]}, and none of them in the {split} data; give both the same "
                    "names of tags"
                )
        own = sorted({kind for split, kinds in types.items() if split != "test" for kind in kinds})
        labels = tuple(own) if train.plain else ("O", *(f"{prefix}-{kind}" for kind in own for prefix in "BI"))
        labels = model_labels if model_labels and {*model_labels} == {*labels} else labels
    else:
        labels = model_labels or ()
        spans = {label[2:] for label in labels if label[:2] in ("B-", "I-")}
        unknown = {*()}.union(*types.values()) - ({*labels} if plain_labels(labels) else spans)
        other = [] if plain_labels(labels) else [label for label in labels if not re.fullmatch("O|[BI]-.+", label)]
        if not labels or (types and (unknown or other)):
            raise UserError(
                f"{', '.join(part.source for part in splits.values())}: without training data expected tags that the "
                f"model knows by id2label of its config, as O, B-TYPE and I-TYPE or as plain tags, got "
                f"{', '.join(sorted(unknown)) or 'known ones'} and a model of {', '.join(labels) or 'no tags'}; give a "
                "model for these tags, or --train_file, or words alone as --test_file"
            )
    for label in labels:
        check_cell(label, "the tags of the data or of the model's config.json", "a tag")
    return labels


def _types(split: Split) -> set[str]:
    """The types of a split's entities, or its plain tags."""
    tags = {tag for sentence in split.sentences for tag in sentence.known_tags}
    return tags if split.plain else {tag[2:] for tag in tags - {"O"}}


def _divided(whole: Split, args: NerArguments) -> dict[str, Split]:
    """The sentences to train on, "train", and those that --validation_split or --folds holds out, "validation".

    Whole documents are held out, or sentences if there are not several. Both parts keep the order of the file.
    """
    in_documents = whole.facts["documents"] > 1
    units = [sentence.document if in_documents else row for row, sentence in enumerate(whole.sentences)]
    kind = "whole documents" if in_documents else "sentences"
    if args.fold:
        rows, asked = folds_of_units(units, args.num_folds, SPLIT_SEED, kind)[args.fold - 1], f"fold {args.folds}"
    else:
        share = args.validation_split or 0.0
        rows, asked = rows_of_units(units, share, SPLIT_SEED), f"asked for {share:g}"
    described = f"{len(rows)} of {len(whole)} sentences held out ({asked}), {kind}"
    others = sorted({*range(len(whole))} - {*rows})
    return {"train": _part(whole, others, described), "validation": _part(whole, rows, described)}


def _part(whole: Split, rows: list[int], described: str) -> Split:
    """Some sentences of a split; the SHA-256 of their part is that of the file and of their numbers."""
    sentences = [whole.sentences[row] for row in rows]
    documents = len({sentence.document for sentence in sentences}) if whole.facts["documents"] else 0
    content = whole.facts["sha256"]
    facts = {"documents": documents, "file_sha256": content, "sha256": digest([content, rows]), "divided": described}
    return Split(whole.source, sentences, whole.facts | facts)
