"""The exports of other tools, with the flags of the table in docs/classify.md."""

import json
import re

import pytest
from datasets import Dataset, DatasetDict

from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks.classification.sources import load_data
from tests.helpers.repository import ROOT

TEXTS = ["the red house", "the old king", "the small river", "the letter"]
ONE = ["a", "b", "a", "c"]
SEVERAL = [["b", "c"], ["a"], ["b"], ["c"]]


def lines(name, labels, **more) -> str:
    return "".join(json.dumps({"text": text, name: label} | more) + "\n" for text, label in zip(TEXTS, labels))


def table(separator, head, row) -> str:
    rows = (row.format(text, label) for text, label in zip(TEXTS, ONE))
    return "\r\n".join([head, *rows, ""]).replace("|", separator)


CHOICES = [{"choices": labels} if len(labels) > 1 else labels[0] for labels in SEVERAL]
EXPORTS = {
    "admin.jsonl": lines("label", [[label] for label in ONE], id=1, Comments=[]),
    "project.csv": table(",", "id|text|annotator|sentiment|lead_time", "7|{}|1|{}|2.5"),
    "project-min.json": json.dumps([json.loads(line) for line in lines("topics", CHOICES, annotator=1).splitlines()]),
    "records.jsonl": lines("sentiment.responses", [[label] for label in ONE], status="completed"),
    "prodigy.jsonl": lines("accept", [[label] for label in ONE], options=[{"id": "a"}], answer="accept"),
    "excel.csv": "\ufeff" + table(";", "text|label", "{}|{}"),
    "excel.tsv": table("\t", "text|label", "{}|{}"),
}


def from_other_tools() -> list[str]:
    """The flags in the last column of the table "From other tools"."""
    page = (ROOT / "docs" / "classify.md").read_text()
    section = page.partition("### From other tools\n\n")[2].partition("\n## ")[0]
    return [re.findall("`([^`]+)`", line)[-1] for line in section.splitlines()[2:] if line.startswith("| ")]


@pytest.mark.parametrize("flags", from_other_tools())
def test_exports_of_other_tools_are_read_as_the_page_says(tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    for name, content in EXPORTS.items():
        (tmp_path / name).write_bytes(content.encode())
    split = Dataset.from_dict({"text": TEXTS, "intent": ONE})
    DatasetDict(train=split, validation=split).save_to_disk(tmp_path / "you" / "texts")
    own = re.findall("--train_file ([^ ]+)", flags)
    argv = flags.split() + (["--validation_file", *own] if own else [])
    data = load_data(parse_arguments(GlueArguments, [*argv, "--output_dir", "x", "--model_name_or_path", "y"]))
    several = "topics" in flags
    expected = [(0.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)] if several else [0, 1, 0, 2]
    for part in ("train", "validation"):
        assert data.splits[part].labels == expected
        assert [*data.splits[part].texts[0]] == TEXTS
    assert (data.task.labels, data.task.several_labels) == (("a", "b", "c"), several)


def test_every_export_stands_on_the_page():
    assert {name for flags in from_other_tools() for name in flags.split()} >= EXPORTS.keys() | {"you/texts"}
