"""SWAG: reading its files, messages about malformed ones, the inputs of the model, and its predictions."""

import csv
import io
import json
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bert_training.inputs.flags.fine_tuning import SwagArguments
from bert_training.tasks import swag
from tokenization import build_tokenizer

# The columns of the official train.csv and val.csv; the rows were written for these tests.
SWAG = """,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label
0,v_1,11,"A man takes a violin, slowly. The man","A man takes a violin, slowly.",The man,gold,begins to play.,boils.,\
swims away.,"says ""no"".",0
1,v_2,12,"The child runs. She","The child runs.",She,gen,becomes a lake.,falls over it.,reads it aloud.,is a song.,1
2,v_3,13,"Two teams meet. One","Two teams meet.",One,gold,paints.,is a letter.,melts.,scores a goal.,3
"""


def flags(**given) -> SimpleNamespace:
    return SimpleNamespace(**dict.fromkeys(field.name for field in fields(SwagArguments)) | given)


def write(folder, text: str | bytes, name: str = "val.csv") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def message(**given) -> str:
    with pytest.raises(ValueError) as caught:
        swag.load_data(flags(**given))
    return str(caught.value)


def test_the_official_layout_is_read(tmp_path):
    examples = swag.read_swag(write(tmp_path, SWAG))
    assert examples.contexts == ["A man takes a violin, slowly.", "The child runs.", "Two teams meet."]
    assert examples.endings[0] == [
        "The man begins to play.",
        "The man boils.",
        "The man swims away.",
        'The man says "no".',
    ]
    assert examples.labels == [0, 1, 3]
    assert examples.index == ["0", "1", "2"]
    assert len(examples.facts["sha256"]) == 64


def test_an_id_wins_over_the_index_that_pandas_writes(tmp_path):
    path = write(tmp_path, ",id,sent1,ending0,ending1,label\n0,7,a,b,c,1\n1,8,a,b,c,0\n", "own.csv")
    assert swag.read_swag(path).index == ["7", "8"]


def test_hidden_labels_and_other_kinds_of_files(tmp_path):
    rows = list(csv.reader(io.StringIO(SWAG)))
    hidden = "".join(",".join(f'"{x}"' for x in row[:-1]).replace('"no"', "no") + "\n" for row in rows)
    assert swag.read_swag(write(tmp_path, hidden, "test.csv"), labelled=False).labels is None
    objects = [
        {"sent1": "a", "ending0": "b", "ending1": "c", "label": label, "id": name}
        for name, label in (("x", 1), ("y", 0))
    ]
    lines = "".join(json.dumps(row) + "\n" for row in objects)
    examples = swag.read_swag(write(tmp_path, lines, "own.jsonl"))
    assert (examples.endings[0], examples.labels, examples.index) == (["b", "c"], [1, 0], ["x", "y"])
    for label in (-1, None):
        lines = "".join(json.dumps(row | {"label": label}) + "\n" for row in objects)
        assert swag.read_swag(write(tmp_path, lines, "hidden.jsonl"), labelled=False).labels is None
    with pytest.raises(ValueError, match=r"hidden\.jsonl, row 1: expected a label, got nothing"):
        swag.read_swag(tmp_path / "hidden.jsonl")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "is a song.,1",
            "is a song.,4",
            ", row 2: expected text in sent1 and ending0 to ending3, and a label from 0 to 3",
        ),
        ("is a song.,1", "is a song.,", ", row 2: expected text in sent1 and ending0"),
        ("is a song.,1", "is a song.,x", ", row 2: expected text in sent1 and ending0"),
        ("falls over it.", " ", ", row 2: expected text in sent1 and ending0"),
        ("ending1", "ending7", ": expected a column 'ending1'; got ''"),
        ("ending2", "ending7", ", row 1: expected text in sent1 and ending0 to ending7"),
        (",label", ",answer", ": expected a column 'label'"),
        ("ending1", "ending01", ": expected a column 'ending1'"),
        ("sent1", "sentence", ": expected a column 'sent1'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, old, new, expected):
    assert old in SWAG
    path = write(tmp_path, SWAG.replace(old, new, 1).encode(errors="surrogateescape"))
    assert message(train_file=path, validation_file=path).startswith(path + expected)


def test_an_ending_that_the_first_row_lacks_is_not_left_out_of_all_rows(tmp_path):
    row = {"sent1": "a", "ending0": "b", "ending1": "c", "ending2": "d", "label": 1}
    first = {name: value for name, value in row.items() if name != "ending2"}
    path = write(tmp_path, "".join(json.dumps(each) + "\n" for each in (first, row, row)), "own.jsonl")
    with pytest.raises(ValueError, match=r"own\.jsonl, row 1: expected text in sent1 and ending0 to ending2"):
        swag.read_swag(path)


def test_swag_is_read_from_the_hub(monkeypatch):
    datasets = pytest.importorskip("datasets")
    columns = {"sent1": ["a", "b"], "sent2": ["c", "d"], "video-id": ["v", "w"]}
    columns |= {f"ending{i}": [f"e{i}", f"f{i}"] for i in range(4)}

    def rows(labels):
        names = datasets.ClassLabel(names=["0", "1", "2", "3"])
        return datasets.Dataset.from_dict(columns | {"label": labels}).cast_column("label", names)

    made = {"train": rows([3, 1]), "validation": rows([0, 2]), "test": rows([-1, -1])}
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: asked.append(given) or datasets.DatasetDict(made))
    data = swag.load_data(flags(dataset_name="allenai/swag", dataset_config_name="regular"))
    assert asked == [("allenai/swag", "regular")]
    assert [data.splits[split].labels for split in made] == [[3, 1], [0, 2], None]
    assert data.splits["train"].endings[1] == ["d f0", "d f1", "d f2", "d f3"]
    plain = datasets.Dataset.from_dict(columns | {"label": [3, 1]})
    for labels in ([3, None], [3.0, 1.0], [[3], [1]], ["3", ""], [True, False], [3, -1], [3, 4]):
        made["train"] = plain.remove_columns("label").add_column("label", labels)
        assert "allenai/swag train, row " in message(dataset_name="allenai/swag")
    made["train"] = plain
    made["validation"] = made["validation"].remove_columns("sent1")
    assert message(dataset_name="allenai/swag").startswith("allenai/swag validation: expected a column 'sent1'")


def test_every_choice_is_a_pair_of_its_own(vocab):
    tokenizer = build_tokenizer(vocab)
    endings = [["red house", "blue"], ["green", "city garden winter"]]
    data = swag.SwagData("x", {"train": swag.SwagExamples(["the king", "old"], endings, [1, 0], ["0", "1"], {})})
    features = swag.features(data, tokenizer, 16)["train"]
    batch = features.collate([1, 0])
    assert batch["input_ids"].shape == (2, 2, 7)
    tokens = [[tokenizer.decode(row) for row in choices] for choices in batch["input_ids"]]
    assert tokens[0][0] == "[CLS] old [SEP] green [SEP] [PAD] [PAD]"
    assert tokens[1][0] == "[CLS] the king [SEP] red house [SEP]"
    assert batch["token_type_ids"][1].tolist() == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0]]
    assert batch["attention_mask"][0].tolist() == [[1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1]]
    assert batch["labels"].tolist() == [0, 1]
    assert features.lengths.tolist() == [7, 7]
    epoch = torch.cat([features.batch(0, 1)["labels"], features.batch(1, 2)["labels"]])
    assert sorted(epoch.tolist()) == [0, 1]
    short = swag.features(data, tokenizer, 6)["train"].collate([0])
    assert tokenizer.decode(short["input_ids"][0, 0]) == "[CLS] the [SEP] red house [SEP]"


def test_predictions_are_written_with_their_probabilities(tmp_path):
    examples = swag.SwagExamples(["a", "b"], [["c", "d"]] * 2, None, ["x", "7"], {})
    logits = np.array([[0.0, np.log(3)], [2.0, 2.0 - np.log(4)]])
    swag.write_predictions(tmp_path / "out.csv", examples, logits)
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines() == [
        "index,prediction,probability0,probability1",
        "x,1,0.250000,0.750000",
        "7,0,0.800000,0.200000",
    ]


def test_a_flag_names_what_separates_the_cells(tmp_path):
    path = write(tmp_path, 'sent1;ending0;ending1;label\n"It, there";a, b;c;1\n')
    with pytest.raises(ValueError, match="get --delimiter semicolon"):
        swag.load_data(flags(validation_file=path))
    part = swag.load_data(flags(validation_file=path, delimiter=";")).splits["validation"]
    assert (part.contexts, part.endings, part.labels) == (["It, there"], [["a, b", "c"]], [1])
