"""``--mixed_precision auto``: what decides, and what a run keeps."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import BertConfig

from bert_training.engine import precision
from bert_training.engine.batches import IGNORED
from bert_training.engine.precision import choose
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from modeling_bert_repro import BertForPreTraining


@pytest.fixture
def cpu(monkeypatch):
    """Sets how many times as fast bfloat16 is on this machine, for networks of every width."""
    monkeypatch.setattr(precision, "NARROWEST", 1)
    return lambda ratio: monkeypatch.setattr(precision, "speed_ratio", lambda width: ratio)


def flags(**given) -> SimpleNamespace:
    return SimpleNamespace(**({"model_name_or_path": None, "config_name": None} | given))


@pytest.mark.parametrize(("ratio", "expected"), [(0.4, "no"), (1.29, "no"), (1.3, "bf16"), (2.2, "bf16")])
def test_a_cpu_takes_what_is_clearly_faster(cpu, ratio, expected, tmp_path):
    cpu(ratio)
    found = choose(flags(), [str(tmp_path)])
    assert found.precision == expected and f"is {ratio:.2f} times as fast in bfloat16 here" in found.why
    assert found.facts()["precision_chosen"]["ratio"] == ratio


@pytest.mark.parametrize(("hardware", "expected"), [(True, "bf16"), (False, "no")])
def test_a_gpu_takes_what_it_has(monkeypatch, hardware, expected, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A Card")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: hardware or including_emulation)
    found = choose(flags(), [str(tmp_path)])
    assert found.precision == expected and "A Card" in found.why and found.ratio is None


def test_the_speeds_are_measured_without_a_trace():
    state = torch.random.get_rng_state()
    assert 0.01 < precision.speed_ratio(64) < 100
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_faster_type_wins_whatever_its_first_turn_costs(monkeypatch):
    few = [9.0, 1.0, *[1.0, 1.0] * precision.FEW_TURNS]
    taken = iter([*few, 9.0, 1.0, *[0.3, 0.1] * 50])
    monkeypatch.setattr(precision, "_seconds", lambda *_, half: next(taken))
    assert precision.speed_ratio(8) == pytest.approx(3.0)


def test_a_narrow_network_is_not_timed(monkeypatch, tmp_path):
    monkeypatch.setattr(precision, "speed_ratio", lambda width: 1 / 0)
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 127}))
    assert choose(flags(config_name=str(tmp_path)), []).precision == "no"


PRETRAINING = {"output_dir": "x", "config_name": "tiny"}


@pytest.mark.parametrize(
    ("args", "launcher", "expected"),
    [
        (PretrainingArguments(**PRETRAINING), None, False),
        (PretrainingArguments(**PRETRAINING, recipe="fast"), None, True),
        (PretrainingArguments(**PRETRAINING, recipe="fast"), "no", False),
        (PretrainingArguments(**PRETRAINING, recipe="fast", mixed_precision="no"), None, False),
        (PretrainingArguments(**PRETRAINING, mixed_precision="auto"), "bf16", True),
        (GlueArguments(output_dir="x", config_name="tiny", tokenizer_name="t"), None, True),
        (GlueArguments(output_dir="x", config_name="tiny", tokenizer_name="t", mixed_precision="bf16"), None, False),
    ],
)
def test_the_machine_chooses_where_nobody_else_does(monkeypatch, args, launcher, expected):
    monkeypatch.delenv(precision.LAUNCHER)
    if launcher:
        monkeypatch.setenv(precision.LAUNCHER, launcher)
    assert precision.is_asked_for(args) is expected
    if args.mixed_precision is None:
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        assert precision.is_asked_for(args) is False  # the default is for CPUs


class Kernels(TorchDispatchMode):
    """Notes the types of the tensors that go into each kernel and come out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[tuple[str, str]]] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        sides = [_types(args), _types(out)]
        self.seen.setdefault(function.__name__.split(".")[0], set()).add((sides[0], sides[1]))
        return out


def _types(values) -> str:
    found = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor) and value.is_floating_point()]
    return " ".join(str(value.dtype).removeprefix("torch.") for value in found)


@pytest.mark.parametrize("fast", [False, True])
def test_what_stays_in_float32(fast):
    """The list in docs/many-devices.md. What is not on it, the products, is checked to be bfloat16."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForPreTraining(BertConfig(vocab_size=100, **sizes, unpad_inputs=fast, sparse_prediction=fast))
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(5, 100, (4, 16))
    mask = torch.ones_like(ids)
    mask[:, 9:] = 0
    labels = torch.where(torch.rand(ids.shape) < 0.3, ids, IGNORED)
    with Kernels() as forward, torch.autocast("cpu", torch.bfloat16):
        outputs = model(ids, mask, labels=labels, next_sentence_label=torch.tensor([0, 1, 0, 1]))
    with Kernels() as backward:
        outputs.loss.backward()
    optimizer.step()
    assert outputs.loss.dtype == torch.float32
    assert {types[0] for types in forward.seen["_log_softmax"]} == {"float32"}  # of both losses
    assert {types[0] for types in forward.seen["nll_loss_forward"]} == {"float32"}
    for _, out in forward.seen["native_layer_norm"]:  # the normed states, then mean and deviation
        assert out.split()[1:] == ["float32", "float32"]
    assert "float32 float32 float32" in {types[0] for types in forward.seen["native_layer_norm"]}  # between the layers
    assert {types[0] for types in forward.seen["addmm"]} == {"bfloat16 bfloat16 bfloat16"}
    assert {types[0] for types in backward.seen["mm"]} == {"bfloat16 bfloat16"}
    for parameter in model.parameters():
        assert parameter.dtype == torch.float32 and parameter.grad is not None and parameter.grad.dtype == torch.float32
        assert {value.dtype for value in optimizer.state[parameter].values()} == {torch.float32}


def test_a_checkpoint_of_another_folder_decides(cpu, tmp_path):
    cpu(2.0)
    first = {"why": "measured", "ratio": 1.1}
    facts = {"format": 1, "script": "x", "flags": {}, "mixed_precision": "no", "precision_chosen": first}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    found = choose(flags(), [str(tmp_path / "new"), str(tmp_path)])
    assert found.precision == "no" and found.facts() == {"precision_chosen": first}


def test_the_first_start_decides_also_after_one_in_another_type_and_on_a_device(cpu, monkeypatch, tmp_path):
    cpu(1.0)
    first = {"why": "measured", "ratio": 2.0}
    facts = {
        "format": 1,
        "script": "x",
        "flags": {},
        "mixed_precision": "no",
        "earlier": [{"mixed_precision": "bf16"}, {"mixed_precision": "no"}],
    }
    (tmp_path / "run.json").write_text(json.dumps(facts | {"precision_chosen": first}))
    found = choose(flags(), [str(tmp_path)])
    assert found.precision == "bf16" and found.facts() == {"precision_chosen": first}
    monkeypatch.delenv(precision.LAUNCHER)
    monkeypatch.setattr(precision, "no_device", lambda: False)
    silent = GlueArguments(output_dir="x", config_name="tiny", tokenizer_name="t")
    assert precision.is_asked_for(silent, [str(tmp_path)])
    (tmp_path / "run.json").write_text(json.dumps(facts))  # nothing was chosen when it began
    assert not precision.is_asked_for(silent, [str(tmp_path)])
