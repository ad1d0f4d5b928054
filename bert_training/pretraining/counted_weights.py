"""Initial weights from counts of the training text (``--initial_weights counted``).

A short run with random weights spends most of its time on learning how frequent the pieces are, which of them are
alike, and that a masked piece has to do with its neighbours. All of it can be counted in seconds:

- The output bias becomes the logarithm of each piece's share of the text.
- The word embeddings factorise the positive pointwise mutual information (PPMI) of pieces that occur near each other.
  Those of word2vec do something close (Levy and Goldberg 2014, "Neural Word Embedding as Implicit Matrix
  Factorization").
- For the places next to a piece, matrices are fitted by least squares, with which the embedding of the neighbour
  predicts the piece. They become the first heads of the first layer, which look at these places by sinusoidal position
  embeddings; the other heads average the context (initial_attention.py).
- The transform of the head begins as a small multiple of the identity, where GELU is nearly linear, so that all this
  arrives at the tied output embeddings.

All other weights stay random.

We count how often each of the V pieces occurs near each of the C most frequent ones. The singular vectors of the
frequent pieces' square part, (C, C), give the vectors of all rows of the matrix, (V, C).
"""

from collections.abc import Collection, Iterator

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from bert_training.pretraining.corpus import Corpus, Shard
from bert_training.pretraining.initial_attention import (
    TINY,
    attend_to_neighbours,
    average_the_context,
    number_of_frequencies,
    places_of_heads,
    rotation,
    signs,
)

COLUMNS = 2048  # the number of most frequent pieces; occurrences near them are counted
# In tokens. Near neighbours show the part of speech, distant ones the topic. All distances would take longer.
DISTANCES = (1, 2, 3, 4, 6, 9, 13)
SMOOTHING = 0.75  # exponent of the columns' counts, as in word2vec; without it rare neighbours weigh too much
POWER = 0.25  # exponent of the singular values; 0 would give all directions the same weight
BLOCK = 1 << 22  # tokens that are counted at a time
IDENTITY = 0.3  # the multiple of the identity in the head's transform
MOST_TOKENS = 1 << 25  # of a longer corpus, so many tokens are counted, in blocks that are spread over it


@torch.no_grad()
def set_counted_weights(model: PreTrainedModel, corpus: Corpus, seed: int) -> int:
    """Replace new weights as the module says; return the number of pieces with counted embeddings.

    A counted row has the length ``initializer_range * sqrt(H)``, about that of a random one. The rows of special tokens
    and of pieces about whose neighbours the counts say nothing stay random, and so do those of the token types. But
    their component in the subspace of the positions is removed.

    Args:
        model: with new weights and a head that predicts tokens.
        corpus: the training text. The largest matrix has a row for each piece and 2,048 columns in float32: 250 MB for
            30,522 pieces, and for a moment there are two. Every process makes its own.
        seed: of all that is drawn: how the subspaces lie, the rotations of the layers, the frequencies.
    """
    config = model.config
    shares, output = log_shares(corpus, with_unknown=config.is_decoder), model.get_output_embeddings()
    bias = output.get_parameter("bias")
    bias.fill_(float(shares.min()))  # the table may have more rows than the tokenizer has pieces
    bias[: len(shares)] = shares
    frequent = most_frequent(corpus)
    units = rotation(config.hidden_size, seed)
    size = 2 * number_of_frequencies(config)
    positions, words = units[:, :size], units[:, size:]
    directions = counted_directions(corpus, frequent, words.shape[1])
    directions = directions @ words[:, : directions.shape[1]].T
    counted = directions.any(dim=1).nonzero()[:, 0]
    length = config.initializer_range * config.hidden_size**0.5
    token_types = model.base_model.get_parameter("embeddings.token_type_embeddings.weight")
    for table in (model.get_input_embeddings().get_parameter("weight"), output.get_parameter("weight"), token_types):
        table -= table @ positions @ positions.T
        if table is not token_types:
            table[counted] = directions[counted] * length
    average_the_context(model, seed + 1)
    if len(counted) and (places := places_of_heads(config)):
        fitted = associations(corpus, frequent, directions[frequent], places)
        attend_to_neighbours(model, positions, fitted, length, seed)
    transform = model.get_parameter("cls.predictions.transform.dense.weight")
    transform.copy_(torch.eye(config.hidden_size) * IDENTITY)
    return len(counted)


def log_shares(corpus: Corpus, *, with_unknown: bool = False) -> Tensor:
    """(V) the logarithm of each piece's share of the text, where half an occurrence is added to each piece.

    Args:
        with_unknown: count [UNK], which a left-to-right model predicts and a masked LM never does. The other special
            tokens do not occur in the corpus.
    """
    counts = torch.from_numpy(corpus.unigrams.astype(np.float64)) if with_unknown else _occurrences(corpus)
    counts = counts + 0.5
    return (counts / counts.sum()).log()


def most_frequent(corpus: Corpus) -> Tensor:
    """(C) the ids of the most frequent pieces, near which the others are counted; at most COLUMNS."""
    occurrences = _occurrences(corpus)
    order = torch.argsort(occurrences, descending=True, stable=True)
    return order[: min(COLUMNS, int((occurrences > 0).sum()))]


def counted_directions(corpus: Corpus, frequent: Tensor, size: int) -> Tensor:
    """(V, at most size) vectors of length 1, similar for pieces with similar neighbours; 0 for pieces without one."""
    if not len(frequent):
        return torch.zeros(len(corpus.unigrams), 0)
    information = _to_ppmi(count_neighbours(corpus, frequent))
    square = information[frequent]
    squares, vectors = torch.linalg.eigh(square.T @ square)  # much faster than the decomposition of the part itself
    vectors = vectors * signs(vectors)
    chosen = (squares > squares[-1] * 1e-6).nonzero()[:, 0].flip(0)[:size]  # the largest ones
    found = information @ (vectors[:, chosen] * squares[chosen] ** ((POWER - 1) / 2))
    return torch.nn.functional.normalize(found, dim=1)


def associations(corpus: Corpus, frequent: Tensor, vectors: Tensor, places: list[int]) -> dict[int, Tensor]:
    """For each place, (H, H): the matrix M with which e(piece) M e(neighbour) is nearest to the PPMI of the two.

    Args:
        frequent: (C) the ids of the pieces from which the matrices are fitted.
        vectors: (C, H) their embeddings, e.
        places: the offset of the neighbour, such as -1 for the piece before.
    """
    inverse, found = torch.linalg.pinv(vectors), {}
    for distance, after in count_followers(corpus, frequent, {abs(place) for place in places}).items():
        for place, counts in ((distance, after), (-distance, after.T)):
            if place in places:
                found[place] = inverse @ _to_ppmi(counts.clone()) @ inverse.T
    return found


def count_neighbours(corpus: Corpus, columns: Tensor) -> Tensor:
    """(V, C) float32: how often a piece is at one of the DISTANCES from the piece of a column within a document.

    Args:
        columns: (C) ids.
    """
    column = _columns(corpus, columns)
    counts = torch.zeros(len(corpus.unigrams) * len(columns), dtype=torch.int32)  # float32 cannot count above 2^24
    for _, earlier, later in _pairs(corpus, DISTANCES):
        for piece, beside in ((earlier, column[later]), (later, column[earlier])):
            place = (piece * len(columns) + beside)[beside >= 0]
            counts.index_add_(0, place, torch.ones_like(place, dtype=torch.int32))
    counts = counts.view(-1, len(columns)).float()
    counts[corpus.special_ids] = 0
    return counts


def count_followers(corpus: Corpus, columns: Tensor, distances: Collection[int]) -> dict[int, Tensor]:
    """For each distance, (C, C) float32: how often the piece of a column comes so far after the piece of a row.

    Args:
        columns: (C) ids, of the rows as well.
    """
    column, size = _columns(corpus, columns), len(columns)
    counts = {distance: torch.zeros(size**2, dtype=torch.int32) for distance in distances}
    for distance, earlier, later in _pairs(corpus, distances):
        row, beside = column[earlier], column[later]
        place = (row * size + beside)[(row >= 0) & (beside >= 0)]
        counts[distance].index_add_(0, place, torch.ones_like(place, dtype=torch.int32))
    return {distance: found.view(size, size).float() for distance, found in counts.items()}


def _columns(corpus: Corpus, ids: Tensor) -> Tensor:
    """(V) the number of each piece's column, -1 for pieces without one."""
    column = torch.full((len(corpus.unigrams),), -1, dtype=torch.int64)
    column[ids] = torch.arange(len(ids))
    return column


def _pairs(corpus: Corpus, distances: Collection[int]) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each distance with the ids of the pieces at this distance within a document: the earlier and the later."""
    for shard, begin in _blocks(corpus):
        ids = torch.from_numpy(shard.tokens[begin : begin + BLOCK].astype(np.int64))
        documents = slice(shard.first_document(begin + 1), shard.first_document(begin + len(ids)))
        inside = shard.sentences[shard.documents[documents]] - begin
        lengths = torch.from_numpy(np.diff(inside.astype(np.int64), prepend=0, append=len(ids)))
        document = torch.repeat_interleave(lengths)
        for distance in (distance for distance in distances if distance < len(ids)):
            same = document[:-distance] == document[distance:]
            yield distance, ids[:-distance][same], ids[distance:][same]


def _occurrences(corpus: Corpus) -> Tensor:
    """(V) float64: how often each piece occurs; 0 for special tokens and [UNK]."""
    counts = torch.from_numpy(corpus.unigrams.astype(np.float64))
    counts[corpus.special_ids] = 0
    return counts


def _blocks(corpus: Corpus) -> list[tuple[Shard, int]]:
    """Where the blocks to count begin: all of them, or as many as MOST_TOKENS allows, spread over the corpus."""
    begins = [(shard, begin) for shard in corpus.shards for begin in range(0, shard.num_tokens, BLOCK)]
    most = MOST_TOKENS // BLOCK
    return begins if len(begins) <= most else [begins[number * len(begins) // most] for number in range(most)]


def _to_ppmi(counts: Tensor) -> Tensor:
    """(V, C) the positive pointwise mutual information, in the memory of the counts."""
    rows = counts.sum(dim=1, keepdim=True).clamp(min=1)
    columns = counts.sum(dim=0) ** SMOOTHING
    share = (columns / columns.sum().clamp(min=TINY)).clamp(min=TINY)
    return counts.div_(rows).div_(share).clamp_(min=1).log_()
