"""The columns of labelled texts: usual names are found, and nothing else is guessed."""

import json
import unicodedata
from functools import partial

import pandas
import pytest

from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.trained_for import TrainedFor
from tests.helpers.official_files import glue_arguments, glue_error, own

ROWS = [("1", "good film", "very", "a"), ("5", "bad film", "not", "b")]
NAME_IT = "name the text with --text_column (two names for a pair)"


def table(tmp_path, header: str, *columns: int, name: str = "own.csv") -> str:
    """A file with some columns of ROWS."""
    rows = [",".join(row[column] for column in columns) for row in ROWS]
    return own(tmp_path, "\n".join([header, *rows]) + "\n", name)


def error(path: str, **given) -> str:
    return glue_error(train_file=path, validation_file=path, **given)


# --- The text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("stars,review,label", (0, 1, 3)),
        ("claim,evidence,label", (1, 2, 3)),
        ("premise,hypothesis,label", (1, 2, 3)),
        ("sentence,label", (1, 3)),
        ("Text,label", (1, 3)),
        ("text,sentence1,label", (1, 2, 3)),
        ("text,sentence1,sentence2,label", (1, 2, 1, 3)),
    ],
)
def test_no_text_is_guessed_and_a_flag_names_it(tmp_path, header, columns):
    path = table(tmp_path, header, *columns)
    told = error(path)
    assert (
        "own.csv: expected a column 'text', or 'sentence1' and 'sentence2' for pairs; got " in told and NAME_IT in told
    )
    data = load_data(glue_arguments(train_file=path, validation_file=path, text_column=[header.split(",")[0]]))
    assert data.splits["train"].texts == ([row[columns[0]] for row in ROWS],)


def test_a_flag_names_a_pair_in_its_order(tmp_path):
    path = table(tmp_path, "claim,evidence,label", 1, 2, 3)
    data = load_data(glue_arguments(train_file=path, validation_file=path, text_column=["evidence", "claim"]))
    assert data.splits["train"].texts == (["very", "not"], ["good film", "bad film"])
    assert "expected a column 'proof' (name another with --text_column); got 'claim', 'evidence', 'label'" in error(
        path, text_column=["evidence", "proof"]
    )


@pytest.mark.parametrize("text", ["", "\u3000\u00a0"])
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_text_without_characters_is_counted_and_said_with_its_line(tmp_path, kind, text):
    separator = {"csv": ",", "tsv": "\t"}.get(kind)
    lines = [json.dumps({"text": one, "label": label}) for one, label in (("a", "x"), (text, "y"))]
    if separator:
        lines = [separator.join(row) for row in (("text", "label"), ("a", "x"), (text, "y"))]
    path = own(tmp_path, "\n".join(lines) + "\n", f"own.{kind}")
    data = load_data(glue_arguments(train_file=path, validation_file=path))
    assert f"1 of 2 rows have an empty text, of which the model can tell nothing, the first: {path}, row 2;" in (
        data.summary()
    )


# --- The label ---------------------------------------------------------------------------------------------


def test_the_label_column_is_named_by_a_flag(tmp_path):
    path = table(tmp_path, "text,score,sentiment", 1, 0, 3)
    assert "own.csv: expected a column 'label' or 'labels' (name another with --label_column); got" in error(path)
    data = load_data(glue_arguments(train_file=path, validation_file=path, label_column="sentiment"))
    assert data.task.labels == ("a", "b")
    assert "expected a column 'mood' (name another with --label_column); got 'text'" in error(path, label_column="mood")


# --- What the model was trained on -------------------------------------------------------------------------

ONE = TrainedFor(("a", "b"), 2, texts=1, text_columns=("review",), label_column="grade")


def test_without_training_data_the_columns_are_those_of_the_training(tmp_path):
    path = table(tmp_path, "stars,review,grade", 0, 1, 3)
    data = load_data(glue_arguments(validation_file=path), ("a", "b"), ONE)
    assert data.splits["validation"].texts == (["good film", "bad film"],)
    data = load_data(glue_arguments(test_file=table(tmp_path, "text", 1)), ("a", "b"), ONE)
    assert data.splits["test"].columns.texts == ("text",)
    with pytest.raises(
        ValueError, match=r"expected a column 'review' or 'text' .name another with --text_column.; got"
    ):
        load_data(glue_arguments(test_file=table(tmp_path, "comment", 1)), ("a", "b"), ONE)
    path = table(tmp_path, "stars,review,grade", 0, 1, 3)
    data = load_data(glue_arguments(test_file=path, text_column=["stars"]), ("a", "b"), ONE)
    assert data.splits["test"].texts == (["1", "5"],)
    # A table for a training has columns of its own.
    path = table(tmp_path, "review,text,grade,label", 2, 1, 0, 3)
    data = load_data(glue_arguments(train_file=path, validation_file=path), ("a", "b"), ONE)
    assert (data.splits["train"].columns.texts, data.splits["train"].columns.label) == (("text",), "label")


def test_a_model_of_pairs_takes_pairs_only_and_the_other_way_round(tmp_path):
    pairs = TrainedFor(("a", "b"), 2, texts=2, text_columns=("sentence1", "sentence2"))
    with pytest.raises(ValueError, match=r"expected a column 'sentence1'.*; 'sentence2'"):
        load_data(glue_arguments(test_file=table(tmp_path, "text", 1)), ("a", "b"), pairs)
    path = table(tmp_path, "text_a,text_b", 1, 2)
    named = glue_arguments(test_file=path, text_column=["text_a", "text_b"])
    with pytest.raises(ValueError, match="It was trained on single texts, got pairs of texts"):
        load_data(named, ("a", "b"), ONE)
    assert len(load_data(named, ("a", "b"), pairs).splits["test"].texts) == 2


@pytest.mark.parametrize("column", ["score", "labels"])
def test_without_training_data_the_label_column_is_that_of_the_training_if_it_is_there(tmp_path, column):
    trained = TrainedFor(("a", "b"), 2, texts=1, text_columns=("text",), label_column=column)
    for header, columns in ((f"text,{column}", (1, 3)), (f"target,text,{column}", (0, 1, 3))):
        path = table(tmp_path, header, *columns)
        for files in ({"validation_file": path}, {"test_file": path}):
            data = load_data(glue_arguments(**files), ("a", "b"), trained)
            assert {part.columns.label for part in data.splits.values()} == {column}


def test_another_column_of_new_data_is_not_taken_for_its_labels(tmp_path):
    """A model that knows its label column leaves "score" alone, which may be anything in a table of new texts."""
    path = own(tmp_path, "text,score\ngood film,7\nbad film,12\n", "own.csv")
    hot = TrainedFor(
        ("toxic", "mild"), 2, several_labels=True, texts=1, text_columns=("text",), hot_columns=("toxic", "mild")
    )
    for trained in (hot, TrainedFor(("a", "b"), 2, texts=1, text_columns=("text",), label_column="stars")):
        assert load_data(glue_arguments(test_file=path), trained.names, trained).splits["test"].labels is None
    trained = TrainedFor(None, 1, scores=True, texts=1, text_columns=("text",), label_column="stars")
    assert load_data(glue_arguments(test_file=path), None, trained).splits["test"].labels is None
    data = load_data(glue_arguments(test_file=path, label_column="score"), None, trained)
    assert data.splits["test"].labels == [7.0, 12.0]


# --- Unicode -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_names_of_columns_are_compared_in_nfc_and_texts_stay_as_they_are(tmp_path, kind):
    """macOS writes names in NFD; flags and the other file have the other form. The flags of a script are in NFC."""
    names, rows = ["résumé", "catégorie", "rédaction"], [["e\u0301t\u00e9", "a", "n\u00e9"], ["bad", "b", "ne\u0301"]]
    files = {}
    for form in ("NFC", "NFD"):
        header = [unicodedata.normalize(form, name) for name in names]
        files[form] = tmp_path / f"{form}.{kind}"
        frame = pandas.DataFrame(rows, columns=header)
        write = {"csv": partial(frame.to_csv, index=False), "parquet": frame.to_parquet}
        write |= {"jsonl": partial(frame.to_json, orient="records", lines=True)}
        write[kind](files[form])
        given = {"text_column": [header[0]], "label_column": [header[1]], "group_column": header[2]}
    args = GlueArguments(output_dir="x", model_name_or_path="m", train_file="t", validation_split=0.5, **given)
    assert (args.text_column, args.label_column, args.group_column) == ([names[0]], names[1], names[2])
    flags = {"text_column": args.text_column, "label_column": args.label_column, "group_column": args.group_column}
    for train, dev in (("NFC", "NFD"), ("NFD", "NFC")):
        data = load_data(glue_arguments(train_file=str(files[train]), validation_file=str(files[dev]), **flags))
        for part in data.splits.values():
            assert part.texts == (["e\u0301t\u00e9", "bad"],) and part.columns.label == names[1]
        assert data.splits["train"].groups == ["n\u00e9", "n\u00e9"]
    twice = own(tmp_path, "cat\u00e9gorie,text,cate\u0301gorie\na,x,b\n", "twice.csv")
    assert "column 'cat\u00e9gorie' is there twice; rename one" in error(twice, label_column=names[1])


# --- Ids, weights, groups, delimiters ------------------------------------------------------------------------

SHEET = "ticket;mail;weight;writer;label\nt1;good, film;2;ann;a\nt2;bad film;0.5;bob;b\nt3;the film;0;ann;b\n"
NAMED = {
    "text_column": ["mail"],
    "id_column": "ticket",
    "weight_column": "weight",
    "group_column": "writer",
    "delimiter": ";",
}


def test_flags_name_every_column_and_the_delimiter(tmp_path):
    path = own(tmp_path, SHEET, "own.csv")
    data = load_data(glue_arguments(train_file=path, validation_file=path, **NAMED))
    train = data.splits["train"]
    assert (train.texts, train.index) == ((["good, film", "bad film", "the film"],), ["t1", "t2", "t3"])
    assert (train.weights, train.groups) == ([2.0, 0.5, 0.0], ["ann", "bob", "ann"])
    assert (data.splits["validation"].weights, data.splits["validation"].groups) == (None, None)
    assert (data.stored_facts()["id_column"], data.stored_facts()["delimiter"]) == ("ticket", ";")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"weight_column": "wait"}, ": expected a column 'wait' (name another with --weight_column); got 'ticket', "),
        ({"group_column": "who"}, ": expected a column 'who' (name another with --group_column); got 'ticket', 'mail'"),
        ({"old": ";ann;", "new": "; ;"}, ", row 1: expected a group, got an empty cell; a row that"),
        ({"id_column": "no"}, "--id_column no: no file has such a column; correct the name"),
        ({"old": ";2;", "new": ";-2;"}, ", row 1: expected a weight of at least 0, got '-2'; correct it"),
        ({"weight_column": "none"}, ", row 1: this and all other training examples (3) have the weight 0 in 'none'"),
        ({"old": ";2;", "new": ";0;", "max_train_samples": 1}, ", row 1: this and all other training examples (1) "),
    ],
)  # fmt: skip
def test_mistakes_in_the_other_columns_are_refused(tmp_path, change, expected):
    given = NAMED | {name: value for name, value in change.items() if name not in ("old", "new")}
    rows = SHEET.splitlines()
    sheet = "\n".join(row + end for row, end in zip(rows, (";none", ";0", ";0", ";0")))
    path = own(tmp_path, sheet.replace(change.get("old", "?"), change.get("new", "?")) + "\n", "own.csv")
    assert expected in error(path, label_column=None, **given)
