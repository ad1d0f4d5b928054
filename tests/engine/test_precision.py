"""``--mixed_precision auto``: what decides, and what a run keeps."""

import json

import pytest
import torch

from bert_training.engine import launch
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.pretraining import PretrainingArguments


@pytest.fixture
def cpu(monkeypatch):
    """Sets which instructions this machine has."""
    return lambda *names: monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(names, True))


PRETRAINING = {"output_dir": "x", "config_name": "base"}
GLUE = {"output_dir": "x", "config_name": "base", "tokenizer_name": "t"}


def settled(folders=(), **given) -> launch.Settled:
    found = launch.settled_precision(PretrainingArguments(**PRETRAINING | {"mixed_precision": "auto"} | given), folders)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("avx512_f",), "no"), ((), "no"), (("avx512_f", "avx512_bf16"), "bf16"), (("amx_bf16",), "bf16")],
)
def test_a_cpu_takes_what_it_multiplies_in(cpu, names, expected):
    cpu(*names)
    found = settled()
    assert found.precision == expected and (expected == "no" or f"({names[-1]})" in found.why)
    assert settled(config_name="tiny").precision == "no"  # a narrow network has little to gain


@pytest.fixture
def card(monkeypatch):
    """Sets whether this machine has a GPU that computes in bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A Card")
    return lambda has: monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: has or including_emulation
    )


@pytest.mark.parametrize(("hardware", "expected"), [(True, "bf16"), (False, "no")])
def test_a_gpu_takes_what_it_has(card, hardware, expected):
    card(hardware)
    found = settled()
    assert found.precision == expected and "A Card" in found.why


@pytest.mark.parametrize(
    ("told", "given", "precision", "launcher"),
    [
        (True, {}, "no", None),
        (False, {"mixed_precision": "no"}, "no", None),
        (False, {"resume_from_checkpoint": "auto"}, "no", None),
        (False, {}, "bf16", None),
        (False, {}, "no", "no"),
    ],
    ids=["nothing named", "a flag", "a resumed run", "another type", "a launcher"],
)
def test_float32_on_a_gpu_is_said_where_nobody_asked_for_it(card, monkeypatch, told, given, precision, launcher):
    card(True)
    monkeypatch.delenv(launch.LAUNCHER, raising=False)
    if launcher:
        monkeypatch.setenv(launch.LAUNCHER, launcher)
    found = launch.advice(PretrainingArguments(**PRETRAINING, **given), precision)
    assert found is None if not told else found.startswith("A Card computes in float32; with --mixed_precision auto")


@pytest.mark.parametrize(
    ("args", "launcher", "expected"),
    [
        (PretrainingArguments(**PRETRAINING), None, False),
        (PretrainingArguments(**PRETRAINING, recipe="fast"), None, True),
        (PretrainingArguments(**PRETRAINING, recipe="fast"), "no", False),
        (PretrainingArguments(**PRETRAINING, recipe="fast", mixed_precision="no"), None, False),
        (PretrainingArguments(**PRETRAINING, mixed_precision="auto"), "bf16", True),
        (GlueArguments(**GLUE), None, True),
        (GlueArguments(**GLUE, mixed_precision="bf16"), None, False),
    ],
)
def test_the_machine_chooses_where_nobody_else_does(monkeypatch, args, launcher, expected):
    monkeypatch.delenv(launch.LAUNCHER)
    if launcher:
        monkeypatch.setenv(launch.LAUNCHER, launcher)
    assert (launch.settled_precision(args, []) is not None) is expected
    if args.mixed_precision is None:
        monkeypatch.setattr(launch, "no_device", lambda: False)
        assert launch.settled_precision(args, []) is None  # the default is for CPUs


def test_the_first_start_decides(cpu, monkeypatch, tmp_path):
    """Also after a start in another type, in another folder, and on a device; a damaged record does not."""
    cpu("amx_bf16")
    facts = {"format": 1, "script": "x", "flags": {}, "mixed_precision": "bf16"}
    facts |= {"earlier": [{"mixed_precision": "no"}, {"mixed_precision": "bf16"}]}
    (tmp_path / "run.json").write_text(json.dumps(facts | {"precision_chosen": "as it was"}))
    folders = [str(tmp_path / "new"), str(tmp_path)]
    assert settled(folders).precision == "no"
    monkeypatch.delenv(launch.LAUNCHER)
    monkeypatch.setattr(launch, "no_device", lambda: False)
    silent = GlueArguments(**GLUE)
    found = launch.settled_precision(silent, folders)
    assert found is not None and found.precision == "no"
    (tmp_path / "run.json").write_text(json.dumps(facts))  # nothing was chosen when it began
    assert launch.settled_precision(silent, folders) is None
    (tmp_path / "run.json").write_text('{"flags"')
    assert settled(folders).precision == "bf16"
