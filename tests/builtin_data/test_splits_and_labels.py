"""The built-in tasks: their splits share no text and their labels are true, on the text of this installation."""

import itertools
import json
import subprocess
import sys
from collections import Counter

import pytest

from bert_training.builtin_data import documentation
from bert_training.builtin_data.docstrings import Docstring, Parameter, fingerprint
from bert_training.builtin_data.documentation import (
    classification_examples,
    documents,
    first_sentence,
    library,
    pair_examples,
    question_answering,
    split_library,
    tagging_examples,
)


def document(module, name="f", text="", parameters=(), kind="function"):
    text = text or f"the function {name} of module {module} " + " ".join(f"{name}{module}{i}" for i in "abcdefghijklmn")
    return Docstring(
        module, name, kind, f"Summary line for {name} in {module}.", [text], list(parameters), fingerprint(text)
    )


HELD_OUT = next(f"m{i}" for i in itertools.count() if documentation.is_held_out(document(f"m{i}")))
KEPT = next(f"m{i}" for i in itertools.count() if not documentation.is_held_out(document(f"m{i}")))
WORDS = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "lmnpr"]


def test_a_module_is_in_one_split_only():
    documents = [document(f"module{i}", f"f{i}", " ".join(word + WORDS[i] for word in WORDS[:40])) for i in range(100)]
    train, validation = split_library(documents)
    assert len(train) + len(validation) == 100 and 5 < len(validation) < 25
    assert not {d.module for d in train} & {d.module for d in validation}
    assert split_library(documents) == (train, validation)


def test_names_and_texts_of_training_are_not_used_in_validation():
    text, half = " ".join(WORDS[:100]), " ".join(WORDS[:60] + [word + "x" for word in WORDS[60:100]])
    documents = [
        document(KEPT, "Class.fit", text),
        document(HELD_OUT, "fit"),
        document(HELD_OUT, "copied", half),
        document(HELD_OUT, "fresh", " ".join(WORDS[100:])),
    ]
    train, validation = split_library(documents)
    assert [d.name for d in train] == ["Class.fit"] and [d.name for d in validation] == ["fresh"]


def test_near_duplicates_are_dropped_within_a_split():
    text = " ".join(WORDS)
    near = " ".join([*WORDS[:110], "others"])
    for module in (KEPT, HELD_OUT):
        sides = split_library([document(module, "first", text), document(module, "second", near)])
        assert [d.name for side in sides for d in side] == ["first"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two.", "One."),
        ("Values, e.g. 0.5 or more. Then", "Values, e.g. 0.5 or more."),
        ("No end", "No end"),
        ("Is it? Yes", "Is it?"),
        ("Of numpy.sum() or x. `None` is", "Of numpy.sum() or x."),
    ],
)
def test_the_first_sentence_of_a_text(text, expected):
    assert first_sentence(text) == expected


@pytest.mark.slow
def test_documents_are_long_english_paragraphs_of_the_training_side():
    texts = documents(include_packages=False)
    assert len(texts) > 1000
    assert all(sum(map(len, text)) >= 200 and all(line.strip() and "\n" not in line for line in text) for text in texts)
    held_out = {d.summary + str(d.prose) for d in library(False).validation}
    assert held_out and not held_out & {text[0] + str(text[1:]) for text in texts}
    joined = " ".join(itertools.chain(*texts))
    assert joined.count(" the ") > 8000 and ">>>" not in joined and "``" not in joined
    by_module = documents(include_packages=False, joined_by_module=True)
    assert len(by_module) < len(texts) / 3  # with the same paragraphs, each module in one document
    assert sorted(itertools.chain(*by_module)) == sorted(itertools.chain(*texts))
    of_library = library(False).train
    assert len(by_module) == len({document.module for document in of_library})


@pytest.mark.slow
def test_neither_text_of_a_pair_alone_gives_its_label_away():
    names = set()
    for split, least in (("train", 2000), ("validation", 100)):
        examples = pair_examples(split, include_packages=False)
        assert len(examples) >= least
        labels = {1: [], 0: []}
        for example in examples:
            labels[example["label"]].append(example)
        for column in ("sentence1", "sentence2"):  # Every text occurs once with each label.
            right, wrong = (Counter(example[column] for example in labels[label]) for label in (1, 0))
            assert right == wrong and set(right.values()) == {1}
        true = {(example["sentence1"], example["sentence2"]) for example in labels[1]}
        assert not true & {(example["sentence1"], example["sentence2"]) for example in labels[0]}
        names.add(frozenset(example["sentence1"] for example in examples))
    assert not frozenset.intersection(*names)


def test_classes_are_balanced_and_named():
    examples = classification_examples("train", include_packages=False)
    counts = Counter(example["label"] for example in examples)
    assert set(counts) == {"class", "function", "method"} and len(set(counts.values())) == 1 and len(examples) > 500
    kinds = {" ".join(" ".join(d.paragraphs()).split()[:60]): d for d in library(False).train}
    for example in examples[:50]:
        made = kinds[example["text"]]
        assert ("method" if "." in made.name and made.kind == "function" else made.kind) == example["label"]


def test_questions_worked_by_hand(monkeypatch):
    entries = [
        Parameter("axis", "int, optional", "Axis along which it sums. Default is 0."),
        Parameter("out", "", "Where the result goes"),
        Parameter("long", "", "too long a description " * 20),
    ]
    documents = [document("numpy.core", "sum", parameters=entries)]
    monkeypatch.setattr(documentation, "library", lambda include_packages: documentation.Library(documents, []))
    made = question_answering("train")
    assert made["version"] == "1.1"
    (article,) = made["data"]
    (paragraph,) = article["paragraphs"]
    assert article["title"] == "numpy.core.sum"
    assert (
        paragraph["context"]
        == "axis (int, optional): Axis along which it sums. Default is 0. out: Where the result goes"
    )
    first, second = paragraph["qas"]
    assert first["answers"] == [{"text": "Axis along which it sums", "answer_start": 22}]
    assert second["answers"] == [{"text": "Where the result goes", "answer_start": 67}]
    assert " axis" in first["question"] and " out" in second["question"]


def questions(split):
    for article in question_answering(split, include_packages=False)["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield paragraph["context"], question


def test_questions_have_their_answers_at_their_places():
    ids, answers, wordings = [], {"train": set(), "validation": set()}, set()
    for split in answers:
        for context, question in questions(split):
            (answer,) = question["answers"]
            start = answer["answer_start"]
            assert context[start : start + len(answer["text"])] == answer["text"] and answer["text"].strip()
            assert len(answer["text"].split()) <= 20 and context.count(": ") >= 2
            ids.append(question["id"])
            answers[split].add(answer["text"])
            wordings.add(question["question"].split()[0:3][-1])
    assert len(ids) == len(set(ids)) > 100 and len(wordings) > 3
    assert answers["validation"] and not answers["train"] & answers["validation"]


def test_code_is_what_the_authors_marked(monkeypatch):
    enough = "for it is long enough to be kept as an example"
    marked = [
        f"It takes ``axis.a`` {enough}.",
        f"It takes ``axis.a`` {enough}.",
        "too ``short``",
        "more ``code is marked in this one than half of it``",
        "here ``axis`` is marked, but `this has no other half at all",
    ]
    documents = [Docstring("m", "f", "function", "Sum.", ["prose"], marked=marked)]
    monkeypatch.setattr(documentation, "library", lambda include_packages: documentation.Library(documents, []))
    (sentence,) = tagging_examples("train")
    words = [("It", "O"), ("takes", "O"), ("axis", "B-CODE"), (".", "I-CODE"), ("a", "I-CODE")]
    assert sentence == [*words, *((word, "O") for word in [*enough.split(), "."])]


def test_files_of_others_are_not_replaced(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("mine")
    with pytest.raises(SystemExit):
        documentation.main(["--output_dir", str(tmp_path)])
    assert "there are files already" in capsys.readouterr().err and (tmp_path / "corpus.txt").read_text() == "mine"


@pytest.mark.slow
def test_the_command_writes_the_data_of_the_whole_installation(tmp_path):
    """The command writes files of the expected sizes, with packages, and training and validation share no text."""
    command = [sys.executable, "-m", "bert_training", "builtin_data", "--output_dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {s: (tmp_path / f"pair_{s}.tsv").read_text().splitlines()[1:] for s in ("train", "validation")}
    assert len(rows["train"]) > 3000 and len(rows["validation"]) > 500
    assert all(len(row.split("\t")) == 3 for side in rows.values() for row in side)
    bodies = {split: {row.split("\t")[1] for row in side} for split, side in rows.items()}
    assert not bodies["train"] & bodies["validation"]
    corpus = " ".join((tmp_path / "corpus.txt").read_text().split())
    assert not [body for body in bodies["validation"] if body in corpus]
    tags = Counter(line.split()[1] for line in (tmp_path / "code_train.txt").read_text().splitlines() if line)
    assert tags["B-CODE"] > 3000 and tags["O"] > 5 * tags["B-CODE"]
    made = json.loads((tmp_path / "qa_train.json").read_text())
    assert sum(len(p["qas"]) for article in made["data"] for p in article["paragraphs"]) > 3000
