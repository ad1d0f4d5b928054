"""The branches for CUDA, as far as a machine without a GPU can look at them: tensors without data say they are on one.

The kernels' results are compared in test_unpadding.py: with a plain loop in their place here, and by themselves on a
machine with a GPU (``pytest -m gpu``).
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations
from transformers import BertConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from modeling_bert_repro import fast_path, modeling_bert, unpadding
from modeling_bert_repro.fast_path import is_plain, project_together, share_that_pays
from modeling_bert_repro.modeling_bert import BertSelfAttention
from modeling_bert_repro.unpadding import Tokens, attend_unpadded, has_varlen_kernel
from tests.helpers.bert_pairs import assert_same, gradients, make_labels, padded_inputs, pair

AMPERE, TURING = (8, 0), (7, 5)


@pytest.fixture
def capability(monkeypatch):
    """Sets the compute capability of the GPU that there is not; Ampere if it is not called."""

    def of(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)

    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    of(AMPERE)
    return of


@pytest.fixture
def gpu(capability):
    """Tensors without data, which may say that they are on a GPU. It sets the capability, too."""
    with FakeTensorMode():
        yield capability


def on_gpu(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="cuda:0")


@pytest.mark.parametrize(
    ("has", "changes"),
    [
        (True, {}),
        (True, {"dtype": torch.float16}),
        (True, {"size": 256}),
        (False, {"dtype": torch.float32}),
        (False, {"size": 12}),
        (False, {"size": 264}),
        (True, {"dropout": 0.1}),
        (True, {"dropout": 0.1, "size": 192}),
        (False, {"dropout": 0.1, "size": 256}),
        (False, {"capability": TURING}),
        (True, {"capability": (12, 0)}),
    ],
)
def test_where_there_is_a_kernel_for_variable_lengths(gpu, has, changes):
    """FlashAttention's kernel ends with an error on a T4 or V100 and for heads of 12, where sdpa falls back."""
    case = {"dtype": torch.bfloat16, "size": 64, "dropout": 0.0, "capability": AMPERE} | changes
    gpu(case["capability"])
    assert has_varlen_kernel(torch.device("cuda:0"), case["dtype"], case["size"], case["dropout"]) == has


def test_who_switches_flash_attention_off_or_replaces_it_does_not_get_it(gpu, monkeypatch):
    """For second derivatives, for example, which it does not have. A newer FlashAttention has no dropout."""
    kernel = partial(has_varlen_kernel, torch.device("cuda:0"), torch.bfloat16, 64)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert not kernel(0.0)
    monkeypatch.setattr(torch.nn.attention, "current_flash_attention_impl", lambda: "FA3", raising=False)
    assert kernel(0.0) and not kernel(0.1)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
    assert not kernel(0.0)


def test_a_cpu_is_never_asked_for_its_capability():
    assert not has_varlen_kernel(torch.device("cpu"), torch.bfloat16, 64, 0.0)


def tokens_of(limits: Tensor, place: Tensor, mask: Tensor) -> Tokens:
    """Sequences of 3, 8 and 9 tokens from a batch with rows of 9."""
    return Tokens(place, place, limits, mask, True, ((1, 3), (1, 8), (1, 9)), (3, 9), 3, 9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_what_the_kernel_is_given(gpu, dtype, dropout, monkeypatch):
    """Three tensors (T, N, D) whose rows are contiguous, cumulative lengths in int32, and the longest length.

    With dropout also its probability, and that attention is in both directions and no mask is to be returned.
    """
    given = {}

    def forward(query, key, value, limits_q, limits_k, max_q, max_k, *rest):
        given.update(states=(query, key, value), limits=(limits_q, limits_k), longest=(max_q, max_k), rest=rest)
        return original(query, key, value, limits_q, limits_k, max_q, max_k, *rest)

    from torch.nn.attention import varlen

    home, name = (torch.ops.aten, "_flash_attention_forward") if dropout else (varlen, "varlen_attn")
    original = getattr(home, name)
    forward.default = getattr(original, "default", None)  # torch looks it up when it computes the shapes
    monkeypatch.setattr(home, name, forward)
    tokens = tokens_of(on_gpu(4, dtype=torch.int32), on_gpu(20, dtype=torch.int64), on_gpu(3, 9, dtype=torch.bool))
    module = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"), is_causal=False)
    states = [on_gpu(1, 20, 128, dtype=dtype).view(1, 20, 2, 64).transpose(1, 2) for _ in range(3)]
    context, weights = attend_unpadded(
        sdpa_attention_forward, tokens, module, *states, None, dropout=dropout, scaling=1 / 8
    )
    assert context.shape == (1, 20, 2, 64) and context.dtype == dtype and context.is_cuda and weights is None
    for one in given["states"]:
        assert one.shape == (20, 2, 64) and one.stride() == (128, 64, 1) and one.dtype == dtype and one.is_cuda
    for one in given["limits"]:
        assert one.shape == (4,) and one.dtype == torch.int32 and one.is_cuda
    assert given["longest"] == (9, 9) and given["rest"] == ((dropout, False, False) if dropout else ())


@pytest.mark.parametrize(
    "case", ["float32", "Turing", "padding that must be computed", "eager", "decoder", "compiled, dropout"]
)
def test_everything_else_is_computed_in_blocks(gpu, case, monkeypatch):
    def kernel(*_: object) -> None:
        pytest.fail("this kernel cannot compute the case")

    monkeypatch.setattr(unpadding, "varlen_attention", kernel)
    monkeypatch.setattr(unpadding, "attend_by_length", kernel)
    monkeypatch.setattr(unpadding, "attend_in_blocks", lambda attend, tokens, module, query, *_, **__: query)
    if case == "Turing":
        gpu(TURING)
    tokens = tokens_of(on_gpu(4, dtype=torch.int32), on_gpu(20, dtype=torch.int64), on_gpu(3, 9, dtype=torch.bool))
    tokens = tokens._replace(attends_to_all=case != "padding that must be computed")
    config = SimpleNamespace(_attn_implementation="eager" if case == "eager" else "sdpa")
    module = SimpleNamespace(config=config, is_causal=case == "decoder")
    dtype = torch.float32 if case == "float32" else torch.bfloat16
    states = [on_gpu(1, 2, 20, 64, dtype=dtype) for _ in range(3)]
    dropout = 0.1 if case == "compiled, dropout" else 0.0
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: bool(dropout))
    context, _ = attend_unpadded(sdpa_attention_forward, tokens, module, *states, None, dropout=dropout, scaling=1 / 8)
    assert context.shape == (1, 20, 2, 64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_one_product_gives_what_three_give(dtype):
    """And the same gradients, of the states and of every layer."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, size, dtype=dtype) for size in (8, 8, 4)]
    states = torch.randn(2, 5, 8, dtype=dtype, requires_grad=True)
    learning = [states, *(weight for layer in layers for weight in layer.parameters())]
    together, apart = project_together(states, *layers), [layer(states) for layer in layers]
    rounding = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 0.05, "atol": 0.05}
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other, **rounding)
    found, expected = (
        torch.autograd.grad(sum(part.square().sum() for part in parts), learning) for parts in (together, apart)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **rounding)


def test_query_key_and_value_are_one_product_on_a_gpu_only(monkeypatch):
    """And three again if somebody watches one of them."""
    monkeypatch.setattr(modeling_bert, "project_together", lambda states, *layers: layers)
    attention = BertSelfAttention(BertConfig(hidden_size=8, num_attention_heads=2))
    on_a_gpu = SimpleNamespace(is_cuda=True)
    assert attention.project(on_a_gpu) == (attention.query, attention.key, attention.value)
    assert all(isinstance(part, Tensor) for part in attention.project(torch.zeros(2, 5, 8)))
    attention.value.register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match="linear"):  # called with the stub
        attention.project(on_a_gpu)


@pytest.fixture
def one_product(monkeypatch):
    """As on a GPU; the number of products is counted."""
    made, together = [], fast_path.project_together
    monkeypatch.setattr(modeling_bert, "multiplies_once", lambda states: torch.is_grad_enabled())
    monkeypatch.setattr(modeling_bert, "project_together", lambda *given: (made.append(1), together(*given))[1])
    return made


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("unpad", [False, True])
def test_the_network_with_one_product_is_transformers(one_product, attention, unpad):
    own, reference = pair("BertForPreTraining", attention)
    own.config.update({"unpad_inputs": unpad, "sparse_prediction": True})
    inputs = padded_inputs("BertForPreTraining", "right")
    labels = make_labels("BertForPreTraining", inputs)
    labels["labels"] = labels["labels"].masked_fill(inputs["attention_mask"] == 0, -100)
    mine, theirs = own(**inputs, **labels), reference(**inputs, **labels)
    assert len(one_product) == own.config.num_hidden_layers
    torch.testing.assert_close(mine.loss, theirs.loss, rtol=0, atol=1e-9)
    assert_same(gradients(own, mine.loss), gradients(reference, theirs.loss))
    with torch.no_grad():
        own(**inputs)
    assert len(one_product) == own.config.num_hidden_layers, "three products without gradients"


class Adapted(nn.Linear):
    """A layer that somebody has put in the place of another."""


class Quantised(Tensor):
    """A weight that somebody has put in the place of another; torchao's have no concatenation."""


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.register_forward_hook(lambda *_: None),
        lambda layer: layer.register_forward_pre_hook(lambda *_: None),
        lambda layer: layer.register_full_backward_hook(lambda *_: None),
        lambda layer: setattr(layer, "forward", layer.forward),
        lambda layer: setattr(layer, "bias", None),
        lambda layer: setattr(layer, "__class__", Adapted),
        lambda layer: parametrizations.orthogonal(layer),
        lambda layer: setattr(layer, "weight", nn.Parameter(layer.weight.detach().as_subclass(Quantised))),
    ],
    ids=["hook", "hook before", "hook backward", "Accelerate", "no bias", "adapter", "parametrisation", "quantised"],
)
def test_a_layer_whose_call_matters_is_called(change):
    layer = nn.Linear(8, 8)
    assert is_plain(layer)
    change(layer)
    assert not is_plain(layer)


def asked_for_share(rows: int, hidden_size: int, dtype: torch.dtype = torch.bfloat16, **config: object) -> float:
    """What ``share_that_pays`` says of rows of 128 tokens on a GPU."""
    config = {"_attn_implementation": "sdpa", "is_decoder": False, "num_attention_heads": hidden_size // 64} | config
    config = SimpleNamespace(hidden_size=hidden_size, attention_probs_dropout_prob=0.1, **config)
    weight = torch.empty(1, dtype=dtype)
    model = SimpleNamespace(config=config, parameters=lambda: iter([weight]), training=True)
    return share_that_pays(model, on_gpu(rows, 128))


@pytest.mark.parametrize(
    ("rows", "hidden_size", "share"),
    [(32, 768, None), (128, 768, 0.414), (64, 1024, 0.466), (512, 256, 0.931), (256, 768, 0.0), (96, 1024, 0.0)],
)
def test_small_batches_keep_their_padding_on_a_gpu(gpu, rows, hidden_size, share):
    """There the host, which starts the kernels, is slower than the GPU."""
    found = asked_for_share(rows, hidden_size)
    assert found > 1 if share is None else found == pytest.approx(share, abs=1e-3)
