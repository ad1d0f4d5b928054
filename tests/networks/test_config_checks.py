"""A config of something else, or one that asks for code of the Hub, is refused before a network is made."""

import json
import re

import pytest
import torch
from transformers import AutoTokenizer

import modeling_bert_repro
from bert_training.networks.configuration import PLAIN_OUTPUTS, bert_config, check_fit
from bert_training.networks.initial_weights import load_network, weights_sha256
from bert_training.networks.pretrained import checkpoint_config


@pytest.fixture
def folder(tmp_path, small_config):
    modeling_bert_repro.BertModel(small_config).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change(folder, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attn_implementation": "somebody/kernel"}, "code of the Hub, which is not executed"),
        ({"_attn_implementation": ["eager"]}, "code of the Hub, which is not executed"),
        (
            {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}},
            "got model_type 'evil'",
        ),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key', expected absolute"),
        ({"transformers_weights": "../other.safetensors"}, "transformers_weights is '../other.safetensors', leave it"),
    ],
)
def test_what_would_compute_something_else_is_refused(folder, fields, message):
    change(folder, **fields)
    for opened in (checkpoint_config, lambda name: bert_config(name, 40)):
        with pytest.raises(ValueError, match=re.escape(message)):
            opened(str(folder))


@pytest.mark.parametrize("field", PLAIN_OUTPUTS)
def test_what_a_network_returns_is_not_for_the_config_to_say(folder, field, capsys):
    change(folder, **{name: not value for name, value in PLAIN_OUTPUTS.items() if name == field})
    config = checkpoint_config(str(folder))
    assert {name: getattr(config, name) for name in PLAIN_OUTPUTS} == PLAIN_OUTPUTS
    assert f"config.json: {field} as in a new config" in capsys.readouterr().out
    output = modeling_bert_repro.BertModel.from_pretrained(folder, config=config)(torch.tensor([[1, 2]]))
    assert set(output) == {"last_hidden_state", "pooler_output"}


def test_a_config_of_before_2020_does_not_name_its_kind_of_network(folder):
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in fields.items() if name != "model_type"}))
    assert checkpoint_config(str(folder)).hidden_size == fields["hidden_size"]
    assert not load_network(modeling_bert_repro.BertModel, str(folder)).new


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_that_leads_out_of_the_folder_is_refused(folder, name):
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / name).write_text(json.dumps({"weight_map": {"x": "../model.safetensors"}}))
    for opened in (weights_sha256, lambda name: load_network(modeling_bert_repro.BertModel, name)):
        with pytest.raises(ValueError, match="nothing outside its folder is read"):
            opened(str(folder))


def test_an_adapter_is_refused(folder):
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds an adapter"):
        checkpoint_config(str(folder))


def test_an_id_beyond_the_embeddings_is_refused(small_config, tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    rules["model"]["vocab"][max(rules["model"]["vocab"], key=rules["model"]["vocab"].get)] = 40_000_000
    hostile = type(tokenizer)(tokenizer_object=type(tokenizer.backend_tokenizer).from_str(json.dumps(rules)))
    small_config.vocab_size = len(hostile)
    with pytest.raises(ValueError, match="one of them has the id 40,000,000"):
        check_fit(small_config, hostile, 8)
