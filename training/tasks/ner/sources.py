"""The sources of run_ner.py's sentences, files in columns or the Hub, and the names of their tags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.builtin_data import documentation
from training.files.hashing import digest, sha256
from training.files.hub_datasets import load_from_hub
from training.files.unchanged import unchanged
from training.flags.fine_tuning import NerArguments
from training.tasks.ner.tagged_text import Sentence, Split, one_document_each, read_conll, to_bio
from training.tasks.task_data import files_or_hub, sample_limit

# The names that the columns of a data set of the Hub may have.
WORD_COLUMNS, TAG_COLUMNS = ("tokens", "words"), ("ner_tags", "tags", "ner", "labels")
DOCUMENT_COLUMNS = ("document_id", "doc_id")
SCHEMES_IN_WORDS = {"IOB1": "IOB1, turned into BIO", "BIOES": "BIOES, turned into BIO"}
BUILTIN = "the documentation carried by this Python installation"
GIVE_FILES = (
    "give --train_file and --validation_file in columns (a word a line, its tag last, blank line after a sentence)"
)


METRICS = ("f1", "precision", "recall", "accuracy", "loss")


@dataclass
class NerData:
    """The data of a run: its name, its splits, and the classes: "O", and B- and I- for every type."""

    name: str
    splits: dict[str, Split]
    label_names: tuple[str, ...]

    def facts(self) -> dict:
        """The facts for run.json: sources, counts, hashes and label names."""
        facts = {
            split: {"examples": len(part), "words": part.num_words} | part.facts for split, part in self.splits.items()
        }
        return {"labels": self.label_names, "splits": facts}

    def summary(self) -> str:
        """A few lines for the user: what was read from where."""
        lines = []
        for name, part in self.splits.items():
            documents = part.facts["documents"]
            line = f"{name}: {len(part):,} sentences, {part.num_words:,} words, "
            line += f"{documents:,} documents, " if documents else "no documents marked: each sentence stands alone, "
            scheme = part.facts.get("tag_scheme")
            line += f"tags {SCHEMES_IN_WORDS.get(scheme, scheme)}" if scheme else "no tags"
            if breaks := part.facts.get("entities_that_break_the_scheme"):
                line += f"; {breaks} entities that violate the scheme are read as conlleval reads them"
            lines.append(f"{line}, {part.source}")
        return "\n".join([*lines, f"labels: {', '.join(self.label_names)}"])

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
            splits = {split: read_conll(path, args.mixed_tags) for split, path in files.items()}
            for split, path in files.items():
                splits[split].facts["sha256"] = sha256(Path(path))
    elif args.dataset_name:
        from_hub = load_from_hub(args.dataset_name, args.dataset_config_name, GIVE_FILES)
        splits = {split: _hub_split(rows, f"{args.dataset_name} {split}", args) for split, rows in from_hub.items()}
    else:
        splits = {split: _builtin(split) for split in ("train", "validation")}
    for split in ("train", "validation"):
        if split in splits and not splits[split].tagged:
            raise ValueError(f"{splits[split].source}: expected a word and its tag on a line, got one column only")
    labels = _labels(splits, model_labels)
    for split, part in splits.items():
        part.sentences = part.sentences[: sample_limit(args, split)]
    train = splits.get("train")
    if train and all(tag == "O" for sentence in train.sentences for tag in sentence.tags or ()):
        raise ValueError(
            f"{train.source}: all tags are O; there is nothing to learn. Give sentences with names, or raise "
            "--max_train_samples"
        )
    return NerData(args.dataset_name or ("custom" if files else BUILTIN), splits, labels)


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
    first_places: dict[str, str] = {}
    for split in splits.values():
        for sentence in split.sentences if split.tagged else ():
            for word, tag in enumerate(sentence.known_tags):
                if tag != "O" and tag[2:] not in first_places:
                    first_places[tag[2:]] = sentence.place(word)
    labels = ("O", *(f"{prefix}-{kind}" for kind in sorted(first_places) for prefix in "BI"))
    if "train" in splits:
        return model_labels if model_labels and set(model_labels) == set(labels) else labels
    if not model_labels:
        raise ValueError(
            "without training data the model's config must name the tags in id2label, and it does not; give a "
            "model fine-tuned with run_ner.py, or --train_file"
        )
    for kind, place in first_places.items():
        if not {f"B-{kind}", f"I-{kind}"} & set(model_labels):
            raise ValueError(
                f"{place}: the model knows no entities of type {kind!r}, only {', '.join(model_labels)}; give a "
                "model for these tags, or --train_file"
            )
    return model_labels


def _hub_split(rows: Any, source: str, args: NerArguments) -> Split:
    available = rows.column_names
    columns = [
        next((name for name in names if name in available), None)
        for names in (WORD_COLUMNS, TAG_COLUMNS, DOCUMENT_COLUMNS)
    ]
    words, tags, documents = columns
    if words is None or tags is None:
        raise ValueError(
            f"{source}: expected the columns {' or '.join(WORD_COLUMNS)} and {' or '.join(TAG_COLUMNS)}, "
            f"got {available}"
        )
    feature = rows.features[tags]
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    names = getattr(inner, "names", None)
    numbers: dict = {}
    sentences = []
    for number, row in enumerate(rows.select_columns([name for name in columns if name])):
        place = f"{source} row {number}"
        if not isinstance(row[words], list) or not isinstance(row[tags], list):
            raise ValueError(f"{place}: expected lists of words and tags, got {row[words]!r:.60} and {row[tags]!r:.60}")
        document = numbers.setdefault(row[documents], len(numbers)) if documents else 0
        sentences.append(Sentence(row[words], _hub_tags(row[tags], names, place), document, place))
        if len(row[tags]) != len(row[words]) or not all(isinstance(word, str) and word.strip() for word in row[words]):
            raise ValueError(f"{place}: expected words and a tag for each, got {row[words]} and {row[tags]}")
    untagged = {sentence.tags is None for sentence in sentences}
    if len(untagged) != 1:
        raise ValueError(f"{source}: expected rows that all have tags or all have none, got both, or no row")
    content = digest([[sentence.words, sentence.tags, sentence.document] for sentence in sentences])
    split = Split(source, sentences, {"documents": len(numbers), "sha256": content})
    if not documents:
        one_document_each(split)
    if split.tagged:
        to_bio(split, args.mixed_tags)
    return split


def _hub_tags(tags: list, names: list[str] | None, place: str) -> list[str] | None:
    """The names of a row's tags; None if all are -1, as in test sets with hidden tags."""
    if all(isinstance(tag, str) for tag in tags):
        return tags
    if tags and all(tag == -1 for tag in tags):
        return None
    if names is None or not all(type(tag) is int and 0 <= tag < len(names) for tag in tags):
        raise ValueError(
            f"{place}: expected tags by name, or numbers of the names that the data set declares ({names}); got {tags}"
        )
    return [names[tag] for tag in tags]
