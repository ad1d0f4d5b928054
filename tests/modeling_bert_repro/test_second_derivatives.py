"""The hand-written backward passes work where more than one first derivative is needed: second derivatives, vmap."""

import pytest
import torch
from torch.nn import functional as F

from modeling_bert_repro import fast_dropout, losses
from tests.helpers.bert_pairs import make_inputs, make_labels, ours

LABELS = torch.tensor([3, -100, 0, 9, 3, -100, 4])


@pytest.fixture
def in_small_blocks(monkeypatch):
    """Use the hand-written forms for small tensors too, in several blocks."""
    monkeypatch.setattr(losses, "LARGE", 0)
    monkeypatch.setattr(losses, "BLOCK", 20)
    monkeypatch.setattr(fast_dropout, "SMALLEST", 0)
    monkeypatch.setattr(fast_dropout, "BLOCK", 1)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


def seeded(function, *inputs):
    """The result of the function with the same random numbers at every call."""
    torch.manual_seed(3)
    return function(*inputs)


def attention(query, key, value, mask=None, dropout=0.3):
    return fast_dropout.fast_dropout_attention(None, query, key, value, mask, dropout, 0.4, keep_weights=False)[0]


@pytest.mark.parametrize("mask", [None, "padding", "blind row"])
@pytest.mark.parametrize("dropout", [0.3, 0.0])
def test_attention_in_blocks_has_the_right_second_derivative(in_small_blocks, mask, dropout):
    attended = None if mask is None else torch.ones(2, 1, 3, 3, dtype=torch.bool)
    if mask == "padding":
        attended[1, ..., 2:] = False
    elif mask:
        attended[1, :, 2] = False
    inputs = tuple(draw(3, 2, 2, 3, 2).unbind(0))
    inputs = [part.detach().requires_grad_() for part in inputs]
    assert torch.autograd.gradcheck(lambda *x: seeded(attention, *x, attended, dropout), inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *x: seeded(attention, *x, attended, dropout), inputs, fast_mode=True)


def test_dropout_has_the_right_second_derivative(in_small_blocks):
    dropped = lambda x: seeded(fast_dropout.fast_dropout, x, 0.3).square()  # noqa: E731
    assert torch.autograd.gradgradcheck(dropped, [draw(4, 5)])


def test_cross_entropy_has_the_right_second_derivative(in_small_blocks):
    loss = lambda logits: losses.cross_entropy(logits, LABELS, 3)  # noqa: E731
    assert type(loss(draw(7, 10)).grad_fn.next_functions[0][0]).__name__.startswith("LargeCrossEntropy")
    assert torch.autograd.gradcheck(loss, [draw(7, 10)])
    assert torch.autograd.gradgradcheck(loss, [draw(7, 10)])


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM"])
def test_gradient_penalty_of_a_whole_model(name, monkeypatch):
    """The derivative of the squared gradient norm is the same with the hand-written cross-entropy and with torch's."""
    model, inputs = ours(name, "eager"), make_inputs(name)
    labels, found = make_labels(name, inputs), []
    for large in (0, 1 << 40):
        monkeypatch.setattr(losses, "LARGE", large)
        parameters = [p for p in model.parameters() if p.requires_grad]
        slopes = torch.autograd.grad(model(**inputs, **labels).loss, parameters, create_graph=True)
        penalty = sum(slope.square().sum() for slope in slopes)
        found.append(torch.autograd.grad(penalty, parameters))
    for first, second in zip(*found):
        torch.testing.assert_close(first, second, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [4, 9])
def test_additive_masks_of_the_caller_train_with_fast_dropout(in_small_blocks, length):
    """The mask has the shape (B, 1, L, L) and finite numbers, as those of ALiBi and of prefixes have."""
    query, key, value = draw(3, 2, 4, length, 6).detach().unbind(0)
    bias = torch.linspace(-1, 0, length, dtype=torch.float64).expand(2, 1, length, length)
    found = fast_dropout.fast_dropout_attention(None, query, key, value, bias, 0.0, 0.4, keep_weights=False)[0]
    expected = F.scaled_dot_product_attention(query, key, value, bias, scale=0.4).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    dropped = seeded(attention, query, key, value, bias)
    assert dropped.isfinite().all() and not torch.equal(dropped, found)


def test_queries_that_attend_to_nothing_are_zero_as_in_sdpa(in_small_blocks):
    query, key, value = draw(3, 2, 2, 5, 4).detach().unbind(0)
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    mask[0, :, 2] = False
    expected = F.scaled_dot_product_attention(query, key, value, mask)[0, :, 2]
    assert not expected.any()
    for dropout in (0.0, 0.3):
        states = [part.clone().requires_grad_() for part in (query, key, value)]
        context = fast_dropout.fast_dropout_attention(None, *states, mask, dropout, 0.5, keep_weights=False)[0]
        assert not context[0, 2].any()
        (slope,) = torch.autograd.grad(context.square().sum(), states[0])
        assert not slope[0, :, 2].any() and slope[0, :, 1].any()
