"""bert_training/engine/throughput.py: FLOPs counted by hand and by torch, the clock of the steps, and the peak."""

import itertools

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig

from bert_training.engine import throughput
from bert_training.engine.loop import Step, StepCounts


def test_flops_of_bert_base_worked_by_hand():
    """One sequence of 128 tokens with 19 predictions in BERT-Base, written out product by product."""
    layer = 4 * (128 * 768 * 768)  # query, key, value and output
    layer += 2 * (128 * 128 * 768)  # the scores, and the sum of the values
    layer += 2 * (128 * 768 * 3072)  # the feed-forward network
    head = 19 * 768 * 768 + 19 * 768 * 30522
    expected = 3 * 2 * (12 * layer + head + 768 * 768)
    assert throughput.training_flops(BertConfig(), 128, 1, 19) == expected == 69_784_796_160


def test_flops_are_those_of_torchs_counter(small_config):
    """torch counts a forward and backward pass of transformers' network with all positions labelled. It also counts the
    small NSP head.
    """
    small_config._attn_implementation = "eager"
    model = transformers.BertForPreTraining(small_config)
    ids = torch.randint(5, 99, (3, 40))
    with FlopCounterMode(display=False) as counter:
        outputs = model(input_ids=ids, labels=ids, next_sentence_label=torch.zeros(3, dtype=torch.long))
        outputs.loss.backward()
    counted = throughput.training_flops(small_config, ids.numel(), 3, ids.numel())
    assert counter.get_total_flops() == pytest.approx(counted, rel=0.005)


def test_the_clock_counts_the_steps_alone(make_run, small_config, monkeypatch):
    """The test sets the clock: a step takes 0.05 s, and what the script does between two steps takes 0.1 s."""
    now = [0.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now[0])
    run = make_run()
    monkeypatch.setattr(throughput, "measured_peak", lambda *_: 2e12)
    clock = throughput.Throughput(run, small_config, 4)
    assert clock.peak == pytest.approx(2e12)

    def steps():
        for index in (1, 2):
            now[0] += 0.05
            yield Step(index, 1.0, 1.0, 1.0, StepCounts(items=10, sequences=2, tokens=80, has_pairs=False), {})

    for _ in clock.timed(steps()):
        now[0] += 0.1  # the time of an evaluation
    assert clock.all.seconds == pytest.approx(0.1)
    record = clock.record()
    assert record["seconds_per_step"] == pytest.approx(0.05)
    assert record["tokens_per_second"] == pytest.approx(80 / 0.05)
    flops = throughput.training_flops(small_config, 80, 2, 10)
    assert clock.results()["train_mfu"] == pytest.approx(2 * flops / clock.all.seconds / 2e12, rel=1e-6)
    assert clock.time_left() == "0:00:00"
    clock.total_steps = 2 + round(3723 / clock.all.seconds * 2)
    assert clock.time_left() == "1:02:03"
    assert clock.results()["peak_memory_gb"] > 0.05


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_the_measured_peak_is_that_of_the_largest_product(monkeypatch, precision):
    """The test sets the clock: everything takes a hundredth of a second."""
    monkeypatch.setattr(throughput, "_MEASURED_SECONDS", 0.15)
    ticks = itertools.count()
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: next(ticks) / 100)
    assert throughput.measured_peak(torch.device("cpu"), precision) == pytest.approx(2 * 1024**3 / 0.01)
    monkeypatch.undo()
    assert throughput.measured_peak(torch.device("cpu"), precision) > 1e7
