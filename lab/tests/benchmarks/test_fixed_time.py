"""lab/benchmarks/fixed_time.py: its judge, its limit, its ledger, and a run of everything at tiny sizes."""

import json
from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig

from bert_training.engine.batches import IGNORED
from lab import tables
from lab.benchmarks import fixed_time
from modeling_bert_repro import BertForPreTraining


class Instances:
    """Four held-out pairs; transformers' network has seen none of them."""

    def __init__(self, labels):
        ids = torch.arange(5, 29).reshape(4, 6)
        masked = torch.full_like(ids, IGNORED)
        masked[:, 2] = ids[:, 2]
        self.batches = [
            {
                "input_ids": ids,
                "token_type_ids": torch.zeros_like(ids),
                "attention_mask": torch.ones_like(ids),
                "labels": masked,
                "next_sentence_label": torch.tensor(labels),
            }
        ]

    def loss(self, weights):
        assert "cls.predictions.bias" in weights
        return 1.5


@pytest.mark.parametrize("labels, right", [([1, 1, 1, 1], 1.0), ([1, 0, 0, 1], 0.5), ([0, 0, 0, 0], 0.0)])
def test_the_judge_counts_the_pairs_of_a_saved_folder(tmp_path, labels, right):
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    network = BertForPreTraining(BertConfig(vocab_size=40, **shape))
    torch.nn.init.zeros_(network.cls.seq_relationship.weight)
    network.cls.seq_relationship.bias.data.copy_(torch.tensor([0.0, 1.0]))  # every second half is a random one
    network.save_pretrained(tmp_path)
    assert fixed_time.judged(tmp_path, Instances(labels)) == {"loss": 1.5, "nsp_accuracy": right}


def test_a_run_that_takes_too_long_is_no_entry(tmp_path, monkeypatch):
    clock = iter([100.0, 405.0])
    monkeypatch.setattr(fixed_time.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(fixed_time.subprocess, "run", lambda *_, **__: None)
    args = fixed_time.parse(["--steps", "900", "--work_dir", str(tmp_path)])
    with pytest.raises(SystemExit, match="900 steps took 305 of 300 seconds; give fewer --steps"):
        fixed_time.make_run(args, 1, tmp_path)


def test_the_flags_of_an_entry_win(tmp_path):
    args = SimpleNamespace(
        steps=9, config_name="tiny", instances=32, length=64, flags="--phases 32:5,64:4 --dropout 0.1"
    )
    flags = fixed_time.flags_of(args, 7, tmp_path, tmp_path / "model")
    assert "--max_seq_length" not in flags and flags[-4:] == ["--phases", "32:5,64:4", "--dropout", "0.1"]


def entry(date, what, losses, tasks):
    rules = {"config_name": "tiny", "text": ["a text"], "seconds": 300.0, "steps": 2400}
    scores = {"pair": {"mean": 0.6}, "kind": {"mean": 0.4}, "questions": {"mean": 50.0}}
    runs = [
        {"loss": loss, "nsp_accuracy": 0.75, "tasks": scores, "tasks_mean": mean}
        for loss, mean in zip(losses, tasks, strict=True)
    ]
    return {"date": date, "what": what, "rules": rules, "runs": runs}


def test_the_ledger_compares_an_entry_with_the_one_before():
    """By hand: means 4 and 3, both variances 0.02, so t = -7.07 with 2 degrees of freedom, and p = 0.0097."""
    records = {
        "1": entry("2026-01-01", "first", [4.1, 3.9], [50.0, 52.0]),
        "2": entry("2026-01-02", "second", [3.1, 2.9], [50.0, 52.0]),
    }
    *_, second, first = tables.fixed_time(records).splitlines()
    assert first.split("|")[6:12] == [" 4.000 ", "  ", " 75.0 ", " 60.0 ", " 40.0 ", " 50.0 "]
    assert second.split("|")[6:9] == [" 3.000 ", " 0.0097 ", " 75.0 "] and second.split("|")[-2] == " 0.50 "


@pytest.mark.slow
def test_a_run_of_everything_at_tiny_sizes(tmp_path, capsys):
    fixed_time.main(["--smoke", "--work_dir", str(tmp_path)])
    (record,) = json.loads((tmp_path / "fixed_time.json").read_text()).values()
    (run,) = record["runs"]
    assert 3 < run["loss"] < 7 and 0 <= run["nsp_accuracy"] <= 1 and run["seconds"] < 300
    assert {name: task["n"] for name, task in run["tasks"].items()} == {"pair": 2, "kind": 2, "questions": 2}
    scores = {name: task["mean"] for name, task in run["tasks"].items()}
    assert 3 * run["tasks_mean"] == pytest.approx(100 * (scores["pair"] + scores["kind"]) + scores["questions"])
    assert "| what is new |" in capsys.readouterr().out
