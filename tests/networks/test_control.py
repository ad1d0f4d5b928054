"""bert_training/networks/control.py: transformers' BERT with this project's weights and loss; the losses by hand.

tests/engine/test_loop.py trains both networks and compares their steps.
"""

import math

import pytest
import torch
import transformers
from accelerate.utils import convert_outputs_to_fp32
from transformers.modeling_outputs import QuestionAnsweringModelOutput, SequenceClassifierOutput
from transformers.models.bert.modeling_bert import BertForPreTrainingOutput

import modeling_bert_repro
from bert_training.networks.control import control_of, with_exact_losses
from tests.helpers.bert_pairs import ours

LN3 = math.log(3)  # A logit of ln 3 beside one of 0 stands for the probabilities 3/4 and 1/4.


class Network:
    """A network that returns the outputs it was made with, and remembers what it was given."""

    def __init__(self, cls=SequenceClassifierOutput, **outputs):
        self.cls, self.outputs = cls, {name: torch.tensor(values) for name, values in outputs.items()}

    def forward(self, **batch):
        self.given = batch
        return self.cls(**self.outputs)


def loss(network: Network, **batch) -> float:
    return with_exact_losses(network).forward(**batch).loss.item()


def test_the_sum_over_labels_is_divided_by_the_count_that_is_given():
    """The losses of the two rows are ln(4/3) and ln 4; together ln(16/3)."""
    logits, labels = [[0.0, LN3], [0.0, LN3]], torch.tensor([1, 0])
    assert loss(Network(logits=logits), labels=labels, num_items_in_batch=8) == pytest.approx(math.log(16 / 3) / 8)
    assert loss(Network(logits=logits), labels=labels) == pytest.approx(math.log(16 / 3) / 2)


def test_ignored_labels_do_not_count():
    logits, labels = [[[0.0, LN3], [5.0, 0.0], [0.0, LN3]]], torch.tensor([[1, -100, 0]])
    assert loss(Network(logits=logits), labels=labels) == pytest.approx(math.log(16 / 3) / 2)


def test_regression_is_a_sum_of_squares():
    """The differences are 1 and 2."""
    network, labels = Network(logits=[[1.0], [3.0]]), torch.tensor([0.0, 1.0])
    assert loss(network, labels=labels) == pytest.approx(5 / 2)
    assert loss(Network(logits=[[1.0], [3.0]]), labels=labels, num_items_in_batch=10) == pytest.approx(5 / 10)


def test_masked_tokens_and_sentence_pairs_have_counts_of_their_own():
    network = Network(BertForPreTrainingOutput, prediction_logits=[[[0.0, LN3]]], seq_relationship_logits=[[0.0, LN3]])
    labels = {"labels": torch.tensor([[1]]), "next_sentence_label": torch.tensor([0])}
    outputs = with_exact_losses(network).forward(**labels, num_items_in_batch=4, num_sequences_in_batch=2)
    outputs = convert_outputs_to_fp32(lambda: outputs)()  # as in mixed precision
    assert outputs.mlm_loss.item() == pytest.approx(math.log(4 / 3) / 4)
    assert outputs.nsp_loss.item() == pytest.approx(math.log(4) / 2)
    assert outputs.loss.item() == pytest.approx(math.log(4 / 3) / 4 + math.log(4) / 2)


@pytest.mark.parametrize(("over_padding", "positions"), [(True, 4), (False, 3)])
def test_the_softmax_over_an_answer_may_include_padding(over_padding, positions):
    """All logits are 0, so that the probability of each of the positions is the same; one of four is padding."""
    network = Network(QuestionAnsweringModelOutput, start_logits=[[0.0] * 4], end_logits=[[0.0] * 4])
    batch = {"attention_mask": torch.tensor([[1, 1, 1, 0]]), "start_positions": torch.tensor([0])}
    outputs = with_exact_losses(network, over_padding).forward(**batch, end_positions=torch.tensor([2]))
    assert outputs.loss.item() == pytest.approx(math.log(positions))


def test_the_network_computes_no_loss_of_its_own():
    """With labels, transformers' heads would compute their mean, which nobody reads."""
    network, ids = Network(logits=[[0.0, LN3]]), torch.ones(1, 3)
    loss(network, input_ids=ids, labels=torch.tensor([1]), num_items_in_batch=1)
    assert list(network.given) == ["input_ids"]


def test_the_control_is_transformers_class_with_the_same_weights(small_config):
    torch.manual_seed(0)
    model = modeling_bert_repro.BertForSequenceClassification(small_config)
    model.config.auto_map = {"AutoModel": "modeling_bert.BertModel"}
    control = control_of(model)
    assert type(control) is transformers.BertForSequenceClassification
    state = model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in control.state_dict().items())
    assert not hasattr(control.config, "auto_map") and model.config.auto_map
    with torch.no_grad():
        control.classifier.bias += 1
    assert not torch.equal(control.classifier.bias, model.classifier.bias)  # Each has weights of its own.


def test_a_score_of_minus_100_is_a_label():
    torch.manual_seed(0)
    network = ours("BertForSequenceClassification", "sdpa", num_labels=1, problem_type="regression").eval()
    batch = {"input_ids": torch.arange(6).view(2, 3), "labels": torch.tensor([-100.0, 1.0], dtype=torch.float64)}
    expected = network(**batch).loss
    control = control_of(network).eval()
    torch.testing.assert_close(control(**batch).loss, expected, check_dtype=False, rtol=1e-6, atol=0)
