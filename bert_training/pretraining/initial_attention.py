"""Initial attention for ``--initial_weights counted``: heads that look at the neighbours, and heads that average.

BERT learns late where each piece is. For hundreds of steps the loss stays near that of a bag of words; it falls when
some heads have found the piece before and the piece after. Here these heads of the first layer exist from the start:

- The position embeddings are sinusoids, as in Vaswani et al. 2017, but their frequencies are spread evenly, and they
  have a subspace of their own. A rotation of that subspace moves a position by any number of places. So a head whose
  queries are rotated, and whose keys are not, attends to one place beside its own.
- The value and output matrices of such a head begin with what the counts say about that place (``associations`` of
  counted_weights.py). With the tied output embeddings the network resembles a log-bilinear language model (Mnih and
  Hinton 2007, "Three New Graphical Models for Statistical Language Modelling").
- All other heads add a part of the average of their inputs: the output matrix undoes the rotation of the value matrix.
  (Trockman and Kolter 2023, "Mimetic Initialization of Self-Attention Layers", find such pairs in trained networks.)
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

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
