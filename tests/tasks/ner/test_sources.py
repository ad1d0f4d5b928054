"""training/tasks/ner/sources.py: files and data sets of the Hub, and the names of their tags."""

import pytest

from tests.helpers.tagged_text import CONLL, ner_arguments, ner_error, tags, write
from training.tasks.ner.sources import load_data


def test_labels_are_those_of_the_data_or_the_model(tmp_path):
    path = write(tmp_path, CONLL)
    own = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert load_data(ner_arguments(train_file=path, validation_file=path)).label_names == own
    other = tuple(reversed(own))
    assert load_data(ner_arguments(train_file=path, validation_file=path), other).label_names == other
    assert load_data(ner_arguments(train_file=path, validation_file=path), ("O", "B-X")).label_names == own
    assert load_data(ner_arguments(validation_file=path), (*own, "B-MISC")).label_names == (*own, "B-MISC")
    iob1 = ("O", "I-LOC", "I-ORG", "I-PER", "B-PER")  # Models of IOB1 may lack tags that are rare in that scheme.
    assert load_data(ner_arguments(validation_file=path), iob1).label_names == iob1


def test_wrong_combinations_of_sources_are_refused(tmp_path):
    path = write(tmp_path, CONLL)
    assert ner_error(train_file=path, dataset_name="x").endswith("or --dataset_name, not both")
    assert ner_error(train_file=path).startswith("--train_file needs --validation_file")
    assert "all tags are O" in ner_error(
        train_file=write(tmp_path, "a O\n", "o.txt"), validation_file=write(tmp_path, "a O\n", "o.txt")
    )
    assert "all tags are O" in ner_error(train_file=write(tmp_path, "a O\n", "o.txt"), validation_file=path)
    assert "all tags are O" in ner_error(
        train_file=write(tmp_path, f"a NN O O\n\n{CONLL}", "late.txt"), validation_file=path, max_train_samples=1
    )
    assert "one column only" in ner_error(train_file=write(tmp_path, "a\n", "one.txt"), validation_file=path)
    assert "must name the tags in id2label" in ner_error(validation_file=path)
    with pytest.raises(ValueError, match=r"words\.txt:6: the model knows no entities of type 'LOC', only O, B-PER"):
        load_data(ner_arguments(validation_file=path), ("O", "B-PER", "I-PER"))
    assert "cannot be read" in ner_error(validation_file=str(tmp_path / "none.txt"))


def test_a_limit_takes_the_first_sentences(tmp_path):
    path = write(tmp_path, CONLL)
    data = load_data(ner_arguments(train_file=path, validation_file=path, max_train_samples=3, max_eval_samples=1))
    assert [len(data.splits[name].sentences) for name in ("train", "validation")] == [3, 1]
    assert "ORG" in "".join(data.label_names)
    assert data.facts()["splits"]["train"]["words"] == 17
    assert len(data.facts()["splits"]["train"]["sha256"]) == 64


def hub(monkeypatch, splits: dict, names=None):
    datasets = pytest.importorskip("datasets")
    made = {split: datasets.Dataset.from_dict(columns) for split, columns in splits.items()}
    if names:
        feature = datasets.Sequence(datasets.ClassLabel(names=names))
        made = {split: rows.cast_column("ner_tags", feature) for split, rows in made.items()}
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: datasets.DatasetDict(made))


def test_sentences_are_read_from_the_hub(monkeypatch):
    names = ["O", "B-PER", "I-PER"]
    columns = {"tokens": [["Anna", "Berg", "left"], [], ["Nils"]], "ner_tags": [[1, 2, 0], [], [1]]}
    hidden = {"tokens": [["Clara"]], "ner_tags": [[-1]]}
    documents = {"document_id": ["a", "a", "b"]}
    hub(monkeypatch, {"train": columns | documents, "validation": columns | documents}, names)
    data = load_data(ner_arguments(dataset_name="x/y"))
    assert tags(data.splits["train"]) == [["B-PER", "I-PER", "O"], [], ["B-PER"]]
    assert [sentence.document for sentence in data.splits["train"].sentences] == [0, 0, 1]
    hub(monkeypatch, {"train": columns, "validation": columns, "test": hidden})
    with pytest.raises(ValueError, match="x/y train row 0: expected tags by name, or numbers of the names"):
        load_data(ner_arguments(dataset_name="x/y"))
    columns["ner_tags"] = [["I-PER", "I-PER", "O"], [], ["I-PER"]]
    hub(monkeypatch, {"train": columns, "test": columns})
    data = load_data(ner_arguments(dataset_name="x/y"))
    assert set(data.splits) == {"train", "validation"}
    assert tags(data.splits["validation"])[0] == ["B-PER", "I-PER", "O"]
    assert [sentence.document for sentence in data.splits["train"].sentences] == [0, 1, 2]


def test_data_sets_that_do_not_fit_are_refused(monkeypatch):
    columns = {"tokens": [["Anna", "Berg"]], "ner_tags": [["O"]]}
    hub(monkeypatch, {"train": columns, "validation": columns})
    assert "x/y train row 0: expected words and a tag for each" in ner_error(dataset_name="x/y")
    for fault in ({"tokens": [None]}, {"ner_tags": [None]}, {"tokens": ["Anna"], "ner_tags": ["OOOO"]}):
        hub(monkeypatch, {"train": columns | fault, "validation": columns | fault})
        assert "x/y train row 0: expected lists of words and tags, got " in ner_error(dataset_name="x/y")
    hub(monkeypatch, {"train": {"text": ["a"]}, "validation": {"text": ["a"]}})
    assert "x/y train: expected the columns tokens or words and ner_tags" in ner_error(dataset_name="x/y")
    hub(monkeypatch, {"train": columns})
    assert "expected the splits train, validation or test; got ['train']" in ner_error(dataset_name="x/y")
    datasets = pytest.importorskip("datasets")

    def offline(*given):
        raise RuntimeError("Dataset scripts are no longer supported\nand so on")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    told = ner_error(dataset_name="x/y")
    assert told.startswith("--dataset_name x/y: cannot be loaded (Dataset scripts are no longer supported); check")
    assert "give --train_file" in told and "\n" not in told
