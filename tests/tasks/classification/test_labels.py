"""Labels: what a cell may hold, from files and the Hub alike; classes or scores; labels of data to predict."""

import ast
import json
import math
import re
import unicodedata
from datetime import datetime

import datasets
import pytest
from transformers import BertConfig

from bert_training.files.hashing import checksums
from bert_training.tasks.classification.labels import names_in_order
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.trained_for import TrainedFor, trained_for
from tests.helpers.official_files import glue_arguments, glue_error, own, write_task


def table(tmp_path, *labels: object, name: str = "own.csv") -> str:
    rows = [f"good film {row},{label}\n" for row, label in enumerate(labels)]
    return own(tmp_path, "text,label\n" + "".join(rows), name)


def json_lines(tmp_path, *labels: object, name: str = "own.jsonl") -> str:
    rows = [json.dumps({"text": f"good film {row}", "label": label}) for row, label in enumerate(labels)]
    return own(tmp_path, "\n".join(rows) + "\n", name)


def read(path: str, **given):
    return load_data(glue_arguments(train_file=path, validation_file=path, **given))


def error(path: str, **given) -> str:
    return glue_error(train_file=path, validation_file=path, **given)


def on_the_hub(monkeypatch, names=None, **splits: list) -> None:
    """Data sets with these labels in the place of one on the Hub."""
    datasets = pytest.importorskip("datasets")
    made = {}
    for split, labels in splits.items():
        made[split] = datasets.Dataset.from_dict({"text": [f"t {row}" for row in range(len(labels))], "label": labels})
        if names:
            made[split] = made[split].cast_column("label", datasets.ClassLabel(names=names))
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: datasets.DatasetDict(made))


# --- A cell ------------------------------------------------------------------------------------------------

CELLS = [
    (["good", None], 2, "expected a label, got nothing; fill it in, or leave out the row"),
    ([1.5, math.nan], 2, "expected a label, got nothing; fill it in, or leave out the row"),
    (["good", "bad "], 2, "without spaces around it, tabs and line ends, or several of them, each once; got 'bad '"),
    (["good", "b\tad"], 2, "without spaces around it, tabs and line ends"),
    (["good", "b\u2028ad"], 2, "without spaces around it, tabs and line ends"),
    (["good", "nan"], 2, "expected a label, got 'nan'; fill it in, or leave out the row, or, if it is a class, give"),
    (["good", ""], 2, "expected a label, got nothing; fill it in, or leave out the row"),
    (
        [{"a": 1}, {"a": 2}],
        1,
        "expected a word, a number or a list of them as label, got {'a': 1}; correct it, or name",
    ),
    ([b"good", b"bad"], 1, "expected a word, a number or a list of them as label, got b'good'"),
    ([datetime(2024, 1, 3), datetime(2024, 1, 4)], 1, "list of them as label, got datetime.datetime(2024, 1, 3, 0, 0)"),
]


@pytest.mark.parametrize(("labels", "row", "expected"), CELLS)
def test_the_hub_has_the_checks_of_files(tmp_path, monkeypatch, labels, row, expected):
    on_the_hub(monkeypatch, train=labels, validation=labels)
    told = glue_error(dataset_name="x/y")
    assert told.startswith(f"x/y  train, row {row}: ") and expected in told
    if not any(isinstance(label, bytes | datetime) for label in labels):
        told = error(json_lines(tmp_path, *labels))
        assert f"own.jsonl, row {row}: " in told and expected in told


def test_a_named_class_of_the_hub_that_is_missing_is_refused(monkeypatch):
    for train, validation in (([1, None], [0, 1]), ([1, 0], [0, -1])):  # -1 hides the class
        on_the_hub(monkeypatch, ["neg", "pos"], train=train, validation=validation)
        place = "train" if None in train else "validation"
        assert f"x/y  {place}, row 2: expected a label, got nothing" in glue_error(dataset_name="x/y")
    on_the_hub(monkeypatch, ["None", "NA"], train=[1, 0], validation=[0, 1])  # the data set declares these names
    assert load_data(glue_arguments(dataset_name="x/y")).task.labels == ("None", "NA")


@pytest.mark.parametrize("value", ["nan", "None", "<NA>", "#N/A"])
def test_what_programs_write_for_a_missing_value_is_no_class(tmp_path, value):
    path = table(tmp_path, "0.0", "1.0", value, name="numbers.csv")
    for given in ({}, {"problem_type": "regression"}):
        told = error(path, **given)
        assert f"numbers.csv, row 3: expected a label, got '{value}'; fill it in" in told
    path = table(tmp_path, "good", "bad", value)
    told = error(path)
    assert f"own.csv, row 3: expected a label, got '{value}'; fill it in" in told
    assert told.endswith(", or, if it is a class, give --problem_type single_label")
    # The flag makes it one; an empty field is none.
    assert read(path, problem_type="single_label").task.labels == tuple(sorted(["good", "bad", value]))
    assert "own.csv, row 3: expected a label, got nothing; fill it in, or leave out the row" in error(
        table(tmp_path, "good", "bad", ""), problem_type="single_label"
    )
    path = table(tmp_path, "good", "bad", value)
    # A class of the model may be called so.
    trained = TrainedFor(("bad", "good", value), 3)
    assert load_data(glue_arguments(validation_file=path), trained.names, trained).splits["validation"].labels[2] == 2


@pytest.mark.parametrize("label", ["['a', 'b']", "[1 2]", "[]", '{"choices": ["a", "b"]}', "{'a': 1}"])
def test_json_that_was_written_into_a_csv_is_no_class(tmp_path, label):
    quoted = '"' + label.replace('"', '""') + '"'
    told = error(table(tmp_path, "x", quoted))
    assert "own.csv, row 2: expected a word or a number as label, " in told
    assert "several labels are real lists (.jsonl), cells such as a|b with --label_separator" in told


# --- Classes that may be several labels each -----------------------------------------------------------------


@pytest.mark.parametrize("mark", ["#", ",", "|", "::", " ", "_", "、", " / ", ", "])
def test_whatever_stands_between_labels_asks_for_it_and_its_answer_separates_them(tmp_path, mark):
    cells = ["pay", mark.join(["pay", "late"]), "late", mark.join(["late", "pay", "rude"]), "rude"]
    path = json_lines(tmp_path, *cells * 3)
    told = error(path)
    assert re.search("own.jsonl: the label '.*' may be one class or the labels '(pay|late) and (pay|late)", told)
    separator = ast.literal_eval(told.split("--label_separator ")[1].split(" for several")[0])
    data = read(path, label_separator=separator)
    assert data.task.labels == ("late", "pay", "rude")
    assert data.splits["train"].labels[:4] == [(0, 1, 0), (1, 1, 0), (1, 0, 0), (1, 1, 1)]
    assert len(read(path, problem_type="single_label").task.labels) == 5


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["praise", "complaint", "praise#hotel", "complaint#hotel"], "#"),  # "hotel" never stands alone
        (["a", "c", "a#b"], "#"),
        (["C++", "Java", "Java#C++"], "#"),  # the mark that explains most, and not "++"
        (["R&D", "Sales", "R&D & Sales"], " & "),
        (["New York", "Paris", "Paris; New York"], ";"),
        ([f"tag{row % 7}#tag{row % 11}" for row in range(30)] + ["tag1", "tag2"], "#"),  # most rows are the only ones
    ],
)
def test_one_part_that_is_a_class_is_enough_for_a_mark_that_joins_no_words(tmp_path, cells, separator):
    assert f"give --label_separator {separator!r} for several labels" in error(json_lines(tmp_path, *cells))


NEWS = ["ARTS", "ARTS & CULTURE", "CULTURE & ARTS", "STYLE", "STYLE & BEAUTY", "FOOD & DRINK", "TASTE", "HOME & LIVING"]
COMPLAINTS = ["Payday loan", "Payday loan, title loan, or personal loan", "Credit card", "Credit card or prepaid card",
              "Prepaid card", "Virtual currency", "Money transfer, virtual currency, or money service"]  # fmt: skip


@pytest.mark.parametrize(
    "classes",
    [
        NEWS,
        COMPLAINTS,
        ["entailment", "not_entailment"],
        ["very positive", "positive", "neutral", "negative", "very negative"],
        ["very-positive", "positive", "negative", "very-negative"],
        ["York", "New York", "Paris"],
        ["funny", "not funny"],
        ["C", "C++", "C#", "F#"],
        ["E10", "E10.9", "E11", "E11.9"],
        ["other", "other (rare)", "none (at all)"],
        ["FOOD#QUALITY", "FOOD#PRICES", "SERVICE#GENERAL", "DRINKS#PRICES"],
        ["ดี", "ไม่ดี"],  # a Thai tone mark is no punctuation
        ["好", "不好"],
        ["👍", "👍🏽", "👎"],
        ["sci.space", "sci.med", "talk.politics"],
    ],
)
def test_names_that_contain_marks_or_other_names_are_classes(tmp_path, classes):
    assert read(json_lines(tmp_path, *classes * 2)).task.labels == tuple(sorted(classes))


# --- One name in two Unicode forms ---------------------------------------------------------------------------

NFC, NFD = (tuple(unicodedata.normalize(form, name) for name in ("éloge", "réclamation")) for form in ("NFC", "NFD"))


def test_one_class_in_two_unicode_forms_is_one(tmp_path):
    train, dev = json_lines(tmp_path, *NFD, *NFC, name="train.jsonl"), table(tmp_path, *NFC, name="dev.csv")
    test = table(tmp_path, *NFD, name="test.csv")
    data = load_data(glue_arguments(train_file=train, validation_file=dev, test_file=test))
    assert data.task.labels == (NFC[1], NFC[0])
    assert [part.labels for part in data.splits.values()] == [[1, 0, 1, 0], [1, 0], [1, 0]]
    several = json_lines(tmp_path, [NFD[0], NFD[1]], [NFC[0]], name="several.jsonl")
    assert read(several).splits["train"].labels == [(1, 1), (0, 1)]
    assert read(table(tmp_path, "|".join(NFD), *NFC), label_separator="|").task.labels == (NFC[1], NFC[0])


def test_the_names_of_a_model_are_compared_in_nfc(tmp_path):
    config = BertConfig(id2label=dict(enumerate(NFD)), architectures=["BertForSequenceClassification"])
    trained = trained_for(config, "model", "BertForSequenceClassification")
    for form in (NFC, NFD):
        data = load_data(glue_arguments(validation_file=table(tmp_path, *form)), trained.names, trained)
        assert (data.task.labels, data.splits["validation"].labels) == (NFC, [0, 1])


def test_the_hub_names_classes_and_columns_in_any_form(monkeypatch):
    column = unicodedata.normalize("NFD", "catégorie")
    rows = datasets.Dataset.from_dict({"text": ["e\u0301t\u00e9", "b"], column: [1, 0]})
    rows = rows.cast_column(column, datasets.ClassLabel(names=[*NFD]))
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: datasets.DatasetDict(train=rows, validation=rows))
    data = load_data(glue_arguments(dataset_name="x/y", label_column="catégorie"))
    assert (data.task.labels, data.splits["train"].labels) == (NFC, [1, 0])
    assert data.splits["train"].texts == (["e\u0301t\u00e9", "b"],)  # a text stays as it is


# --- Classes or scores -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "problem_type", "names", "numbers"),
    [
        (["3", "1", "10"], None, ("1", "3", "10"), [1, 0, 2]),
        (["3", "1", "10"], "single_label", ("1", "3", "10"), [1, 0, 2]),
        (["3", "1", "10"], "regression", None, [3.0, 1.0, 10.0]),
        (["0.0", "1.0"], "single_label", ("0", "1"), [0, 1]),
        (["0", "1.0"], "single_label", ("0", "1"), [0, 1]),
        (["0.0", "1.0"], "regression", None, [0.0, 1.0]),
        (["2.5", "1"], None, None, [2.5, 1.0]),
        (["2.5", "1.0"], "single_label", ("1", "2.5"), [1, 0]),
        (["good", "bad"], "single_label", ("bad", "good"), [1, 0]),
        (["1e2", "-3.0"], "single_label", ("-3", "100"), [1, 0]),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_labels_are_classes_or_scores_as_the_flag_says(tmp_path, kind, labels, problem_type, names, numbers):
    path = table(tmp_path, *labels) if kind == "csv" else json_lines(tmp_path, *labels)
    data = read(path, problem_type=problem_type)
    assert (data.task.labels, data.splits["train"].labels) == (names, numbers)
    assert data.problem_type == ("regression" if names is None else "single_label_classification")
    assert data.task.metrics == (("pearson", "spearmanr") if names is None else ("accuracy",))


def test_whole_numbers_with_a_decimal_point_need_the_flag(tmp_path):
    for path in (table(tmp_path, "0.0", "1.0"), json_lines(tmp_path, 0, 1.0, name="more.jsonl")):
        assert "give --problem_type single_label for classes, or --problem_type regression for scores" in error(path)
    # A missing value in one of two files makes pandas write only that file so.
    train, dev = table(tmp_path, "0", "1", name="train.csv"), table(tmp_path, "0.0", "1.0", name="dev.csv")
    told = glue_error(train_file=train, validation_file=dev)
    assert (
        "dev.csv, row 1: expected a label out of 0, 1; got '0.0', and so in 2 rows; write 0, or give --problem_type"
        in told
    )
    data = load_data(glue_arguments(train_file=train, validation_file=dev, problem_type="single_label"))
    assert data.splits["validation"].labels == [0, 1]


def test_one_class_in_two_spellings_is_refused(tmp_path):
    path = table(tmp_path, "TRUE", "False", "TRUE", "FALSE")
    told = error(path)
    assert "own.csv: the label 'False' may be one class or 'FALSE' of another row; write them alike, or" in told
    assert read(path, problem_type="single_label").task.labels == ("FALSE", "False", "TRUE")


# --- The model decides without training data ---------------------------------------------------------------

CLASSES, SCORES = TrainedFor(("0", "1"), 2), TrainedFor(("score",), 1, scores=True)


def evaluated(path: str, trained: TrainedFor, **given):
    return load_data(glue_arguments(validation_file=path, **given), trained.names, trained)


def test_a_model_of_classes_is_not_evaluated_on_scores_nor_the_other_way_round(tmp_path):
    with pytest.raises(ValueError, match=r"expected a label out of 0, 1; got '2.5'"):
        evaluated(table(tmp_path, "2.5", "1.0"), CLASSES)
    with pytest.raises(ValueError, match=r"row 1: expected a number; got 'good'"):
        evaluated(table(tmp_path, "good", "bad"), SCORES)
    with pytest.raises(ValueError, match="the flags ask for regression, and the model was trained for single_label"):
        evaluated(table(tmp_path, "1", "0"), CLASSES, problem_type="regression")
    with pytest.raises(ValueError, match="the flags ask for single_label, and the model was trained for regression"):
        evaluated(table(tmp_path, "1", "0"), SCORES, problem_type="single_label")
    folder = write_task(tmp_path / "stsb", "stsb")
    given = glue_arguments(task_name="stsb", validation_file=str(folder / "dev.tsv"))
    with pytest.raises(ValueError, match="It has the labels 0, 1, expected scores"):
        load_data(given, CLASSES.names, CLASSES)


UNNAMED = TrainedFor(None, 3)


def test_classes_without_names_are_numbers_from_0(tmp_path):
    for labels in (("2", "0", "1"), ("LABEL_2", "LABEL_0", "LABEL_1"), ("2.0", "0.0", "1.0")):
        data = evaluated(table(tmp_path, *labels), UNNAMED)
        assert data.task.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
        assert data.splits["validation"].labels == [2, 0, 1]
    with pytest.raises(ValueError, match=r"own.csv, row 2: expected a label out of LABEL_0, LABEL_1, LABEL_2; got '3'"):
        evaluated(table(tmp_path, "0", "3"), UNNAMED)
    with pytest.raises(ValueError, match=r"row 1: expected a label out of LABEL_0, LABEL_1, LABEL_2; got 'good'"):
        evaluated(table(tmp_path, "good", "bad"), UNNAMED)
    test = own(tmp_path, "text\na\n", "test.csv")
    assert load_data(glue_arguments(test_file=test), None, UNNAMED).label_names == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert load_data(glue_arguments(test_file=test), None, TrainedFor(None, 1, scores=True)).task.labels is None


def test_a_task_of_glue_with_numbered_classes_needs_no_names(tmp_path):
    """The classes of SST-2 are 0 and 1 in its files; those of RTE are words, whose order no number says."""
    two = TrainedFor(None, 2)
    dev = str(write_task(tmp_path / "sst2", "sst2") / "dev.tsv")
    data = load_data(glue_arguments(task_name="sst2", validation_file=dev), None, two)
    assert (data.task.labels, data.splits["validation"].labels[:2]) == (("negative", "positive"), [0, 1])
    dev = str(write_task(tmp_path / "rte", "rte") / "dev.tsv")
    with pytest.raises(
        ValueError,
        match=r"It has the labels LABEL_0, LABEL_1, expected .*name its labels in id2label of",
    ):
        load_data(glue_arguments(task_name="rte", validation_file=dev), None, two)


# --- Upper and lower case ------------------------------------------------------------------------------------


def test_a_label_that_differs_from_a_known_one_in_case_alone_is_that_one(tmp_path):
    """As transformers' examples and published models spell the classes of MNLI."""
    path = own(tmp_path, "premise,hypothesis,label\na,b,ENTAILMENT\na,c,Neutral\na,d,contradiction\n", "own.csv")
    data = load_data(glue_arguments(task_name="mnli", train_file=path, validation_file=path))
    assert data.splits["train"].labels == data.splits["validation_matched"].labels == [0, 1, 2]
    names = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
    data = load_data(glue_arguments(task_name="mnli", validation_file=path), names, TrainedFor(names, 3))
    assert data.task.labels == ("contradiction", "neutral", "entailment")
    assert data.splits["validation_matched"].labels == [2, 1, 0]
    data = evaluated(path, TrainedFor(names, 3), text_column=["premise", "hypothesis"])
    assert (data.task.labels, data.splits["validation"].labels) == (names, [2, 1, 0])
    # Of two classes that differ in case alone, another spelling is neither.
    train, dev = table(tmp_path, "No", "NO", name="train.csv"), table(tmp_path, "NO", "no", name="dev.csv")
    told = glue_error(train_file=train, validation_file=dev, problem_type="single_label")
    assert "dev.csv, row 2: expected a label out of NO, No; got 'no'" in told


# --- Labels of data to predict -----------------------------------------------------------------------------


def labels_to_predict(path: str, trained: TrainedFor = CLASSES, **given) -> list | None:
    return load_data(glue_arguments(test_file=path, **given), trained.names, trained).splits["test"].labels


def test_known_labels_of_data_to_predict_are_read(tmp_path, monkeypatch):
    assert labels_to_predict(table(tmp_path, "1", "0", "1.0")) == [1, 0, 1]
    assert labels_to_predict(table(tmp_path, "1.5", "0"), SCORES) == [1.5, 0.0]
    assert labels_to_predict(table(tmp_path, "-1", "1"), TrainedFor(("-1", "1"), 2)) == [0, 1]
    assert labels_to_predict(table(tmp_path, "True", "False"), TrainedFor(("false", "true"), 2)) == [1, 0]
    on_the_hub(monkeypatch, train=["x", "y"], validation=["x", "y"], test=["y", "x"])
    assert load_data(glue_arguments(dataset_name="x/y", do_predict=True)).splits["test"].labels == [1, 0]


@pytest.mark.parametrize("labels", [(None, None), ("", ""), ("-1", "-1"), (-1, -1), ("?", None), ("x", "y")])
def test_placeholders_of_data_to_predict_are_none(tmp_path, labels):
    assert labels_to_predict(json_lines(tmp_path, *labels)) is None
    assert labels_to_predict(json_lines(tmp_path, *labels[:1] * 2), SCORES) is None


STARS = TrainedFor(("1 star", "2 stars"), 2)


@pytest.mark.parametrize(
    ("labels", "trained", "listed"),
    [
        (("yes", "no"), CLASSES, "('no', 'yes') are not the classes of the model (0, 1)"),
        (("entails", "?"), TrainedFor(("CONTRADICTION", "ENTAILMENT"), 2), "('entails') are not the classes of the mo"),
        (("1", "2"), STARS, "('1', '2') are not the classes of the model (1 star, 2 stars)"),
        (("1,5", "2,5"), SCORES, "('1,5', '2,5') are not numbers, as scores are"),
        (("a", "b", "c", "d"), CLASSES, "('a', 'b', 'c', ...) are not"),
    ],
)
def test_labels_in_another_spelling_are_not_scored_and_a_warning_says_so(tmp_path, labels, trained, listed):
    path = json_lines(tmp_path, *labels)
    data = load_data(glue_arguments(test_file=path), trained.names, trained)
    assert data.splits["test"].labels is None
    assert f"warning: the predictions are not scored, because the labels of this data ({listed.lstrip('(')}" in (
        data.summary()
    )


@pytest.mark.parametrize(("labels", "trained"), [(("1", ""), CLASSES), (("1", "2"), CLASSES), (("1", "?"), CLASSES),
                                                 (("1.5", "good"), SCORES)])  # fmt: skip
def test_data_to_predict_with_labels_in_some_rows_is_refused(tmp_path, labels, trained):
    with pytest.raises(ValueError, match=r"own.csv, row 2: expected a (label out of 0, 1|number); got '"):
        labels_to_predict(table(tmp_path, *labels), trained)


def test_a_whole_number_in_two_spellings_is_refused_and_their_order_is_fixed(tmp_path):
    """Spreadsheets drop leading zeros."""
    assert names_in_order({"1", "01", "2", "+1"}) == ["+1", "01", "1", "2"]
    rows = "".join(f"text {row},{label}\n" for row, label in enumerate(["01", "2", "1", "2"] * 5))
    told = glue_error(train_file=own(tmp_path, "text,label\n" + rows, "own.csv"), validation_split=0.2)
    assert "the label '1' may be one class or '01' of another row; write them alike" in told


def test_rows_of_the_hub_are_known_by_their_content(monkeypatch):
    """What the library calls their fingerprint changes with their place, and not always with a cell."""

    def content(label: str) -> list[str]:
        labels = ["good", "bad"] * 2
        rows = datasets.Dataset.from_dict({"text": [f"t {row}" for row in range(4)], "label": [label, *labels[1:]]})
        made = datasets.DatasetDict(train=rows, validation=rows)
        monkeypatch.setattr(datasets, "load_dataset", lambda *given: made)
        return checksums(load_data(glue_arguments(dataset_name="someone/mails")).facts())

    assert content("good") == content("good") != content("bad") and len(content("good")) == 2
