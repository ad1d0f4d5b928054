"""bert_training/pretraining/evaluation.py: the losses and accuracies on held-out text."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer, BertConfig

from bert_training.engine.loop import Step, StepCounts
from bert_training.pretraining import evaluation
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.evaluation import Progress, evaluate
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from modeling_bert_repro import BertForPreTraining


def test_evaluation_equals_that_of_transformers_in_one_batch(pretrained, text_file, make_run, tmp_path):
    """An evaluation in batches of 5, of a network with dropout, equals one batch of all instances."""
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    corpus = build_corpus([text_file], tokenizer, tmp_path / "corpus")
    held_out = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=0, fixed=True, max_seq_length=32))
    config = BertConfig.from_pretrained(pretrained, hidden_dropout_prob=0.5)
    run = make_run(per_device_eval_batch_size=5)
    run.args.max_eval_instances = 1000
    model = BertForPreTraining.from_pretrained(pretrained, config=config).train()
    model.config.sparse_prediction = True
    results = evaluate(run, model, held_out)
    batch = held_out.batch(0, held_out.epoch_size(0))
    labels, nsp = batch.pop("labels"), batch.pop("next_sentence_label")
    with torch.no_grad():
        outputs = AutoModelForPreTraining.from_pretrained(pretrained).eval()(**batch)
    expected = {}
    for name, logits, wanted in (
        ("mlm", outputs.prediction_logits[labels != -100], labels[labels != -100]),
        ("nsp", outputs.seq_relationship_logits, nsp),
    ):
        expected[f"eval_{name}_loss"] = float(torch.nn.functional.cross_entropy(logits, wanted))
        expected[f"eval_{name}_accuracy"] = float((logits.argmax(-1) == wanted).double().mean())
    expected["eval_loss"] = expected["eval_mlm_loss"] + expected["eval_nsp_loss"]
    expected["eval_perplexity"] = np.exp(expected["eval_mlm_loss"])
    assert results == pytest.approx(expected, rel=1e-5)
    run.args.max_eval_instances = 7
    assert evaluate(run, model, held_out)["eval_mlm_loss"] != results["eval_mlm_loss"]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("field", ["prediction_logits", "seq_relationship_logits"])
def test_instances_without_finite_outputs_are_named(
    pretrained, text_file, make_run, tmp_path, monkeypatch, field, sparse
):
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    corpus = build_corpus([text_file], tokenizer, tmp_path / "corpus")
    held_out = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=0, fixed=True, max_seq_length=32))
    run = make_run(per_device_eval_batch_size=5)
    run.args.max_eval_instances = 12
    model = BertForPreTraining.from_pretrained(pretrained)
    model.config.sparse_prediction = sparse
    original, calls = BertForPreTraining.forward, []

    def spoilt(self, *values, **options):
        outputs = original(self, *values, **options)
        calls.append(1)
        if len(calls) == 2:  # instances 5 to 9
            outputs[field].data[-1] = float("inf")
        return outputs

    monkeypatch.setattr(BertForPreTraining, "forward", spoilt)
    with pytest.raises(FloatingPointError, match=r"for 1 of 12 rows \(counted from 0: 9\)"):
        evaluate(run, model, held_out)


def test_an_epoch_is_recorded_before_the_checkpoint_of_its_step(monkeypatch):
    """A run that resumes from that checkpoint keeps the records from before it, and looks at later steps only."""
    order: list[str] = []
    monkeypatch.setattr(evaluation, "note_new_epochs", lambda *_: order.append("epoch"))
    speed, data = SimpleNamespace(timed=iter), SimpleNamespace(phases=[], streams=[])
    for _ in Progress.timed(SimpleNamespace(run=None, speed=speed, data=data), [SimpleNamespace(index=1)]):
        order.append("checkpoint")
    assert order == ["epoch", "checkpoint"]


def test_the_clock_counts_the_steps_alone(monkeypatch):
    """The test sets the clock: a step takes 0.05 s, and what the script does between two steps takes 0.1 s."""
    now = [0.0]
    monkeypatch.setattr(evaluation.time, "perf_counter", lambda: now[0])
    clock = evaluation.Throughput(torch.device("cpu"), 4)

    def steps():
        for index in (1, 2):
            now[0] += 0.05
            yield Step(index, 1.0, 1.0, 1.0, StepCounts(items=10, sequences=2, tokens=80, has_pairs=False), {})

    for _ in clock.timed(steps()):
        now[0] += 0.1  # the time of an evaluation
    assert clock.all.seconds == pytest.approx(0.1)
    assert clock.record() == {"seconds_per_step": pytest.approx(0.05), "tokens_per_second": pytest.approx(80 / 0.05)}
    assert clock.time_left() == "0:00:00"
    clock.total_steps = 2 + round(3723 / clock.all.seconds * 2)
    assert clock.time_left() == "1:02:03"
    assert clock.results()["peak_memory_gb"] > 0.05
