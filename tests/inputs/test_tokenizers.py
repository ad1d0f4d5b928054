"""bert_training/inputs/tokenizers.py: what a tokenizer is made of, and whether its rows are those of the weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save_file
from transformers import AutoTokenizer

from bert_training.inputs.tokenizers import chosen_tokenizer, load_tokenizer, vocabulary_tokenizer
from tests.helpers.model_folders import edit_json
from tests.helpers.small_networks import small_config
from tokenization import build_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "[unused0]", "[unused1]", "a", "##b", "cat"]
CASED = [*PIECES, "Cat"]


def write_rows(path: Path, pieces: list[str], **settings) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    if settings:
        path.with_name("tokenizer_config.json").write_text(json.dumps(settings))
    return path


@pytest.fixture
def folder(tmp_path) -> Path:
    build_tokenizer(PIECES).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


# --- vocab.txt alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_config", [False, True])
@pytest.mark.parametrize(("pieces", "word"), [(PIECES, "cat"), (CASED, "Cat")])
def test_vocab_txt_alone_has_the_case_of_its_pieces(tmp_path, capsys, pieces, word, with_config):
    """Beside a config.json, transformers lower-cases every vocabulary; without one, it opens none."""
    path = write_rows(tmp_path / "bert" / "vocab.txt", pieces)
    if with_config:
        (path.parent / "config.json").write_text('{"model_type": "bert"}')
        assert AutoTokenizer.from_pretrained(path.parent).tokenize("Cat") == ["cat"]
    for name in (path, path.parent):
        tokenizer = load_tokenizer(str(name))
        assert tokenizer.tokenize("Cat") == [word] and len(tokenizer) == len(pieces)
        assert capsys.readouterr().out.startswith(f"{name}: the tokenizer is {'cased' if word == 'Cat' else 'lower-'}")
    assert load_tokenizer(str(path), quiet=True) and capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "pieces", "message"),
    [
        ("hindi", [*PIECES, "में", "पोस्ट"], "of 12 pieces, 0 have capitals and 2 accents or vowel signs, so its case"),
        ("few", [*PIECES, *map(str, range(99)), "HER2"], "of 110 pieces, 1 have capitals and 0 accents"),
    ],
)
def test_doubt_about_the_case_is_one_line_with_a_remedy(tmp_path, name, pieces, message):
    path = write_rows(tmp_path / name / "vocab.txt", pieces)
    for given in (path, path.parent):
        with pytest.raises(
            ValueError, match=rf"^{given}: {message}.*; write .*do_lower_case.* into .*config\.json, or give"
        ):
            load_tokenizer(str(given))
    write_rows(path, pieces, do_lower_case=False)
    assert load_tokenizer(str(path)).tokenize(pieces[-1]) == pieces[-1:]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*PIECES, "a"], r"vocab\.txt:11: expected a piece of its own, got 'a', which is already in line 8"),
        ([*PIECES, "", "x"], r"vocab\.txt:11: expected a piece of its own, got an empty line; delete it"),
    ],
)
def test_rows_that_would_shift_the_ids_are_refused(tmp_path, folder, rows, message):
    write_rows(tmp_path / "vocab.txt", rows)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(str(tmp_path))
    write_rows(folder / "vocab.txt", rows)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(str(folder))


@pytest.mark.parametrize(("pieces", "word"), [(PIECES, "cat"), (CASED, "Cat")])
def test_a_name_on_the_hub_with_vocab_txt_alone(tmp_path, monkeypatch, pieces, word):
    """There transformers lower-cases every vocabulary, too."""
    repository = tmp_path / "hub" / "models--someone--old"
    write_rows(repository / "snapshots" / "0123abcd" / "vocab.txt", pieces)
    (repository / "snapshots" / "0123abcd" / "config.json").write_text('{"model_type": "bert"}')
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert load_tokenizer("someone/old").tokenize("Cat") == [word]
    assert chosen_tokenizer(other(tmp_path / "same", pieces), "someone/old").tokenize("cat") == ["cat"]
    with pytest.raises(ValueError, match=f"has the id {len(pieces) - 1}, but for the weights of someone/old that id"):
        chosen_tokenizer(other(tmp_path / "other", [*pieces[:-1], "dog"]), "someone/old")


def test_tokens_stored_beside_vocab_txt_keep_their_ids(tmp_path):
    """So did older versions of transformers: their id stands in a file, or they are rows of the vocabulary."""
    write_rows(tmp_path / "vocab.txt", [*PIECES, "[E0]"], do_lower_case=True)
    (tmp_path / "added_tokens.json").write_text('{"[E1]": 11, "new": 12}')
    (tmp_path / "special_tokens_map.json").write_text('{"additional_special_tokens": ["[E0]", "[E1]"]}')
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer("Cat [E1] new [E0]", add_special_tokens=False)["input_ids"] == [9, 11, 12, 10]
    assert tokenizer.convert_tokens_to_ids(["[E0]", "[E1]", "new"]) == [10, 11, 12]
    (tmp_path / "added_tokens.json").write_text('{"[E1]": 11, "new": 14}')
    with pytest.raises(ValueError, match=r"'new' gets another id than its file says"):
        load_tokenizer(str(tmp_path))


# --- vocab.txt beside tokenizer.json ---------------------------------------------------------------------------------


def test_words_in_unused_rows_are_used_and_named(folder, capsys):
    write_rows(folder / "vocab.txt", [*PIECES[:5], "zebra", "Acme", *PIECES[7:]])
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.tokenize("A Zebra") == ["a", "zebra"]
    assert capsys.readouterr().out.startswith(
        f"{folder / 'vocab.txt'}: words in 2 rows (5: 'zebra', 6: 'Acme'), which "
    )
    assert load_tokenizer(str(folder), quiet=True).tokenize("zebra") == ["zebra"] and capsys.readouterr().out == ""


def test_a_difference_in_another_row_is_refused(folder):
    write_rows(folder / "vocab.txt", [*PIECES[:-1], "dog"])
    with pytest.raises(ValueError, match=r"line 10 holds 'dog', but tokenizer\.json beside it has 'cat' with the id 9"):
        load_tokenizer(str(folder))


def test_the_case_that_tokenizer_json_states_alone_is_kept(folder, capsys):
    """transformers' class lower-cases unless tokenizer_config.json says otherwise."""
    build_tokenizer(CASED, do_lower_case=False).save_pretrained(folder)
    edit_json(folder / "tokenizer_config.json", do_lower_case=None, strip_accents=None)
    assert AutoTokenizer.from_pretrained(folder).tokenize("Cat") == ["cat"]
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.tokenize("Cat") == ["Cat"] and capsys.readouterr().out == ""
    tokenizer.save_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder).tokenize("Cat") == ["Cat"]
    edit_json(folder / "tokenizer_config.json", do_lower_case=True)
    assert load_tokenizer(str(folder)).tokenize("Cat") == ["cat"]
    assert "says do_lower_case false, strip_accents false, but tokenizer_config.json" in capsys.readouterr().out


def test_somebody_elses_truncation_and_padding_do_not_act(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["truncation"] = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Left"}
    content["padding"] = {"strategy": {"Fixed": 4}, "direction": "Left", "pad_to_multiple_of": 4, "pad_id": 0}
    content["padding"] |= {"pad_type_id": 0, "pad_token": "[PAD]"}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert AutoTokenizer.from_pretrained(folder).backend_tokenizer.encode("cat " * 9).ids == [2, 9, 9, 3]
    tokenizer = load_tokenizer(str(folder))
    assert (tokenizer.backend_tokenizer.truncation, tokenizer.backend_tokenizer.padding) == (None, None)
    assert tokenizer.backend_tokenizer.encode("cat " * 9).ids == [2, *[9] * 9, 3]
    assert tokenizer("a cat", truncation=True, max_length=3)["input_ids"] == [2, 7, 3]
    tokenizer.save_pretrained(folder)
    assert not {"max_length", "stride", "truncation_strategy", "pad_to_multiple_of"} & set(
        json.loads((folder / "tokenizer_config.json").read_text())
    )


@pytest.mark.parametrize(("piece", "number"), [("cat", 10), ("[SEP]", None)])
def test_ids_of_a_damaged_tokenizer_are_compared(folder, piece, number):
    """Without [SEP] in its vocabulary, the library would give it another id, in silence."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"][piece] = number
    content["model"]["vocab"] = {word: row for word, row in content["model"]["vocab"].items() if row is not None}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "vocab.txt").unlink()
    with pytest.raises(ValueError, match="the vocabulary of its tokenizer is damaged"):
        load_tokenizer(str(folder))


# --- the tokenizer of the weights ------------------------------------------------------------------------------------


@pytest.fixture
def model(folder) -> Path:
    small_config(vocab_size=len(PIECES)).save_pretrained(folder)
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    return folder


def other(folder: Path, pieces: list[str]) -> str:
    build_tokenizer(pieces).save_pretrained(folder)
    return str(folder)


def test_another_tokenizer_is_compared_with_that_of_the_weights(model, tmp_path, capsys):
    assert chosen_tokenizer(None, str(model)).tokenize("cat") == ["cat"]
    assert chosen_tokenizer(str(model), None).tokenize("cat") == ["cat"]
    assert chosen_tokenizer(str(model), f"{model}/").tokenize("cat") == ["cat"]
    assert chosen_tokenizer(other(tmp_path / "same", PIECES), str(model)).tokenize("cat") == ["cat"]
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match=r"'dog' has the id 9, but for the weights of .* that id stands for 'cat'"):
        chosen_tokenizer(other(tmp_path / "other", [*PIECES[:-1], "dog"]), str(model))
    words = write_rows(tmp_path / "words" / "vocab.txt", [*PIECES[:5], "zebra", *PIECES[6:]])
    assert chosen_tokenizer(str(words), str(model)).tokenize("zebra") == ["zebra"]
    assert f"{words}: words in 1 row (5: 'zebra'), where the tokenizer of" in capsys.readouterr().out


def test_a_checkpoint_is_compared_with_the_tokenizer_of_its_run(model, tmp_path):
    checkpoint = model / "checkpoint-2"
    checkpoint.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model / name, checkpoint)
    (checkpoint / "training_state.pt").touch()
    assert chosen_tokenizer(str(model), str(checkpoint)).tokenize("cat") == ["cat"]
    assert chosen_tokenizer(None, str(checkpoint)).tokenize("cat") == ["cat"]
    with pytest.raises(ValueError, match="stands for 'cat'"):
        chosen_tokenizer(other(tmp_path / "other", [*PIECES[:-1], "dog"]), str(checkpoint))


def test_weights_without_a_tokenizer(model, tmp_path, capsys):
    given = other(tmp_path / "given", PIECES)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (model / name).unlink()
    assert chosen_tokenizer(given, str(model)).tokenize("cat") == ["cat"]
    assert f"warning: {model} has no tokenizer; nothing shows that the rows of {given}" in capsys.readouterr().out


# --- the case of a vocabulary -----------------------------------------------------------------------------------------


LOWER = [*SPECIAL, "a", "##b"]
MIXED = [*LOWER, "A"]
ACCENTED = [*LOWER, "schön", "schon", "म", "में"]


@pytest.mark.parametrize(
    ("pieces", "asked", "expected"),
    [(LOWER, None, ["a", "##b"]), (MIXED, None, ["A", "##b"]), (MIXED, True, ["a", "##b"]), (LOWER, False, ["[UNK]"])],
)
def test_the_pieces_decide_the_case(tmp_path, pieces, asked, expected):
    path = write_rows(tmp_path / "bert" / "vocab.txt", pieces)
    assert vocabulary_tokenizer(path, do_lower_case=asked).tokenize("Ab") == expected


@pytest.mark.parametrize(
    ("stored", "asked", "expected", "warned"),
    [
        ({"do_lower_case": True}, None, ["schon", "म"], True),
        ({"do_lower_case": True, "strip_accents": False}, None, ["schön", "में"], False),  # German and Turkish models
        ({}, False, ["schön", "में"], False),
        ({"strip_accents": False}, True, ["schon", "म"], True),
        ({"do_lower_case": False}, None, ["schön", "में"], False),
    ],
)
def test_accents_are_a_setting_of_their_own(tmp_path, stored, asked, expected, warned, capsys):
    """The vocabulary alone does not decide it, because Google's code strips accents whenever it lower-cases."""
    path = write_rows(tmp_path / "bert" / "vocab.txt", ACCENTED, **stored)
    assert vocabulary_tokenizer(path, strip_accents=asked).tokenize("schön में") == expected
    assert ("warning: 2 pieces, such as 'schön', have accents or vowel signs" in capsys.readouterr().out) == warned


@pytest.mark.parametrize("row", ["[UNK]\t100", '"[UNK]"', "<unk>", "\u2581a"])
def test_a_vocabulary_of_another_form_is_refused(tmp_path, row):
    path = write_rows(tmp_path / "vocab.txt", ["[PAD]", row, "[CLS]", "[SEP]", "[MASK]", "b"])
    with pytest.raises(ValueError, match=r"vocab: no row for \[UNK\]"):
        vocabulary_tokenizer(path)
