"""``--mixed_precision auto``: what decides, and what a run keeps."""

import json
from types import SimpleNamespace

import pytest
import torch

from bert_training.engine import precision
from bert_training.engine.precision import choose


@pytest.fixture
def cpu(monkeypatch):
    """Sets how many times as fast bfloat16 is on this machine."""
    return lambda ratio: monkeypatch.setattr(precision, "speed_ratio", lambda width: ratio)


def flags(**given) -> SimpleNamespace:
    return SimpleNamespace(**({"model_name_or_path": None, "config_name": None} | given))


@pytest.mark.parametrize(("ratio", "expected"), [(0.4, "no"), (1.29, "no"), (1.3, "bf16"), (2.2, "bf16")])
def test_a_cpu_takes_what_is_clearly_faster(cpu, ratio, expected, tmp_path):
    cpu(ratio)
    found = choose(flags(), [str(tmp_path)])
    assert found.precision == expected and f"{ratio:.2f} times as fast in bfloat16 here" in found.why
    assert found.facts()["precision_chosen"]["ratio"] == ratio


@pytest.mark.parametrize(("hardware", "expected"), [(True, "bf16"), (False, "no")])
def test_a_gpu_takes_what_it_has(monkeypatch, hardware, expected, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A Card")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: hardware or including_emulation)
    found = choose(flags(), [str(tmp_path)])
    assert found.precision == expected and "A Card" in found.why and found.ratio is None


def test_the_products_have_the_width_of_the_network(monkeypatch, cpu, tmp_path):
    widths = []
    cpu(1.0)
    monkeypatch.setattr(precision, "speed_ratio", lambda width: widths.append(width) or 1.0)
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 96}))
    for given in ({"model_name_or_path": str(tmp_path)}, {"model_name_or_path": "you/on-the-hub"}):
        choose(flags(**given), [])
    for name in ("base", "tiny", str(tmp_path), None):
        choose(flags(config_name=name), [])
    assert widths == [96, 768, 768, 128, 96, 256]


def test_the_speeds_are_measured():
    assert 0.01 < precision.speed_ratio(64) < 100
