"""The rules of real tokenizers are accepted; those that could make a text far longer are refused."""

import base64
import json
import shutil

import pytest

from bert_training.networks.pretrained import load_tokenizer
from bert_training.networks.tokenizer_rules import check_rules
from tests.helpers.bombs import CLS, TEXT, TOKENIZERS, edit_tokenizer, replace, sequence, template

# A table of SentencePiece holds the 18 characters that U+FDFA becomes.
TABLE = (0).to_bytes(4, "little") + "a\0\ufdfa".encode() + b"\0" + ("\u0635" * 18).encode() + b"\0"
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(TABLE).decode()}
SPACES = replace(" ", Regex=" {2,}")
PUBLISHED = {
    "BERT": {"normalizer": {"type": "BertNormalizer", "lowercase": True}},
    "multilingual-e5": {"normalizer": sequence("normalizers", PRECOMPILED, SPACES)},
    "ALBERT": {
        "normalizer": sequence(
            "normalizers",
            *(replace('"', String="``"), replace('"', String="''"), {"type": "NFKD"}, {"type": "StripAccents"}),
            *({"type": "Lowercase"}, PRECOMPILED, SPACES),
        )
    },
    "Llama": {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace("▁", String=" "))},
    "nothing": {"normalizer": None, "decoder": None, "post_processor": None},
    "a template": {"post_processor": sequence("processors", {"type": "ByteLevel"}, template(CLS, TEXT, CLS))},
    "Google's first": {"model": {"type": "WordPiece", "max_input_chars_per_word": 200}},
}


@pytest.fixture
def folder(tmp_path, tokenizer_folder):
    return shutil.copytree(tokenizer_folder, tmp_path / "tokenizer")


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_rules_of_published_tokenizers(folder, name):
    edit_tokenizer(folder / "tokenizer.json", PUBLISHED[name])
    check_rules(folder / "tokenizer.json")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_rules_that_are_refused(folder, name):
    edit_tokenizer(folder / "tokenizer.json", TOKENIZERS[name])
    with pytest.raises(ValueError, match=r"tokenizer\.json: (its|expected) "):
        load_tokenizer(str(folder))


def test_an_id_of_billions(folder):
    """The library would take seconds for each copy of such a tokenizer."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["[UNK]"] = 4_000_000_000
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="expected ids of at most 10,000,000 in its vocabulary, got 4,000,000,000"):
        load_tokenizer(str(folder))


def test_a_file_for_one_version_of_transformers(folder):
    shutil.copy(folder / "tokenizer.json", folder / "tokenizer.4.0.0.json")
    edit_tokenizer(folder / "tokenizer.4.0.0.json", TOKENIZERS["chained replacements"])
    with pytest.raises(ValueError, match=r"tokenizer\.4\.0\.0\.json: its normalizer could make a text more than 2,000"):
        load_tokenizer(str(folder))


def test_a_damaged_table(folder):
    for table in ("%", 5, None):
        edit_tokenizer(
            folder / "tokenizer.json", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": table}}
        )
        if table is None:
            check_rules(folder / "tokenizer.json")  # the library says what is wrong
        else:
            with pytest.raises(ValueError, match="precompiled_charsmap is damaged"):
                check_rules(folder / "tokenizer.json")


@pytest.mark.parametrize("content", [{"normalizer": "a"}, {"post_processor": [1]}, {"model": None}, {}])
def test_what_is_no_rule_is_left_to_the_library(folder, content):
    (folder / "tokenizer.json").write_text(json.dumps(content))
    check_rules(folder / "tokenizer.json")
