"""bert_training/networks/configuration.py: whether a network fits a tokenizer, and configurations for new weights."""

import json

import pytest

from bert_training.networks.configuration import check_fit, new_config
from tests.helpers.small_networks import small_config
from tokenization import build_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer_of(size: int):
    return build_tokenizer([*SPECIAL, *(f"piece{number}" for number in range(size - len(SPECIAL)))])


@pytest.mark.parametrize(
    ("rows", "pieces", "multiple"),
    [(300, 300, None), (304, 300, 8), (304, 297, 8), (320, 300, 32), (384, 300, 128), (320, 304, 32), (304, 303, 8)],
)
def test_rows_that_are_rounded_up_fit_and_are_named(capsys, rows, pieces, multiple):
    check_fit(small_config(vocab_size=rows), tokenizer_of(pieces), 8)
    out, told = capsys.readouterr().out, f"rounded up to a multiple of {multiple}; if rows were deleted"
    assert out.startswith(f"note: the model has {rows} embeddings") and told in out if multiple else out == ""
    check_fit(small_config(vocab_size=rows), tokenizer_of(pieces), 8, quiet=True)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("rows", "pieces"), [(300, 299), (300, 290), (304, 288), (304, 280), (427, 300), (512, 300)])
def test_rows_that_are_missing_from_the_vocabulary_are_refused(rows, pieces):
    with pytest.raises(
        ValueError, match=f"the model has {rows} embeddings but the tokenizer only {pieces} pieces, and"
    ):
        check_fit(small_config(vocab_size=rows), tokenizer_of(pieces), 8)


def test_googles_vocabulary_without_one_row_is_refused():
    with pytest.raises(ValueError, match="30522 is the size of a whole vocabulary of Google's"):
        check_fit(small_config(vocab_size=30522), tokenizer_of(30521), 8)
    with pytest.raises(ValueError, match=r"21128 is the size .* restore rows that were deleted"):  # a multiple of 8
        check_fit(small_config(vocab_size=21128), tokenizer_of(21127), 8)
    with pytest.raises(ValueError, match="300 is not 299 rounded up to a multiple of 8, 16, 32, 64, 128"):
        check_fit(small_config(vocab_size=300), tokenizer_of(299), 8)


def test_tokens_without_embeddings_are_refused_with_the_remedy():
    tokenizer = tokenizer_of(300)
    tokenizer.add_tokens(["new"])
    with pytest.raises(ValueError, match=r"301 pieces but the model only 300 .* resize_token_embeddings\(len"):
        check_fit(small_config(vocab_size=300), tokenizer, 8)


def test_new_weights_take_the_size_of_the_tokenizer(tmp_path, capsys):
    small_config(vocab_size=30522, pad_token_id=7, max_position_embeddings=20).save_pretrained(tmp_path)
    config = new_config(str(tmp_path), tokenizer_of(300))
    assert (config.vocab_size, config.pad_token_id, config.max_position_embeddings) == (300, 0, 20)
    said = capsys.readouterr().out
    assert said == (
        f"--config_name {tmp_path}: new weights take the tokenizer's vocab_size 300 (the folder's config says 30,522), "
        "pad_token_id 0 (the folder's config says 7)\n"
    )
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 300, "hidden_size": 12, "pad_token_id": None}))
    assert new_config(str(tmp_path), tokenizer_of(300)).hidden_size == 12
    assert "tokenizer's pad_token_id 0 (the folder's config says None)" in capsys.readouterr().out
    assert new_config("tiny", tokenizer_of(300)).vocab_size == 300 and capsys.readouterr().out == ""


def test_a_size_that_is_rounded_up_is_kept(tmp_path, capsys):
    small_config(vocab_size=320).save_pretrained(tmp_path)
    assert new_config(str(tmp_path), tokenizer_of(300)).vocab_size == 320
    assert capsys.readouterr().out == ""
    assert new_config(str(tmp_path), tokenizer_of(90)).vocab_size == 90
