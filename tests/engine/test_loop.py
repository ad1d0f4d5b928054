"""bert_training/engine/loop.py: exact accumulation, dropout by step, clipping, divergence, and the control network."""

import numpy as np
import pytest
import torch
import transformers
from torch.optim.lr_scheduler import LambdaLR

import modeling_bert_repro
from bert_training.engine.batches import Features, step_batches
from bert_training.engine.checkpoint import UNKNOWN, TrainingState
from bert_training.engine.loop import labelled_items, step_counts, training_steps
from bert_training.networks.control import control_of, with_exact_losses
from bert_training.networks.initial_weights import prepare_for_training
from tests.helpers.tiny_training import LabelledTokens

# Relative, for networks in float64: losses are reported in float32, and the control computes its losses in float32.
LOSS_ROUNDING = 1e-6
GRADIENT_ROUNDING = 2e-7
CUTS = [(16, 1), (4, 4), (8, 2), (1, 16)]


def constant_schedule(optimizer):
    return LambdaLR(optimizer, lambda step: 1.0)


def train(run, model, source, steps, start=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = step_batches(source, run, start, steps)
    state = TrainingState(model, optimizer, constant_schedule(optimizer), steps, UNKNOWN)
    return list(training_steps(run, state, batches, max_grad_norm=run.args.max_grad_norm, start_step=start))


def new_model(config, cls=modeling_bert_repro.BertForPreTraining, dropout=0.0):
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    torch.manual_seed(0)
    return cls(config)


def test_accumulation_is_exact(make_run, small_config):
    """A global batch of 16 gives the same loss, gradient norm and weights, however it is divided.

    In float64 only the order of additions makes a difference, below 1e-12. A mean of means would be wrong by more than
    1e-3 here.
    """
    outcomes = []
    for size, count in CUTS:
        model = new_model(small_config).double()
        run = make_run(per_device_train_batch_size=size, gradient_accumulation_steps=count)
        steps = train(run, model, LabelledTokens(), 2)
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        outcomes.append((steps, weights))
    for steps, weights in outcomes[1:]:
        for ours, first in zip(steps, outcomes[0][0]):
            assert ours.loss == pytest.approx(first.loss, abs=2e-6)  # The loss is reported in float32.
            assert ours.grad_norm == pytest.approx(first.grad_norm, rel=1e-10)
        torch.testing.assert_close(weights, outcomes[0][1], rtol=0, atol=1e-12)


def test_loss_is_the_sum_over_labels_over_their_count(make_run, small_config):
    """It is compared with the cross-entropy of the logits of the whole global batch."""
    model = new_model(small_config)
    batch = LabelledTokens().batch(0, 16)
    with torch.no_grad():
        out = model(**{k: v for k, v in batch.items() if "label" not in k})
    mlm = torch.nn.functional.cross_entropy(out.prediction_logits.flatten(0, 1), batch["labels"].flatten())
    nsp = torch.nn.functional.cross_entropy(out.seq_relationship_logits, batch["next_sentence_label"])
    step = train(make_run(per_device_train_batch_size=4, gradient_accumulation_steps=4), model, LabelledTokens(), 1)
    assert step[0].loss == pytest.approx(float(mlm + nsp), rel=1e-5)
    assert step[0].parts == pytest.approx({"mlm_loss": float(mlm), "nsp_loss": float(nsp)}, rel=1e-5)
    assert step[0].counts.tokens == 16 * 24


def test_dropout_depends_on_the_step_not_on_the_past(make_run, small_config):
    """A run that starts at step 3 draws the random numbers that an uninterrupted run draws there."""
    model = new_model(small_config, dropout=0.3)
    whole = train(make_run(), model, LabelledTokens(), 2)
    copy = new_model(small_config, dropout=0.3)
    copy.load_state_dict(model.state_dict())
    third = train(make_run(), model, LabelledTokens(), 3, start=2)
    torch.rand(7)
    again = train(make_run(), copy, LabelledTokens(), 3, start=2)
    assert [s.index for s in whole + third] == [1, 2, 3]
    assert third[0].loss == again[0].loss
    other_seed = train(make_run(seed=1), copy, LabelledTokens(), 3, start=2)
    assert other_seed[0].loss != again[0].loss


def test_each_step_and_process_draws_its_own_masks(make_run, small_config):
    class Same:
        def batch(self, start, stop):
            return LabelledTokens().batch(0, 4)

    def loss(start, rank):
        run = make_run()
        run.rank = rank
        return train(run, new_model(small_config, dropout=0.3), Same(), start + 1, start)[0].loss

    assert len({loss(0, 0), loss(1, 0), loss(0, 1)}) == 3


def test_a_batch_that_cannot_be_fetched_does_not_undo_the_step_before(make_run, small_config):
    """What the caller does after that step, such as saving, is done first."""
    run, model, done = make_run(), new_model(small_config), []

    class Source(LabelledTokens):
        def batch(self, start, stop):
            if start == 2 * (stop - start):
                raise OSError("the disk is gone")
            return super().batch(start, stop)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = TrainingState(model, optimizer, constant_schedule(optimizer), 4, UNKNOWN)
    with pytest.raises(OSError, match="the disk is gone"):
        for step in training_steps(run, state, step_batches(Source(), run, 0, 4), max_grad_norm=1.0):
            done.append((step.index, state.totals.steps))
    assert done == [(1, 1), (2, 2)]


def test_gradients_are_clipped_unless_the_limit_is_0(make_run, small_config):
    def moved(limit):
        model = new_model(small_config)
        before = torch.cat([p.detach().flatten().clone() for p in model.parameters()])
        step = train(make_run(max_grad_norm=limit), model, LabelledTokens(), 1)[0]
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        return step.grad_norm, float((after - before).norm())

    norm, free = moved(0.0)
    assert free == pytest.approx(0.1 * norm, rel=1e-4)
    reported, clipped = moved(norm / 2)
    assert reported == pytest.approx(norm, rel=1e-5)  # The norm before clipping is reported.
    assert clipped == pytest.approx(0.05 * norm, rel=1e-3)


def test_a_loss_that_is_not_finite_stops_before_the_update(make_run, small_config):
    """In step 2 of 4 x 2 instances, position 13 contains a token with infinite weights."""
    model = new_model(small_config)
    poisoned = 98
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[poisoned] = float("inf")

    class Source(LabelledTokens):
        def batch(self, start, stop):
            batch = super().batch(start, stop)
            batch["input_ids"].clamp_(max=97)
            batch["labels"].clamp_(max=97)
            if start <= 13 < stop:
                batch["input_ids"][13 - start, 1] = poisoned
            return batch

    seen = {}
    with pytest.raises(FloatingPointError) as stop:
        run = make_run(per_device_train_batch_size=4, gradient_accumulation_steps=2)
        optimizer = torch.optim.SGD([model.bert.pooler.dense.weight], lr=0.1)
        # Without this, the infinite weights of the tied embeddings would make the loss of step 1 infinite.
        model.cls.predictions.decoder.weight = torch.nn.Parameter(torch.randn(99, 32))
        batches = step_batches(Source(), run, 0, 3)
        state = TrainingState(model, optimizer, constant_schedule(optimizer), 3, UNKNOWN)
        for step in training_steps(run, state, batches, max_grad_norm=1.0):
            seen[step.index] = model.bert.pooler.dense.weight.detach().clone()
    assert list(seen) == [1] and torch.equal(seen[1], model.bert.pooler.dense.weight)
    said = "step 2: the loss is nan, the gradient norm nan; the weights are still those of step 1."
    assert str(stop.value).startswith(said)


def test_a_gradient_that_is_not_finite_stops_before_the_update(make_run, small_config):
    model = new_model(small_config)
    model.bert.pooler.dense.bias.register_hook(lambda gradient: gradient * float("inf"))
    before = model.bert.pooler.dense.weight.detach().clone()
    with pytest.raises(
        FloatingPointError, match=r"^step 1: .* the gradient norm (inf|nan); the weights are still .* 0"
    ):
        train(make_run(), model, LabelledTokens(), 1)
    assert torch.equal(before, model.bert.pooler.dense.weight)


@pytest.mark.parametrize("implementation", ["repro", "transformers"])
def test_gradient_checkpointing_changes_nothing_but_memory(make_run, small_config, implementation):
    """The layer that is computed again draws the same dropout masks. Losses, norms and weights are bit-equal."""

    def outcome(again):
        run = make_run(gradient_accumulation_steps=2, gradient_checkpointing=again)
        model = new_model(small_config, dropout=0.2)
        model = control_of(model) if implementation == "transformers" else model
        prepare_for_training(model, run.args)
        calls = [0]
        model.bert.encoder.layer[0].attention.register_forward_hook(lambda *_: calls.__setitem__(0, calls[0] + 1))
        steps = train(run, model, LabelledTokens(), 2)
        return calls[0], [(step.loss, step.grad_norm) for step in steps], list(model.parameters())

    plain, recomputed = outcome(False), outcome(True)
    assert (plain[0], recomputed[0]) == (4, 8)
    assert plain[1] == recomputed[1]
    assert all(torch.equal(a, b) for a, b in zip(plain[2], recomputed[2]))


def features(count, dtype, extra):
    g = np.random.default_rng(0)
    rows = [g.integers(5, 99, g.integers(3, 20)).tolist() for _ in range(count)]
    columns = {"input_ids": rows, "token_type_ids": [[0] * len(r) for r in rows]}
    return Features(columns | {name: g.integers(0, 3, count).astype(dtype).tolist() for name in extra}, 0)


class LabelledPieces:
    """A source for heads with a label for each piece: the tokens of LabelledTokens, with labels below ``classes``."""

    def __init__(self, classes):
        self.classes = classes

    def batch(self, start, stop):
        batch = LabelledTokens().batch(start, stop)
        del batch["next_sentence_label"]
        batch["labels"] = batch["labels"].where(batch["labels"] == -100, batch["labels"] % self.classes)
        return batch


class Choices:
    """Three endings for each instance, one of which is right; every fifth instance has no label."""

    def batch(self, start, stop):
        g = np.random.default_rng(start)
        ids = torch.from_numpy(g.integers(5, 99, (stop - start, 3, 20)))
        labels = torch.tensor([-100 if place % 5 == 4 else place % 3 for place in range(start, stop)])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


HEADS = [
    ("BertForSequenceClassification", 3, features(40, int, ["labels"])),
    ("BertForSequenceClassification", 1, features(40, float, ["labels"])),
    ("BertForQuestionAnswering", 2, features(40, int, ["start_positions", "end_positions"])),
    ("BertForMaskedLM", 2, LabelledPieces(99)),
    ("BertForTokenClassification", 5, LabelledPieces(5)),
    ("BertForMultipleChoice", 2, Choices()),
]


@pytest.mark.parametrize(("name", "num_labels", "source"), HEADS)
def test_control_takes_the_same_steps(make_run, small_config, name, num_labels, source):
    """transformers' network in our loop, with accumulation, has the same losses and gradient norms."""
    small_config.num_labels = num_labels
    run = make_run(gradient_accumulation_steps=3)
    ours = new_model(small_config, getattr(modeling_bert_repro, name)).double()
    theirs = new_model(small_config, getattr(transformers, name)).double()
    theirs.load_state_dict(ours.state_dict())
    theirs = with_exact_losses(theirs)
    for a, b in zip(train(run, ours, source, 3), train(run, theirs, source, 3), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=LOSS_ROUNDING)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=GRADIENT_ROUNDING)


def test_control_takes_the_same_pretraining_steps(make_run, small_config):
    run = make_run(gradient_accumulation_steps=3)
    ours = new_model(small_config).double()
    theirs = with_exact_losses(new_model(small_config, transformers.BertForPreTraining).double())
    theirs.load_state_dict(ours.state_dict())
    ours.config.sparse_prediction = True
    for a, b in zip(train(run, ours, LabelledTokens(), 3), train(run, theirs, LabelledTokens(), 3), strict=True):
        assert a.loss == pytest.approx(b.loss, rel=LOSS_ROUNDING)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=GRADIENT_ROUNDING)
        assert a.parts == pytest.approx(b.parts, rel=LOSS_ROUNDING)


def test_counts_cover_all_micro_batches_of_a_step(make_run):
    run = make_run()
    micro_batches = [LabelledTokens().batch(0, 3), LabelledTokens().batch(3, 6)]
    counts = step_counts(micro_batches, run.accelerator)
    items = 1 + 2 + 3 + 4 + 5 + 6
    assert (counts.items, counts.sequences, counts.tokens) == (items, 6, 6 * 24)
    assert counts.model_arguments() == {"num_items_in_batch": items, "num_sequences_in_batch": 6}


def test_every_score_is_a_label_and_minus_100_is_one_only_among_classes():
    scores, weights = torch.tensor([-100.0, 3.0, 0.5]), torch.tensor([2.0, 1.0, 1.0])
    assert labelled_items({"labels": scores}) == 3 and labelled_items({"labels": scores.long()}) == 2
    assert labelled_items({"labels": scores, "loss_weights": weights}) == 4
    assert labelled_items({"labels": scores.long(), "loss_weights": weights}) == 2
