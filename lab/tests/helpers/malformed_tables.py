"""Malformed tables, and what independent readers find in them: GLUE, the user's own, SWAG and named entities."""

import csv
import io
import json
import math
import random
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bert_training.tasks.classification.glue import GLUE_TASKS
from bert_training.tasks.classification.labels import encode_labels
from bert_training.tasks.classification.sources import load_data, read_examples
from bert_training.tasks.ner.sources import load_data as load_sentences
from bert_training.tasks.swag import read_swag
from lab.tests.helpers.malformed import parsed, require, text_lines
from lab.tests.helpers.mutations import damaged_json_lines, damaged_lines, damaged_table
from tests.helpers.official_files import (
    FIRST,
    LABEL_COLUMN,
    LAYOUTS,
    SECOND,
    SPELLED,
    glue_arguments,
)
from tests.helpers.tagged_text import ner_arguments

NUMBER = r"(?a)[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"


def table_rows(content: bytes, header: list[str] | None = None) -> list[dict[str, str]]:
    """The rows of a file of tab-separated columns, in which nothing is quoted; blank lines are none."""
    first_line, *others = re.split(r"\r\n|\r|\n", content.decode("utf-8-sig"))
    require(first_line, "empty")
    lines = [first_line, *filter(None, others)]
    first = lines[0].split("\t")
    if header is None or header[-1] in first:
        header, lines = first, lines[1:]
    require(lines and len(set(header)) == len(header), "header")
    rows = [line.split("\t") for line in lines]
    require(all(line and len(row) == len(header) for line, row in zip(lines, rows)), "columns")
    return [dict(zip(header, row)) for row in rows]


def csv_rows(content: bytes) -> list[dict[str, str]]:
    """The rows of a CSV file as Python's csv module reads its lines."""
    text = content.decode("utf-8-sig")
    csv.field_size_limit(2**31)
    try:
        rows = list(csv.reader(io.StringIO(text, newline="\n"), strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    while rows and not rows[-1]:
        rows.pop()
    header, *rows = filter(None, rows)  # a blank line between rows is none
    require(header and rows and len(set(header)) == len(header), "header")
    require(all(len(row) == len(header) for row in rows), "columns")
    return [dict(zip(header, row)) for row in rows]


def json_rows(content: bytes) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, with blank lines at the end only."""
    lines = text_lines(content)
    while lines and not lines[-1].strip():
        lines.pop()
    rows = [parsed(line) for line in lines]
    require(rows and all(isinstance(row, dict) and row for row in rows), "objects")
    for line in lines:
        repr(parsed(line)).encode()
        "".join(strings_of(parsed(line))).encode()
    return rows


def strings_of(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        return [*tree, *(text for value in tree.values() for text in strings_of(value))]
    if isinstance(tree, list):
        return [text for value in tree for text in strings_of(value)]
    return [tree] if isinstance(tree, str) else []


def glue_oracle(task: str, name: str, content: bytes) -> list[tuple]:
    """(texts, label, index) of every row of an official file."""
    layout = LAYOUTS[task][name]
    rows = table_rows(content, LAYOUTS["cola"]["train.tsv"] if task == "cola" else None)
    pair = task not in ("cola", "sst2")
    official = [[column for column in layout if column in FIRST or (not pair and column == "sentence")]]
    official[0] += [column for column in layout if column in SECOND or (pair and column == "sentence")]
    # The same columns as other releases of the task call them.
    official += {
        "mrpc": [["sentence1", "sentence2"]],
        "mnli": [["premise", "hypothesis"]],
        "ax": [["sentence1", "sentence2"], ["Premise", "Hypothesis"], ["premise", "hypothesis"]],
    }.get(task, [])
    if task in ("mrpc", "ax"):
        official.sort(key=lambda names: [["#1 String", "#2 String"], ["sentence1", "sentence2"]].index(names)
                      if names in (["#1 String", "#2 String"], ["sentence1", "sentence2"]) else 9)  # fmt: skip
    texts = next(names for names in official if set(names) <= rows[0].keys())
    labels = None
    if not name.startswith("test") and name != "diagnostic.tsv":
        column = next(name for name in (LABEL_COLUMN.get(task, "label"), "label") if name in rows[0])
        labels = [label_of(task, row[column]) for row in rows]
    index = next((name for name in rows[0] if name.lower() in ("index", "id", "idx") and name not in texts), None)
    return [
        (tuple(row[name] for name in texts), labels and labels[number], row[index] if index else str(number))
        for number, row in enumerate(rows)
    ]


def label_of(task: str, text: str) -> Any:
    if task == "stsb":
        require(re.fullmatch(NUMBER, text) and 0 <= float(text) <= 5, "score")
        return float(text)
    names = GLUE_TASKS[task].labels
    return names.index(text) if text in names else SPELLED[task].index(text)


def glue_rows(task: str, path: Path) -> list[tuple]:
    """The same as ``glue_oracle``, read by the project."""
    labelled = not path.name.startswith("test") and path.name != "diagnostic.tsv"
    examples = read_examples(GLUE_TASKS[task], path, labelled)
    labels = encode_labels(examples, GLUE_TASKS[task]) if labelled else [None] * len(examples)
    return list(zip(zip(*examples.texts), labels, examples.index, strict=True))


TEXTS = [
    "plain words",
    'He said "yes", twice',
    '" an open mark',
    "a, b; c",
    "naïve\u2028façade",
    "-",
    "it 's",
    "日本 語",
]


ANSWERS = ["first line\nsecond", "with\r\nboth", "x" * 200, "'", "\\", "\ttab", "=1+1", "end\\"]


def own_rows(draw: random.Random, breaks: bool) -> list[dict[str, str]]:
    """Rows of pairs of texts; ``breaks`` allows tabs and line ends in them."""
    rows = []
    for number in range(10):
        texts = [draw.choice(TEXTS), draw.choice(ANSWERS if breaks else TEXTS)]
        rows.append({"id": str(number), "sentence1": texts[0], "sentence2": texts[1], "label": "ab"[number % 2]})
    return rows


MISSING = ("None", "null", "NULL", "<NA>", "NaT", "NA", "N/A", "n/a", "#N/A", "#NA")  # as pandas, R and others write


def own_oracle(rows: list[dict[str, Any]]) -> list[tuple]:
    """Texts and label of every row of the user's own data."""
    fields = {name: None for row in rows for name in row}
    known = [names for names in (("sentence1", "sentence2"), ("text",)) if set(names) <= fields.keys()]
    label = next(name for name in ("label", "labels") if name in fields)
    require(len(known) == 1 and len({"text", "sentence1", "sentence2"} & fields.keys()) == len(known[0]), "texts")
    texts = known[0]
    spelled = [[row.get(name) for name in texts] for row in rows]
    spelled = [[json.dumps(one) if isinstance(one, int | float) else one for one in cells] for cells in spelled]
    found = [(*cells, row.get(label)) for cells, row in zip(spelled, rows)]
    for *cells, answer in found:
        require(all(isinstance(text, str) for text in cells), "text")
        require(all(any(unicodedata.category(one)[0] not in "ZC" for one in text) for text in cells), "empty text")
        require(isinstance(answer, str | int | float), "label")
        require(str(answer) == str(answer).strip() and not {"\t", "\n"} & set(str(answer)), "label with spaces")
        require(str(answer) not in ("", *MISSING) and str(answer).lower() not in ("nan", "-nan"), "empty label")
    labels = [str(row[-1]).lower() if isinstance(row[-1], bool) else str(row[-1]) for row in found]
    scores = all(re.fullmatch(NUMBER, text) for text in labels) and not all(
        re.fullmatch(r"(?a)[-+]?\d+", t) for t in labels
    )
    require(not scores or all(math.isfinite(float(text)) for text in labels), "infinite")
    require(not scores or any(float(text) % 1 for text in labels), "classes or scores")
    require(scores or len(set(labels)) > 1, "one label")
    require(scores or len({text.lower() for text in labels}) == len(set(labels)), "one class in two spellings")
    return [(*row[:-1], float(text) if scores else text) for row, text in zip(found, labels)]


def own_read(path: Path) -> list[tuple]:
    data = load_data(glue_arguments(train_file=str(path), validation_file=str(path)))
    examples = data.splits["train"]
    labels = [data.task.labels[label] if data.task.labels else label for label in examples.labels]
    return list(zip(*examples.texts, labels, strict=True))


def as_csv(rows: list[dict], end: str) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]), lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def as_tsv(rows: list[dict]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in [[*rows[0]], *(row.values() for row in rows)]).encode()


READ: dict[str, Callable[[bytes], list[dict]]] = {".tsv": table_rows, ".csv": csv_rows, ".jsonl": json_rows}


def damaged_own(draw: random.Random, kind: str) -> bytes:
    rows = own_rows(draw, breaks=kind != ".tsv")
    if kind == ".jsonl":
        return damaged_json_lines(draw, rows)
    if kind == ".tsv":
        return damaged_lines(draw, as_tsv(rows)) if draw.random() < 0.4 else damaged_table(draw, as_tsv(rows), b"\t")
    content = as_csv(rows, draw.choice(("\n", "\r\n")))
    return damaged_lines(draw, content) if draw.random() < 0.5 else damaged_table(draw, content, b",")


def swag_oracle(rows: list[dict[str, Any]]) -> list[tuple]:
    """(context, endings, label, index) of every row."""
    fields = {name: None for row in rows for name in row}
    names = sorted((name for name in fields if re.fullmatch(r"ending\d+", name)), key=lambda name: int(name[6:]))
    require(len(names) > 1 and names == [f"ending{number}" for number in range(len(names))], "endings")
    index = next((name for name in ("", "id", "index", "ind") if name in fields), None)
    found = []
    for number, row in enumerate(rows):
        cells = [row["sent1"], *(row[name] for name in names), row["sent2"] if "sent2" in fields else ""]
        require(all(isinstance(text, str) for text in cells) and all(text.strip() for text in cells[:-1]), "text")
        label = row["label"]
        require(type(label) in (str, int) and str(label) in [str(at) for at in range(len(names))], "label")
        require(index is None or row[index] is not None, "index")
        endings = [f"{cells[-1]} {text}".strip() for text in cells[1:-1]]
        found.append((row["sent1"], endings, int(label), str(number if index is None else row[index])))
    return found


def swag_read(path: Path) -> list[tuple]:
    examples = read_swag(path)
    return list(zip(examples.contexts, examples.endings, examples.labels, examples.index, strict=True))


def conll_oracle(content: bytes, mixed: bool) -> list[tuple[int, list[str], list[str]]]:
    """(number of the document, words, tags in BIO) of every sentence."""
    groups, documents, open_ = [], 0, False
    lines = text_lines(content)
    kept = [line for line in lines if line.strip(" \t") and not re.match(r"[ \t]*-DOCSTART-([ \t]|$)", line)]
    require(kept, "no word")
    tabs = "\t" in kept[0]
    for line in lines:
        marks = re.match(r"[ \t]*-DOCSTART-([ \t]|$)", line)
        if marks or not line.strip(" \t"):
            documents += bool(marks)
            open_ = False
            continue
        cells = line.split("\t") if tabs else [cell for cell in line.split(" ") if cell]
        first = kept[0].split("\t") if tabs else [cell for cell in kept[0].split(" ") if cell]
        require(len(cells) == len(first) > 1 and cells[0].strip() and cells[-1].strip(), "columns")
        require(re.fullmatch(r"O|[BIESLUM]-\S+", cells[-1]), "tag")
        require(tabs or "\t" not in line, "two separators")
        require("\r" not in line, "two kinds of line ends")
        if not open_:
            groups.append((documents, [], []))
            open_ = True
        groups[-1][1].append(cells[0])
        groups[-1][2].append(cells[-1])
    if not documents:
        groups = [(number, *rest) for number, (_, *rest) in enumerate(groups)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(document for document, *_ in groups))}
    groups = [(numbers[document], *rest) for document, *rest in groups]
    tags = [in_bio(tags) for _, _, tags in groups]
    require(len(first) < 3 or not all(word.isdecimal() for _, words, _ in groups for word in words), "numbers")
    free = mixed and not any(tag[0] in "ESLUM" for _, _, tags in groups for tag in tags)
    require(free or follows_a_scheme([tags for _, _, tags in groups]), "scheme")
    require(any(tag != "O" for row in tags for tag in row), "all O")
    return [(document, words, row) for (document, words, _), row in zip(groups, tags)]


def in_bio(tags: list[str]) -> list[str]:
    """An entity goes on where I-, M-, E- or L- follows B-, I- or M- of the same type; elsewhere one begins."""
    found = []
    for before, tag in zip(["O", *tags], tags):
        goes_on = tag[0] in "IMEL" and before[0] in "BIM" and before[1:] == tag[1:]
        found.append("O" if tag == "O" else ("I" if goes_on else "B") + tag[1:])
    return found


def follows_a_scheme(rows: list[list[str]]) -> bool:
    """Whether all rows are BIO, all are IOB1, or all are BIOES."""
    if any(tag[0] in "ESLUM" for row in rows for tag in row):
        pattern = r"(O |[SU](-\S+) |B(-\S+) ([IM]\3 )*[EL]\3 )*"
        return all(re.fullmatch(pattern, "".join(f"{tag} " for tag in row)) for row in rows)
    pairs = [(before, tag) for row in rows for before, tag in zip(["O", *row], row) if tag != "O"]
    bio = all(tag[0] == "B" or before[1:] == tag[1:] for before, tag in pairs)
    iob1 = all(tag[0] == "I" or before[1:] == tag[1:] for before, tag in pairs)
    return bio or iob1


def conll_read(path: Path, mixed: bool) -> list[tuple[int, list[str], list[str]]]:
    file = str(path)
    data = load_sentences(ner_arguments(train_file=file, validation_file=file, mixed_tags=mixed))
    return [(part.document, part.words, part.tags) for part in data.splits["train"].sentences]
