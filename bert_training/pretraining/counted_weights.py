"""Initial weights from counts of the training text (``--initial_weights counted``).

A short run with random weights spends most of its time on learning how frequent the pieces are, which of them are
alike, and that a masked piece has to do with its neighbours. All of it can be counted in seconds:

- The output bias becomes the logarithm of each piece's share of the text.
- The word embeddings factorise the positive pointwise mutual information (PPMI) of pieces that occur near each other.
  Those of word2vec do something close (Levy and Goldberg 2014, "Neural Word Embedding as Implicit Matrix
  Factorization").
- For the places next to a piece, matrices are fitted by least squares, with which the embedding of the neighbour
  predicts the piece. They become the first heads of the first layer, which look at these places by sinusoidal position
  embeddings; the other heads average the context (below).
- The transform of the head begins as a small multiple of the identity, where GELU is nearly linear, so that all this
  arrives at the tied output embeddings.

All other weights stay random.

We count how often each of the V pieces occurs near each of the C most frequent ones. The singular vectors of the
frequent pieces' square part, (C, C), give the vectors of all rows of the matrix, (V, C).

The attention of the first layer begins with heads that look at the neighbours, and heads that average.

BERT learns late where each piece is. For hundreds of steps the loss stays near that of a bag of words; it falls when
some heads have found the piece before and the piece after. Here these heads of the first layer exist from the start:

- The position embeddings are sinusoids, as in Vaswani et al. 2017, but their frequencies are spread evenly, and they
  have a subspace of their own. A rotation of that subspace moves a position by any number of places. So a head whose
  queries are rotated, and whose keys are not, attends to one place beside its own.
- The value and output matrices of such a head begin with what the counts say about that place (``associations``). With
  the tied output embeddings the network resembles a log-bilinear language model (Mnih and Hinton 2007, "Three New
  Graphical Models for Statistical Language Modelling").
- All other heads add a part of the average of their inputs: the output matrix undoes the rotation of the value matrix.
  (Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers", find such pairs in trained networks.)
"""

import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from bert_training.pretraining.corpus import Corpus, Shard

# --- attention -------------------------------------------------------------------------------------------------------


AVERAGE = 0.49  # the part of the average that the heads of a layer add together
POSITIONS = 0.7  # the length of a position embedding, in lengths of a word embedding
PEAK = 12.0  # about the attention score of the place that a head looks at; those of other places scatter around 0
FEWEST_FREQUENCIES, MOST_FREQUENCIES = 8, 16  # with fewer, many places look alike
TINY = torch.finfo(torch.float32).tiny
WEAKEST = 0.05  # the least singular value of a head's association, where the largest is 1: weights of 0 would stay 0


def rotation(size: int, seed: int) -> Tensor:
    """(size, size) a random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(seed)))[0]


def signs(vectors: Tensor) -> Tensor:
    """(N) 1 or -1 for each column, with which its entry of the largest magnitude becomes positive.

    The signs that a decomposition returns depend on the processor and on the number of threads.
    """
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))[0]
    return torch.where(largest < 0, -1.0, 1.0)


def number_of_frequencies(config: PreTrainedConfig) -> int:
    """How many sinusoids the position embeddings consist of: two units of a head each, and at most a quarter of all.

    0 for networks that are too narrow; their position embeddings stay random.
    """
    frequencies = min(MOST_FREQUENCIES, config.hidden_size // config.num_attention_heads // 2, config.hidden_size // 8)
    return frequencies if frequencies >= FEWEST_FREQUENCIES and config.num_hidden_layers else 0


def places_of_heads(config: PreTrainedConfig) -> list[int]:
    """The places that the first heads look at, relative to the predicted piece: the nearest ones first.

    A left-to-right model predicts the next piece from those before it.
    """
    places = [-1, -2] if config.is_decoder else [-1, 1, -2, 2]
    return places[: config.num_attention_heads] if number_of_frequencies(config) else []


@torch.no_grad()
def average_the_context(model: PreTrainedModel, seed: int) -> None:
    """Make every layer add a part of the average of its inputs, as long as its scores are about equal.

    Args:
        seed: of the rotations, of which each layer has one.
    """
    for number in range(model.config.num_hidden_layers):
        matrix = rotation(model.config.hidden_size, seed + number) * AVERAGE**0.5
        _attention_weight(model, number, "self.value").copy_(matrix)
        _attention_weight(model, number, "output.dense").copy_(matrix.T)


@torch.no_grad()
def attend_to_neighbours(
    model: PreTrainedModel, subspace: Tensor, associations: Mapping[int, Tensor], length: float, seed: int
) -> None:
    """Replace the position embeddings, and the first heads of the first layer, as the module says.

    Args:
        subspace: (H, 2 F) orthonormal columns, to which the word embeddings have no part.
        associations: for each place of ``places_of_heads``, (H, H): what the embedding of the piece at that place
            is multiplied by to predict the piece itself.
        length: of a word embedding.
        seed: of the frequencies.
    """
    config = model.config
    table = model.base_model.get_parameter("embeddings.position_embeddings.weight")
    frequencies = _frequencies(subspace.shape[1] // 2, seed)
    angles = torch.arange(len(table))[:, None] * frequencies
    waves = torch.stack([angles.cos(), angles.sin()], dim=2).flatten(1) / len(frequencies) ** 0.5
    table.copy_(waves @ subspace.T * (POSITIONS * length))

    query, key, value = (_attention_weight(model, 0, f"self.{name}") for name in ("query", "key", "value"))
    output = _attention_weight(model, 0, "output.dense")
    size = config.hidden_size // config.num_attention_heads
    # LayerNorm makes the sum of word, token type and position H long (squared); the first two are about equally long.
    share = POSITIONS**2 / (2 + POSITIONS**2)
    scale = (PEAK * size**0.5 / (config.hidden_size * share)) ** 0.5
    for head, place in enumerate(places_of_heads(config)):
        rows = slice(head * size, (head + 1) * size)
        looking = slice(head * size, head * size + subspace.shape[1])
        # A left-to-right model predicts the piece that comes after the position from which it looks.
        shift = _rotate_pairs(frequencies * (place + 1 if config.is_decoder else place))
        key[looking] = scale * subspace.T
        query[looking] = scale * shift @ subspace.T
        left, strength, right = torch.linalg.svd(associations[place])
        sign = signs(left)
        left, right = left * sign, right * sign[:, None]
        root = (strength[:size] / strength[0].clamp(min=TINY)).clamp(min=WEAKEST).sqrt()
        value[rows] = root[:, None] * right[:size]
        output[:, rows] = left[:, :size] * root


def _frequencies(count: int, seed: int) -> Tensor:
    """(count) radians per place, one in each of as many equal parts of 0 to pi; where in it, is random.

    Multiples of one frequency would look the same again after a period.
    """
    random = torch.rand(count, generator=torch.Generator().manual_seed(seed))
    return (torch.arange(count) + random) / count * math.pi


def _rotate_pairs(angles: Tensor) -> Tensor:
    """(2 F, 2 F) the matrix that rotates each pair of units by its angle."""
    blocks = [torch.tensor([[a.cos(), -a.sin()], [a.sin(), a.cos()]]) for a in angles]
    return torch.block_diag(*blocks)


def _attention_weight(model: PreTrainedModel, layer: int, name: str) -> Tensor:
    return model.base_model.get_parameter(f"encoder.layer.{layer}.attention.{name}.weight")


# --- counted weights -------------------------------------------------------------------------------------------------


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
