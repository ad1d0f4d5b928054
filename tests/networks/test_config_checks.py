"""A config that claims too much, or asks for code of the Hub, is refused before a network is made."""

import json
import re

import pytest
import torch
from transformers import AutoTokenizer, BertConfig

import modeling_bert_repro
from bert_training.networks.config_checks import PLAIN_OUTPUTS, parameters_of, sizes_of
from bert_training.networks.configuration import bert_config, check_fit
from bert_training.networks.initial_weights import load_network
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
        ({"vocab_size": 10**12}, "GiB of weights, this machine has"),
        ({"num_hidden_layers": 10**12}, "GiB of weights, this machine has"),
        ({"num_labels": 10**12}, "num_labels must be at most 1,000,000, got '1000000000000'"),
        ({"hidden_size": -32}, "hidden_size must be a positive whole number, got '-32'"),
        ({"intermediate_size": 1e9}, "intermediate_size must be a positive whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive whole number, got 'True'"),
        ({"attn_implementation": "somebody/kernel"}, "code of the Hub, which is not executed"),
        ({"_attn_implementation": ["eager"]}, "code of the Hub, which is not executed"),
        ({"quantization_config": {"quant_method": "gptq"}}, "the weights are quantised"),
        ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}, "got model_type 'evil'"),
        ({"vocab_size": 2_000_000}, "the network of config.json has 64,0"),
        ({"hidden_dropout_prob": "much"}, "hidden_dropout_prob must be a number of at least 0 and below 1, got 'much'"),
        ({"hidden_dropout_prob": -1}, "hidden_dropout_prob must be a number of at least 0 and below 1, got '-1'"),
        ({"attention_probs_dropout_prob": 2}, "attention_probs_dropout_prob must be a number of at least 0"),
        ({"classifier_dropout": 1.0}, "classifier_dropout must be a number of at least 0 and below 1, got '1.0'"),
        ({"hidden_act": "swiglu"}, "hidden_act must be one of gelu, "),
        ({"hidden_act": ["gelu"]}, "hidden_act must be one of gelu, "),
        ({"pad_token_id": 99}, "pad_token_id must be an id below 99, or null, got '99'"),
        ({"pad_token_id": -1}, "pad_token_id must be an id below 99, or null, got '-1'"),
        ({"chunk_size_feed_forward": 3}, "chunk_size_feed_forward must be 0 (no chunks), got '3'"),
        ({"chunk_size_feed_forward": None}, "chunk_size_feed_forward must be 0 (no chunks), got 'None'"),
        ({"chunk_size_feed_forward": False}, "chunk_size_feed_forward must be 0 (no chunks), got 'False'"),
        ({"add_cross_attention": True}, "add_cross_attention must be false, as there is no second network"),
        ({"layer_norm_eps": "small"}, "transformers refuses it"),
    ],
)
def test_claims_are_refused(folder, fields, message):
    change(folder, **fields)
    with pytest.raises(ValueError, match=re.escape(message)):
        checkpoint_config(str(folder))


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


def test_the_config_of_a_new_network_is_checked(folder):
    change(folder, num_hidden_layers=10**12)
    with pytest.raises(ValueError, match="GiB of weights"):
        bert_config(str(folder), 40)


def test_parameters_are_counted_as_torch_does(small_config):
    model = modeling_bert_repro.BertModel(small_config)
    assert parameters_of(sizes_of(small_config.to_dict())) == sum(map(torch.numel, model.parameters()))
    assert parameters_of(sizes_of(BertConfig().to_dict())) == 109_482_240


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_that_leads_out_of_the_folder_is_refused(folder, name):
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / name).write_text(json.dumps({"weight_map": {"x": "../model.safetensors"}}))
    with pytest.raises(ValueError, match="nothing outside its folder is read"):
        checkpoint_config(str(folder))


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
