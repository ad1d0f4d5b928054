"""Initial weights that make BERT a bag of words, from counts of the training text (``--initial_weights counted``).

A short run with random weights spends most of its time on learning how frequent the pieces are, which of them are
alike, and that a masked piece has to do with the pieces around it. The first two can be counted in seconds, and the
weights can begin as if the third were learnt:

- The output bias becomes the logarithm of each piece's share of the text.
- The word embeddings factorise the positive pointwise mutual information (PPMI) of pieces that stand near each other.
  Those of word2vec do so too (Levy and Goldberg 2014, "Neural Word Embedding as Implicit Matrix Factorization").
- Each attention layer adds a part of the average of its inputs: its output matrix undoes the rotation of its value
  matrix. (Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers", find such pairs in trained
  networks.) The position embeddings are small, so that they hardly disturb the average.
- The transform of the head begins as a small multiple of the identity, where GELU is nearly linear, so that the average
  arrives at the tied output embeddings.

All other weights stay random. The network then resembles the continuous bag of words of word2vec.

All V pieces are counted beside the C most frequent ones. The eigenvectors of the frequent pieces' square part, (C, C),
give the vectors of all rows of the matrix, (V, C) (the Nyström method).
"""

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from training.pretraining.corpus import Corpus

COLUMNS = 2048  # the most frequent pieces, beside which all pieces are counted
# In tokens. Near neighbours show the part of speech, distant ones the topic. All distances would take longer.
DISTANCES = (1, 2, 3, 4, 6, 9, 13)
SMOOTHING = 0.75  # exponent of the columns' counts, as in word2vec; without it rare neighbours weigh too much
POWER = 0.25  # exponent of the eigenvalues; 0.5 would factorise the PPMI itself, 0 gives all directions equal weight
BLOCK = 1 << 22  # tokens that are counted at a time
AVERAGE = 0.49  # the part of the average that an attention layer adds at first
POSITIONS = 0.3  # what the new position embeddings are multiplied by
IDENTITY = 0.3  # the multiple of the identity in the head's transform
MOST_TOKENS = 1 << 25  # of a longer corpus, so many tokens are counted, in blocks that are spread over it


@torch.no_grad()
def set_counted_weights(model: PreTrainedModel, corpus: Corpus, seed: int) -> int:
    """Replace new weights as the module says; return the number of pieces with counted embeddings.

    A counted row has the length ``initializer_range * sqrt(H)``, about that of a random one. The rows of the special
    tokens, and of pieces that the text does not contain, stay random.

    Args:
        model: with new weights and a head that predicts tokens.
        corpus: the training text. The largest matrix has a row for each piece and 2,048 columns in float32: 250 MB for
            30,522 pieces. It exists twice at a time.
        seed: of the rotations, of which the embeddings have one and each layer another.
    """
    bias = log_shares(corpus)
    output = model.get_output_embeddings().get_parameter("bias")
    output[: len(bias)] = bias.to(output.dtype)
    directions = counted_directions(corpus, model.config.hidden_size, seed)
    counted = directions.any(dim=1).nonzero()[:, 0]
    length = model.config.initializer_range * model.config.hidden_size**0.5
    table = model.get_input_embeddings().get_parameter("weight")
    table[counted] = (directions[counted] * length).to(table.dtype)
    _average_the_context(model, seed)
    return len(counted)


def _average_the_context(model: PreTrainedModel, seed: int) -> None:
    """Make the layers add averages of their inputs, and the head pass them on."""
    config, base = model.config, model.base_model
    for layer in range(config.num_hidden_layers):
        rotation = _rotation(config.hidden_size, seed + 1 + layer) * AVERAGE**0.5
        base.get_parameter(f"encoder.layer.{layer}.attention.self.value.weight").copy_(rotation)
        base.get_parameter(f"encoder.layer.{layer}.attention.output.dense.weight").copy_(rotation.T)
    base.get_parameter("embeddings.position_embeddings.weight").mul_(POSITIONS)
    transform = model.get_parameter("cls.predictions.transform.dense.weight")
    transform.copy_(torch.eye(config.hidden_size) * IDENTITY)


def log_shares(corpus: Corpus) -> Tensor:
    """(V) the logarithm of each piece's share of the text, where half an occurrence is added to each piece.

    Special tokens and [UNK], which are never predicted, count as pieces that do not occur.
    """
    counts = _occurrences(corpus) + 0.5
    return (counts / counts.sum()).log()


def counted_directions(corpus: Corpus, hidden_size: int, seed: int) -> Tensor:
    """(V, H) vectors of length 1, similar for pieces with similar neighbours; 0 for pieces that have no vector."""
    occurrences = _occurrences(corpus)
    order = torch.argsort(occurrences, descending=True, stable=True)
    frequent = order[: min(COLUMNS, int((occurrences > 0).sum()))]
    information = _to_ppmi(count_neighbours(corpus, frequent))
    square = information[frequent]
    values, vectors = torch.linalg.eigh((square + square.T) / 2)
    chosen = (values > values[-1] * 1e-6).nonzero()[:, 0].flip(0)[:hidden_size]  # the largest positive ones
    found = information @ (vectors[:, chosen] * values[chosen] ** (POWER - 1))
    # The rotation spreads the directions of large eigenvalues over all units, as random embeddings are spread.
    return torch.nn.functional.normalize(found @ _rotation(hidden_size, seed)[: found.shape[1]], dim=1)


def count_neighbours(corpus: Corpus, columns: Tensor) -> Tensor:
    """(V, C) float32: how often a piece and the piece of a column stand at one of the DISTANCES within a document.

    Args:
        columns: (C) ids.
    """
    size = len(corpus.unigrams)
    column = torch.full((size,), -1, dtype=torch.int64)
    column[columns] = torch.arange(len(columns))
    counts = torch.zeros(size * len(columns))
    ends = corpus.sentences[corpus.documents[1:]]
    for begin in _blocks(corpus.num_tokens):
        ids = torch.from_numpy(corpus.tokens[begin : begin + BLOCK].astype(np.int64))
        document = torch.from_numpy(np.searchsorted(ends, np.arange(begin, begin + len(ids)), side="right"))
        for distance in (distance for distance in DISTANCES if distance < len(ids)):
            same = document[:-distance] == document[distance:]
            earlier, later = ids[:-distance][same], ids[distance:][same]
            for piece, beside in ((earlier, column[later]), (later, column[earlier])):
                place = (piece * len(columns) + beside)[beside >= 0]
                counts.index_add_(0, place, torch.ones(len(place)))
    counts = counts.view(size, -1)
    counts[corpus.manifest["special_ids"]] = 0
    return counts


def _rotation(size: int, seed: int) -> Tensor:
    """(size, size) a random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(seed)))[0]


def _occurrences(corpus: Corpus) -> Tensor:
    """(V) float64: how often each piece occurs; 0 for special tokens and [UNK]."""
    counts = torch.from_numpy(corpus.unigrams.astype(np.float64))
    counts[corpus.manifest["special_ids"]] = 0
    return counts


def _blocks(tokens: int) -> list[int]:
    """Where the blocks to count begin: all of them, or as many as MOST_TOKENS allows, spread over the corpus."""
    begins = list(range(0, tokens, BLOCK))
    most = MOST_TOKENS // BLOCK
    return begins if len(begins) <= most else [begins[number * len(begins) // most] for number in range(most)]


def _to_ppmi(counts: Tensor) -> Tensor:
    """(V, C) the positive pointwise mutual information, in the memory of the counts."""
    rows = counts.sum(dim=1, keepdim=True).clamp(min=1)
    columns = counts.sum(dim=0) ** SMOOTHING
    share = (columns / columns.sum()).clamp(min=torch.finfo(torch.float32).tiny)
    return counts.div_(rows).div_(share).clamp_(min=1).log_()
