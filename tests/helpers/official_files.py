"""Small GLUE files in the official layouts, with the pitfalls of the real ones, and a call of their reader."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.tasks.classification.sources import load_data

PARSES = [f"sentence{n}{kind}_parse" for kind in ("_binary", "") for n in (1, 2)]
MNLI = ["index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2"]
STSB = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2"]
AX_FULL = ["Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge", "Domain", "Premise", "Hypothesis"]
# For every task, its files and their headers. The label stands in the column LABEL_COLUMN[task], by default "label".
LAYOUTS = {
    "cola": {
        "train.tsv": ["source", "label", "original_label", "sentence"],  # The file is written without this header.
        "dev.tsv": ["source", "label", "original_label", "sentence"],
        "test.tsv": ["index", "sentence"],
    },
    "sst2": {
        "train.tsv": ["sentence", "label"],
        "dev.tsv": ["sentence", "label"],
        "test.tsv": ["index", "sentence"],
    },
    "mrpc": {
        "train.tsv": ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        "dev.tsv": ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        "test.tsv": ["index", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    },
    "stsb": {"train.tsv": [*STSB, "score"], "dev.tsv": [*STSB, "score"], "test.tsv": STSB},
    "qqp": {
        "train.tsv": ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        "dev.tsv": ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        "test.tsv": ["id", "question1", "question2"],
    },
    "mnli": {
        "train.tsv": [*MNLI, "label1", "gold_label"],
        "dev_matched.tsv": [*MNLI, "label1", "label2", "label3", "label4", "label5", "gold_label"],
        "dev_mismatched.tsv": [*MNLI, "label1", "label2", "label3", "label4", "label5", "gold_label"],
        "test_matched.tsv": MNLI,
        "test_mismatched.tsv": MNLI,
    },
    "qnli": {
        "train.tsv": ["index", "question", "sentence", "label"],
        "dev.tsv": ["index", "question", "sentence", "label"],
        "test.tsv": ["index", "question", "sentence"],
    },
    "rte": {
        "train.tsv": ["index", "sentence1", "sentence2", "label"],
        "dev.tsv": ["index", "sentence1", "sentence2", "label"],
        "test.tsv": ["index", "sentence1", "sentence2"],
    },
    "wnli": {
        "train.tsv": ["index", "sentence1", "sentence2", "label"],
        "dev.tsv": ["index", "sentence1", "sentence2", "label"],
        "test.tsv": ["index", "sentence1", "sentence2"],
    },
    "ax": {"diagnostic-full.tsv": [*AX_FULL, "Label"], "diagnostic.tsv": ["index", "sentence1", "sentence2"]},
}
# How the official files spell the labels, in the order of nyu-mll/glue.
DIGITS, THREE, TWO = ["0", "1"], ["entailment", "neutral", "contradiction"], ["entailment", "not_entailment"]
SPELLED = {"cola": DIGITS, "sst2": DIGITS, "mrpc": DIGITS, "qqp": DIGITS, "wnli": DIGITS, "mnli": THREE, "ax": THREE}
SPELLED |= {"qnli": TWO, "rte": TWO, "stsb": ["0.000", "2.500", "5.000"]}
LABEL_COLUMN = {"mrpc": "Quality", "stsb": "score", "qqp": "is_duplicate", "mnli": "gold_label", "ax": "Label"}
FIRST = {"sentence1", "#1 String", "question1", "question", "Premise"}
SECOND = {"sentence2", "#2 String", "question2", "Hypothesis"}
# Every class has its word in the text. The rest are pitfalls: open quotation marks, U+2028, U+0085, ideographs.
CLASS_WORDS = ["red", "green", "blue"]
OPENINGS = ['" he said', "it 's", '"', "the\u2028cat", "a\x85b", "中文 the", "it"]


def write_task(folder: Path, task: str, rows: int = 24) -> Path:
    """Write all files of ``task`` into ``folder``; row i has label number i % classes. Return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, header in LAYOUTS[task].items():
        lines = [] if task == "cola" and name != "test.tsv" else ["\t".join(header)]
        lines += ["\t".join(cell(task, column, row) for column in header) for row in range(rows)]
        mark = "\ufeff" if task == "mrpc" and name != "test.tsv" else ""
        (folder / name).write_text(mark + "\n".join(lines) + ("" if task == "qnli" else "\n"), encoding="utf-8")
    return folder


def cell(task: str, column: str, row: int) -> str:
    number, opening = row % len(SPELLED[task]), OPENINGS[row % len(OPENINGS)]
    if column == LABEL_COLUMN.get(task, "label"):
        return SPELLED[task][number]
    pair = task not in ("cola", "sst2")
    if column in AX_FULL[:4]:  # A row has some, all or none of these four.
        return "Fine;Finer" if row % (AX_FULL.index(column) + 2) == 0 else ""
    if column in FIRST or (column == "sentence" and not pair):
        return f"{opening} was {CLASS_WORDS[number]} number {row}"
    if column in SECOND or column == "sentence":
        return f"{opening} {CLASS_WORDS[number]}"
    return str(row) if column in ("index", "id") else "x"


def glue_arguments(**given) -> SimpleNamespace:
    """The flags of run_glue.py, None unless they are given."""
    names = (field.name for field in fields(GlueArguments))
    found = {"do_predict": False, "abstains": False, "fold": None, "num_folds": given.get("folds") or 0}
    return SimpleNamespace(**dict.fromkeys(names) | found | given)


def glue_error(**given) -> str:
    with pytest.raises(ValueError) as caught:
        load_data(glue_arguments(**given))
    return str(caught.value)


def own(tmp_path: Path, text: str | bytes, name: str = "own.tsv") -> str:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)
