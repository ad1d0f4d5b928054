"""bert_training/pretraining/counted_weights.py: where new heads look, and what a new network predicts."""

import random

import pytest
import torch
from torch.nn.functional import cosine_similarity
from transformers import BertForMaskedLM as StockForMaskedLM

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.counted_weights import number_of_frequencies, places_of_heads, set_counted_weights
from modeling_bert_repro import BertForMaskedLM, BertForPreTraining
from tests.helpers.small_corpora import make_tokenizer

FOLLOWER = {"hello": "north", "hi": "south", "goodbye": "inland", "morning": "east"}
EXTRA = [*FOLLOWER, *FOLLOWER.values()]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(EXTRA)


@pytest.fixture(scope="module")
def corpus(tokenizer, tmp_path_factory):
    """After each greeting comes its own place; the order of the greetings is random."""
    folder, rng = tmp_path_factory.mktemp("text"), random.Random(0)
    lines = [" ".join(f"{word} {FOLLOWER[word]}" for word in rng.choices([*FOLLOWER], k=9)) + "." for _ in range(300)]
    (folder / "text.txt").write_text("\n\n".join(lines))
    return build_corpus([folder / "text.txt"], tokenizer, folder / "corpus")


@pytest.fixture
def config(small_config, tokenizer):
    """Four heads of 32 units in each layer, 512 positions."""
    small_config.update(
        {"vocab_size": len(tokenizer), "hidden_size": 128, "num_attention_heads": 4, "max_position_embeddings": 512}
    )
    small_config.initializer_range = 0.049
    return small_config


def counted(cls, config, corpus, seed=1):
    torch.manual_seed(seed)
    network = cls(config).eval()
    set_counted_weights(network, corpus, seed)
    return network


@torch.no_grad()
def first_attention(network, ids):
    """(heads, T, T) the attention of the first layer, recomputed from its weights."""
    config, base = network.config, network.base_model
    tables = base.embeddings
    states = tables.LayerNorm(
        tables.word_embeddings.weight[ids]
        + tables.position_embeddings.weight[: len(ids)]
        + tables.token_type_embeddings.weight[0]
    )
    layer = base.encoder.layer[0].attention.self
    size = config.hidden_size // config.num_attention_heads
    query, key = (part(states).unflatten(1, (-1, size)).transpose(0, 1) for part in (layer.query, layer.key))
    scores = query @ key.transpose(1, 2) / size**0.5
    if config.is_decoder:
        scores = scores.masked_fill(torch.ones(len(ids), len(ids)).triu(1).bool(), -torch.inf)
    return scores.softmax(dim=2)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_first_heads_look_at_the_nearest_places(seed, config, corpus):
    """At 512 positions with random pieces, whose embeddings are no part of the scores."""
    network = counted(BertForMaskedLM, config, corpus, seed)
    ids = torch.randint(5, config.vocab_size, (512,), generator=torch.Generator().manual_seed(seed))
    heads = first_attention(network, ids)
    assert places_of_heads(config) == [-1, 1, -2, 2]
    for place, attention in zip(places_of_heads(config), heads):
        looked = [i for i in range(512) if 0 <= i + place < 512]
        assert min(float(attention[i, i + place]) for i in looked) > 0.5


def test_a_left_to_right_model_looks_at_the_two_pieces_before_the_next(config, corpus):
    config.is_decoder = True
    network = counted(BertForMaskedLM, config, corpus)
    itself, before = first_attention(network, torch.randint(5, config.vocab_size, (100,)))[:2]
    assert places_of_heads(config) == [-1, -2]
    assert float(itself.diagonal().min()) > 0.5 and float(before[1:].diagonal().min()) > 0.5


@pytest.mark.parametrize(
    ("hidden_size", "heads", "frequencies", "places"),
    [
        (128, 2, 16, [-1, 1]),
        (256, 4, 16, [-1, 1, -2, 2]),
        (64, 4, 8, [-1, 1, -2, 2]),
        (32, 4, 0, []),
        (4, 1, 0, []),
    ],
)
def test_small_heads_have_few_frequencies_or_none(hidden_size, heads, frequencies, places, config):
    config.hidden_size, config.num_attention_heads = hidden_size, heads
    assert (number_of_frequencies(config), places_of_heads(config)) == (frequencies, places)
    config.num_hidden_layers = 0
    assert places_of_heads(config) == []


@pytest.mark.parametrize("cls", [BertForMaskedLM, BertForPreTraining, StockForMaskedLM])
def test_a_neighbour_predicts_a_masked_piece_before_the_first_step(cls, config, corpus, tokenizer):
    """The piece after "hello" is always "north" in the text, and the piece before "north" is always "hello"."""
    network = counted(cls, config, corpus)
    for greeting, place in FOLLOWER.items():
        for answer, around in ((place, "{0} {1} [MASK] {2}"), (greeting, "{2} [MASK] {3} {2}")):
            text = around.format(".", greeting, ".", place)
            batch = tokenizer(text, return_tensors="pt")
            masked = int((batch["input_ids"][0] == tokenizer.mask_token_id).nonzero())
            with torch.no_grad():
                output = network(**batch)
            logits = output["prediction_logits" if cls is BertForPreTraining else "logits"][0, masked]
            # The loss of a guess by frequency alone would be that of the bias; the neighbour raises the right answer.
            raised = logits - network.get_output_embeddings().bias
            same_kind = tokenizer.convert_tokens_to_ids([*(FOLLOWER.values() if answer == place else FOLLOWER)])
            assert int(raised[same_kind].argmax()) == [*FOLLOWER].index(greeting), (text, answer)


@pytest.mark.parametrize("cls", [BertForPreTraining, StockForMaskedLM])
def test_the_other_heads_add_a_part_of_the_average(cls, config, corpus):
    """With queries of 0 each position attends to all alike."""
    config.num_attention_heads = 8  # four of the first layer look at neighbours
    network = counted(cls, config, corpus)
    states = torch.randn(2, 7, config.hidden_size, generator=torch.Generator().manual_seed(2))
    average = states.mean(dim=1, keepdim=True).expand_as(states)
    for number, layer in enumerate(network.base_model.encoder.layer):
        attention = layer.attention
        torch.nn.init.zeros_(attention.self.query.weight)
        if number == 0:
            torch.nn.init.zeros_(attention.self.value.weight[:64])
        added = attention.output.dense(attention.self(states)[0]).detach()
        if number == 0:  # half of the heads add half of the average
            assert float(cosine_similarity(added, average, dim=-1).mean()) > 0.5
            assert float((added * average).sum() / average.square().sum()) == pytest.approx(0.245, abs=0.08)
        else:
            torch.testing.assert_close(added, 0.49 * average, atol=1e-5, rtol=0)
    values = [layer.attention.self.value.weight for layer in network.base_model.encoder.layer]
    assert not torch.allclose(values[0][64:], values[1][64:], atol=0.1)


def test_the_signs_of_a_decomposition_change_nothing(config, corpus, monkeypatch):
    """Another processor, or another number of threads, may return the vectors with other signs."""
    expected = counted(BertForPreTraining, config, corpus).state_dict()
    svd, eigh = torch.linalg.svd, torch.linalg.eigh

    def flipped_svd(matrix):
        left, strength, right = svd(matrix)
        return -left, strength, -right

    def flipped_eigh(matrix):
        values, vectors = eigh(matrix)
        return values, -vectors

    monkeypatch.setattr(torch.linalg, "svd", flipped_svd)
    monkeypatch.setattr(torch.linalg, "eigh", flipped_eigh)
    for name, tensor in counted(BertForPreTraining, config, corpus).state_dict().items():
        assert torch.equal(tensor, expected[name]), name
