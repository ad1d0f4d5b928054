"""bert_training/pretraining/counted_weights.py: counts beside an independent count, and what becomes of a network."""

import math
import random

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity
from transformers import BertForMaskedLM as StockForMaskedLM

from bert_training.pretraining import counted_weights
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.corpus import unigram_entropy
from bert_training.pretraining.counted_weights import (
    associations,
    count_followers,
    count_neighbours,
    counted_directions,
    log_shares,
    most_frequent,
    number_of_frequencies,
    set_counted_weights,
)
from bert_training.pretraining.network import mixed_counts
from modeling_bert_repro import BertForMaskedLM, BertForPreTraining
from tests.helpers.small_corpora import make_tokenizer, random_documents

GREETINGS, PLACES = ("hello", "hi", "goodbye"), ("north", "south", "inland")
EXTRA = [*GREETINGS, *PLACES, "never"]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(EXTRA)


def corpus_of(documents, tokenizer, folder):
    """The corpus of documents, each of which is a list of paragraphs."""
    file = folder / "text.txt"
    file.write_text("\n\n".join("\n".join(document) for document in documents))
    return build_corpus([file], tokenizer, folder / "corpus")


@pytest.fixture
def corpus(tokenizer, tmp_path):
    return corpus_of(random_documents(30), tokenizer, tmp_path)


@pytest.fixture
def two_topics(tokenizer, tmp_path):
    """Each sentence has words of one topic, in any order; the corpus contains "never" nowhere."""
    rng = random.Random(0)
    documents = [
        [" ".join(rng.choices(topic, k=12)) + "." for _ in range(4)] for topic in (GREETINGS, PLACES) for _ in range(60)
    ]
    rng.shuffle(documents)
    return corpus_of(documents, tokenizer, tmp_path)


@pytest.fixture
def small_config(small_config):
    """Wide enough for position embeddings that are sinusoids."""
    small_config.update({"hidden_size": 64, "num_attention_heads": 4})
    return small_config


def counted_slowly(corpus, columns, blocks=(0,), size=1 << 40):
    """The same counts with loops over documents and pairs; both pieces of a pair are in the same one of the blocks."""
    special, found = set(corpus.special_ids), np.zeros((len(corpus.unigrams), len(columns)))
    for first, last in zip(corpus.shards[0].documents[:-1], corpus.shards[0].documents[1:]):
        begin = int(corpus.shards[0].sentences[first])
        ids = corpus.shards[0].tokens[begin : corpus.shards[0].sentences[last]].tolist()
        for i, piece in enumerate(ids):
            for distance in counted_weights.DISTANCES:
                for j in (i - distance, i + distance):
                    together = (begin + i) // size == (begin + j) // size and (begin + i) // size in blocks
                    if 0 <= j < len(ids) and together and ids[j] in columns and piece not in special:
                        found[piece, columns.index(ids[j])] += 1
    return found


def test_neighbours_are_counted_within_documents(corpus):
    columns = [9, 7, 12, 20]
    found = count_neighbours(corpus, torch.tensor(columns))
    assert found.sum() > 100
    np.testing.assert_array_equal(found.numpy(), counted_slowly(corpus, columns))


@pytest.mark.parametrize("blocks", ["all", "ten"])
def test_a_long_corpus_is_counted_in_blocks_that_are_spread_over_it(corpus, monkeypatch, blocks):
    """Pairs across the edge of a block are not counted."""
    columns, size = [9, 7, 12, 20], 50
    monkeypatch.setattr(counted_weights, "BLOCK", size)
    monkeypatch.setattr(counted_weights, "MOST_TOKENS", size * (10 if blocks == "ten" else corpus.num_tokens))
    begins = [begin for _, begin in counted_weights._blocks(corpus)]
    if blocks == "all":
        assert begins == [*range(0, corpus.num_tokens, size)]
    else:
        assert (len(begins), begins[0]) == (10, 0) and 0 <= corpus.num_tokens - begins[-1] < corpus.num_tokens / 5
    found = count_neighbours(corpus, torch.tensor(columns))
    expected = counted_slowly(corpus, columns, {begin // size for begin in begins}, size)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_information_worked_by_hand(monkeypatch):
    """The rows have 12 and 8 pairs, the columns 16 and 4; their roots are 4 and 2, and the shares of these 2/3 and 1/3.

    So the values are log(1 / (2/3)) = log 1.5 and log 0, then log(1/2 / (2/3)) < 0 and log(1/2 / (1/3)) = log 1.5. What
    is below 0 becomes 0.
    """
    monkeypatch.setattr(counted_weights, "SMOOTHING", 0.5)
    found = counted_weights._to_ppmi(torch.tensor([[12.0, 0], [4, 4], [0, 0]]))
    torch.testing.assert_close(found, torch.tensor([[math.log(1.5), 0], [0, math.log(1.5)], [0, 0]]))


def test_the_bias_alone_has_the_loss_of_the_unigrams(corpus):
    shares = log_shares(corpus)
    assert float(shares.exp().sum()) == pytest.approx(1)
    counts = torch.from_numpy(corpus.unigrams.astype(np.float64))
    counts[corpus.special_ids] = 0
    loss = -float((counts / counts.sum() * shares).sum())
    assert unigram_entropy([corpus], [1.0]) <= loss < unigram_entropy([corpus], [1.0]) + 0.05
    assert set(shares[corpus.special_ids].tolist()) == {float(shares.min())}


def test_pieces_with_like_neighbours_get_like_vectors(two_topics, tokenizer):
    found = counted_directions(two_topics, most_frequent(two_topics), 2)  # one dimension for each topic
    vectors = dict(zip(EXTRA, found[tokenizer.convert_tokens_to_ids(EXTRA)]))
    alike = [cosine_similarity(vectors["hello"], vectors[word], dim=0) for word in GREETINGS]
    different = [cosine_similarity(vectors["hello"], vectors[word], dim=0) for word in PLACES]
    assert min(alike) > 0.9 and max(different) < 0.1
    assert not vectors["never"].any() and not found[two_topics.special_ids].any()


def test_followers_are_counted_within_documents(corpus):
    columns, found = [9, 7, 12, 20], np.zeros((4, 4))
    for first, last in zip(corpus.shards[0].documents[:-1], corpus.shards[0].documents[1:]):
        ids = corpus.shards[0].tokens[corpus.shards[0].sentences[first] : corpus.shards[0].sentences[last]].tolist()
        for earlier, later in zip(ids, ids[2:]):
            if earlier in columns and later in columns:
                found[columns.index(earlier), columns.index(later)] += 1
    assert found.sum() > 10
    counts = count_followers(corpus, torch.tensor(columns), [1, 2])
    assert set(counts) == {1, 2}
    np.testing.assert_array_equal(counts[2].numpy(), found)


def test_associations_are_fitted_to_the_information_of_their_place(corpus):
    """With as many units as pieces the fit is exact, and a place before a piece has the roles exchanged."""
    frequent = torch.tensor([9, 7, 12, 20])
    vectors = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    found = associations(corpus, frequent, vectors, [-1, 1, -2])
    assert set(found) == {-1, 1, -2}
    after = count_followers(corpus, frequent, [1, 2])
    for place, counts in ((1, after[1]), (-1, after[1].T), (-2, after[2].T)):
        expected = counted_weights._to_ppmi(counts.clone())
        torch.testing.assert_close(vectors @ found[place] @ vectors.T, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("cls", [BertForPreTraining, BertForMaskedLM, StockForMaskedLM])
def test_a_network_gets_counted_rows_and_keeps_the_others(cls, small_config, two_topics, tokenizer):
    small_config.vocab_size = len(tokenizer)
    network = cls(small_config)
    table = network.get_input_embeddings().weight
    before = table.detach().clone()
    rng = torch.get_rng_state()
    assert set_counted_weights(network, two_topics, seed=1) == len(GREETINGS) + len(PLACES) + 1  # and the full stop
    assert torch.equal(torch.get_rng_state(), rng)  # what comes after it draws the same numbers
    counted = [*tokenizer.convert_tokens_to_ids([*GREETINGS, *PLACES, "."])]
    others = [number for number in range(len(tokenizer)) if number not in counted]
    changed = table.detach()[others] - before[others]  # by their part of the subspace of the positions
    assert int(torch.linalg.matrix_rank(changed)) == 2 * number_of_frequencies(small_config)
    waves = network.base_model.embeddings.position_embeddings.weight.detach()
    types = network.base_model.embeddings.token_type_embeddings.weight.detach()
    assert float((torch.cat([table.detach(), types]) @ waves.T).abs().max()) < 1e-5
    assert not table[small_config.pad_token_id].any()
    length = small_config.initializer_range * small_config.hidden_size**0.5
    assert table[counted].norm(dim=1).tolist() == pytest.approx([length] * len(counted))
    output = network.get_output_embeddings()
    assert output.weight is table and torch.equal(output.bias, log_shares(two_topics).float())
    assert torch.equal(network.state_dict()["cls.predictions.bias"], output.bias)


def test_a_left_to_right_model_predicts_unknown_pieces(small_config, tokenizer, tmp_path):
    corpus = corpus_of([["hello unheard north", "hi unheard"], ["hello hi"]], tokenizer, tmp_path)
    unknown, rare = tokenizer.unk_token_id, tokenizer.mask_token_id
    assert float(log_shares(corpus)[unknown]) == float(log_shares(corpus)[rare])
    small_config.vocab_size, small_config.is_decoder = len(tokenizer), True
    network = BertForMaskedLM(small_config)
    set_counted_weights(network, corpus, seed=1)
    bias = network.get_output_embeddings().bias.detach()
    assert float((bias[unknown] - bias[rare]).exp()) == pytest.approx((2 + 0.5) / 0.5)


def test_a_text_of_one_word_leaves_the_embeddings_random(tokenizer, tmp_path, small_config):
    small_config.vocab_size = len(tokenizer)
    network = BertForMaskedLM(small_config)
    before = network.get_input_embeddings().weight.detach().clone()
    corpus = corpus_of([["hello hello hello"], ["hello hello"]], tokenizer, tmp_path)
    assert set_counted_weights(network, corpus, seed=1) == 0
    changed = (network.get_input_embeddings().weight - before).detach()
    assert int(torch.linalg.matrix_rank(changed)) == 2 * number_of_frequencies(small_config)
    assert int(network.get_output_embeddings().bias.argmax()) == tokenizer.convert_tokens_to_ids("hello")


def test_counts_above_the_integers_of_float32(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(counted_weights, "DISTANCES", (1,) * 1000)  # As if there were 1,000 times as much text.
    corpus = corpus_of([["hello " * 10_000], ["hi hello"]], tokenizer, tmp_path)
    piece = int(most_frequent(corpus)[0])
    pairs = 1000 * (int(corpus.unigrams[piece]) - 2)  # The only one of the second document has no equal beside it.
    assert float(count_neighbours(corpus, torch.tensor([piece]))[piece, 0]) == 2 * pairs > 2**24


def test_counts_of_a_mixture_follow_its_shares(tokenizer, tmp_path):
    corpora = []
    for name, document in (("a", ["hello hello hi"]), ("b", ["north south"] * 30)):
        (tmp_path / name).mkdir()
        corpora.append(corpus_of([document], tokenizer, tmp_path / name))
    sizes = [corpus.unigrams.sum() for corpus in corpora]
    counts = mixed_counts(corpora, [0.75, 0.25])
    for corpus, share in zip(corpora, (0.75, 0.25)):
        assert counts[corpus.unigrams > 0].sum() == pytest.approx(share * sum(sizes))
    assert np.array_equal(mixed_counts(corpora[:1], [1.0]), corpora[0].unigrams)
    assert np.array_equal(mixed_counts(corpora, [1.0, 0.0]), corpora[0].unigrams)
