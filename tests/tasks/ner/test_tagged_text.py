"""Files in columns, their schemes of tags, and the rows that the model reads."""

import json
import random

import numpy as np
import pytest
import torch

from bert_training.files.hashing import sha256
from bert_training.tasks.ner import tagged_text
from bert_training.tasks.ner.metrics import entities
from bert_training.tasks.ner.schemes import to_bio
from tests.helpers.tagged_text import CONLL, CONLL_TAGS, CONLL_WORDS, ner_error, read_columns, tags, write
from tokenization import build_tokenizer


def read(tmp_path, text, mixed_tags=False):
    return read_columns(write(tmp_path, text), mixed_tags)


# --- Reading ---------------------------------------------------------------------------------------------


def test_the_official_layout_is_read(tmp_path):
    split = read(tmp_path, CONLL)
    assert [sentence.words for sentence in split.sentences] == CONLL_WORDS
    assert tags(split) == CONLL_TAGS
    assert [sentence.document for sentence in split.sentences] == [0, 0, 1, 1]
    assert split.facts == {"documents": 2, "tag_scheme": "IOB1", "sha256": sha256(tmp_path / "words.txt")}
    assert split.sentences[1].place(2) == f"{tmp_path / 'words.txt'}:12"


@pytest.mark.parametrize(
    "text",
    [
        "Anna\tB-PER\nde\u2028Berg\tI-PER\n\nNew York\tB-LOC\n",
        "\ufeffAnna\tB-PER\r\nde\u2028Berg\tI-PER\r\n\r\nNew York\tB-LOC",
        "\n\n-DOCSTART-\tO\nAnna\tB-PER\nde\u2028Berg\tI-PER\n-DOCSTART-\nNew York\tB-LOC\n\n \n\t\n",
        " -DOCSTART-\tO\nAnna\tB-PER\nde\u2028Berg\tI-PER\n\t-DOCSTART-\nNew York\tB-LOC\n",
    ],
)
def test_tabs_line_ends_blank_lines_and_byte_order_marks(tmp_path, text):
    split = read(tmp_path, text)
    assert [sentence.words for sentence in split.sentences] == [["Anna", "de\u2028Berg"], ["New York"]]
    assert [sentence.document for sentence in split.sentences] in ([0, 1], [1, 2])


def spelled(spans: list[tuple[str, int]], scheme: str) -> list[str]:
    """The tags of a scheme for consecutive groups of words, each given as (type or "O", length)."""
    found, before = [], "O"
    for kind, length in spans:
        if kind == "O":
            found += ["O"] * length
        elif scheme in ("BIOES", "BMES"):
            middle = f"{scheme[1]}-{kind}"
            found += [f"S-{kind}"] if length == 1 else [f"B-{kind}", *[middle] * (length - 2), f"E-{kind}"]
        else:
            first = "B" if scheme == "BIO" or before == kind else "I"
            found += [f"{first}-{kind}", *[f"I-{kind}"] * (length - 1)]
        before = kind
    return found


def test_all_schemes_of_tags_are_read_as_the_same_entities():
    for seed in range(200):
        generator = random.Random(seed)
        sentences = [
            [(generator.choice(["O", "X", "Y-Z"]), generator.randint(1, 4)) for _ in range(generator.randint(1, 6))]
            for _ in range(5)
        ]
        sentences[0].append(("X", 3))  # Without an entity there would be no scheme, and without a middle no BMES.
        for scheme in ("IOB1", "BIO", "BIOES", "BMES"):
            written = [spelled(spans, scheme) for spans in sentences]
            split = tagged_text.Split("here", [tagged_text.Sentence(["w"] * len(w), w, 0, "here") for w in written])
            to_bio(split)
            assert tags(split) == [spelled(spans, "BIO") for spans in sentences]
            assert split.facts["tag_scheme"] == scheme


def test_entities_with_ends_are_those_that_seqeval_reads_in_their_own_scheme():
    """Tags in BIOES score as the same entities after they were turned into BIO; seqeval knows no M-."""
    schemes = pytest.importorskip("seqeval.scheme")
    generator = random.Random(3)
    written = [
        spelled([(generator.choice("OXY"), generator.randint(1, 4)) for _ in range(5)], "BIOES") for _ in "ab" * 20
    ]
    for name in ("BIOES", "BMES"):
        copies = [[tag.replace("I-", "M-") if name == "BMES" else tag for tag in row] for row in written]
        split = tagged_text.Split("here", [tagged_text.Sentence(["w"] * len(row), row, 0, "here") for row in copies])
        to_bio(split)
        expected = schemes.Entities(written, schemes.IOBES).entities
        found = [[(kind, begin, end) for kind, begin, end in entities(row)] for row in tags(split)]
        assert found == [[(entity.tag, entity.start, entity.end) for entity in row] for row in expected]
        assert split.facts["tag_scheme"] == name


def test_mixed_tags_are_refused_or_read_as_conlleval_reads_them(tmp_path):
    text = "a B-X\nb O\nc I-X\nd I-X\ne B-X\nf I-Y\n\ng B-Y\n"
    with pytest.raises(ValueError, match=r"words\.txt:3: I-X cannot follow O in the scheme BIO, .* 2 places"):
        read(tmp_path, text)
    split = read(tmp_path, text, mixed_tags=True)
    assert tags(split) == [["B-X", "O", "B-X", "I-X", "B-X", "B-Y"], ["B-Y"]]
    assert split.facts["entities_that_break_the_scheme"] == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a O\nb\nc O\n",
            ":2: expected 2 columns separated by spaces as on line 1, a word first and its tag last, got 'b'",
        ),
        ("\na O\nb X O\n", ":3: expected 2 columns separated by spaces as on line 2"),
        ("a\tO\nb\tX Y\tO\n", ":2: expected 2 columns"),
        ("a\tO\n\tO\n", ":2: expected 2 columns separated by tabs as on line 1"),
        ("a\tO\nb\t\n", ":2: expected 2 columns separated by tabs as on line 1"),
        ("a O\n\nb PER\n", ":3: expected a tag O, B-TYPE or I-TYPE, got 'PER'"),
        ("a O\nb B-\n", ":2: expected a tag O"),
        ("a O\nb o\n", ":2: expected a tag O"),
        ("a B-X\nb S-X\nc O\n", ":2: S-X cannot follow B-X in the scheme BIOES"),
        ("a B-X\nb M-X\nc O\n", ":3: O cannot follow M-X in the scheme BMES"),
        ("a M-X\nb E-X\n", ":1: M-X cannot follow O in the scheme BMES"),
        ("a S-X\nb B-X\n", ":2: the end of the sentence cannot follow B-X"),
        ("", ": expected rows, got none"),
        ("-DOCSTART- O\n\n", ": expected rows, got none"),
        (b"a O\n\xff O\n", ":2: expected UTF-8 text, got byte 0xff at column 1"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, expected):
    path = write(tmp_path, text)
    assert ner_error(train_file=path, validation_file=path).startswith(path + expected)


# --- The rows that the model reads -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return build_tokenizer(vocab)


def split_of(sentences: list[list[str]], documents: list[int] | None = None) -> tagged_text.Split:
    documents = documents or [0] * len(sentences)
    return tagged_text.Split(
        "here",
        [
            tagged_text.Sentence(w, ["O"] * len(w), d, f"here row {i}")
            for i, (w, d) in enumerate(zip(sentences, documents))
        ],
    )


def test_a_document_that_fits_is_one_row_with_labels_at_first_pieces(tokenizer):
    split = split_of([["the", "xy"], ["red"], ["blue"]], [0, 0, 1])
    split.sentences[0].tags = ["O", "B-X"]
    rows = tagged_text.build_rows(split, tokenizer, 16)
    assert [tokenizer.convert_ids_to_tokens(row) for row in rows.input_ids] == [
        ["[CLS]", "the", "x", "##y", "red", "[SEP]"],
        ["[CLS]", "blue", "[SEP]"],
    ]
    features = rows.features(split, ("O", "B-X"), 0)
    batch = features.collate([0, 1])
    assert batch["labels"].tolist() == [[-100, 0, 1, -100, 0, -100], [-100, 0, -100, -100, -100, -100]]
    alone = tagged_text.build_rows(split, tokenizer, 16, context="sentence")
    assert [len(row) for row in alone.input_ids] == [5, 3, 3]


def test_only_the_sentence_is_labelled_in_its_surroundings(tokenizer):
    words = ["red", "green", "blue", "small", "large", "old", "new", "house", "river", "city"]
    split = split_of([words[:2], words[2:6], words[6:]])
    rows = tagged_text.build_rows(split, tokenizer, 8)
    assert [tokenizer.convert_ids_to_tokens(row)[1:-1] for row in rows.input_ids] == [words[:6], words[1:7], words[4:]]
    assert [w.tolist() for w in rows.words] == [[0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]
    assert [p.tolist() for p in rows.positions] == [[1, 2], [2, 3, 4, 5], [3, 4, 5, 6]]


def test_a_sentence_longer_than_a_row_is_read_in_parts_with_context(tokenizer):
    words = ["red", "green", "blue", "small", "large", "old", "new", "house", "river", "city"]
    rows = tagged_text.build_rows(split_of([words]), tokenizer, 8)
    assert [tokenizer.convert_ids_to_tokens(row)[1:-1] for row in rows.input_ids] == [words[:6], words[2:8], words[4:]]
    assert [w.tolist() for w in rows.words] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    assert [p.tolist() for p in rows.positions] == [[1, 2, 3], [2, 3, 4], [3, 4, 5, 6]]


def test_what_is_longer_than_a_row_is_counted_and_said(tokenizer):
    """Six pieces fit. A long sentence loses nothing; a long word, here of eight pieces, loses its end."""
    long, short = ["red", "green", "blue", "small", "large", "old", "new"], ["red", "green"]
    splits = {"train": split_of([long, short, ["red", "xxxxxxxx"]]), "validation": split_of([short])}
    for context in ("document", "sentence"):
        rows = {name: tagged_text.build_rows(part, tokenizer, 8, context) for name, part in splits.items()}
        assert rows["train"].cut_facts() == {"words": 1, "sentences_in_parts": 2}
        assert tagged_text.remarks(rows, splits, tokenizer, 8) == [
            "train: 2 of 3 sentences are longer than --max_seq_length 8 and are read in parts; each word is tagged",
            "warning: train: 1 of 11 words are longer than --max_seq_length 8 and were cut; raise it",
            "this tokenizer lower-cases; names are found better with a cased model",
        ]
        covered = {piece for row in rows["train"].input_ids for piece in tokenizer.convert_ids_to_tokens(row)}
        assert {*long} <= covered


@pytest.mark.parametrize("context", ["document", "sentence"])
def test_every_word_is_predicted_once_whatever_the_lengths(tokenizer, context):
    """Sentences and words may be long, sentences may be empty, and the tokenizer may drop words. The rows are compared
    with each word encoded by itself.
    """
    for seed in range(60):
        generator = random.Random(seed)
        sentences, documents = [], []
        for _ in range(generator.randint(1, 6)):
            long_words = ["x" * generator.randint(1, 40), ".,?" * 9, "\u200b", "[SEP]", "the", "red", "\u4e2d"]
            sentences.append(generator.choices(long_words, k=generator.randint(0, 25)))
            documents.append(len(documents) // 2)
        if not any(sentences):
            continue
        split = split_of(sentences, documents)
        rows = tagged_text.build_rows(split, tokenizer, generator.randint(4, 20), context)
        flat = [word for words in sentences for word in words]
        seen = np.concatenate(rows.words)
        assert sorted(seen) == list(range(len(flat)))
        assert rows.unknown_words == flat.count("\u200b")
        for ids, words, positions in zip(rows.input_ids, rows.words, rows.positions):
            assert ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id
            for word, position in zip(words, positions):
                pieces = tokenizer.tokenize(flat[word], split_special_tokens=True) or ["[UNK]"]
                assert tokenizer.convert_ids_to_tokens(int(ids[position])) == pieces[0]


def test_tags_come_back_to_their_words(tokenizer):
    """The logits of each labelled position are largest for its label."""
    generator = random.Random(5)
    labels = ("O", "B-X", "I-X")
    sentences = [generator.choices(["red", "house", "xyz"], k=generator.randint(1, 12)) for _ in range(20)]
    split = split_of(sentences)
    for sentence in split.sentences:
        sentence.tags = generator.choices(labels, k=len(sentence.words))
    rows = tagged_text.build_rows(split, tokenizer, 10)
    told = rows.features(split, labels, 0).columns["labels"]
    logits = [np.eye(3)[np.where(row < 0, 0, row)] for row in told]
    assert tagged_text.find_tags(split, rows, logits, labels) == tags(split)
    logits = [row * generator.uniform(1, 3) for row in logits]  # the probability is that of the row of the word
    shares = tagged_text.tag_probabilities(split, rows, logits)
    assert shares.shape == (sum(map(len, sentences)), 3)
    for numbers, positions, row in zip(rows.words, rows.positions, logits):
        np.testing.assert_allclose(shares[numbers], torch.tensor(row[positions]).softmax(-1).numpy(), rtol=1e-6)
    assert tagged_text.score(split, tags(split))["f1"] == 1.0


def test_predictions_are_written_and_can_be_read_again(tmp_path):
    split = read(tmp_path, CONLL)
    tagged_text.write_predictions(tmp_path / "out.txt", split, CONLL_TAGS)
    lines = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["Anna\tB-PER\tB-PER", "Berg\tI-PER\tI-PER", "left\tO\tO"]
    shares = np.arange(2.0 * split.num_words).reshape(-1, 2) + 0.123456789
    tagged_text.write_probabilities(tmp_path / "out.jsonl", split, CONLL_TAGS, shares, ("O", "B-PER"))
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [record["tokens"] for record in records] == CONLL_WORDS
    assert [record["tags"] for record in records] == CONLL_TAGS
    found = [word for record in records for word in record["probabilities"]]
    assert found[:2] == [{"O": 0.1234568, "B-PER": 1.123457}, {"O": 2.123457, "B-PER": 3.123457}]
    assert [len(record["probabilities"]) for record in records] == [len(words) for words in CONLL_WORDS]
    again = read_columns(tmp_path / "out.txt")
    assert [sentence.words for sentence in again.sentences] == CONLL_WORDS and tags(again) == CONLL_TAGS


def test_dropped_words_are_said_and_cased_tokenizers_are_not():
    cased = build_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "राम"], do_lower_case=False)
    splits = {"train": split_of([["राम", "\x07"]])}
    rows = {"train": tagged_text.build_rows(splits["train"], cased, 8)}
    assert tagged_text.remarks(rows, splits, cased, 8) == ["train: the tokenizer drops 1 words; [UNK] replaces them"]
