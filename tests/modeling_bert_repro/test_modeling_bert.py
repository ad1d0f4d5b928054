"""What users of transformers' models rely on: initialisation, recorded states, checkpointing, resizing, errors."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

import modeling_bert_repro
from modeling_bert_repro import BertForMaskedLM, BertModel
from tests.helpers.bert_pairs import (
    assert_same,
    every_class,
    gradients,
    loss_of,
    make_inputs,
    make_labels,
    ours,
    tiny_config,
)

LANGUAGE_MODELS = pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM"])


@every_class
def test_initialisation_covers_every_tensor(name):
    """``from_pretrained`` builds the model on the meta device and initialises all tensors that the checkpoint lacks.

    Here the checkpoint is empty.
    """
    model_class, config = getattr(modeling_bert_repro, name), tiny_config(name)
    torch.manual_seed(0)
    model = model_class.from_pretrained(None, config=config, state_dict={})
    for key, tensor in model.state_dict().items():
        values = tensor.flatten().double()
        if "LayerNorm.weight" in key:
            assert (values == 1).all(), key
        elif key.endswith("bias"):
            assert (values == 0).all(), key
        else:
            assert 0.012 < values.std() < 0.024 or len(values) < 100, key
            assert values.abs().max() <= 0.04, key
    assert not model.get_input_embeddings().weight[0].any(), "the row of the padding token must be 0"


def test_weights_follow_the_normal_cut_at_two_deviations():
    """This is ``truncated_normal_initializer(stddev=0.02)`` of google-research/bert."""
    torch.manual_seed(0)
    model = BertModel(tiny_config(hidden_size=64, vocab_size=2000))
    values = model.embeddings.word_embeddings.weight[1:].detach().flatten().numpy() / 0.02
    assert abs(values).max() <= 2
    assert stats.kstest(values, stats.truncnorm(-2, 2).cdf).pvalue > 0.01


@LANGUAGE_MODELS
def test_decoder_is_tied_to_the_word_embeddings(name, tmp_path):
    model = getattr(modeling_bert_repro, name)(tiny_config(name))
    model.save_pretrained(tmp_path)
    for candidate in (model, type(model).from_pretrained(tmp_path)):
        head = candidate.cls.predictions
        assert head.decoder.weight is candidate.get_input_embeddings().weight
        assert head.decoder.bias is head.bias
    untied = getattr(modeling_bert_repro, name)(tiny_config(name, tie_word_embeddings=False))
    assert untied.cls.predictions.decoder.weight is not untied.get_input_embeddings().weight


@LANGUAGE_MODELS
def test_resizing_keeps_old_logits_ties_and_bias(name, tmp_path):
    model = ours(name)
    inputs = make_inputs(name)
    before = model(**inputs)[0]
    model.resize_token_embeddings(70, mean_resizing=False)
    after = model(**inputs)[0]
    assert after.shape[-1] == 70
    torch.testing.assert_close(after[..., :61], before)
    head = model.cls.predictions
    assert head.decoder.weight is model.get_input_embeddings().weight
    assert head.bias is head.decoder.bias and head.bias.shape == (70,)
    labels = torch.full((4, 9), 69)
    assert model(**inputs, labels=labels).loss.isfinite()
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(type(model).from_pretrained(tmp_path).eval()(**inputs)[0], after)
    model.resize_token_embeddings(50)
    assert model(input_ids=torch.tensor([[5, 6]]))[0].shape == (1, 2, 50)


@every_class
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing(name, use_reentrant):
    model = ours(name).train()
    encoder = (model if name == "BertModel" else model.bert).encoder
    calls = []
    encoder.layer[0].intermediate.register_forward_hook(lambda *_: calls.append(1))
    inputs = make_inputs(name)
    labels = make_labels(name, inputs)
    found = []
    for checkpointing in (False, True):
        if checkpointing:  # transformers 5.2x renamed the method and warns of the old name.
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": use_reentrant})
        torch.manual_seed(3)
        found.append(gradients(model, loss_of(model(**inputs, **labels))))
    assert_same(found[1], found[0])
    assert len(calls) == 1 + 2, "the layer must run again in the backward pass"


@pytest.mark.slow
def test_compiled_model_computes_the_same(name="BertForPreTraining"):
    """The default, dense form has no graph breaks. The ``eager`` backend tests the tracing, not the kernels."""
    model = ours(name, "sdpa")
    inputs = make_inputs(name)
    labels = make_labels(name, inputs)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(**inputs, **labels).loss, model(**inputs, **labels).loss)


def test_layers_are_post_norm_with_exact_gelu():
    """One layer is compared with the formulas of the paper, written out with plain tensors."""
    model = ours("BertModel", num_hidden_layers=1)
    x = torch.randn(2, 5, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layer = model.encoder.layer[0]

    def norm(module: nn.LayerNorm, value: torch.Tensor) -> torch.Tensor:
        centred = value - value.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt() * module.weight + module.bias

    attention = layer.attention.self
    q, k, v = (f(x).view(2, 5, 4, 6).transpose(1, 2) for f in (attention.query, attention.key, attention.value))
    context = ((q @ k.mT / math.sqrt(6)).softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 24)
    attended = norm(layer.attention.output.LayerNorm, x + layer.attention.output.dense(context))
    wide = layer.intermediate.dense(attended)
    wide = wide * 0.5 * (1 + torch.erf(wide / math.sqrt(2)))
    expected = norm(layer.output.LayerNorm, attended + layer.output.dense(wide))
    torch.testing.assert_close(layer(x, None), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"add_cross_attention": True, "is_decoder": True}, "expected add_cross_attention=False, got True"),
        ({"position_embedding_type": "relative_key"}, "expected absolute positions, got position_embedding_type"),
        ({"hidden_size": 25}, "expected hidden_size to be a multiple of num_attention_heads, got 25 and 4"),
    ],
)
def test_bad_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        BertModel(tiny_config(**changes))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "exactly one of input_ids and inputs_embeds, got neither"),
        ({"input_ids": torch.ones(1, 2).long(), "inputs_embeds": torch.ones(1, 2, 24)}, "got both"),
        ({"input_ids": torch.ones(1, 13).long()}, "expected at most 12 tokens .* got 13"),
        ({"inputs_embeds": torch.ones(1, 13, 24)}, "expected at most 12 tokens .* got 13"),
        ({"input_ids": torch.ones(1, 2).long(), "encoder_hidden_states": torch.ones(1, 2, 24)}, "no cross-attention"),
        ({"input_ids": torch.ones(1, 2).long(), "past_key_values": ()}, "expected no key-value cache"),
        ({"input_ids": torch.ones(1, 2).long(), "use_cache": True}, "expected no key-value cache"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    model = BertForMaskedLM(tiny_config(is_decoder=True))
    with pytest.raises(ValueError, match=message):
        model(**arguments)
