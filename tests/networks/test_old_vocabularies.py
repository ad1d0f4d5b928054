"""bert_training/networks/old_vocabularies.py: the case of a vocabulary, which the files of an old checkpoint may not
say.
"""

import json
import re
from pathlib import Path

import pytest

from bert_training.networks.old_vocabularies import OldTokenizer, old_tokenizer

LOWER = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
MIXED = [*LOWER, "A"]


def opened(folder: Path, pieces: list[str], do_lower_case: bool | None = None, **settings) -> OldTokenizer:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return old_tokenizer(folder, 12, do_lower_case=do_lower_case)


@pytest.mark.parametrize(
    ("pieces", "asked", "expected"),
    [(LOWER, None, ["a", "##b"]), (MIXED, None, ["A", "##b"]), (MIXED, True, ["a", "##b"]), (LOWER, False, ["[UNK]"])],
)
def test_the_pieces_decide_the_case(tmp_path, pieces, asked, expected):
    tokenizer, notes, doubt = opened(tmp_path / "bert", pieces, asked)
    assert (tokenizer.tokenize("Ab"), tokenizer.model_max_length, doubt) == (expected, 12, None)
    assert any(note.startswith("warning: these pieces can never occur") for note in notes) == bool(asked)


@pytest.mark.parametrize(
    ("name", "pieces", "doubt"),
    [
        ("cased_L-12_H-768_A-12", LOWER, "is that of a cased model, but no piece of .* has a capital"),
        ("biobert-Cased", LOWER, "is that of a cased model"),
        ("uncased_L-12_H-768_A-12", MIXED, "is that of a lower-cased model, but 1 pieces have capitals"),
        ("multilingual_L-12_H-768_A-12", MIXED, "is that of a lower-cased model"),
        ("chinese_L-12_H-768_A-12", MIXED, "is that of a lower-cased model"),
        ("cased_L-12_H-768_A-12", MIXED, None),
        ("multi_cased_L-12_H-768_A-12", MIXED, None),
        ("uncased_L-12_H-768_A-12", LOWER, None),
        ("chinese_L-12_H-768_A-12", LOWER, None),
        ("biobert_v1.1_pubmed", MIXED, None),
    ],
)
def test_a_name_that_contradicts_the_pieces_is_a_doubt(tmp_path, name, pieces, doubt):
    found = opened(tmp_path / name, pieces).doubt
    assert found is None if doubt is None else re.search(doubt, found)
    assert opened(tmp_path / name, pieces, do_lower_case=True).doubt is None
    assert opened(tmp_path / name, pieces, do_lower_case=pieces is LOWER).doubt is None


def test_a_stored_setting_is_no_doubt(tmp_path):
    _, _, doubt = opened(tmp_path / "cased_L-12", LOWER, strip_accents=False)
    assert doubt
    (tmp_path / "cased_L-12" / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    tokenizer, _, doubt = old_tokenizer(tmp_path / "cased_L-12", 12)
    assert doubt is None and tokenizer.tokenize("Ab") == ["a", "##b"]


@pytest.mark.parametrize(("content", "message"), [("{", "not valid JSON"), ("[]", "expected a JSON object")])
def test_damaged_settings_are_refused(tmp_path, content, message):
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(ValueError, match=f"tokenizer_config.json(:1)?: {message}.*; correct it, or"):
        opened(tmp_path, LOWER)


ACCENTED = [*LOWER, "schön", "schon", "म", "में"]


@pytest.mark.parametrize(
    ("stored", "asked", "expected", "warned"),
    [
        ({}, None, ["schon", "म"], True),
        ({"do_lower_case": True}, None, ["schon", "म"], True),
        ({"do_lower_case": True, "strip_accents": False}, None, ["schön", "में"], False),  # German and Turkish models
        ({}, False, ["schön", "में"], False),
        ({"strip_accents": False}, True, ["schon", "म"], True),
        ({"do_lower_case": False}, None, ["schön", "में"], False),
    ],
)
def test_accents_are_a_setting_of_their_own(tmp_path, stored, asked, expected, warned):
    """The vocabulary alone does not decide it, because Google's code strips accents whenever it lower-cases."""
    opened(tmp_path / "bert", ACCENTED)
    (tmp_path / "bert" / "tokenizer_config.json").write_text(json.dumps(stored))
    tokenizer, notes, _ = old_tokenizer(tmp_path / "bert", 12, strip_accents=asked)
    assert tokenizer.tokenize("schön में") == expected
    warnings = [note for note in notes if note.startswith("warning: 2 pieces, such as 'schön', have accents or vowel")]
    assert len(warnings) == warned and all(
        "strip_accents false (in tokenizer_config.json, or given" in note and "--" not in note for note in warnings
    )


def test_accents_of_a_tokenizer_json_cannot_be_changed(tmp_path):
    folder = tmp_path / "bert"
    opened(folder, LOWER).tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match=r"^--strip_accents cannot change .*tokenizer\.json; give --vocab_file"):
        old_tokenizer(folder, 12, strip_accents=False)


def test_a_lower_cased_multilingual_vocabulary_gets_a_warning(tmp_path):
    """The sizes are those of Google's lower-cased multilingual and English vocabularies."""
    pieces = [*LOWER, *(f"piece{number}" for number in range(105_879 - len(LOWER)))]
    for size, warned in ((105_879, True), (30_522, False)):
        notes = opened(tmp_path / str(size), pieces[:size]).notes
        assert any("recommends the cased multilingual model" in note for note in notes) == warned
    notes = opened(tmp_path / "cased", pieces, do_lower_case=False).notes
    assert not any("warning" in note for note in notes)


def test_without_a_vocabulary(tmp_path):
    with pytest.raises(ValueError, match=r"no vocab\.txt beside the weights; give --vocab_file FILE to bert-repro"):
        old_tokenizer(None, 12)


@pytest.mark.parametrize(
    ("pieces", "warned"), [(LOWER, True), (MIXED, False), ([*LOWER[:5], "\u0915", "##\u0916"], False)]
)
def test_a_case_that_is_stated_against_the_pieces_is_warned_of(tmp_path, pieces, warned):
    """Scripts without case have no capitals either."""
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    notes = opened(tmp_path, pieces).notes
    assert (
        any(note.startswith("warning: do_lower_case is false, but no piece has a capital") for note in notes) == warned
    )


@pytest.mark.parametrize("row", ["[UNK]\t100", '"[UNK]"', "<unk>", "\u2581a"])
def test_a_vocabulary_of_another_form_is_named_with_its_line(tmp_path, row):
    with pytest.raises(ValueError) as caught:
        opened(tmp_path / "a", ["[PAD]", row, "[CLS]", "[SEP]", "[MASK]", "b"])
    number = 1 if row == "\u2581a" else 2
    assert str(caught.value).startswith(f"{tmp_path / 'a' / 'vocab.txt'}:{number}: expected a vocabulary of BERT")
