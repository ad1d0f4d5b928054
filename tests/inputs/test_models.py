"""bert_training/inputs/models.py: what a name may stand for, and whether config, tokenizer and flags fit together."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import modeling_bert_repro
import run_glue
import run_swag
from bert_training.inputs.models import (
    bert_config,
    check_fit,
    checkpoint_config,
    config_labels,
    files_of_index,
    new_config,
)
from bert_training.networks.initial_weights import load_network, weights_sha256
from modeling_bert_repro import BertForSequenceClassification
from tests.helpers.model_folders import edit_json
from tests.helpers.old_checkpoints import aged
from tests.helpers.old_names import old_name
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
    with pytest.raises(ValueError, match=f"the model has {rows} embeddings and the tokenizer {pieces} pieces, which"):
        check_fit(small_config(vocab_size=rows), tokenizer_of(pieces), 8)


def test_googles_vocabulary_without_one_row_is_refused():
    for rows in (30522, 21128):  # the latter is a multiple of 8
        with pytest.raises(ValueError, match="restore rows that were deleted"):
            check_fit(small_config(vocab_size=rows), tokenizer_of(rows - 1), 8)


def test_tokens_without_embeddings_are_refused_with_the_remedy():
    tokenizer = tokenizer_of(300)
    tokenizer.add_tokens(["new"])
    with pytest.raises(ValueError, match=r"300 embeddings and the tokenizer 301 .* resize_token_embeddings\(len"):
        check_fit(small_config(vocab_size=300), tokenizer, 8)


def test_new_weights_take_the_size_of_the_tokenizer(tmp_path, capsys):
    small_config(vocab_size=30522, pad_token_id=7, max_position_embeddings=20).save_pretrained(tmp_path)
    config = new_config(str(tmp_path), tokenizer_of(300))
    assert (config.vocab_size, config.pad_token_id, config.max_position_embeddings) == (300, 0, 20)
    said = capsys.readouterr().out
    assert said == (
        f"--config_name {tmp_path}: new weights take the tokenizer's vocab_size 300 (the folder's config says 30522), "
        "pad_token_id 0 (the folder's config says 7)\n"
    )
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 300, "hidden_size": 12, "pad_token_id": None}))
    assert new_config(str(tmp_path), tokenizer_of(300)).hidden_size == 12
    assert "tokenizer's pad_token_id 0 (the folder's config says None)" in capsys.readouterr().out
    assert new_config("tiny", tokenizer_of(300)).vocab_size == 300 and capsys.readouterr().out == ""


# --- names of models --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(pretrained, tmp_path) -> Path:
    return Path(shutil.copytree(pretrained, tmp_path / "model"))


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack", "model.fp16.safetensors", "best.pt"])
def test_a_folder_without_readable_weights_is_named_with_a_remedy(model, name):
    (model / "model.safetensors").rename(model / name)
    with pytest.raises(ValueError, match=rf"--teacher {model}: .* no weights; it holds .*{name}.*with transformers 4"):
        checkpoint_config(str(model), "--teacher")


def test_an_adapter_is_refused_also_beside_whole_weights(model):
    (model / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"it holds an adapter \(adapter_config\.json\), which changes another model"):
        checkpoint_config(str(model))


def test_an_old_checkpoint_is_refused_with_the_command_that_converts_it(pretrained, tmp_path):
    old = aged(pretrained, tmp_path / "old")
    for name in (old, old / "pytorch_model.bin", tmp_path / "far" / "away"):
        with pytest.raises(ValueError, match=f"bert-repro convert {name} FOLDER"):
            run_glue.main(f"--model_name_or_path {name} --output_dir {tmp_path}/out --max_seq_length 8".split())
    assert not (tmp_path / "out").exists()


def test_gamma_and_beta_are_read(pretrained, tmp_path):
    state = load_file(pretrained / "model.safetensors")
    shutil.copy(pretrained / "config.json", tmp_path)
    stored = {old_name(name): tensor for name, tensor in state.items()}
    torch.save(stored, tmp_path / "pytorch_model.bin")
    loaded = load_network(modeling_bert_repro.BertForPreTraining, str(tmp_path)).model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attn_implementation": "somebody/kernel"}, "attn_implementation eager or sdpa"),
        ({"_attn_implementation": ["eager"]}, "_attn_implementation eager or sdpa"),
        ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}, "model_type bert, got 'evil'"),
        ({"transformers_weights": "../other.safetensors"}, "no transformers_weights, got '../other.safetensors'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type absolute, got 'relative_key'"),
    ],
)
def test_what_would_compute_something_else_is_refused(model, fields, message):
    edit_json(model / "config.json", **fields)
    for opened in (checkpoint_config, lambda name: bert_config(name, 40)):
        with pytest.raises(ValueError, match=re.escape(message)):
            opened(str(model))


def test_a_config_of_before_2020_does_not_name_its_kind_of_network(model):
    edit_json(model / "config.json", model_type=None)
    assert checkpoint_config(str(model)).hidden_size and not load_network(modeling_bert_repro.BertModel, str(model)).new


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "b/../a", "a\0", ".", "", 1, None])
def test_an_index_names_files_beside_it(model, name):
    (model / "model.safetensors").unlink()
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        (model / index).write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": name}}))
        with pytest.raises((ValueError, TypeError)):
            weights_sha256(str(model))
    (model / "index.json").write_text(json.dumps({"weight_map": {"x": "b", "y": "a", "z": "b"}}))
    assert files_of_index(model / "index.json") == ["a", "b"]


@pytest.mark.parametrize("names", [{"0": "a", "2": "b"}, {"0": "a", "1": "a"}, {"0": "a", "1": ""}])
def test_labels_without_a_name_of_their_own_are_refused(model, names):
    edit_json(model / "config.json", id2label=names, label2id={"a": 0, "b": 1}, num_labels=2)
    with pytest.raises(ValueError, match=r"id2label in config\.json must give each of the numbers"):
        config_labels(checkpoint_config(str(model)))


# --- a network that reads from left to right --------------------------------------------------------------------------


@pytest.fixture
def left_to_right(tmp_path, tokenizer_folder, vocab) -> str:
    shutil.copytree(tokenizer_folder, tmp_path / "ltr")
    BertForSequenceClassification(small_config(is_decoder=True, vocab_size=len(vocab))).save_pretrained(
        tmp_path / "ltr"
    )
    return str(tmp_path / "ltr")


@pytest.mark.parametrize("script", [run_glue, run_swag])
def test_left_to_right_is_refused_where_the_first_token_decides(left_to_right, tmp_path, script):
    flags = ["--model_name_or_path", left_to_right, "--output_dir", str(tmp_path / "out"), "--max_seq_length", "32"]
    with pytest.raises(ValueError, match="attends left to right"):
        script.main(flags)
    assert not (tmp_path / "out").exists()
