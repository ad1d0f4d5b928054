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
    assert found.precision == expected and f"is {ratio:.2f} times as fast in bfloat16 here" in found.why
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


def test_the_speeds_are_measured_without_a_trace():
    state = torch.random.get_rng_state()
    assert 0.01 < precision.speed_ratio(64) < 100
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_faster_type_wins_whatever_its_first_turn_costs(monkeypatch):
    taken = iter([9.0, 1.0, 1.0, 1.0, 9.0, 1.0, *[0.3, 0.1] * 50])  # the first two turns have few rows
    monkeypatch.setattr(precision, "_seconds", lambda *_, half: next(taken))
    assert precision.speed_ratio(8) == pytest.approx(3.0)


def test_a_processor_that_emulates_bfloat16_is_not_timed_for_long(monkeypatch):
    rows = []
    monkeypatch.setattr(
        precision, "_seconds", lambda _, states, half: rows.append(len(states)) or (9.0 if half else 1.0)
    )
    assert precision.speed_ratio(8) == pytest.approx(1 / 9) and rows == [precision.FEW] * 4


def test_a_checkpoint_of_another_folder_decides(cpu, tmp_path):
    cpu(2.0)
    first = {"why": "measured", "ratio": 1.1}
    facts = {"flags": {}, "mixed_precision": "no", "precision_chosen": first}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    found = choose(flags(), [str(tmp_path / "new"), str(tmp_path)])
    assert found.precision == "no" and found.facts() == {"precision_chosen": first}
    (tmp_path / "run.json").write_text(json.dumps(facts | {"mixed_precision": ["bf16"]}))
    assert choose(flags(), [str(tmp_path)]).precision == "bf16"
