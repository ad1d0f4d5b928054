"""spans.py: texts with spans from other tools, and the tags of their words. seqeval finds the entities again."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from seqeval.metrics.sequence_labeling import get_entities

from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks.ner.raw_text import AS_PIPELINES, Cutting, words_of, write_spans
from bert_training.tasks.ner.sources import load_data
from bert_training.tasks.ner.spans import Span, tags_of_words
from tests.helpers.repository import ROOT
from tests.helpers.tagged_text import ner_arguments, ner_error, tags, write

TEXTS = ("Ada Lovelace slept in London.", "Nobody came.")
SPANS: tuple[list, ...] = ([[0, 12, "PER"], [22, 28, "LOC"]], [])
WORDS = [["Ada", "Lovelace", "slept", "in", "London", "."], ["Nobody", "came", "."]]
TAGS = [["B-PER", "I-PER", "O", "O", "B-LOC", "O"], ["O"] * 3]
NAMED = [[dict(zip(("start", "end", "label"), span)) for span in spans] for spans in SPANS]


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def rows(name: str, cells, text: str = "text", **more) -> list[dict]:
    return [{"id": n, text: TEXTS[n], **more, name: cell} for n, cell in enumerate(cells)]


def of_label_studio(spans: list[dict], text: str) -> list[dict]:
    return [{"start": s["start"], "end": s["end"], "text": text[s["start"] : s["end"]], "labels": [s["label"]]}
            for s in spans]  # fmt: skip


def columns(form: str, between: str = "") -> str:
    sentences = ("".join(form.format(*pair) + "\n" for pair in zip(*both)) for both in zip(WORDS, TAGS))
    return f"{between}\n".join([*sentences, ""])


TASKS = [
    {"id": n, "data": {"text": text}, "annotations": [
        {"was_cancelled": True, "result": []},
        {"was_cancelled": False, "result": [
            {"type": "labels", "value": value} for value in of_label_studio(NAMED[n], text)
        ] + [{"type": "relation", "from_id": "a"}, {"type": "choices", "value": {"choices": ["good"]}}]},
    ]} for n, text in enumerate(TEXTS)
]  # fmt: skip
OFFSETS = [[{"id": 1, "label": s["label"], "start_offset": s["start"], "end_offset": s["end"]} for s in spans]
           for spans in NAMED]  # fmt: skip
EXPORTS = {
    "admin.jsonl": lines(*rows("label", SPANS, Comments=[])),
    "relations.jsonl": lines(*rows("entities", OFFSETS, relations=[])),
    "project.json": json.dumps(TASKS),
    "project-min.json": json.dumps(rows("label", map(of_label_studio, NAMED, TEXTS), annotator=1)),
    "project.conll": "-DOCSTART- -X- O\n" + columns("{0} -X- _ {1}"),
    "records.jsonl": lines(*rows("span_label.responses", [[spans] for spans in NAMED], status="completed")),
    "prodigy.jsonl": lines(*rows("spans", NAMED, tokens=[{"text": "Ada", "start": 0, "end": 3, "id": 0}])),
    "excel.tsv": columns("{0}\t{1}", "\t"),
    "eng.train": "-DOCSTART- -X- -X- O\n\n" + columns("{0} NN O {1}"),
    "words.jsonl": lines(*({"tokens": words, "ner_tags": marks} for words, marks in zip(WORDS, TAGS))),
}


OF_WORDS = ("project.conll", "excel.tsv", "eng.train", "words.jsonl", "you/words")


def from_other_tools() -> list[str]:
    """The flags in the last column of the table "From other tools"."""
    section = (ROOT / "docs" / "tag.md").read_text().partition("### From other tools\n\n")[2].partition("\n### ")[0]
    return [re.findall("`([^`]+)`", line)[-1] for line in section.splitlines()[2:] if line.startswith("| ")]


@pytest.mark.parametrize("flags", from_other_tools())
def test_exports_of_other_tools_are_read_as_the_page_says(tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    for name, content in EXPORTS.items():
        write(tmp_path, content, name)
    of_hub = {"words": {"tokens": WORDS, "ner_tags": TAGS}, "spans": {"text": TEXTS, "entities": NAMED}}
    for name, table in of_hub.items():
        split = Dataset.from_dict(table)
        DatasetDict(train=split, validation=split).save_to_disk(tmp_path / "you" / name)
    own = re.findall("--train_file ([^ ]+)", flags)
    argv = flags.split() + (["--validation_file", *own] if own else [])
    data = load_data(parse_arguments(NerArguments, [*argv, "--output_dir", "x", "--model_name_or_path", "y"]))
    for split in ("train", "validation"):
        assert tags(data.splits[split]) == TAGS
        assert [sentence.words for sentence in data.splits[split].sentences] == WORDS
    assert data.label_names == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    texts = data.splits["train"].of_texts
    assert texts == {*flags.split()}.isdisjoint(OF_WORDS)
    assert (data.cutting == AS_PIPELINES) == texts


def test_every_export_stands_on_the_page():
    assert {name for flags in from_other_tools() for name in flags.split()} >= EXPORTS.keys() | {"you/words"}


@pytest.mark.parametrize("cutting", [AS_PIPELINES, Cutting()], ids=["pipelines", "usual"])
def test_seqeval_finds_the_spans_again(cutting):
    generator = np.random.default_rng(0)
    for _ in range(200):
        text = "".join(generator.choice([*"abc  .,-\n\u00e9", "\U0001f600", "\u4e16"], generator.integers(1, 60)))
        places = [*words_of(text, cutting)]
        ends = np.sort(generator.choice(len(places) + 1, min(2 * generator.integers(0, 6), len(places)), replace=False))
        spans = [Span(places[first][0], places[after - 1][1], str(generator.choice(["A", "B"])))
                 for first, after in zip(ends[::2], ends[1::2])]  # fmt: skip
        found = tags_of_words(places, spans)
        again = [(places[first][0], places[last][1], kind) for kind, first, last in get_entities(found.tags)]
        assert again == spans and not found.cut and not found.lost and found.overlap is None


def test_words_that_a_span_cuts_are_counted_and_belong_to_it(tmp_path):
    texts = {"Run 5km to Bonn": [[4, 5, "NUM"], [5, 7, "UNIT"], [11, 15, "LOC"]], "so  far": [[2, 4, "X"]],
             "Ada!": [[-0, 3, "PER"], [0, 3, "PER"]], "  ": []}  # fmt: skip
    path = write(tmp_path, lines(*({"text": text, "spans": spans} for text, spans in texts.items())), "own.jsonl")
    data = load_data(ner_arguments(train_file=path, validation_file=path))
    assert tags(data.splits["train"]) == [["O", "B-NUM", "O", "B-LOC"], ["O", "O"], ["B-PER", "O"]]
    facts = data.facts()["splits"]["train"]
    assert (facts["cut_words"], facts["spans_without_a_word"]) == (1, 2)
    assert "words that a span cuts, and that belong to it as a whole: 1, the first '5km' in row 1" in data.summary()
    assert "have no word of their own, and are left out: 2" in data.summary()


def test_what_is_written_can_be_read_again(tmp_path):
    path = write(tmp_path, EXPORTS["admin.jsonl"], "own.jsonl")
    data = load_data(ner_arguments(train_file=path, validation_file=path))
    write_spans(tmp_path / "validation_spans.jsonl", data.splits["validation"], TAGS, data.label_names)
    written = str(tmp_path / "validation_spans.jsonl")
    again = load_data(ner_arguments(train_file=written, validation_file=path)).splits["train"]
    assert tags(again) == TAGS and [sentence.raw[1] for sentence in again.sentences] == [*TEXTS]


def test_test_data_has_texts_alone_and_columns_have_the_names_that_flags_give(tmp_path):
    path = write(tmp_path, lines(*rows("marks", SPANS, text="body")), "own.jsonl")
    named = {"text_column": "body", "label_column": "marks"}
    data = load_data(ner_arguments(train_file=path, validation_file=path, **named))
    assert tags(data.splits["train"]) == TAGS
    both = write(tmp_path, lines(*({"text": "x y", "tokens": words} for words in WORDS)), "both.jsonl")
    assert load_data(ner_arguments(test_file=both), data.label_names).splits["test"].words == [*WORDS[0], *WORDS[1]]
    alone = write(tmp_path, lines(*({"text": text} for text in TEXTS)), "alone.jsonl")
    tasks = write(tmp_path, json.dumps([{"data": {"text": text}} for text in TEXTS]), "tasks.json")
    for test in (alone, tasks):
        split = load_data(ner_arguments(test_file=test), data.label_names, Cutting(whole=["London."])).splits["test"]
        assert not split.tagged and [s.words for s in split.sentences] == [[*WORDS[0][:4], "London."], WORDS[1]]


def task(*annotations: list, text: object = "Ada") -> dict:
    return {"data": {"text": text}, "annotations": [{"result": [{"value": v} for v in one]} for one in annotations]}


LABELLED = {"start": 0, "end": 3, "labels": ["PER"]}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"text": "Ada", "label": [[0, 4, "PER"]]}, "row 2: expected a span .* within the 3 characters of the text"),
        ({"text": "Ada", "label": [[2, 2, "PER"]]}, "row 2: expected a span"),
        ({"text": "Ada", "label": [[0, 3, 7]]}, "row 2: expected a span"),
        ({"text": "Ada", "label": [[0, 3, "PER "]]}, "row 2: expected a span .* no space around its label"),
        ({"text": "Ada", "label": [[0, 3, ""]]}, "row 2: expected a span"),
        ({"text": "Ada", "label": "PER"}, 'row 2: expected a span .* got "PER"'),
        ({"text": "Ada", "label": [{"start": 0, "end": 3}]}, "row 2: expected a span"),
        ({"text": "Ada", "label": [LABELLED | {"labels": ["PER", "ORG"]}]}, "row 2: expected a span"),
        ({"text": "\U0001f600 Ada", "label": [{"start": 3, "end": 5, "label": "PER", "text": "Ada"}]},
         r"row 2: expected the text 'Ada' at 3 to 5, got 'da'; count characters as Python does"),
        ({"text": "Ada in Rome", "label": [[0, 6, "X"], [4, 11, "Y"]]},
         r"spans that do not overlap, .* in 1 texts, the first in .*row 2: \(0, 6, 'X'\) and \(4, 11, 'Y'\)"),
        ({"text": "Ada", "label": [[0, 3, "X"], [0, 3, "Y"]]}, "spans that do not overlap"),
        ({"text": "Ada", "label": [[[0, 3, "X"]], [[0, 3, "Y"]]]}, "row 2: expected the spans of one annotator, got"),
        ({"text": "Ada"}, r"expected spans of every text, \[\] if it has none, or of no text; 1 of 2 have none"),
        ({"body": "Ada"}, "row 2: expected a text, got nothing"),
    ],
)  # fmt: skip
def test_spans_that_do_not_fit_are_refused(tmp_path, row, expected):
    path = write(tmp_path, lines({"text": "Bob", "label": [[0, 3, "PER"]]}, row), "own.jsonl")
    assert re.search(expected, ner_error(train_file=path, validation_file=path))


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (task([LABELLED], [LABELLED]), "row 2: expected the spans of one annotator, got those of 2"),
        (task([LABELLED], text=3), "row 2: expected a text as 'text' in 'data'"),
        (task(), "1 of 2 have none"),
    ],
)
def test_tasks_of_label_studio_that_do_not_fit_are_refused(tmp_path, second, expected):
    path = write(tmp_path, json.dumps([task([LABELLED]), second]), "own.json")
    assert expected in ner_error(train_file=path, validation_file=path)


def test_tables_without_known_columns_name_those_that_are_expected(tmp_path: Path):
    path = write(tmp_path, lines({"body": "Ada", "marks": []}), "own.jsonl")
    told = ner_error(train_file=path, validation_file=path)
    assert "expected a column 'tokens' or 'words' or 'text'" in told and "--text_column" in told
