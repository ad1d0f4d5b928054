"""Our network gives the outputs and gradients of the installed transformers' BERT, in float64 with random weights."""

import inspect

import pytest
import torch
import transformers

import modeling_bert_repro
from tests.helpers.bert_pairs import (
    CLASSES,
    MAX_LENGTH,
    assert_same,
    every_class,
    gradients,
    loss_of,
    make_inputs,
    make_labels,
    pair,
)

CASES = ("no padding", "right", "left", "no mask", "positions", "no token types", "embeddings", "full length")


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def attention(request) -> str:
    return request.param


@pytest.fixture(scope="module", params=CLASSES)
def models(request, attention):
    return request.param, attention, *pair(request.param, attention)


def batch_for(case: str, name: str, model) -> dict[str, torch.Tensor]:
    inputs = make_inputs(name, length=MAX_LENGTH if case == "full length" else 9)
    mask = inputs["attention_mask"]
    if case in ("right", "full length"):
        mask[1, ..., -3:], mask[2, ..., -1:] = 0, 0
    elif case == "left":
        mask[1, ..., :3], mask[2, ..., :1] = 0, 0
    elif case == "no mask":
        del inputs["attention_mask"]
    elif case == "positions":
        inputs["position_ids"] = inputs["input_ids"] % MAX_LENGTH
    elif case == "no token types":
        del inputs["token_type_ids"]
    elif case == "embeddings":
        inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids")).detach().requires_grad_()
    return inputs


def run(model, inputs: dict, labels: dict, **options):
    """All outputs by their names, and all gradients."""
    outputs = model(**inputs, **labels, output_hidden_states=True, **options)
    found = gradients(model, loss_of(outputs))
    embeds = inputs.get("inputs_embeds")
    if embeds is not None:
        found["inputs_embeds"], embeds.grad = embeds.grad, None
    values = {}
    for key, value in outputs.items():
        if isinstance(value, tuple):
            values |= {f"{key}[{i}]": tensor for i, tensor in enumerate(value)}
        else:
            values[key] = value
    return values, found


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_equal_transformers(models, case):
    name, attention, own, reference = models
    inputs = batch_for(case, name, own)
    labels = make_labels(name, make_inputs(name, length=MAX_LENGTH if case == "full length" else 9))
    options = {"output_attentions": True} if attention == "eager" else {}
    assert getattr(own, "num_labels", None) == getattr(reference, "num_labels", None)
    values, grads = run(own, inputs, labels, **options)
    expected_values, expected_grads = run(reference, inputs, labels, **options)
    for extra in ("mlm_loss", "nsp_loss"):
        values.pop(extra, None)
    assert_same(values, expected_values)
    assert_same(grads, expected_grads)
    assert any(grad is not None and grad.abs().max() > 1e-3 for grad in grads.values())


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM"])
def test_left_to_right_attention_equals_transformers_decoder(name, attention):
    own, reference = pair(name, attention, is_decoder=True)
    for case in ("no padding", "right", "left", "no mask"):
        inputs = batch_for(case, name, own)
        with torch.no_grad():
            torch.testing.assert_close(own(**inputs)[0], reference(**inputs)[0], rtol=0, atol=1e-9)


@every_class
def test_dropout_acts_at_the_same_places(name):
    """In training mode and with the same seed, both networks draw the same masks in the same order."""
    own, reference = pair(name, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3, classifier_dropout=0.4)
    inputs = make_inputs(name)
    labels = make_labels(name, inputs)
    results = []
    for model in (own.train(), reference.train()):
        torch.manual_seed(5)
        outputs = model(**inputs, **labels)
        results.append((loss_of(outputs), gradients(model, loss_of(outputs))))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=1e-9)
    assert_same(results[0][1], results[1][1])
    own.eval()
    assert (loss_of(own(**inputs, **labels)) - results[0][0]).abs() > 1e-3


@every_class
def test_tensor_names_and_forward_arguments_are_those_of_transformers(name):
    own, reference = pair(name)
    assert list(own.state_dict()) == list(reference.state_dict())
    assert {n for n, _ in own.named_parameters()} == {n for n, _ in reference.named_parameters()}
    assert not list(own.buffers())
    theirs = list(inspect.signature(getattr(transformers, name).forward).parameters)
    mine = list(inspect.signature(getattr(modeling_bert_repro, name).forward).parameters)
    assert mine[: len(theirs) - 1] == theirs[:-1]
    assert mine[-1] == theirs[-1] == "kwargs"


@every_class
@pytest.mark.parametrize("with_labels", [False, True])
def test_tuple_outputs_are_those_of_transformers(name, with_labels):
    own, reference = pair(name)
    inputs = make_inputs(name)
    labels = make_labels(name, inputs) if with_labels else {}
    mine = own(**inputs, **labels, return_dict=False, output_hidden_states=True, output_attentions=True)
    theirs = reference(**inputs, **labels, return_dict=False, output_hidden_states=True, output_attentions=True)
    assert isinstance(mine, tuple)
    # transformers' BertModel also returns its cross-attentions, an empty tuple.
    theirs = [entry for entry in theirs if not isinstance(entry, tuple) or entry]
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "problem_type, num_labels, labels",
    [
        ("regression", 1, [0.5, 2.0, -1.0, 4.0]),
        (None, 1, [0.5, 2.0, -1.0, 4.0]),
        ("regression", 2, [[0.5, 1.0], [2.0, 0.1], [-1.0, 3.0], [4.0, 0.0]]),
        ("single_label_classification", 3, [0, 2, 1, 1]),
        (None, 3, [0, 2, 1, 1]),
        ("multi_label_classification", 2, [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]),
        (None, 2, [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_problem_types_of_sequence_classification(problem_type, num_labels, labels):
    name = "BertForSequenceClassification"
    own, reference = pair(name, num_labels=num_labels, problem_type=problem_type)
    inputs = make_inputs(name)
    labels = torch.tensor(labels)
    labels = labels.double() if labels.is_floating_point() else labels
    loss = own(**inputs, labels=labels).loss
    torch.testing.assert_close(loss, reference(**inputs, labels=labels).loss, rtol=0, atol=1e-9)
    assert own.config.problem_type == reference.config.problem_type is not None


def test_parameter_counts_of_base_and_large():
    """109,482,240 and 335,141,888 are the numbers of the published models, counted from google-research/bert's
    variables.
    """
    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    with torch.device("meta"):
        for sizes, expected in (({}, 109_482_240), (large, 335_141_888)):
            model = modeling_bert_repro.BertModel(transformers.BertConfig(**sizes))
            assert sum(p.numel() for p in model.parameters()) == expected
