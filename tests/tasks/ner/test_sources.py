"""bert_training/tasks/ner/sources.py: files and data sets of the Hub, and the names of their tags."""

import json

import pytest
from transformers import BertConfig

from bert_training.inputs.models import config_labels
from bert_training.tasks.ner.sources import load_data
from tests.helpers.tagged_text import CONLL, ner_arguments, ner_error, read_columns, tags, write


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
    assert "all tags to train on are O" in ner_error(
        train_file=write(tmp_path, "a O\n", "o.txt"), validation_file=write(tmp_path, "a O\n", "o.txt")
    )
    assert "all tags to train on are O" in ner_error(train_file=write(tmp_path, "a O\n", "o.txt"), validation_file=path)
    assert "all tags to train on are O" in ner_error(
        train_file=write(tmp_path, f"a NN O O\n\n{CONLL}", "late.txt"), validation_file=path, max_train_samples=1
    )
    assert "expected a tag for every word, got words only" in ner_error(
        train_file=write(tmp_path, "a\n", "one.txt"), validation_file=path
    )
    assert "got LOC, ORG, PER and a model of no tags; give" in ner_error(validation_file=path)
    with pytest.raises(ValueError, match=r"words\.txt: without training data .* got LOC, ORG and a model of O, B-PER"):
        load_data(ner_arguments(validation_file=path), ("O", "B-PER", "I-PER"))


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
    with pytest.raises(ValueError, match="x/y train: expected tags by name, or numbers of the names"):
        load_data(ner_arguments(dataset_name="x/y"))
    columns["ner_tags"] = [["I-PER", "I-PER", "O"], [], ["I-PER"]]
    hub(monkeypatch, {"train": columns, "test": columns})
    data = load_data(ner_arguments(dataset_name="x/y"))
    assert set(data.splits) == {"train", "validation"}
    assert tags(data.splits["validation"])[0] == ["B-PER", "I-PER", "O"]
    assert [sentence.document for sentence in data.splits["train"].sentences] == [0, 1, 2]


def test_a_model_does_not_decide_how_training_data_of_the_hub_is_read(monkeypatch):
    """It does without training data; as with files, new training data says itself what its tags are."""
    columns = {"tokens": [["the", "cat"], ["it"]], "ner_tags": [["DT", "NN"], ["PRP"]]}
    hub(monkeypatch, {"train": columns, "validation": columns})
    data = load_data(ner_arguments(dataset_name="x/y"), ("O", "B-PER", "I-PER"))
    assert data.plain and data.label_names == ("DT", "NN", "PRP")
    hub(monkeypatch, {split: {"tokens": [["Ada"]], "ner_tags": [["B-PER"]]} for split in ("train", "validation")})
    assert load_data(ner_arguments(dataset_name="x/y"), ("DT", "NN")).label_names == ("O", "B-PER", "I-PER")


def test_test_data_adds_no_class(tmp_path):
    """What a model can say does not depend on what it is tested on."""
    known = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    train = write(tmp_path, "Ada B-PER\nin O\nRome B-LOC\n", "train.txt")
    test = write(tmp_path, "Ada B-PER\nin O\nLatin B-MISC\n", "test.txt")
    data = load_data(ner_arguments(train_file=train, validation_file=train, test_file=test), known)
    assert data.label_names == known
    assert "the training data has no entities of type MISC" in data.summary()
    assert "B-MISC" in load_data(ner_arguments(train_file=train, validation_file=test), known).label_names


def test_types_may_have_spaces_where_a_tag_is_a_cell(tmp_path):
    rows = '{"tokens": ["flu", "in", "Rome"], "ner_tags": ["B-Medical Condition", "O", "B-LOC"]}\n'
    path = write(tmp_path, rows, "own.jsonl")
    data = load_data(ner_arguments(train_file=path, validation_file=path))
    assert data.label_names == ("O", "B-LOC", "I-LOC", "B-Medical Condition", "I-Medical Condition")
    assert "tags without a prefix" in ner_error(train_file=path, validation_file=path, tag_scheme="plain")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"tokens": ["Anna left"], "ner_tags": ["B-PER O"]}, "x/y train, row 1: expected words and a tag for each"),
        ({"tokens": ["Anna"], "ner_tags": [["O"] * 4]}, "x/y train, row 1: expected words and a tag for each"),
        ({"tokens": [["Anna"]], "ner_tags": [[1]]}, "x/y train: expected tags by name"),
        ({"tokens": [["Anna"]], "ner_tags": [["b-per"]]}, "x/y train, row 1: expected a tag O, B-TYPE or I-TYPE, got"),
        ({"tokens": [["Anna"]], "ner_tags": [["person"]]}, "x/y train: all tags to train on are person"),
        ({"tokens": [["Anna"]], "ner_tags": [[""]]}, "x/y train: expected a tag for every word, got words only"),
        ({"tokens": [[]], "ner_tags": [[]]}, "x/y train: expected a tag for every word, got words only"),
        ({"tokens": [["Anna"]]}, "x/y train: expected a tag for every word, got words only"),
    ],
)
def test_columns_of_the_hub_of_other_kinds_are_refused(monkeypatch, columns, expected):
    hub(monkeypatch, {"train": columns, "validation": columns})
    assert ner_error(dataset_name="x/y").startswith(expected)


def test_names_of_a_data_set_need_no_o_and_hidden_tags_may_have_empty_rows(monkeypatch):
    columns = {"tokens": [["Anna", "Berg"], ["Nils"]], "ner_tags": [[0, 1], [0]]}
    hidden = {"tokens": [[], ["Clara", "left"]], "ner_tags": [[], [-1, -1]]}
    hub(monkeypatch, {"train": columns, "validation": columns}, ["B-PER", "I-PER"])
    data = load_data(ner_arguments(dataset_name="x/y"))
    assert data.label_names == ("O", "B-PER", "I-PER")
    assert tags(data.splits["train"]) == [["B-PER", "I-PER"], ["B-PER"]]
    hub(monkeypatch, {"train": columns, "validation": columns, "test": hidden}, ["B-PER", "I-PER"])
    test = load_data(ner_arguments(dataset_name="x/y")).splits["test"]
    assert not test.tagged and [sentence.words for sentence in test.sentences] == [[], ["Clara", "left"]]


def test_other_names_of_the_same_tags_are_refused_and_rare_ones_are_said(tmp_path):
    train = write(tmp_path, "Anna B-PER\nleft O\nBasel B-LOC\n", "train.txt")
    other = write(tmp_path, "left O\nNils B-Person\n", "dev.txt")
    told = ner_error(train_file=train, validation_file=other)
    assert told.startswith(f"{other}: expected tags of the training data (LOC, PER), got Person")
    told = ner_error(train_file=train, validation_file=train, test_file=other)
    assert told.startswith(f"{other}: ") and "in the test data" in told
    rare = write(tmp_path, "Nils B-PER\nUN B-ORG\n", "rare.txt")
    data = load_data(ner_arguments(train_file=train, validation_file=rare))
    assert data.label_names == ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
    told = data.summary().splitlines()
    assert "the training data has no entities of type ORG" in told[1] and "no entities of" not in told[0]
    plain = write(tmp_path, "left O\n", "plain.txt")
    load_data(ner_arguments(train_file=train, validation_file=plain))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (
            ("O", "B-PER", "E-PER", "S-PER"),
            "expected tags that the model knows .* got known ones and a model of O, B-PER, E-PER, S-PER",
        ),
        (("O", "PER"), "expected tags that the model knows .* got B-PER and a model of O, PER"),
        (("negative", "positive"), "expected tags that the model knows"),
    ],
)
def test_a_model_with_other_tags_predicts_but_is_not_scored(tmp_path, labels, expected):
    tagged, plain = write(tmp_path, "Anna B-PER\n"), write(tmp_path, "Anna\n", "plain.txt")
    for flag in ("validation_file", "test_file"):
        with pytest.raises(ValueError, match=expected):
            load_data(ner_arguments(**{flag: tagged}), labels)
    assert load_data(ner_arguments(test_file=plain), labels).label_names == labels


def test_one_tag_in_two_unicode_forms_is_one_and_words_stay_as_they_are(tmp_path, monkeypatch):
    nfc, nfd, word = "r\u00e9gion", "re\u0301gion", "Ve\u0301lizy"
    path = write(tmp_path, f"{word} B-{nfd}\nParis B-{nfc}\nslept O\n")
    dev = write(tmp_path, f"Paris B-{nfc}\nslept O\n", "dev.txt")
    data = load_data(ner_arguments(train_file=path, validation_file=dev))
    assert data.label_names == ("O", f"B-{nfc}", f"I-{nfc}")
    assert data.splits["train"].sentences[0].words == [word, "Paris", "slept"]
    model = config_labels(BertConfig(id2label={0: "O", 1: f"B-{nfd}", 2: f"I-{nfd}"}))
    assert load_data(ner_arguments(validation_file=path), model).label_names == data.label_names
    hub(monkeypatch, {"train": {"tokens": [["a", "b"]], f"tags_{nfd}": [[f"B-{nfd}", "O"]]},
                      "validation": {"tokens": [["a"]], f"tags_{nfd}": [[f"B-{nfc}"]]}})  # fmt: skip
    assert load_data(ner_arguments(dataset_name="x/y", label_column=f"tags_{nfc}")).label_names == data.label_names


@pytest.mark.parametrize("name", ["new.jsonl", "new.json"])
@pytest.mark.parametrize(("words", "marks"), [("tokens", "ner_tags"), ("words", "tags")])
def test_json_lines_give_the_sentences_of_the_same_file_in_columns(tmp_path, name, words, marks):
    columns = read_columns(write(tmp_path, CONLL))
    rows = [{"id": str(n), words: s.words, marks: s.tags} for n, s in enumerate(columns.sentences)]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), name)
    data = load_data(ner_arguments(train_file=path, validation_file=path))
    read = data.splits["train"]
    assert [s.words for s in read.sentences] == [s.words for s in columns.sentences]
    assert tags(read) == tags(columns)
    assert [s.document for s in read.sentences] == [0, 1, 2, 3]
    assert read.sentences[2].place(1) == f"{path}, row 3"
    alone = write(tmp_path, "".join(json.dumps({words: row[words]}) + "\n" for row in rows), f"alone-{name}")
    test = load_data(ner_arguments(test_file=alone), data.label_names).splits["test"]
    assert not test.tagged and [s.words for s in test.sentences] == [s.words for s in columns.sentences]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('{"tokens": "Ada slept", "ner_tags": ["O", "O"]}', ", row 2: expected a list in 'tokens'"),
        ('{"tokens": ["Ada"], "ner_tags": "O"}', ", row 2: expected a list in 'tags'"),
        ('{"tokens": ["Ada"], "ner_tags": ["O", "O"]}', ", row 2: expected words and a tag for each, in two lists"),
        ('{"tokens": ["Ada", " "], "ner_tags": ["O", "O"]}', ", row 2: expected words and a tag for each"),
        ('{"tokens": ["Ada", "B"], "ner_tags": ["O", null]}', ", row 2: expected words and a tag for each"),
        (
            '{"tokens": ["Ada", "B"], "ner_tags": ["O", -100]}',
            ", row 2: expected a tag O, B-TYPE or I-TYPE, got '-100'",
        ),
        ('{"tokens": ["a"], "ner_tags": ["P\\nER"]}', r", row 2: expected a tag O, B-TYPE or I-TYPE, got 'P\nER'"),
        (
            '{"tokens": ["Ada"], "ner_tags": null}',
            ", row 2: expected words and a tag for each, in two lists, in all rows or",
        ),
        ("[\n", ":2: not valid JSON"),
    ],
)
def test_json_lines_that_do_not_fit_are_refused_with_their_row(tmp_path, row, expected):
    path = write(tmp_path, '{"tokens": ["Bob"], "ner_tags": ["B-PER"]}\n' + row + "\n", "own.jsonl")
    told = ner_error(train_file=path, validation_file=path)
    assert told.startswith(f"{path}{expected}") and told.isprintable()
