"""bert_training/networks/control.py: transformers' BERT with this project's weights and loss; the losses by hand.

tests/engine/test_loop.py trains both networks and compares their steps.
"""

import math

import pytest
import torch
import transformers
from transformers.modeling_outputs import QuestionAnsweringModelOutput, SequenceClassifierOutput

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
