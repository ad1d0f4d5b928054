"""The sources of run_ner.py's sentences, files in columns, JSON lines or the Hub, and the names of their tags."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_training.builtin_data import documentation
from bert_training.files.compressed_files import kind_of
from bert_training.files.hashing import digest, sha256
from bert_training.files.hub_datasets import load_from_hub
from bert_training.files.tables import read_table
from bert_training.files.unchanged import unchanged
from bert_training.flags.fine_tuning import NerArguments
from bert_training.tasks.loss_weights import facts_of, summary_of
from bert_training.tasks.ner.tagged_text import Sentence, Split, one_document_each, read_conll, to_bio
from bert_training.tasks.prediction_files import check_cell
from bert_training.tasks.task_data import files_or_hub, sample_limit
from tokenization.errors import UserError

# The names that the columns of a data set of the Hub may have.
WORD_COLUMNS, TAG_COLUMNS = ("tokens", "words"), ("ner_tags", "tags", "ner", "labels")
DOCUMENT_COLUMNS = ("document_id", "doc_id")
SCHEMES_IN_WORDS = {scheme: f"{scheme}, turned into BIO" for scheme in ("IOB1", "BIOES", "BMES")}
BUILTIN = "the documentation carried by this Python installation"
GIVE_FILES = (
    "give --train_file and --validation_file in columns (a word a line, its tag last, blank line after a sentence)"
)
LONG_SENTENCE = 200  # words; hardly any sentence is longer
ADD_TAGS = "give sentences with their tags, or give words alone as --test_file"
METRICS = ("f1", "precision", "recall", "accuracy", "loss")


@dataclass
class NerData:
    """The data of a run: its name, its splits, and the classes: "O", and B- and I- for every type.

    ``class_weights`` are those of the training loss, if it has any.
    """

    name: str
    splits: dict[str, Split]
    label_names: tuple[str, ...]
    class_weights: dict[str, float] | None = None

    def facts(self) -> dict:
        """The facts for run.json: sources, counts, hashes and label names."""
        facts = {
            split: {"examples": len(part), "words": part.num_words} | part.facts for split, part in self.splits.items()
        }
        return {"labels": self.label_names, "splits": facts} | facts_of(self.class_weights)

    def summary(self) -> str:
        """A few lines for the user: what was read from where."""
        lines = []
        known = _types(self.splits["train"]) if "train" in self.splits else None
        for name, part in self.splits.items():
            documents = part.facts["documents"]
            line = f"{name}: {len(part):,} sentences, {part.num_words:,} words, "
            line += f"{documents:,} documents, " if documents else "no documents marked: each sentence stands alone, "
            if len(part) == 1 and part.num_words > LONG_SENTENCE:
                line += "warning: no blank line or row ends a sentence, so all words are one sentence, "
            scheme = part.facts.get("tag_scheme")
            line += f"tags {SCHEMES_IN_WORDS.get(scheme, scheme)}" if scheme else "no tags"
            unknown = _types(part).keys() - known.keys() if known is not None and part.tagged else ()
            if unknown:
                line += f"; the training data has no entities of type {', '.join(sorted(unknown))}"
            if breaks := part.facts.get("entities_that_break_the_scheme"):
                line += f"; {breaks} entities that violate the scheme are read as conlleval reads them"
            lines.append(f"{line}, {part.source}")
        return "\n".join([*lines, f"labels: {', '.join(self.label_names)}", *summary_of(self.class_weights)])

    def texts(self, split: str) -> Iterator[str]:
        """The words of every sentence of a split, as one text."""
        return (" ".join(sentence.words) for sentence in self.splits[split].sentences)

    def metric_names(self) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        return [f"eval_{name}" for name in METRICS], "eval_f1"

    def baselines(self) -> dict[str, float]:
        """The results of a model that finds no entity."""
        return {"eval_f1": 0.0}


def load_data(args: NerArguments, model_labels: tuple[str, ...] | None = None) -> NerData:
    """Read the sentences that the flags ask for, with tags in BIO.

    Args:
        model_labels: the label names of the model, if it has any. If they are the names in the data in another order,
            the model's order is used, so that a trained head keeps its meaning.

    Raises:
        ValueError: flags that contradict each other; data that is missing or malformed, with file and line.
    """
    files = files_or_hub(args, GIVE_FILES, "sentences")
    if files:
        with unchanged(*files.values()):
            splits = {split: read_file(path, args.mixed_tags) for split, path in files.items()}
            for split, path in files.items():
                splits[split].facts["sha256"] = sha256(Path(path))
    elif args.dataset_name:
        from_hub = load_from_hub(args.dataset_name, args.dataset_config_name, GIVE_FILES)
        splits = {split: _hub_split(rows, f"{args.dataset_name} {split}", args) for split, rows in from_hub.items()}
    else:
        splits = {split: _builtin(split) for split in ("train", "validation")}
    for split in ("train", "validation"):
        if split in splits and not splits[split].tagged:
            raise UserError(f"{splits[split].source}: expected a tag for every word, got words only; {ADD_TAGS}")
    labels = _labels(splits, model_labels)
    for split, part in splits.items():
        part.sentences = part.sentences[: sample_limit(args, split)]
        if split != "train":  # The words of the others are written beside their predicted tags.
            _check_cells(part)
    train = splits.get("train")
    if train and all(tag == "O" for sentence in train.sentences for tag in sentence.tags or ()):
        raise UserError(
            f"{train.source}: all tags are O; there is nothing to learn. Give sentences with names, or raise "
            "--max_train_samples"
        )
    return NerData(args.dataset_name or ("custom" if files else BUILTIN), splits, labels)


def _check_cells(split: Split) -> None:
    for sentence in split.sentences:
        for number, word in enumerate(sentence.words):
            check_cell(word, sentence.place(number), "a word")


def _builtin(split: str) -> Split:
    """The words that this installation's documentation marks as code; every sentence stands alone."""
    examples = documentation.tagging_examples(split)
    sentences = [
        Sentence([word for word, _ in example], [tag for _, tag in example], number, f"{BUILTIN} {split} {number}")
        for number, example in enumerate(examples)
    ]
    return Split(BUILTIN, sentences, {"documents": 0, "sha256": digest(examples), "tag_scheme": "BIO"})


def _labels(splits: dict[str, Split], model_labels: tuple[str, ...] | None) -> tuple[str, ...]:
    """The classes: "O" and B- and I- of every type in the data, or the model's names if they cover these."""
    places = {split: _types(part) for split, part in splits.items() if part.tagged}
    first_places: dict[str, str] = {}
    for kind, place in (pair for types in places.values() for pair in types.items()):
        first_places.setdefault(kind, place)
    labels = ("O", *(f"{prefix}-{kind}" for kind in sorted(first_places) for prefix in "BI"))
    if "train" in splits:
        _check_types(places)
        return model_labels if model_labels and set(model_labels) == set(labels) else labels
    if not model_labels:
        raise UserError(
            "without training data the model's config must name the tags in id2label, and it does not; give a "
            "model fine-tuned with run_ner.py, or --train_file"
        )
    for label in model_labels:
        check_cell(label, "id2label in the model's config.json", "a tag")
        if places and not re.fullmatch("O|[BI]-.+", label):
            raise UserError(
                f"id2label in the model's config.json: expected tags O, B-TYPE and I-TYPE, got {label!r}; tags of "
                "other schemes cannot be scored here. Give a model fine-tuned with run_ner.py, or words alone as "
                "--test_file"
            )
    for kind, place in first_places.items():
        if not {f"B-{kind}", f"I-{kind}"} & set(model_labels):
            raise UserError(
                f"{place}: the model knows no entities of type {kind!r}, only {', '.join(model_labels)}; give a "
                "model for these tags, or --train_file"
            )
    return model_labels


def _types(split: Split) -> dict[str, str]:
    """The types of a split's entities, and where each occurs first."""
    places: dict[str, str] = {}
    for sentence in split.sentences:
        for word, tag in enumerate(sentence.known_tags):
            if tag != "O":
                places.setdefault(tag[2:], sentence.place(word))
    return places


def _check_types(places: dict[str, dict[str, str]]) -> None:
    """Refuse data to score of which no type occurs in the training data: the names of the tags must differ."""
    known = places["train"]
    for split, types in places.items():
        if types and known and not types.keys() & known.keys():
            kind, place = next(iter(types.items()))
            raise UserError(
                f"{place}: expected entities of the types of the training data ({', '.join(sorted(known))}), got "
                f"{kind!r}, and none of them in the {split} data; give both files the same names of tags"
            )


def read_file(path: str | Path, mixed_tags: bool = False) -> Split:
    """The sentences of a file: JSON lines as transformers' scripts take them (.jsonl, .json), or else columns.

    Raises:
        ValueError: with file and line: the file is malformed; see ``read_conll``.
    """
    if kind_of(path) not in (".jsonl", ".json"):
        return read_conll(path, mixed_tags)
    table = read_table(path, _known_columns, may_be_null=TAG_COLUMNS, kind=".jsonl")
    return _split(str(path), table.columns, None, table.where, mixed_tags)


def _hub_split(rows: Any, source: str, args: NerArguments) -> Split:
    try:
        columns = _known_columns(rows.column_names)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    names = None
    for name in set(columns) & set(TAG_COLUMNS):
        feature = rows.features[name]
        inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
        names = getattr(inner, "names", None)
    cells = {name: rows[name][:] for name in columns}
    return _split(source, cells, names, lambda row: f"{source} row {row}", args.mixed_tags)


def _known_columns(header: list[str]) -> list[str]:
    """The columns of words, tags and documents, as far as they are there. Raises ValueError without words."""
    found = [next((name for name in names if name in header), None)
             for names in (WORD_COLUMNS, TAG_COLUMNS, DOCUMENT_COLUMNS)]  # fmt: skip
    if found[0] is None:
        raise UserError(
            f"expected the columns {' or '.join(WORD_COLUMNS)} and {' or '.join(TAG_COLUMNS)}, got "
            f"{', '.join(map(repr, header))}; rename them, each with a list for every sentence"
        )
    return [name for name in found if name is not None]


def _split(
    source: str, cells: dict[str, list], names: list[str] | None, where: Callable[[int], str], mixed_tags: bool
) -> Split:
    """The sentences of a table whose cells are lists.

    Args:
        cells: the columns that ``_known_columns`` found.
        names: those that the numbers of tags stand for, if the source declares some.
        where: the place of a row, for error messages.
    """
    words, tags, documents = (next((cells[name] for name in known if name in cells), None)
                              for known in (WORD_COLUMNS, TAG_COLUMNS, DOCUMENT_COLUMNS))  # fmt: skip
    assert words is not None
    numbers: dict = {}
    sentences = []
    for row, sentence in enumerate(words):
        place, given = where(row), tags[row] if tags else None
        right = isinstance(sentence, list) and all(isinstance(word, str) and word.strip() for word in sentence)
        if not right or (given is not None and not (isinstance(given, list) and len(given) == len(sentence))):
            raise UserError(
                f"{place}: expected words and a tag for each, in two lists, got {str(sentence)[:60]!r} and "
                f"{str(given)[:60]!r}; correct the row"
            )
        document = documents[row] if documents else 0
        if not isinstance(document, str | int):
            raise UserError(f"{place}: expected a name or number of its document, got {document!r}; fill it in")
        number = numbers.setdefault(document, len(numbers)) if documents else 0
        sentences.append(Sentence(sentence, _named_tags(given, names, place), number, place))
    if not any(sentence.words for sentence in sentences):
        raise UserError(f"{source}: expected sentences with words, got none; is this the right data set?")
    _check_hidden(source, sentences)
    content = digest([[sentence.words, sentence.tags, sentence.document] for sentence in sentences])
    split = Split(source, sentences, {"documents": len(numbers), "sha256": content})
    if not documents:
        one_document_each(split)
    if split.tagged:
        to_bio(split, mixed_tags)
    return split


def _check_hidden(source: str, sentences: list[Sentence]) -> None:
    """Refuse a split of which only some sentences have tags. One without words counts as either."""
    hidden = {sentence.tags is None for sentence in sentences if sentence.words}
    if len(hidden) != 1:
        odd = next(sentence for sentence in sentences if sentence.words and sentence.tags is None)
        raise UserError(
            f"{odd.where}: expected tags as in other rows of {source}, got none; give all rows tags, or none"
        )
    for sentence in sentences:
        if not sentence.words:
            sentence.tags = None if hidden == {True} else []


def _named_tags(tags: list | None, names: list[str] | None, place: str) -> list[str] | None:
    """The names of a row's tags; None if there are none or all are -1, as in test sets with hidden tags."""
    if tags is None or (tags and all(type(tag) is int and tag == -1 for tag in tags)):
        return None
    if all(isinstance(tag, str) for tag in tags):
        return tags
    if names is None or not all(type(tag) is int and 0 <= tag < len(names) for tag in tags):
        wrong = next((tag for tag in tags if type(tag) is not int or not 0 <= tag < len(names or ())), None)
        raise UserError(
            f"{place}: expected tags by name, or numbers of the names that the data set declares "
            f"({str(names)[:200]}); got {wrong!r} in {str(tags)[:60]}; give every word the "
            "name of its tag, such as B-PER"
        )
    return [names[tag] for tag in tags]
