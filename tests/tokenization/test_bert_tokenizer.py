"""The tokenizer that the scripts use behaves like transformers' own, also after it was saved and opened."""

import json
from pathlib import Path

import pytest
import transformers
from transformers import AutoTokenizer

from bert_training.inputs.reading import numbered_lines
from tokenization import BasicTokenizer, BertTokenizer, build_tokenizer, load_vocab, write_vocab

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##want", "##ed", "runn", "##ing", ",", "!", "the"),
    *("cafe", "中", "##s", "The"),
]
TEXT, PAIR = "UNwantéd,runnings!", "the 中 [MASK] zebra"


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return build_tokenizer(PIECES)


@pytest.fixture(scope="module")
def saved(tokenizer, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save_pretrained(folder)
    return folder


# Building a tokenizer.


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ([*PIECES, "un"], "expected the ids 0 to 16, each once"),
        (PIECES[2:], r"no row for \[UNK\]"),
        ([*PIECES, ""], "for a piece that is not empty"),
        ({piece: i * 2 for i, piece in enumerate(PIECES)}, "expected the ids 0 to 16, each once"),
    ],
)
def test_bad_vocabularies_are_refused(vocab, message):
    with pytest.raises(ValueError, match=message):
        build_tokenizer(vocab)


# The vocabulary of Google's tokenization_test.py, which has neither [PAD] nor [MASK].
GOOGLES = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]


@pytest.mark.parametrize("build", [build_tokenizer, None], ids=["built", "saved and opened"])
def test_the_test_cases_of_google(tmp_path, build):
    tokenizer = build_tokenizer(GOOGLES)
    if build is None:
        tokenizer.save_pretrained(tmp_path)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        assert list(load_vocab(tmp_path / "vocab.txt")) == GOOGLES
    assert tokenizer.tokenize("UNwant\u00e9d,running") == ["un", "##want", "##ed", ",", "runn", "##ing"]
    ids = tokenizer.convert_tokens_to_ids(["un", "##want", "##ed", ",", "runn", "##ing"])
    assert ids == [7, 4, 5, 10, 8, 9] and tokenizer.convert_ids_to_tokens(ids[:3]) == ["un", "##want", "##ed"]
    assert tokenizer("unwanted", "running")["input_ids"] == [1, 7, 4, 5, 2, 8, 9, 2]
    assert tokenizer.get_vocab() == {piece: i for i, piece in enumerate(GOOGLES)}  # No row was added.
    assert tokenizer.pad_token is tokenizer.mask_token is None
    with pytest.raises(ValueError, match="does not have a padding token"):
        tokenizer(["un", "wanted"], padding=True)


def test_without_cls_and_sep_it_tokenizes_and_says_what_it_cannot_do(tmp_path):
    """transformers would put the tokens None, with the ids 2 and 3, around the text."""
    tokenizer = build_tokenizer(["[UNK]", *GOOGLES[3:]])
    assert tokenizer.tokenize("unwanted \u535a") == ["un", "##want", "##ed", "[UNK]"]
    assert tokenizer("unwanted", add_special_tokens=False)["input_ids"] == [5, 2, 3]
    for call in (tokenizer, tokenizer.encode):
        with pytest.raises(ValueError, match=r"no row for \[CLS\], \[SEP\]; add it, or encode with add_special_tokens"):
            call("unwanted")
    with pytest.raises(ValueError, match=r"no row for \[CLS\], \[SEP\]; add it, or write only vocab.txt"):
        tokenizer.save_pretrained(tmp_path)
    assert write_vocab(tokenizer, tmp_path) and len(load_vocab(tmp_path / "vocab.txt")) == 9


# Saving and opening a tokenizer.


def test_files_of_a_saved_folder(saved, tokenizer):
    assert sorted(path.name for path in saved.iterdir()) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert (saved / "vocab.txt").read_bytes() == "".join(f"{piece}\n" for piece in PIECES).encode()
    config = json.loads((saved / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "BertTokenizer"
    assert config["model_max_length"] == 512
    assert "auto_map" not in config


def assert_same(tokenizer, other) -> None:
    options = {"padding": "max_length", "max_length": 20, "truncation": True}
    assert dict(tokenizer(TEXT, PAIR, **options)) == dict(other(TEXT, PAIR, **options))
    assert tokenizer.get_vocab() == other.get_vocab()
    assert tokenizer.model_max_length == other.model_max_length
    assert tokenizer.special_tokens_map == other.special_tokens_map


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_lower_case": False, "model_max_length": 128},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
    ],
)
def test_every_reader_gives_the_same_ids(tmp_path, options):
    original = build_tokenizer(PIECES, **options)
    original.save_pretrained(tmp_path)
    opened = [AutoTokenizer.from_pretrained(tmp_path), BertTokenizer.from_pretrained(tmp_path)]
    assert type(opened[0]) is transformers.BertTokenizer
    for other in opened:
        assert_same(original, other)
        assert other.tokenize("The Café 中x") == original.tokenize("The Café 中x")
    opened[1].save_pretrained(tmp_path / "again")
    for name in ("tokenizer.json", "vocab.txt"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()
    assert_same(original, AutoTokenizer.from_pretrained(tmp_path / "again"))


def test_added_tokens_have_rows(tmp_path):
    tokenizer = build_tokenizer(PIECES)
    tokenizer.add_tokens(["new"])
    tokenizer.add_special_tokens({"extra_special_tokens": ["[ENTITY]"]})
    tokenizer.save_pretrained(tmp_path)
    assert load_vocab(tmp_path / "vocab.txt") == tokenizer.get_vocab()
    assert list(load_vocab(tmp_path / "vocab.txt")) == [*PIECES, "new", "[ENTITY]"]
    for opened in (AutoTokenizer.from_pretrained(tmp_path), build_tokenizer(tmp_path / "vocab.txt")):
        assert opened.convert_tokens_to_ids(["new", "[ENTITY]"]) == [len(PIECES), len(PIECES) + 1]
    (tmp_path / "tokenizer.json").unlink()  # Such a folder is what other programs make of vocab.txt.
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize("the [ENTITY]") == ["the", "[ENTITY]"]


# Using a tokenizer; the ids were worked out by hand.


def test_pairs_and_their_token_types(tokenizer):
    encoded = tokenizer("the runns", "the!")
    assert encoded["input_ids"] == [2, 12, 8, 15, 3, 12, 11, 3]
    assert encoded["token_type_ids"] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert encoded["attention_mask"] == [1] * 8
    assert tokenizer.encode("the", add_special_tokens=False) == [12]
    assert tokenizer.num_special_tokens_to_add(pair=True) == 3
    mask = tokenizer("the", return_special_tokens_mask=True)["special_tokens_mask"]
    assert mask == [1, 0, 1]


def test_offsets_point_into_the_text(tokenizer):
    text = "  UNwantéd,中runnings [MASK] \u0000the"
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    shown = [text[start:end] for start, end in encoded["offset_mapping"]]
    assert shown == ["UN", "want", "éd", ",", "中", "runn", "ing", "s", "[MASK]", "the"]
    # An accent that is a character of its own belongs to no piece.
    assert tokenizer("cafe\u0301s", return_offsets_mapping=True)["offset_mapping"][1:3] == [(0, 4), (5, 6)]


# Real text.


@pytest.mark.realdata
@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_googles_vocabulary_gives_what_transformers_gives(real_data, case):
    vocab = real_data / "assets" / f"{case}_vocab.txt"
    ours = build_tokenizer(vocab, case == "uncased")
    theirs = transformers.BertTokenizer(vocab=str(vocab), do_lower_case=case == "uncased", model_max_length=512)
    lines = [line for _, line in numbered_lines(real_data / "text" / "wiki_heldout.txt")][::49]
    batch = {"truncation": True, "padding": True, "max_length": 64}
    assert dict(ours(lines[1:], lines[:-1], **batch)) == dict(theirs(lines[1:], lines[:-1], **batch))


@pytest.mark.realdata
def test_offsets_of_real_text_spell_the_pieces(real_data):
    tokenizer = build_tokenizer(real_data / "assets" / "uncased_vocab.txt")
    fold = BasicTokenizer()
    for line in [line for _, line in numbered_lines(real_data / "text" / "wiki_heldout.txt")][::40]:
        encoded = tokenizer(line, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        for piece, (start, end) in zip(encoded.tokens(), encoded["offset_mapping"], strict=True):
            if piece != "[UNK]":
                assert "".join(fold.tokenize(line[start:end])) == piece.removeprefix("##"), line
