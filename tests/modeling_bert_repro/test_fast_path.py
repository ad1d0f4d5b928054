"""modeling_bert_repro/fast_path.py: unset means off, what takes the padded path, and what the last layer computes."""

import json

import pytest
import torch
from torch import nn

from modeling_bert_repro import BertModel, fast_path
from tests.helpers.bert_pairs import (
    POOLED,
    assert_same,
    every_class,
    flatten_outputs,
    gradients,
    layer_shapes,
    make_inputs,
    make_labels,
    ours,
    padded_inputs,
    pair,
    tiny_config,
)


def record(path: str, found: dict):
    """A forward hook that stores the input and the output of a module."""

    def hook(module, args, output) -> None:
        found[f"{path} in"], found[f"{path} out"] = args[0].detach(), output.detach()

    return hook


@pytest.mark.parametrize("case", ["none", "mixed"])
@pytest.mark.parametrize("training", [False, True])
@every_class
def test_with_nothing_set_every_module_sees_what_transformers_modules_see(name, training, case):
    """Hooks, NEFTune, Opacus and captum look inside the network. They find the same modules, with the same numbers in
    their inputs and outputs.
    """
    own, reference = pair(name, "sdpa")
    inputs = make_inputs(name) if case == "none" else padded_inputs(name, case)
    labels = make_labels(name, inputs)
    seen = []
    for model in (own, reference):
        found = {}
        kinds = (nn.Linear, nn.LayerNorm, nn.Embedding)
        for path, module in model.named_modules():
            if isinstance(module, kinds) or path.endswith("pooler"):
                module.register_forward_hook(record(path, found))
        torch.manual_seed(5)
        model.train(training)(**inputs, **labels)
        seen.append(found)
    assert len(seen[0]) > 30
    assert_same(*seen)


@every_class
def test_with_nothing_set_padding_states_are_those_of_transformers(name):
    """Every position of every output is the same, also at padding, and so is the question-answering loss over them."""
    own, reference = pair(name, "sdpa")
    inputs = padded_inputs(name, "right")
    labels = make_labels(name, inputs)
    mine, theirs = flatten_outputs(own(**inputs, **labels)), flatten_outputs(reference(**inputs, **labels))
    assert_same({key: mine[key] for key in theirs}, theirs)


READ = {"BertForPreTraining": 8, "BertForMaskedLM": 4, **dict.fromkeys(POOLED, 4), "BertForMultipleChoice": 12}


@pytest.mark.parametrize("case", ["none", "mixed"])
@every_class
def test_the_last_layer_is_computed_where_it_is_read(name, case):
    """It is computed at labelled positions and at [CLS]. Losses, outputs and gradients remain those of transformers."""
    own, reference = pair(name, "sdpa")
    own.config.sparse_prediction, own.config.unpad_inputs = True, "auto"
    inputs = make_inputs(name) if case == "none" else padded_inputs(name, case)
    labels = make_labels(name, inputs)
    if name in ("BertForPreTraining", "BertForMaskedLM"):
        labels["labels"][:] = -100
        labels["labels"][:, 5] = 7
    rows = []
    encoder = (own if name == "BertModel" else own.bert).encoder
    encoder.layer[-1].intermediate.register_forward_hook(lambda _, args, out: rows.append(out.shape[:-1].numel()))
    mine, theirs = own(**inputs, **labels), reference(**inputs, **labels)
    if name in READ:
        torch.testing.assert_close(mine.loss, theirs.loss, rtol=0, atol=1e-9)
        assert_same(gradients(own, mine.loss), gradients(reference, theirs.loss))
    own(**inputs, **labels, unpad_inputs=False)
    own(**inputs, **labels, output_hidden_states=True)
    own.config.unpad_inputs = None
    own(**inputs, **labels)
    full = inputs["input_ids"].numel()
    few = READ.get(name, full if case == "none" else rows[0])
    assert rows == [few, full, full, full]


def uses_tokens(model, inputs: dict, **options) -> bool:
    shapes = layer_shapes(model)
    with torch.no_grad():
        model(**inputs, **options)
    return shapes[0][0] == 1


def test_what_takes_the_padded_path():
    name = "BertForTokenClassification"
    right = padded_inputs(name, "right")
    assert uses_tokens(ours(name, "sdpa"), right, unpad_inputs=True)
    assert not uses_tokens(ours(name, "eager"), right, unpad_inputs=True, output_attentions=True)
    assert not uses_tokens(ours(name, "sdpa"), right, unpad_inputs=True, output_hidden_states=True)
    assert not uses_tokens(ours(name, "sdpa", output_hidden_states=True), right, unpad_inputs=True)
    assert not uses_tokens(ours(name, "sdpa", chunk_size_feed_forward=3), right, unpad_inputs=True)
    assert not uses_tokens(ours(name, "sdpa"), make_inputs(name), unpad_inputs=True), "there is no padding"
    model = ours(name, "sdpa")
    model.config._attn_implementation = "flex_attention"
    assert fast_path.choose_tokens(model.bert, right["attention_mask"], True, None, {}) is None
    whole = right["attention_mask"][:, None, None, :].bool().expand(4, 1, 9, 9)
    assert not uses_tokens(ours(name, "sdpa"), {**right, "attention_mask": whole}, unpad_inputs=True)
    empty = {**right, "attention_mask": right["attention_mask"].clone()}
    empty["attention_mask"][1] = 0
    assert not uses_tokens(ours(name, "sdpa"), empty, unpad_inputs=True), "a sequence has no real token"
    left = padded_inputs("BertModel", "left")
    decoder = ours("BertModel", "sdpa", is_decoder=True)
    assert not uses_tokens(decoder, left, unpad_inputs=True), "the pooled position is padding and sees nothing"


def test_little_padding_is_left_alone_unless_asked():
    name = "BertForSequenceClassification"
    inputs = make_inputs(name, batch=8, length=10)
    inputs["attention_mask"][0, -8:] = 0  # 10 %
    assert not uses_tokens(ours(name, "sdpa"), inputs, unpad_inputs="auto")
    inputs["attention_mask"][0, -9:] = 0
    assert uses_tokens(ours(name, "sdpa"), inputs, unpad_inputs="auto")
    assert not uses_tokens(ours(name, "sdpa"), inputs)
    inputs["attention_mask"][0, -9:-1] = 1
    assert uses_tokens(ours(name, "sdpa"), inputs, unpad_inputs=True)


def test_an_exported_model_takes_the_padded_path():
    model = ours("BertForSequenceClassification", "sdpa")
    model.config.unpad_inputs = True
    inputs = padded_inputs("BertForSequenceClassification", "right")
    program = torch.export.export(model, (), inputs, strict=False)
    inputs["attention_mask"][1, 2:] = 0
    torch.testing.assert_close(program.module()(**inputs).logits, model(**inputs).logits, rtol=0, atol=1e-9)


def test_a_mask_of_another_shape_is_refused():
    model = BertModel(tiny_config())
    mask = torch.ones(2, 8).long()
    mask[0, -1] = 0
    with pytest.raises(ValueError, match=r"for inputs of shape \(2, 9\), got one for \(2, 8\)"):
        model(torch.ones(2, 9).long(), mask, unpad_inputs=True)


def test_the_switch_is_not_saved(tmp_path):
    model = ours("BertModel")
    model.config.unpad_inputs = True
    model.save_pretrained(tmp_path)
    assert "unpad_inputs" not in json.loads((tmp_path / "config.json").read_text())
    assert model.config.unpad_inputs is True
