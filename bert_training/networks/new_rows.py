"""Rows that a checkpoint does not have: those of new pieces, of more positions, and the head that predicts pieces.

Nothing else of the network changes: a text without new pieces, of at most the old length, has bit for bit the same
outputs of the encoder as before.

Shapes: V rows of the vocabulary, P positions, H hidden size.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from tokenization.extend_vocabulary import split_piece, wordpieces

# The output bias of rows that only round the table up: with it, the softmax gives them 0 in float32.
NEVER = -200.0
# Between these numbers GELU is nearly the identity plus a constant, which the LayerNorm after it takes away.
SHIFT, SCALE = 4.0, 0.5

Origins = Mapping[int, Sequence[int]]
"""New row -> the rows of the pieces that its piece was until now; empty if the old vocabulary could not spell it."""


def origins_of(tokenizer: PreTrainedTokenizerBase, own: PreTrainedTokenizerBase | None) -> dict[int, list[int]]:
    """The new rows of a tokenizer, where ``own`` is that of the weights; {} without one.

    Tokens that a user has added are no pieces: their rows are those that the weights have.
    """
    if own is None or own is tokenizer or not hasattr(getattr(own, "backend_tokenizer", None), "get_vocab"):
        return {}
    old = wordpieces(own)
    new = {piece: row for piece, row in wordpieces(tokenizer).items() if old.get(piece) != row}
    return {row: [old[part] for part in split_piece(piece, old)] for piece, row in new.items()}


def size_config(
    config: BertConfig, pieces: int, origins: Origins, multiple: int | None = None, positions: int | None = None
) -> None:
    """Give a config the rows that the new pieces need, rounded up to a multiple, and the positions that were asked for.

    Args:
        pieces: the number of pieces of the tokenizer. Rows beyond those of the network are only for new pieces; what
            else is missing stays missing, and ``check_fit`` says so.
    """
    if pieces > config.vocab_size and origins.keys() >= set(range(config.vocab_size, pieces)):
        config.vocab_size = pieces
    if multiple:
        config.vocab_size = -(-config.vocab_size // multiple) * multiple
    if positions is not None:
        config.max_position_embeddings = positions


@torch.no_grad()
def with_rows(model: PreTrainedModel, config: BertConfig) -> PreTrainedModel:
    """The network with the rows of ``config``; the same one if it has them already.

    Rows of the vocabulary that are added are 0 and have the bias NEVER, until ``set_rows_of_pieces`` fills them.
    """
    old = model.config
    if (old.vocab_size, old.max_position_embeddings) == (config.vocab_size, config.max_position_embeddings):
        return model
    sized = copy.deepcopy(old)
    sized.vocab_size, sized.max_position_embeddings = config.vocab_size, config.max_position_embeddings
    state, larger = model.state_dict(), type(model)(sized)
    for name, target in larger.state_dict().items():
        if name not in state or state[name].shape == target.shape:
            continue
        table = state[name]
        if name.endswith("position_embeddings.weight"):
            state[name] = more_positions(table, len(target))
        else:
            state[name] = torch.full_like(target, NEVER if name.endswith("bias") else 0.0)
            state[name][: len(table)] = table
    larger.load_state_dict({name: tensor for name, tensor in state.items() if name in larger.state_dict()})
    return larger.train(model.training)


def more_positions(table: Tensor, positions: int) -> Tensor:
    """(positions, H): the table of the positions (P, H), continued with the old rows again, from the first one on."""
    assert positions >= len(table)
    return table[torch.arange(positions) % len(table)].clone()


@torch.no_grad()
def set_rows_of_pieces(model: PreTrainedModel, origins: Origins, unknown: int) -> None:
    """Give each new piece the mean of the embeddings of the pieces that it was, and the mean of their output biases.

    A piece that the vocabulary could not spell was [UNK], and begins with its embedding.

    Args:
        unknown: the row of [UNK].
    """
    table, bias = model.get_input_embeddings().get_parameter("weight"), output_bias(model)
    old, old_bias = table.clone(), None if bias is None else bias.clone()
    for row, pieces in origins.items():
        parts = list(pieces) or [unknown]
        table[row] = old[parts].mean(0)
        if bias is not None and old_bias is not None:
            bias[row] = old_bias[parts].mean()


@torch.no_grad()
def set_counted_biases(model: PreTrainedModel, origins: Origins, counts: Tensor) -> None:
    """Make each new piece as probable as the text says, compared with the pieces that it was.

    With the mean of their embeddings and of their biases, its logit is the mean of their logits, as if it occurred as
    often as they do (in the geometric mean). It is rarer, because they occur elsewhere too, so the bias becomes

        b = mean(b_i - log c_i) + log c,

    where c_i is how often piece i was used with the old vocabulary, and c how often the new piece is used now; half an
    occurrence is added to each. The association of a word with a context, log p(word | context) - log p(word), is then
    the mean of those of its pieces. For a piece that was [UNK], the mean is over all pieces of the text.

    Args:
        counts: (V) how often each piece occurs in the text with the new vocabulary.
    """
    bias = output_bias(model)
    if bias is None or not origins:
        return
    before = counts.double().clone()
    for row, pieces in origins.items():
        for piece in pieces:
            before[piece] += counts[row]
    rows = sorted(origins)
    before[rows] = 0
    known = (before > 0).nonzero()[:, 0]
    offsets = bias[: len(before)].double().cpu() - (before + 0.5).log()
    for row, pieces in origins.items():
        parts = list(pieces) or known
        if len(parts):
            bias[row] = float(offsets[parts].mean() + (counts[row].double() + 0.5).log())


@torch.no_grad()
def make_head(model: PreTrainedModel) -> None:
    """Make a head that predicts pieces: a transform that is nearly the identity, before the tied embeddings.

    GELU would bend the identity. Shifted far to the right it is straight, and the LayerNorm takes the shift away again.
    The output bias is that of ``set_bias_of_head``.
    """
    transform = "cls.predictions.transform"
    model.get_parameter(f"{transform}.dense.weight").copy_(torch.eye(model.config.hidden_size) * SCALE)
    model.get_parameter(f"{transform}.dense.bias").fill_(SHIFT)
    # Weights below 1 make the first loss smaller, and the losses after some 25 steps much larger.
    model.get_parameter(f"{transform}.LayerNorm.weight").fill_(1)
    model.get_parameter(f"{transform}.LayerNorm.bias").zero_()


@torch.no_grad()
def set_bias_of_head(model: PreTrainedModel, log_shares: Tensor) -> None:
    """Begin with the logarithm of each piece's share of the text; rows beyond the pieces are never predicted."""
    bias = output_bias(model)
    assert bias is not None  # a network with a head that predicts pieces
    bias.fill_(NEVER)
    bias[: len(log_shares)] = log_shares.to(bias)


def output_bias(model: PreTrainedModel) -> Tensor | None:
    """(V) the bias of the head that predicts pieces; None if the network has no such head."""
    output: Any = model.get_output_embeddings()
    return None if output is None else output.bias
