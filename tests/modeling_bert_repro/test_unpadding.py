"""Computing real tokens only gives the numbers of the padded path and of transformers, for all heads and masks."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import send_to_device
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from modeling_bert_repro import BertForMaskedLM, fast_dropout, fast_path, unpadding
from modeling_bert_repro.unpadding import find_tokens, packed_tokens
from tests.helpers.bert_pairs import (
    CLASSES,
    MASKS,
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


def real_positions(name: str, mask: torch.Tensor) -> torch.Tensor:
    return mask.flatten(0, -2).bool() if name == "BertForMultipleChoice" else mask.bool()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", MASKS)
@every_class
def test_equals_the_padded_path_at_real_positions(name, case, attention):
    """Outputs, loss and gradients are equal. Some labels are at padding, and count as in the padded path."""
    model = ours(name, attention)
    inputs = padded_inputs(name, case)
    labels = {} if name == "BertForQuestionAnswering" else make_labels(name, inputs)
    real = real_positions(name, inputs["attention_mask"])
    shapes, found = layer_shapes(model), []
    for unpad in (True, False):
        outputs = model(**inputs, **labels, unpad_inputs=unpad)
        values = flatten_outputs(outputs)
        for key, value in values.items():
            if value.shape[:2] == real.shape:  # one row for each token
                values[key] = value[real]
        loss = outputs.loss if "loss" in outputs else sum((v * v.detach().cos()).sum() for v in values.values())
        found.append((values, gradients(model, loss)))
    assert_same(found[0][0], found[1][0])
    assert_same(found[0][1], found[1][1])
    assert shapes[0][0] == 1 and int(real.sum()) <= shapes[0][1] < real.numel()
    assert shapes[1][:2] == tuple(real.shape)


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("name", [*POOLED, "BertForPreTraining", "BertForMaskedLM"])
def test_switched_on_it_equals_transformers_where_padding_cannot_be_seen(name, case, monkeypatch):
    monkeypatch.setattr(fast_path, "SMALLEST_SHARE", 0.0)
    own, reference = pair(name, "sdpa")
    own.config.unpad_inputs = "auto"
    inputs = padded_inputs(name, case)
    labels = make_labels(name, inputs)
    if name not in POOLED:
        own.config.sparse_prediction = True
        labels["labels"][:, 2:] = -100
    shapes = layer_shapes(own)
    mine, theirs = own(**inputs, **labels), reference(**inputs, **labels)
    torch.testing.assert_close(mine.loss, theirs.loss, rtol=0, atol=1e-9)
    assert_same(gradients(own, mine.loss), gradients(reference, theirs.loss))
    if name in POOLED:
        torch.testing.assert_close(mine.logits, theirs.logits, rtol=0, atol=1e-9)
    own(**inputs, **labels, unpad_inputs=False)
    own.config.unpad_inputs = False
    own(**inputs, **labels)
    assert [shape[0] == 1 for shape in shapes] == [True, False, False], "without padding there is one row of tokens"


def test_padding_positions_hold_zeros_and_the_lowest_span_score():
    for name, lowest in (("BertModel", 0.0), ("BertForQuestionAnswering", torch.finfo(torch.float64).min)):
        inputs = padded_inputs(name, "right")
        real = inputs["attention_mask"].bool()
        values = [v for v in ours(name)(**inputs, unpad_inputs=True).values() if v.shape[:2] == real.shape]
        assert len(values) == (1 if name == "BertModel" else 2)
        for value in values:
            assert (value[~real] == lowest).all()
            assert not (value[real] == lowest).any()


@pytest.mark.parametrize("unpad, share", [(True, 0.0), ("auto", 0.0), ("auto", 1.0)])
def test_span_loss_is_over_the_real_positions(unpad, share, monkeypatch):
    """The loss is that of transformers' logits with a softmax over real positions, even if "auto" computes padding."""
    monkeypatch.setattr(fast_path, "SMALLEST_SHARE", share)
    name = "BertForQuestionAnswering"
    own, reference = pair(name, "sdpa")
    shapes = layer_shapes(own)
    inputs = padded_inputs(name, "mixed")
    labels = {"start_positions": torch.tensor([2, 3, 0, 5]), "end_positions": torch.tensor([4, 8, 1, 50])}
    outputs = own(**inputs, **labels, unpad_inputs=unpad)
    assert (shapes[0][0] == 1) is (share == 0.0)
    theirs = reference(**inputs)
    total = torch.zeros(2, dtype=torch.float64)
    for side, (key, logits) in enumerate(zip(labels, (theirs.start_logits, theirs.end_logits))):
        rows = [i for i in range(4) if labels[key][i] < 9]
        for i in rows:
            scores = logits[i][inputs["attention_mask"][i].bool()]
            total[side] += (scores.logsumexp(0) - logits[i, labels[key][i]]) / len(rows)
    torch.testing.assert_close(outputs.loss, total.mean(), rtol=0, atol=1e-9)
    assert_same(gradients(own, outputs.loss), gradients(reference, total.mean()))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_no_sequence_attends_to_its_neighbour(attention, is_decoder):
    """A change in one row changes no bit of another row, although rows of equal length share one call of attention."""
    model = ours("BertModel", attention, is_decoder=is_decoder)
    inputs = padded_inputs("BertModel", "right")
    shapes = layer_shapes(model)
    with torch.no_grad():
        before = model(**inputs, unpad_inputs=True).last_hidden_state
        for row in range(4):
            changed = inputs["input_ids"].clone()
            changed[row] = (changed[row] + 1) % 61
            after = model(**{**inputs, "input_ids": changed}, unpad_inputs=True).last_hidden_state
            others = [i for i in range(4) if i != row]
            assert torch.equal(after[others], before[others])
            assert (after[row] - before[row]).abs().max() > 1e-3
    assert {shape[0] for shape in shapes} == {1}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", ["right", "left", "holes"])
def test_left_to_right_attention_equals_the_padded_path(attention, case):
    model = ours("BertForMaskedLM", attention, is_decoder=True)
    inputs = padded_inputs("BertForMaskedLM", case)
    real = inputs["attention_mask"].bool()
    shapes = layer_shapes(model)
    logits = [model(**inputs, unpad_inputs=unpad).logits[real] for unpad in (True, False)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-9)
    assert [shape[0] for shape in shapes] == [1, 4]


@pytest.mark.parametrize("extra", ["positions", "no token types", "one row of token types", "embeddings"])
def test_other_forms_of_input_equal_the_padded_path(extra):
    model = ours("BertForTokenClassification", "sdpa")
    inputs = padded_inputs("BertForTokenClassification", "left")
    real = inputs["attention_mask"].bool()
    if extra == "positions":
        inputs["position_ids"] = inputs["input_ids"] % 12
    elif extra == "no token types":
        del inputs["token_type_ids"]
    elif extra == "one row of token types":
        inputs["token_type_ids"] = inputs["token_type_ids"][:1]
    else:
        inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids")).detach().requires_grad_()
    logits = [model(**inputs, unpad_inputs=unpad).logits[real] for unpad in (True, False)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-9)
    if extra == "embeddings":
        slopes = [torch.autograd.grad(part.square().sum(), inputs["inputs_embeds"])[0] for part in logits]
        torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", ["right", "left"])
def test_attention_dropout_acts_on_real_tokens(attention, case):
    """With probability 1 no token attends to anything, so that padding cannot make a difference."""
    model = ours("BertForSequenceClassification", attention, attention_probs_dropout_prob=1.0, hidden_dropout_prob=0.0)
    model.train()
    inputs = padded_inputs("BertForSequenceClassification", case)
    with torch.no_grad():
        logits = [model(**inputs, unpad_inputs=unpad).logits for unpad in (True, False)]
        torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-9)
        model.config.attention_probs_dropout_prob = 0.5
        for layer in model.bert.encoder.layer:
            layer.attention.self.dropout.p = 0.5
        draws = [model(**inputs, unpad_inputs=True).logits for _ in range(2)]
    assert (draws[0] - draws[1]).abs().max() > 1e-4


@pytest.mark.parametrize("block", [1, 4 * 2 * 25, 1 << 16])
@pytest.mark.parametrize(("dropout", "most_kept"), [(0.25, 0), (1.0, 0), (0.0, 1 << 24), (0.0, 0)])
def test_attention_of_runs_is_that_of_each_sequence(block, dropout, most_kept, monkeypatch):
    """Contexts and gradients, whether a block is a part of a run or a draw serves several runs."""
    runs, heads, scaling = ((1, 3), (3, 5), (2, 7)), 4, 0.4
    monkeypatch.setattr(fast_dropout, "BLOCK", block)
    monkeypatch.setattr(fast_dropout, "KEPT", most_kept)
    drawn, draw = [], fast_dropout.draw
    monkeypatch.setattr(fast_dropout, "draw", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(4, 32, heads, 6, generator=generator, dtype=torch.double)
    qkv = [part.requires_grad_() for part in states[:3]]
    torch.manual_seed(1)
    context = fast_dropout.attend_runs(runs, *qkv, dropout=dropout, scaling=scaling)
    kept = torch.cat(drawn) if drawn else None
    if kept is not None:
        assert len(kept) == heads * (9 + 3 * 25 + 2 * 49) and len(drawn) == {1: 6, 200: 5, 1 << 16: 1}[block]
        assert (~kept).double().mean().item() == pytest.approx(dropout, abs=0.06)
    contexts, token, weight = [], 0, 0
    for sequences, length in runs:
        for _ in range(sequences):
            query, key, value = (part[token : token + length].transpose(0, 1) for part in qkv)
            weights = torch.softmax(query @ key.transpose(1, 2) * scaling, -1)
            if kept is not None and dropout < 1:
                weights = weights * kept[weight : weight + weights.numel()].view_as(weights) / (1 - dropout)
            contexts.append((weights @ value).transpose(0, 1))
            token, weight = token + length, weight + weights.numel()
    expected = torch.cat(contexts) * (dropout < 1)
    torch.testing.assert_close(context, expected, rtol=0, atol=1e-12)
    for found, wanted in zip(*(torch.autograd.grad((one * states[3]).sum(), qkv) for one in (context, expected))):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dropout", "switches", "in_float32"),
    [
        (0.0, {"fast_dropout": True}, True),
        (0.0, {"fast_dropout": False}, False),  # torch's own kernel is as fast for new shapes
        (0.0, {"fast_dropout": True, "is_decoder": True}, False),
        (1.0, {"fast_dropout": False}, True),
        (1.0, {"fast_dropout": True}, True),
    ],
)
def test_separate_products_of_half_precision_are_computed_in_float32(monkeypatch, dropout, switches, in_float32):
    """oneDNN compiles those of bfloat16 for every shape. With probability 1, no token attends to anything."""
    sizes = {"attention_probs_dropout_prob": dropout, "hidden_dropout_prob": 0.0}
    model = ours("BertModel", "sdpa", **sizes, **switches).float()
    inputs, types, compute = padded_inputs("BertModel", "right"), set(), unpadding.in_float32

    def watched(attend, *qkv, **options):
        def noted(*states, **more):
            types.update(part.dtype for part in states)
            assert not torch.is_autocast_enabled("cpu")
            return attend(*states, **more)

        return compute(noted, *qkv, **options)

    monkeypatch.setattr(unpadding, "in_float32", watched)
    for training, of_type, expected in (
        (True, torch.bfloat16, in_float32),
        (False, torch.bfloat16, False),
        (True, torch.float32, dropout > 0),
    ):
        model.train(training)
        real, found = inputs["attention_mask"].bool(), []
        for unpad in (True, False):
            with torch.autocast("cpu", dtype=of_type, enabled=of_type != torch.float32):
                states = model(**inputs, unpad_inputs=unpad).last_hidden_state[real]
            loss = (states.square() * torch.arange(states.shape[1])).sum()
            slopes = torch.autograd.grad(loss, [*model.encoder.parameters()])
            found.append((states, torch.cat([slope.flatten() for slope in slopes])))
        assert types == ({torch.float32} if expected else set())
        if training:
            (states, slopes), (padded, expected_slopes) = found
            # Four roundings to the 8 bits of bfloat16, for each token.
            assert ((states - padded).norm(dim=-1) < 4 * 2**-8 * padded.norm(dim=-1)).all()
            assert (slopes - expected_slopes).norm() < 0.03 * expected_slopes.norm()
        types.clear()


def by_sequences(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **lengths):
    """What a kernel for variable lengths computes, sequence by sequence. Shapes: (1, N, T, D) -> (1, T, N, D)."""
    assert query.shape[0] == 1 and attention_mask is None
    assert torch.equal(lengths["cu_seq_lens_q"], lengths["cu_seq_lens_k"])
    assert lengths["cu_seq_lens_q"].dtype == torch.int32
    limits = lengths["cu_seq_lens_q"].tolist()
    assert lengths["max_length_q"] == lengths["max_length_k"] == max(b - a for a, b in pairwise(limits))
    contexts = []
    for start, stop in pairwise(limits):
        q, k, v = (states[0, :, start:stop] for states in (query, key, value))
        contexts.append(((q @ k.mT) * scaling).softmax(-1) @ v)
    return torch.cat(contexts, 1).transpose(0, 1).unsqueeze(0), None


@pytest.mark.parametrize("kernel", ["flash_attention_2", "varlen"])
def test_variable_length_kernels_get_their_arguments(kernel, monkeypatch):
    """The kernels need CUDA. A plain loop in their place must give the numbers of the padded path."""
    model = ours("BertForSequenceClassification", "sdpa")
    inputs = padded_inputs("BertForSequenceClassification", "right")
    expected = model(**inputs, unpad_inputs=False).logits
    calls = []
    if kernel == "varlen":
        from torch.nn.attention import varlen

        def stand_in(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k):
            calls.append(1)
            lengths = {"cu_seq_lens_q": cu_seq_q, "cu_seq_lens_k": cu_seq_k}
            lengths |= {"max_length_q": max_q, "max_length_k": max_k}
            states = (part.transpose(0, 1).unsqueeze(0) for part in (query, key, value))
            return by_sequences(None, *states, None, scaling=query.shape[-1] ** -0.5, **lengths)[0][0]

        monkeypatch.setattr(varlen, "varlen_attn", stand_in)
        monkeypatch.setattr(unpadding, "has_varlen_kernel", lambda *_: True)
    else:
        monkeypatch.setitem(
            ALL_ATTENTION_FUNCTIONS._global_mapping, kernel, lambda *a, **k: calls.append(1) or by_sequences(*a, **k)
        )
        model.config._attn_implementation = kernel
    logits = model(**inputs, unpad_inputs=True).logits
    assert len(calls) == 2, "expected one call for each layer"
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-9)


def adding_the_mask(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
    """A back-end of another package that, as flex attention does, adds the mask to the scores whatever its type is."""
    scores = torch.matmul(query * scaling, key.transpose(2, 3))
    scores = scores if attention_mask is None else scores + attention_mask
    return torch.matmul(scores.softmax(-1), value).transpose(1, 2), None


@pytest.mark.parametrize("attention", ["eager", "sdpa", "adding"])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_packed_row_equals_separate_rows(attention, is_decoder, monkeypatch):
    """Sequences of 9, 4 and 4 tokens make one row of 17, although the network has 12 positions."""
    name = "BertForMaskedLM"
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "adding", adding_the_mask)
    model = ours(name, "eager" if attention == "adding" else attention, is_decoder=is_decoder)
    inputs = make_inputs(name, batch=3)
    lengths = (9, 4, 4)
    packed = {
        key: torch.cat([inputs[key][i, :n] for i, n in enumerate(lengths)])[None]
        for key in ("input_ids", "token_type_ids")
    }
    limits = torch.tensor([0, 9, 13, 17])
    implementation, model.config._attn_implementation = model.config._attn_implementation, attention
    row = model(**packed, labels=packed["input_ids"], cu_seq_lens_q=limits, output_hidden_states=True)
    model.config._attn_implementation = implementation
    expected = [
        model(
            input_ids=inputs["input_ids"][i : i + 1, :n],
            token_type_ids=inputs["token_type_ids"][i : i + 1, :n],
            output_hidden_states=True,
        )
        for i, n in enumerate(lengths)
    ]
    torch.testing.assert_close(row.logits, torch.cat([e.logits for e in expected], 1), rtol=0, atol=1e-9)
    for layer, states in enumerate(row.hidden_states):
        separate = torch.cat([e.hidden_states[layer] for e in expected], 1)
        torch.testing.assert_close(states, separate, rtol=0, atol=1e-9)
    dense = torch.cat([e.logits[0] for e in expected])
    loss = nn.functional.cross_entropy(dense, packed["input_ids"][0])
    torch.testing.assert_close(row.loss, loss, rtol=0, atol=1e-9)
    assert_same(gradients(model, row.loss), gradients(model, loss))
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    again = model(**packed, cu_seq_lens_q=limits, position_ids=positions, sparse_prediction=True)
    torch.testing.assert_close(again.logits, row.logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "limits, mask, message",
    [
        ([0, 4, 8], None, r"for inputs of shape \(1, 9\), got one for \(1, 8\)"),
        ([1, 4, 9], None, r"to rise from 0 to the number of tokens, .*got \[1, 4, 9\]"),
        ([0, 4, 4, 9], None, r"got \[0, 4, 4, 9\]"),
        ([0, 9], torch.ones(1, 9), "expected no attention_mask beside cu_seq_lens_q"),
        ([0, 13], None, r"at most 12 a sequence \(config.max_position_embeddings\), got \[0, 13\]"),
    ],
)
def test_bad_packing_is_refused(limits, mask, message):
    model = BertForMaskedLM(tiny_config())
    with pytest.raises(ValueError, match=message):
        model(torch.ones(1, 9).long(), attention_mask=mask, cu_seq_lens_q=torch.tensor(limits))


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM", "BertForSequenceClassification"])
def test_products_of_half_precision_have_few_sizes(monkeypatch, name):
    """Rows that are computed in vain change nothing; in float32 there are none."""
    model, inputs = ours(name, "sdpa"), padded_inputs(name, "right")
    model.float().config.sparse_prediction = True
    labels, shapes, found = make_labels(name, inputs), layer_shapes(model), []
    if labels["labels"].shape == inputs["input_ids"].shape:
        labels["labels"] = labels["labels"].where(inputs["attention_mask"].bool(), -100)
    for rounded in (unpadding.ROUNDED, 1):
        monkeypatch.setattr(unpadding, "ROUNDED", rounded)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(**inputs, **labels, unpad_inputs=True)
        found.append((flatten_outputs(outputs), gradients(model, outputs.loss)))
    (values, slopes), (expected, expected_slopes) = found
    real = int(inputs["attention_mask"].sum())
    assert real % 32 and shapes[0][1] == -(-real // 32) * 32 and shapes[1][1] == real
    assert {key: value.shape for key, value in values.items()} == {key: value.shape for key, value in expected.items()}
    assert_close(values, expected, 0.01)
    assert_close(slopes, expected_slopes, 0.02)
    model(**inputs, **labels, unpad_inputs=True)
    assert shapes[2][1] == real


def assert_close(found: dict, expected: dict, share: float) -> None:
    for name, value in found.items():
        assert (value.float() - expected[name].float()).norm() <= share * expected[name].float().norm(), name


def test_the_choice_of_tokens_worked_by_hand():
    mask = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 0], [1, 0, 1, 0]])
    tokens = find_tokens(mask, None, 0.0, True)
    assert tokens.cells.tolist() == [5, 6, 8, 10, 0, 1, 2], "the shortest sequences come first"
    assert tokens.limits.tolist() == [0, 2, 4, 7] and tokens.runs == ((2, 2), (1, 3))
    assert tokens.mask.int().tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert tokens.place.tolist() == [0, 1, 3, 4, 6, 7, 8]
    assert tokens.positions.tolist() == [[0, 1, 0, 1, 0, 1, 2]]
    assert tokens.attends_to_all
    assert tokens.unpad(torch.arange(12).view(3, 4)).tolist() == [tokens.cells.tolist()]
    assert tokens.rows_at(torch.tensor([0, 6, 10])).tolist() == [4, 1, 3]
    kept = torch.zeros(3, 4, dtype=torch.bool)
    kept[1, 0] = True
    extra = find_tokens(mask, kept, 0.0, True)
    assert extra.mask.int().tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]] and not extra.attends_to_all
    assert find_tokens(mask, kept, 0.0, False) is None
    assert packed_tokens(torch.tensor([0, 2, 5, 8, 10]), None, 12).runs == ((1, 2), (2, 3), (1, 2))
    moved = send_to_device(tokens, "meta")
    assert type(moved) is type(tokens) and moved.cells.is_meta and moved.runs == tokens.runs


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_cuda_equals_the_padded_path(name, dtype, dropout):
    """Real positions and gradients are those of the padded path. In training with dropout, gradients are finite."""
    shape = {"hidden_size": 64, "num_attention_heads": 1, "max_position_embeddings": 128}
    model = ours(name, "sdpa", attention_probs_dropout_prob=dropout, hidden_dropout_prob=0.0, **shape)
    model = model.to("cuda", dtype).train(dropout > 0)
    inputs = {key: value.cuda() for key, value in padded_inputs(name, "right").items()}
    real = real_positions(name, inputs["attention_mask"])
    found = []
    for unpad in (True, False):
        value = model(**inputs, unpad_inputs=unpad)[0]
        value = value[real] if value.shape[:2] == real.shape else value
        found.append((value.float(), gradients(model, value.float().square().mean())))
    if dropout:
        assert all(g is None or g.isfinite().all() for g in found[0][1].values())
    else:
        tolerance = 1e-4 if dtype == torch.float32 else 0.1
        torch.testing.assert_close(found[0][0], found[1][0], rtol=tolerance, atol=tolerance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
def test_dropout_of_the_kernel_for_variable_lengths():
    """Weights are dropped with the probability that is given, the others made larger; the backward pass drops the same.

    With one seed, the context depends linearly on the values, so that its gradient predicts what a change of them does.
    """
    limits = torch.tensor([0, 3, 131, 132, 200], dtype=torch.int32, device="cuda")
    tokens = SimpleNamespace(limits=limits, longest=128)
    query, key, value, change, weight = (
        torch.randn(200, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(5)
    )

    def attend(value, dropout, seed):
        torch.manual_seed(seed)
        return unpadding.varlen_attention(tokens, dropout, query, key, value).float()

    context = attend(value, 0.3, 0)
    assert torch.equal(context, attend(value, 0.3, 0)) and not torch.equal(context, attend(value, 0.3, 1))
    (gradient,) = torch.autograd.grad((context * weight).sum(), value)
    moved = ((attend(value + change, 0.3, 0) - context) * weight).sum()
    torch.testing.assert_close(moved, (gradient.float() * change).sum(), rtol=0.1, atol=2.0)
    with torch.no_grad():
        ones = torch.ones_like(value)
        alone = torch.stack([attend(ones, 0.3, seed)[131, :, 0] for seed in range(200)])  # attends to itself alone
        mean = torch.stack([attend(value, 0.3, seed) for seed in range(200)]).mean(0)
        torch.testing.assert_close(alone.unique().cpu(), torch.tensor([0.0, 1 / 0.7]), rtol=0.01, atol=0)
        assert (alone == 0).float().mean().item() == pytest.approx(0.3, abs=0.06)
        assert (mean - attend(value, 0.0, 0)).abs().mean() < 0.05
