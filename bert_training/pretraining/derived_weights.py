"""The weights that a checkpoint lacks and a pre-training run derives from the others .

They are the rows of new pieces, new positions, and the head of a network that never predicted words. The output biases
follow when the text has been counted.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.inputs.flags.mixtures import mean_shares
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.tokenizers import load_tokenizer, weights_tokenizer
from bert_training.networks.new_rows import (
    Origins,
    make_head,
    origins_of,
    set_bias_of_head,
    set_counted_biases,
    set_rows_of_pieces,
    size_config,
    with_rows,
)
from bert_training.pretraining.corpus import Corpus
from tokenization.errors import UserError

HEAD = "cls.predictions."


def check_positions(args: PretrainingArguments, config: BertConfig) -> None:
    """Raise ValueError if ``--max_position_embeddings`` is less than the network has."""
    asked = args.max_position_embeddings
    if asked is not None and asked < config.max_position_embeddings:
        raise UserError(
            f"--max_position_embeddings {asked}: {args.model_name_or_path} has {config.max_position_embeddings} "
            "positions, and only more of them can be made; leave the flag out, and give a shorter --max_seq_length"
        )


def new_pieces_of(args: PretrainingArguments, tokenizer: PreTrainedTokenizerBase) -> Origins:
    """The rows of the tokenizer that are new to the weights; none if the tokenizer is theirs."""
    weights = args.model_name_or_path
    if weights is None or (not args.extend_vocab and args.tokenizer_name == weights):
        return {}
    own = weights_tokenizer(weights)
    if own is None and args.extend_vocab:  # the tokenizer that was given stands for that of the weights
        own = load_tokenizer(str(args.tokenizer_name), quiet=True)
    return origins_of(tokenizer, own)


def sized_config(
    args: PretrainingArguments, config: BertConfig, tokenizer: PreTrainedTokenizerBase, origins: Origins
) -> BertConfig:
    """A copy of a checkpoint's config with the rows and the positions that the flags ask for."""
    check_positions(args, config)
    sized = copy.deepcopy(config)
    size_config(sized, len(tokenizer), origins, args.pad_vocab_to_multiple_of, args.max_position_embeddings)
    return sized


def derive_weights(
    run: Run[PretrainingArguments],
    model: PreTrainedModel,
    sized: BertConfig,
    tokenizer: PreTrainedTokenizerBase,
    origins: Origins,
    new: Sequence[str],
) -> tuple[PreTrainedModel, list[str]]:
    """Give a network what its checkpoint lacks, and say what was made.

    Args:
        sized: the config with the rows and the positions that the network is to have.
        origins: the rows of new pieces.
        new: the weights that were newly initialised because the checkpoint lacks them.

    Returns:
        The network, and those of ``new`` that are random.
    """
    args, old = run.args, model.config
    model = with_rows(model, sized)
    if sized.max_position_embeddings > old.max_position_embeddings:
        sizes = f"{old.max_position_embeddings:,} -> {sized.max_position_embeddings:,}"
        run.say(f"positions: {sizes}; the new ones: copies of the first ones")
    if origins:
        set_rows_of_pieces(model, origins, tokenizer.unk_token_id)
        run.say(f"embeddings of {len(origins):,} new pieces: the mean of the pieces that each was")
    if sized.vocab_size > old.vocab_size:
        run.say(f"rows of the embeddings: {old.vocab_size:,} -> {sized.vocab_size:,}")
    facts = {"pieces": len(origins), "head": _lacks_head(new)}
    run.add_facts(derived_weights=facts)
    if not facts["head"]:
        return model, [*new]
    make_head(model)
    run.say(
        f"{args.model_name_or_path} has no head that predicts words; it begins with one made from its embeddings: "
        "nearly the identity, then the embeddings as the decoder, with the counts of the training text as its bias"
    )
    return model, [name for name in new if not name.startswith(HEAD)]


def count_new_weights(
    run: Run[PretrainingArguments],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    corpora: Sequence[Corpus],
) -> None:
    """Set the output biases of what ``derive_weights`` has made, from counts of the training text."""
    made = run.facts.get("derived_weights") or {}
    if not any(made.values()):
        return
    counts = torch.from_numpy(mixed_counts(corpora, mean_shares(vars(run.args))))
    if made["head"]:
        if not model.config.is_decoder:
            counts[corpora[0].special_ids] = 0  # a masked LM never predicts [UNK]
        set_bias_of_head(model, ((counts + 0.5) / (counts + 0.5).sum()).log())
    else:
        set_counted_biases(model, new_pieces_of(run.args, tokenizer), counts)


def mixed_counts(corpora: Sequence[Corpus], shares: Sequence[float]) -> np.ndarray:
    """(V) how often the training reads each piece, in as many tokens as all sources with a share have together."""
    sizes = [corpus.unigrams.sum() for corpus in corpora]
    total = sum(size for size, share in zip(sizes, shares, strict=True) if share)
    parts = [corpus.unigrams * (share * total / size) for corpus, share, size in zip(corpora, shares, sizes)]
    return np.stack(parts).sum(0)


def _lacks_head(new: Sequence[str]) -> bool:
    """Whether the checkpoint has nothing of the head; ``new`` names what it lacks, tied weights perhaps left out."""
    parts = {name.removeprefix(HEAD).split(".")[0] for name in new if name.startswith(HEAD)}
    return parts >= {"transform", "bias"}
