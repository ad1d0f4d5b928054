"""The sources of run_ner.py's sentences, files in columns, JSON lines or the Hub, and the names of their tags."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bert_training.builtin_data import documentation
from bert_training.files.compressed_files import kind_of
from bert_training.files.hashing import digest, sha256
from bert_training.files.hub_datasets import load_from_hub
from bert_training.files.tables import nfc, read_table
from bert_training.files.unchanged import unchanged
from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.tasks.loss_weights import facts_of, summary_of
from bert_training.tasks.ner.raw_text import USUAL, Cutting, cutting_of, is_cut_by_pipelines, is_raw_text, read_raw_text
from bert_training.tasks.ner.schemes import AUTO, IO, PLAIN, plain_labels
from bert_training.tasks.ner.splits import divided
from bert_training.tasks.ner.tagged_text import Sentence, Split, one_document_each, read_conll, to_bio
from bert_training.tasks.prediction_files import check_cell
from bert_training.tasks.task_data import SPLIT_SEED, asks_to_divide, files_or_hub, sample_limit
from tokenization.errors import UserError

# The names that the columns of a data set of the Hub may have.
WORD_COLUMNS, TAG_COLUMNS = ("tokens", "words"), ("ner_tags", "tags", "ner", "labels")
DOCUMENT_COLUMNS = ("document_id", "doc_id")
SCHEMES_IN_WORDS = {scheme: f"{scheme}, turned into BIO" for scheme in ("IOB1", "BIOES", "BMES", "IO")}
SCHEMES_IN_WORDS |= {PLAIN: "plain, a class for every word"}
BUILTIN = "the documentation carried by this Python installation"
GIVE_FILES = (
    "give --train_file and --validation_file in columns (a word a line, its tag last, blank line after a sentence)"
)
LONG_SENTENCE = 200  # words; hardly any sentence is longer
ADD_TAGS = "give sentences with their tags, or give words alone as --test_file"
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
            counts = {"words": part.num_words, "words_with_punctuation": sum(map(is_cut_by_pipelines, part.words))}
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
            if len(part) == 1 and part.num_words > LONG_SENTENCE:
                line += "warning: no blank line or row ends a sentence, so all words are one sentence, "
            scheme = part.facts.get("tag_scheme")
            line += f"tags {SCHEMES_IN_WORDS.get(scheme, scheme)}" if scheme else "no tags"
            line += ", plain sentences, one a line" if part.facts.get("raw_text") else ""
            if comments := part.facts.get("comment_lines"):
                line += f", {comments:,} lines of comments left out"
            unknown = _types(part).keys() - known.keys() if known is not None and part.tagged else ()
            if unknown:
                what = "tag" if self.plain else "entities of type"
                line += f"; the training data has no {what} {', '.join(sorted(unknown))}"
            if breaks := part.facts.get("entities_that_break_the_scheme"):
                line += f"; {breaks} entities that violate the scheme are read as conlleval reads them"
            held_out = f"; {part.facts['divided']}" if "divided" in part.facts else ""
            lines.append(f"{line}, {part.source}{held_out}")
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


def load_data(args: NerArguments, model_labels: tuple[str, ...] | None = None, cutting: Cutting = USUAL) -> NerData:
    """Read the sentences that the flags ask for, with tags in BIO.

    Args:
        model_labels: the label names of the model, if it has any. If they are the names in the data in another order,
            the model's order is used, so that a trained head keeps its meaning.
        cutting: how texts become words without training data, as the model stores it.

    Raises:
        ValueError: flags that contradict each other; data that is missing or malformed, with file and line.
    """
    files = files_or_hub(args, GIVE_FILES, "sentences", divides=True)
    splits: dict[str, Split] = {}
    if files:
        _check_flags_of_json(args, files)
        with unchanged(*files.values()):
            for split, path in files.items():
                reading = _reading(args, "train" in files, splits.get("train"), model_labels)
                if split == "test" and is_raw_text(path, reading.known):
                    splits[split] = read_raw_text(path, cutting_of(splits.get("train"), cutting))
                else:
                    splits[split] = read_file(path, args.mixed_tags, reading)
            for split, path in files.items():
                splits[split].facts["sha256"] = sha256(Path(path))
    elif args.dataset_name:
        from_hub = load_from_hub(args.dataset_name, args.dataset_config_name, GIVE_FILES, asks_to_divide(args))
        for split in sorted(from_hub, key=lambda name: name != "train"):  # it decides on the tags of the others
            reading = _reading(args, "train" in from_hub, splits.get("train"), model_labels)
            splits[split] = _hub_split(from_hub[split], f"{args.dataset_name} {split}", args, reading)
        splits = {split: splits[split] for split in from_hub}
    else:
        splits = {split: _builtin(split) for split in ("train", "validation")}
    for split in ("train", "validation"):
        if split in splits and not splits[split].tagged:
            raise UserError(f"{splits[split].source}: expected a tag for every word, got words only; {ADD_TAGS}")
    labels, cutting = _labels(splits, model_labels), cutting_of(splits.get("train"), cutting)
    if args.validation_split is not None and "validation" in splits:
        raise UserError("--validation_split: the data has validation data of its own; leave the flag out")
    if args.validation_split:
        splits = divided(splits["train"], args.validation_split, SPLIT_SEED) | {
            split: part for split, part in splits.items() if split != "train"
        }
    for split, part in splits.items():
        part.sentences = part.sentences[: sample_limit(args, split)]
        if split != "train":  # The words of the others are written beside their predicted tags.
            _check_cells(part)
    train = splits.get("train")
    tags = {tag for sentence in train.sentences for tag in sentence.known_tags} if train else set()
    if train and (tags == {"O"} or (train.plain and len(tags) == 1)):
        raise UserError(
            f"{train.source}: all tags to train on are {min(tags)}; there is nothing to learn. Give sentences with "
            f"others, or raise --max_train_samples"
        )
    return NerData(args.dataset_name or ("custom" if files else BUILTIN), splits, labels, cutting)


@dataclass(frozen=True)
class Reading:
    """How the tags of a source are read.

    Attributes:
        scheme: ``AUTO``, ``PLAIN`` or ``IO`` (``schemes.py``).
        tag_names: the names that numbers stand for, if --tag_names gives some.
        column: the name of the column of tags in JSON and data sets of the Hub, if --label_column names it.
        known: the tags of the training data or of the model.
    """

    scheme: str = AUTO
    tag_names: list[str] | None = None
    column: str | None = None
    known: frozenset[str] = frozenset()


def _check_flags_of_json(args: NerArguments, files: dict[str, str]) -> None:
    """Refuse --tag_names and --label_column if no file is JSON."""
    flag = "--tag_names" if args.tag_names else "--label_column" if args.label_column else ""
    if flag and not any(kind_of(path) in (".jsonl", ".json") for path in files.values()):
        first = next(iter(files.values()))
        raise UserError(f"{first}: {flag} has no effect on a file in columns, whose last column is the tag; omit it")


def _reading(args: NerArguments, training: bool, train: Split | None, model_labels: tuple[str, ...] | None) -> Reading:
    """How the next source is read: as the flags say, else as the training data was, else as the model needs it.

    Args:
        training: whether there is training data, which may be read later.
        train: the training data that has been read.
    """
    scheme: str = args.tag_scheme
    known = frozenset(model_labels or ())
    if train and train.tagged:
        known = frozenset(tag for sentence in train.sentences for tag in sentence.known_tags)
        scheme = PLAIN if train.plain else scheme
    elif model_labels and not training:
        if args.tag_scheme == PLAIN and not plain_labels(model_labels):
            raise UserError(
                f"--tag_scheme plain: expected a model of plain tags, got one of spans ({', '.join(model_labels)}); "
                "leave the flag out"
            )
        scheme = PLAIN if plain_labels(model_labels) else IO
    return Reading(scheme, args.tag_names, args.label_column, known)


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
    """The classes: "O" and B- and I- of every type in the data, or the model's names if they cover these.

    With training data, what only the test data has is no class: a model does not depend on what it is tested on.
    """
    places = {split: _types(part) for split, part in splits.items() if part.tagged}
    first_places: dict[str, str] = {}
    for split, types in places.items():
        if split != "test" or "train" not in splits:
            first_places = types | first_places
    labels = ("O", *(f"{prefix}-{kind}" for kind in sorted(first_places) for prefix in "BI"))
    if "train" in splits:
        if splits["train"].plain:
            labels = tuple(sorted(first_places))
        _check_types(splits, places)
        if splits["train"].plain:
            _check_plain(splits["train"].source, labels)
        return model_labels if model_labels and set(model_labels) == set(labels) else labels
    if not model_labels:
        raise UserError(
            "without training data the model's config must name the tags in id2label, and it does not; give a "
            "model fine-tuned with run_ner.py, or --train_file"
        )
    for label in model_labels:
        check_cell(label, "id2label in the model's config.json", "a tag")
        if places and not plain_labels(model_labels) and not re.fullmatch("O|[BI]-.+", label):
            raise UserError(
                f"id2label in the model's config.json: expected tags O, B-TYPE and I-TYPE, got {label!r}; tags of "
                "other schemes cannot be scored here. Give a model fine-tuned with run_ner.py, or words alone as "
                "--test_file"
            )
    plain = plain_labels(model_labels)
    for kind, place in first_places.items():
        if not ({kind} if plain else {f"B-{kind}", f"I-{kind}"}) & set(model_labels):
            raise UserError(
                f"{place}: the model knows no {'tag' if plain else 'entities of type'} {kind!r}, only "
                f"{', '.join(model_labels)}; give a model for these tags, or --train_file"
            )
    return model_labels


def _types(split: Split) -> dict[str, str]:
    """The types of a split's entities, or its plain tags, and where each occurs first."""
    places: dict[str, str] = {}
    for sentence in split.sentences:
        for word, tag in enumerate(sentence.known_tags):
            if split.plain or tag != "O":
                places.setdefault(tag if split.plain else tag[2:], sentence.place(word))
    return places


def _check_plain(source: str, labels: tuple[str, ...]) -> None:
    """Refuse plain tags of which some look like those of spans, and those that would change the columns of a file."""
    for label in labels:
        check_cell(label, source, "a tag")
    if not plain_labels(labels):
        raise UserError(
            f"{source}: --tag_scheme plain is for tags without a prefix, got "
            f"{', '.join(labels)[:200]}; leave it out, or rename the tags that begin with a prefix such as B-"
        )
    if len(labels) < 2:
        raise UserError(
            f"{source}: all words have the tag {labels[0]!r}, so that there is nothing to learn; give "
            "sentences with other tags, too"
        )


def _check_types(splits: dict[str, Split], places: dict[str, dict[str, str]]) -> None:
    """Refuse data to score of which no type occurs in the training data: the names of the tags must differ."""
    known = places["train"]
    for split in places:
        if splits[split].plain and not splits["train"].plain:
            place = next(iter(places[split].values()))
            raise UserError(
                f"{place}: expected tags of spans, such as B-TYPE, as in the training data, got plain ones in the "
                f"{split} data; give both files the same tags"
            )
    for split, types in places.items():
        if types and known and not types.keys() & known.keys():
            kind, place = next(iter(types.items()))
            raise UserError(
                f"{place}: expected {'tags' if splits[split].plain else 'entities of the types'} of the training data "
                f"({', '.join(sorted(known))}), got "
                f"{kind!r}, and none of them in the {split} data; give both files the same names of tags"
            )


def read_file(path: str | Path, mixed_tags: bool = False, reading: Reading = Reading()) -> Split:
    """The sentences of a file: JSON as transformers' scripts take it (.jsonl, .json), or else columns.

    JSON has one object a line, or in a file named .json all objects in one list.

    Raises:
        ValueError: with file and line: the file is malformed; see ``read_conll``.
    """
    if kind_of(path) not in (".jsonl", ".json"):
        return read_conll(path, mixed_tags, reading.scheme)
    choose = partial(_known_columns, tags=reading.column)
    table = read_table(path, choose, may_be_null=(*TAG_COLUMNS, reading.column or ""))
    return _split(str(path), table.columns, None, table.where, mixed_tags, reading)


def _hub_split(rows: Any, source: str, args: NerArguments, reading: Reading) -> Split:
    spelled = {nfc(name): name for name in rows.column_names}
    try:
        columns = _known_columns([*spelled], reading.column)
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    names = None
    for name in set(columns) & {*TAG_COLUMNS, reading.column}:
        feature = rows.features[spelled[name]]
        inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
        names = getattr(inner, "names", None)
    cells = {name: rows[spelled[name]][:] for name in columns}
    return _split(source, cells, names, lambda row: f"{source} row {row}", args.mixed_tags, reading)


def _known_columns(header: list[str], tags: str | None = None) -> list[str]:
    """The columns of words, tags and documents, as far as they are there.

    Args:
        tags: the name of the column of tags, if --label_column gives it.

    Raises:
        ValueError: there is no column of words, or not the one of tags that was named.
    """
    if tags and tags not in header:
        raise UserError(f"expected the column --label_column {tags}, got {', '.join(map(repr, header))}")
    found = [next((name for name in names if name in header), None)
             for names in (WORD_COLUMNS, (tags,) if tags else TAG_COLUMNS, DOCUMENT_COLUMNS)]  # fmt: skip
    if found[0] is None:
        raise UserError(
            f"expected the columns {' or '.join(WORD_COLUMNS)} and {' or '.join(TAG_COLUMNS)}, got "
            f"{', '.join(map(repr, header))}; rename them, each with a list for every sentence"
        )
    return [name for name in found if name is not None]


def _split(
    source: str,
    cells: dict[str, list],
    names: list[str] | None,
    where: Callable[[int], str],
    mixed_tags: bool,
    reading: Reading,
) -> Split:
    """The sentences of a table whose cells are lists.

    Args:
        cells: the columns that ``_known_columns`` found.
        names: those that the numbers of tags stand for, if the source declares some.
        where: the place of a row, for error messages.
    """
    of_tags = (reading.column,) if reading.column else TAG_COLUMNS
    words, tags, documents = (next((cells[name] for name in known if name in cells), None)
                              for known in (WORD_COLUMNS, of_tags, DOCUMENT_COLUMNS))  # fmt: skip
    assert words is not None
    if reading.tag_names and names:
        raise UserError(f"{source}: --tag_names has no effect, because the data set names its tags; leave it out")
    names = names or reading.tag_names
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
        to_bio(split, mixed_tags, reading.scheme)
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
            f"{place}: expected tags by name, or numbers of the names that the data set declares or --tag_names gives "
            f"({str(names)[:200]}); got {wrong!r} in {str(tags)[:60]}; give the names in the order of their numbers, "
            "such as --tag_names O B-PER I-PER, or every word the name of its tag, such as B-PER"
        )
    return [names[tag] for tag in tags]
