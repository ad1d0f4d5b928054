"""bert_training/networks/new_rows.py: rows for new pieces and positions, which change nothing else, and a made head."""

import copy

import pytest
import torch

from bert_training.networks.new_rows import (
    NEVER,
    make_head,
    more_positions,
    origins_of,
    output_bias,
    set_bias_of_head,
    set_counted_biases,
    set_rows_of_pieces,
    size_config,
    with_rows,
)
from modeling_bert_repro import BertForPreTraining
from tests.helpers.small_networks import NO_DROPOUT, small_config
from tokenization import build_tokenizer
from tokenization.extend_vocabulary import extend_vocabulary

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "a", "b", "##a", "##b", "##ba"]
OWN = build_tokenizer(PIECES)
EXTENDED = extend_vocabulary(OWN, None, ["abba", "##ab", "xy"]).tokenizer  # in row 5, and appended
ORIGINS = {5: [6, 9, 10], 11: [8, 9], 12: []}


@pytest.fixture
def network() -> BertForPreTraining:
    torch.manual_seed(0)
    network = BertForPreTraining(small_config(vocab_size=len(PIECES), **NO_DROPOUT)).eval()
    torch.nn.init.normal_(network.cls.predictions.bias)
    return network


def extended(network: BertForPreTraining, **options) -> BertForPreTraining:
    config = copy.deepcopy(network.config)
    size_config(config, len(EXTENDED), ORIGINS, **options)
    return with_rows(network, config)


def test_the_old_pieces_of_the_new_rows():
    assert origins_of(EXTENDED, OWN) == ORIGINS
    assert origins_of(OWN, OWN) == origins_of(OWN, None) == {}


@pytest.mark.parametrize("positions", [None, 100])
def test_texts_without_new_pieces_have_the_same_outputs_to_the_last_bit(network, positions):
    larger = extended(network, multiple=8, positions=positions)
    set_rows_of_pieces(larger, ORIGINS, unknown=1)
    set_counted_biases(larger, ORIGINS, torch.arange(float(len(EXTENDED))))
    assert (larger.config.vocab_size, larger.config.max_position_embeddings) == (16, positions or 48)
    ids = torch.tensor([[6, 7, 8, 9] * 12, [10, 4, 1, 2] * 12])
    before, after = (model.bert(ids).last_hidden_state for model in (network, larger))
    assert torch.equal(before, after)
    logits = larger(ids).prediction_logits
    torch.testing.assert_close(logits[..., 6:11], network(ids).prediction_logits[..., 6:11])
    assert logits.softmax(-1)[..., 13:].max() == 0, "rows that round the table up are predicted"
    assert output_bias(larger)[13] == NEVER


def test_a_new_piece_begins_as_the_mean_of_its_pieces(network):
    old, bias = network.bert.embeddings.word_embeddings.weight.clone(), network.cls.predictions.bias.clone()
    larger = extended(network)
    set_rows_of_pieces(larger, ORIGINS, unknown=1)
    table = larger.get_input_embeddings().weight
    torch.testing.assert_close(table[5], (old[6] + old[9] + old[10]) / 3)
    assert torch.equal(table[12], old[1]), "a word that was [UNK] does not begin as [UNK]"
    assert larger.cls.predictions.decoder.weight is table
    torch.testing.assert_close(larger.cls.predictions.bias[11], (bias[8] + bias[9]) / 2)


def test_the_bias_of_a_new_piece_is_as_far_from_its_count_as_the_biases_of_its_pieces(network):
    """If the biases are the logarithms of the counts, so is that of the new piece."""
    larger = extended(network)
    counts = torch.tensor([0, 4, 0, 0, 0, 8, 20, 30, 5, 0, 1, 3, 2.0])
    before = counts.clone()
    before[[6, 9, 10]] += 8
    before[[8, 9]] += 3
    with torch.no_grad():
        larger.cls.predictions.bias.copy_((before + 0.5).log())
    set_counted_biases(larger, ORIGINS, counts)
    torch.testing.assert_close(larger.cls.predictions.bias[[5, 11, 12]], (counts[[5, 11, 12]] + 0.5).log())


def test_new_positions():
    table = torch.arange(8.0).view(4, 2)
    assert more_positions(table, 6)[:, 0].tolist() == [0, 2, 4, 6, 0, 2]


def test_a_made_head_ranks_pieces_by_their_embeddings(network):
    make_head(network)
    set_bias_of_head(network, torch.zeros(len(PIECES)))
    states = network.bert(torch.tensor([[6, 7, 8]])).last_hidden_state
    found = network.cls.predictions(states)
    normal = torch.nn.functional.layer_norm(states, states.shape[-1:])
    expected = normal @ network.bert.embeddings.word_embeddings.weight.T
    assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.999
    assert found.std().item() == pytest.approx(expected.std().item(), rel=0.01), "logits of another length learn slowly"
