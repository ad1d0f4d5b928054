"""``config.fast_dropout`` has the distribution of torch's dropout, and is off unless it is asked for."""

import math

import pytest
import torch
from torch.nn import functional as F

from modeling_bert_repro import fast_dropout as dropout
from modeling_bert_repro import modeling_bert
from modeling_bert_repro.fast_dropout import fast_dropout, fast_dropout_attention
from modeling_bert_repro.modeling_bert import eager_attention_forward
from tests.helpers.bert_pairs import assert_same, gradients, make_inputs, make_labels, ours, pair

NAME = "BertForSequenceClassification"


@pytest.fixture(autouse=True)
def for_small_tensors_too(monkeypatch):
    monkeypatch.setattr(dropout, "SMALLEST", 0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_dropped_at_the_rate_and_scaled_up(p, dtype):
    """Values become 0 at the given rate, within five standard deviations, and the others are scaled up. The gradient
    has the same mask.
    """
    torch.manual_seed(0)
    values = torch.ones(1001, 333, dtype=dtype, requires_grad=True)
    dropped = fast_dropout(values, p)
    dropped.backward(torch.full_like(values, 3.0))
    zero = dropped == 0
    n = values.numel()
    assert abs(zero.float().mean().item() - p) < 5 * math.sqrt(p * (1 - p) / n)
    torch.testing.assert_close(dropped[~zero].unique().float(), torch.tensor([1 / (1 - p)]), rtol=5e-3, atol=0)
    assert torch.equal(values.grad == 0, zero)
    torch.testing.assert_close(values.grad[~zero].float().mean(), torch.tensor(3 / (1 - p)), rtol=5e-3, atol=0)


def test_masks_are_independent():
    """There is no correlation between the four 16-bit parts of a random number, neighbouring values or two calls."""
    torch.manual_seed(0)
    first, second = ((fast_dropout(torch.ones(400_000), 0.5) == 0).double() - 0.5 for _ in range(2))
    for shift in (1, 2, 3, 4):
        assert abs((first[shift:] * first[:-shift]).mean()) < 0.25 * 5 / math.sqrt(400_000)
    assert abs((first * second).mean()) < 0.25 * 5 / math.sqrt(400_000)
    for part in range(4):
        assert abs(first[part::4].mean()) < 0.5 * 5 / math.sqrt(100_000)


def test_rates_of_0_and_1_empty_tensors_and_seeds():
    values = torch.arange(5.0)
    assert fast_dropout(values, 0.0).tolist() == values.tolist()
    assert fast_dropout(values, 1.0).tolist() == [0] * 5
    assert fast_dropout(torch.empty(0, 3), 0.5).shape == (0, 3)
    torch.manual_seed(1)
    first = fast_dropout(values, 0.5)
    torch.manual_seed(1)
    assert fast_dropout(values, 0.5).tolist() == first.tolist()


def test_small_tensors_keep_torch_dropout(monkeypatch):
    monkeypatch.setattr(dropout, "SMALLEST", 100)
    for size, same in ((99, True), (100, False)):
        torch.manual_seed(1)
        expected = F.dropout(torch.ones(size), 0.5)
        torch.manual_seed(1)
        assert torch.equal(fast_dropout(torch.ones(size), 0.5), expected) is same


@pytest.mark.parametrize("mask", ["none", "bool", "additive"])
def test_attention_without_dropout_is_attention(mask):
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 7, 6, generator=generator, dtype=torch.float64)
    keep = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    keep[0, ..., 5:] = False
    additive = torch.zeros(2, 1, 7, 7, dtype=torch.float64).masked_fill(~keep, torch.finfo(torch.float64).min)
    given = {"none": None, "bool": keep, "additive": additive}[mask]
    module = torch.nn.Identity()
    expected, weights = eager_attention_forward(module, query, key, value, None if mask == "none" else additive, 0.4)
    context, found = fast_dropout_attention(module, query, key, value, given, 0.0, 0.4)
    torch.testing.assert_close(context, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_only_the_switch_changes_the_masks(attention, monkeypatch):
    """Switched off, the network draws the masks of transformers from the same seed. Switched on, it draws other masks
    in training and gives the same numbers in evaluation.
    """
    own, reference = pair(NAME, attention, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3)
    inputs = make_inputs(NAME)
    inputs["attention_mask"][0, -1:] = 0
    expected = own(**inputs).logits
    drawn = []
    for switch, model in ((None, reference.train()), (False, own.train()), (True, own)):
        model.config.fast_dropout = switch
        torch.manual_seed(7)
        drawn.append(model(**inputs).logits)
    torch.testing.assert_close(drawn[0], drawn[1], rtol=0, atol=1e-9)
    assert (drawn[2] - drawn[1]).abs().max() > 1e-3
    torch.testing.assert_close(own.eval()(**inputs).logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("unpad", [False, True])
def test_it_acts_at_the_same_places(attention, unpad, monkeypatch):
    """A deterministic rule replaces dropout on both sides. Equal results show that dropout acts at the same places."""

    def rule(values, p=0.5, training=True, inplace=False):
        return values * (1 - p) if training else values

    # Attention in one piece draws its own random numbers, which the next test covers; this keeps it from being used.
    monkeypatch.setattr(dropout, "SMALLEST", 1 << 40)
    monkeypatch.setattr(modeling_bert, "attend_runs", None)
    model = ours(NAME, attention, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3).train()
    inputs = make_inputs(NAME)
    inputs["attention_mask"][0, -6:] = 0
    labels = make_labels(NAME, inputs)
    monkeypatch.setattr(F, "dropout", rule)
    monkeypatch.setattr("modeling_bert_repro.fast_dropout.fast_dropout", rule)
    found = []
    for switch in (False, True):
        model.config.fast_dropout = switch
        model.set_attn_implementation(attention if switch else "eager")  # The rule cannot replace sdpa's own dropout.
        loss = model(**inputs, **labels, unpad_inputs=unpad).loss
        found.append({"loss": loss.detach(), **gradients(model, loss)})
    assert_same(found[1], found[0])


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("p", "most_kept"), [(0.3, 0), (0.0, 1 << 24), (0.0, 0)])
def test_attention_in_one_piece_is_attention_written_out(rows, masked, dtype, p, most_kept, monkeypatch):
    """From the same random numbers, value and gradients are the same whether the attention weights are kept or not.

    This holds for blocks of ``rows`` sequences, and under autocast.
    """
    monkeypatch.setattr(dropout, "BLOCK", rows * 7 * 7 * (4 if p else 1))
    monkeypatch.setattr(dropout, "SMALLEST", 0)
    monkeypatch.setattr(dropout, "KEPT", most_kept)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(3, 3, 7, 4, 6, generator=generator, dtype=torch.float64).to(dtype).transpose(2, 3)
    keep = torch.ones(3, 1, 7, 7, dtype=torch.bool)
    keep[0, ..., 5:] = False
    for autocast in {False, dtype == torch.bfloat16}:
        found = []
        for whole in (True, False):
            qkv = [part.clone().requires_grad_() for part in states]
            torch.manual_seed(3)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                mask = keep if masked else None
                context, weights = fast_dropout_attention(None, *qkv, mask, p, 0.4, keep_weights=whole)
            assert (weights is None) is not whole and context.dtype == dtype
            found.append([context, *torch.autograd.grad(context.double().square().sum(), qkv)])
        # In bfloat16 the two forms round in different places, each time by up to 0.4 %.
        rtol, atol = {torch.float64: (0, 1e-12), torch.float32: (0, 1e-5), torch.bfloat16: (0.01, 0.03)}[dtype]
        for mine, expected in zip(*found):
            torch.testing.assert_close(mine, expected, rtol=rtol, atol=atol)


def test_additive_masks_of_the_caller_are_those_of_sdpa():
    """Rows of -inf give 0 and not NaN; bfloat16 leaves them to torch."""
    query, key, value = torch.randn(3, 2, 4, 7, 6, generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(2, 1, 7, 7).masked_fill(torch.arange(7) > 4, -torch.inf)
    mask[0, :, 2] = -torch.inf
    context, _ = fast_dropout_attention(None, query, key, value, mask, 0.0, 0.4, keep_weights=False)
    expected = F.scaled_dot_product_attention(query, key, value, mask, scale=0.4).transpose(1, 2)
    torch.testing.assert_close(context, expected, rtol=0, atol=1e-6)
    halves = [state.bfloat16() for state in (query, key, value)]
    context, _ = fast_dropout_attention(None, *halves, mask, 0.0, 0.4, keep_weights=False)
    assert context.dtype == torch.bfloat16
    model = ours("BertModel", "sdpa", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).bfloat16().train()
    inputs = make_inputs("BertModel")
    length = inputs["input_ids"].shape[1]
    inputs["attention_mask"] = torch.zeros(len(inputs["input_ids"]), 1, length, length)
    inputs["attention_mask"][0, :, 1] = -torch.inf
    found = []
    for switch in (False, True):
        model.config.fast_dropout = switch
        found.append(model(**inputs).last_hidden_state)
    assert torch.equal(*found) and found[0].isfinite().all()


@pytest.mark.parametrize("unpad", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_recomputed_layers_draw_the_same_masks(use_reentrant, unpad):
    model = ours(NAME, "sdpa", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3).train()
    model.config.fast_dropout = True
    inputs = make_inputs(NAME)
    inputs["attention_mask"][0, -6:] = 0
    labels = make_labels(NAME, inputs)
    found = []
    for checkpointing in (False, True):
        if checkpointing:  # transformers 5.2x renamed the method and warns of the old name.
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable({"use_reentrant": use_reentrant})
        torch.manual_seed(3)
        found.append(gradients(model, model(**inputs, **labels, unpad_inputs=unpad).loss))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_gradients_are_zero_where_every_weight_is_dropped(dtype):
    qkv = torch.ones(3, 2, 4, 7, 6, dtype=dtype).requires_grad_()
    context, _ = fast_dropout_attention(None, *qkv, None, 1.0, 0.4, keep_weights=False)
    (found,) = torch.autograd.grad(4 * context.sum(), qkv)
    assert not context.any() and not found.any()


@pytest.mark.slow
def test_left_to_right_and_compiled_models_keep_torch_dropout():
    model = ours("BertForMaskedLM", "sdpa", is_decoder=True, hidden_dropout_prob=0.0).train()
    inputs = make_inputs("BertForMaskedLM")
    drawn = []
    for switch in (False, True):
        model.config.fast_dropout = switch
        torch.manual_seed(3)
        drawn.append(model(**inputs).logits)
    torch.testing.assert_close(drawn[1], drawn[0], rtol=0, atol=1e-12)
    encoder = ours(NAME, "sdpa").train()
    encoder.config.fast_dropout = True
    compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    assert compiled(**make_inputs(NAME)).logits.isfinite().all()
