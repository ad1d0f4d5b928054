"""lab/reference_curves.py: the curve of a run becomes a reference, if the run has learnt to use context."""

import json

import pytest

from bert_training.cards.reference_curves import references, settings_of
from bert_training.pretraining.instances import SETTINGS
from lab import reference_curves
from tests.helpers.plateau_runs import FACTS, FLAGS, run_of


def test_a_reference_has_the_curve_and_the_settings_of_its_run(tmp_path, monkeypatch):
    entropy = references()["mini"]["settings"]["unigram_entropy"]
    made = {"started": "", "device": "cpu", "versions": {}, "corpus": {"documents": 1, "tokens": 1}}
    facts = FACTS | made | {"flags": dict.fromkeys(SETTINGS) | FLAGS | {"train_file": ["/data/a.txt"]}}
    (tmp_path / "run.json").write_text(json.dumps(facts))
    events = [{"event": "corpus", "unigram_entropy": entropy}, *run_of(lambda step: 7 - step / 1000, 1000)]
    events.append({"event": "eval", "step": 1000, "eval_mlm_loss": 6.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    monkeypatch.setattr(reference_curves, "FILE", tmp_path / "references.json")
    reference_curves.main([str(tmp_path), "again"])
    again = json.loads((tmp_path / "references.json").read_text())["again"]
    assert again["settings"] | settings_of(facts, entropy) == again["settings"]
    assert again["settings"]["line"] == entropy
    assert again["held_out"] == {"steps": [1000], "mlm_loss": [6.0]}
    assert again["train"]["steps"] == list(range(1, 1000, 20))


@pytest.mark.parametrize(("loss", "phases"), [(7.0, None), (6.0, "32:0.05,128:0.95")])
def test_a_reference_must_have_left_the_line_in_its_first_phase(tmp_path, monkeypatch, loss, phases):
    monkeypatch.setattr(reference_curves, "FILE", tmp_path / "references.json")
    flags = dict.fromkeys(SETTINGS) | FLAGS | {"train_file": [], "phases": phases}
    made = {"started": "", "device": "cpu", "versions": {}, "corpus": {"documents": 1, "tokens": 1}}
    (tmp_path / "run.json").write_text(json.dumps(FACTS | made | {"flags": flags}))
    events = [{"event": "corpus", "unigram_entropy": 7.1}, *run_of(lambda step: loss, 1000, held_out=loss)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    with pytest.raises(ValueError, match=r"a reference must have left the line, 7\.10 nats, in its first phase"):
        reference_curves.make_reference(tmp_path, "slow")
