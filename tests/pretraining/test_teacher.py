"""bert_training/pretraining/teacher.py: the loss of a student in pre-training, against sums by hand; exact in parts."""

import copy

import pytest
import torch
from torch.nn import functional as F

import modeling_bert_repro
from bert_training.engine.optimizer import parameter_groups
from bert_training.networks.control import control_of
from bert_training.networks.initial_weights import with_layers
from bert_training.pretraining.teacher import (
    PROJECTION,
    add_projection,
    extend,
    paired_layers,
    remove_projection,
    word_divergence,
)
from tests.helpers.bert_pairs import assert_same, gradients
from tests.helpers.small_networks import NO_DROPOUT, small_config
from tests.helpers.tiny_training import LabelledTokens

T, W = 3.0, 0.6
NAMES = ("BertForPreTraining", "BertForMaskedLM")


def network(name: str, seed=1, **changes):
    torch.manual_seed(seed)
    return getattr(modeling_bert_repro, name)(small_config(**NO_DROPOUT | changes)).double()


def taught(name: str, width=32, unpad: object = False, sparse=True, control=False):
    """A student of two layers and its teacher of four."""
    teacher = network("BertForMaskedLM", seed=2, num_hidden_layers=4, hidden_size=width, initializer_range=0.5).eval()
    teacher.config.unpad_inputs = unpad
    student = network(name)
    student.config.unpad_inputs, student.config.sparse_prediction = unpad, sparse
    if control:
        student = control_of(student).double()
    pairs = paired_layers(2, 4)
    if width != 32:
        add_projection(student, width, seed=0)
        student.double()
    extend(student, teacher, pairs, T, W)
    return student.train(), teacher, pairs


def batch_of(name: str, rows=6) -> dict[str, torch.Tensor]:
    """Rows of several lengths, of which each has another number of labels."""
    batch = LabelledTokens().batch(0, rows)
    lengths = 8 + 3 * torch.arange(rows)
    batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
    batch["labels"] = batch["labels"].masked_fill(batch["attention_mask"] == 0, -100)
    if name == "BertForMaskedLM":
        del batch["next_sentence_label"]
    return batch


def by_hand(student, teacher, pairs, batch) -> torch.Tensor:
    """The loss, from the plain outputs of both, position by position."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    own = student.eval()(**inputs, output_hidden_states=True)
    other = teacher(**inputs, output_hidden_states=True)
    student.train()
    scores = own["prediction_logits" if "prediction_logits" in own else "logits"]
    labelled = (batch["labels"] != -100).nonzero().tolist()
    words, soft = 0.0, 0.0
    for row, place in labelled:
        one, expected = scores[row, place], other.logits[row, place]
        words += F.cross_entropy(one, batch["labels"][row, place])
        soft += T**2 * F.kl_div((one / T).log_softmax(-1), (expected / T).softmax(-1), reduction="sum")
    loss = ((1 - W) * words + W * soft) / len(labelled)
    if "next_sentence_label" in batch:
        loss += F.cross_entropy(own.seq_relationship_logits, batch["next_sentence_label"])
    project = getattr(student, PROJECTION, torch.nn.Identity())
    for layer, paired in pairs:
        for row in range(len(scores)):
            real = batch["attention_mask"][row].bool()
            gap = project(own.hidden_states[layer][row, real]) - other.hidden_states[paired][row, real]
            loss += (gap**2).mean(1).sum() / batch["attention_mask"].sum() / len(pairs)
    return loss


@pytest.mark.parametrize("width", [32, 48], ids=["same width", "wider teacher"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["plain", "dense", "real tokens", "transformers"])
def test_the_loss_is_what_was_promised(name, width, how):
    options = {
        "plain": {},
        "dense": {"sparse": False},
        "real tokens": {"unpad": True},
        "transformers": {"control": True},
    }[how]
    student, teacher, pairs = taught(name, width, **options)
    batch = batch_of(name)
    outputs = student(**batch)
    expected = by_hand(student, teacher, pairs, batch)
    tolerance = 1e-5 if how == "transformers" else 1e-9  # the control computes the loss of its labels in float32
    torch.testing.assert_close(outputs.loss, expected, rtol=0, atol=tolerance)
    if how != "transformers":
        assert_same(gradients(student, student(**batch).loss), gradients(student, expected))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_equals_its_micro_batches(name):
    student, _, _ = taught(name, width=48)
    batch = batch_of(name)
    counts = {
        "num_items_in_batch": (batch["labels"] != -100).sum(),
        "num_tokens_in_batch": batch["attention_mask"].sum(),
    }
    if "next_sentence_label" in batch:
        counts["num_sequences_in_batch"] = 6
    whole = student(**batch).loss
    expected = gradients(student, whole)
    for size in (3, 1):
        parts = [
            student(**{key: value[i : i + size] for key, value in batch.items()}, **counts).loss
            for i in range(0, 6, size)
        ]
        torch.testing.assert_close(sum(parts), whole, rtol=0, atol=1e-10)
        assert_same(gradients(student, sum(parts)), expected)


def test_an_evaluation_is_that_of_the_student_alone():
    student, _, _ = taught("BertForPreTraining", width=48)
    batch, plain = batch_of("BertForPreTraining"), network("BertForPreTraining").eval()
    plain.load_state_dict({name: one for name, one in student.state_dict().items() if PROJECTION not in name})
    assert student.eval()(**batch).loss.item() == pytest.approx(plain(**batch).loss.item())


def test_the_projection_is_trained_decays_and_is_no_part_of_the_finished_network():
    student, _, _ = taught("BertForMaskedLM", width=48)
    student(**batch_of("BertForMaskedLM")).loss.backward()
    projection = getattr(student, PROJECTION)
    assert projection.weight.grad.abs().sum() > 0
    decayed, exempt = ({id(one) for one in group["params"]} for group in parameter_groups(student, 0.01))
    assert id(projection.weight) in decayed and id(projection.bias) in exempt
    assert len(decayed | exempt) == len([*student.parameters()])
    remove_projection(student)
    assert not [name for name in student.state_dict() if PROJECTION in name]
    remove_projection(student)


def test_layers_are_paired_evenly_or_as_they_were_kept():
    assert paired_layers(3, 6) == [(1, 2), (2, 4), (3, 6)] == paired_layers(3, 6, (0, 2, 4))
    assert paired_layers(4, 12) == [(1, 3), (2, 6), (3, 9), (4, 12)]  # TinyBERT's
    assert paired_layers(6, 12, (0, 2, 4, 7, 9, 11)) == [(1, 2), (2, 4), (3, 7), (4, 9), (5, 11), (6, 12)]
    assert paired_layers(2, 5) == [(1, 3), (2, 5)] and paired_layers(3, 2)[-1] == (3, 2)


def test_rows_that_round_the_vocabulary_up_stand_for_no_piece():
    scores, teacher = torch.randn(3, 10), torch.randn(3, 8)
    assert torch.equal(word_divergence(scores[:, :8], torch.cat([teacher, torch.randn(3, 2)], 1), T),
                       word_divergence(scores[:, :8], teacher, T))  # fmt: skip
    wasted = torch.cat([scores[:, :8], torch.full((3, 2), 5.0)], 1)
    assert (word_divergence(wasted, teacher, T) > word_divergence(scores[:, :8], teacher, T)).all()
    for temperature in (0.1, 0.3, 1.0, 100.0):
        for dtype in (torch.float32, torch.bfloat16):
            assert word_divergence(wasted.to(dtype), teacher.to(dtype), temperature).isfinite().all()


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForSequenceClassification", "BertForQuestionAnswering"])
def test_kept_layers_compute_what_they_computed(name):
    """The kept network is the other one without its other layers, which is how torch would do it."""
    whole = network(name, num_hidden_layers=4).eval()
    cut = copy.deepcopy(whole)
    cut.bert.encoder.layer = torch.nn.ModuleList([whole.bert.encoder.layer[number] for number in (0, 3)])
    kept = with_layers(whole, (0, 3)).double().eval()
    inputs = {"input_ids": torch.arange(5, 25).view(2, 10), "attention_mask": torch.ones(2, 10)}
    for one, other in zip(kept(**inputs).to_tuple(), cut(**inputs).to_tuple(), strict=True):
        assert torch.equal(one, other)
    assert kept.config.num_hidden_layers == 2 and whole.config.num_hidden_layers == 4
    with pytest.raises(ValueError, match="there is no layer 4"):
        with_layers(whole, (1, 4))
