"""The network that a pre-training run trains: how it begins, and the folder that it ends in.

The weights that a checkpoint lacks are derived from the others: the rows of new pieces, new positions, and the head of
a network that never predicted words. The output biases follow when the text has been counted.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.cards.curves import draw_curves
from bert_training.cards.model_card import write_model_card
from bert_training.engine.checkpoint import Origin, save_model_folder
from bert_training.engine.run import Run, upload_finished
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import mean_shares
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.models import check_fit, checkpoint_config, new_config
from bert_training.inputs.tokenizers import load_tokenizer, weights_tokenizer
from bert_training.networks.embedding_modules import carry_modules
from bert_training.networks.initial_weights import (
    as_implementation,
    load_network,
    prepare_for_training,
    set_dropout,
    weights_sha256,
    with_layers,
)
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
from bert_training.pretraining.counted_weights import set_counted_weights
from bert_training.pretraining.data import PretrainingData
from bert_training.pretraining.masking import check_masking
from bert_training.pretraining.teacher import check_teacher, learn_from_teacher, remove_projection
from tokenization.errors import UserError

# --- weights that a checkpoint lacks ---------------------------------------------------------------------------------


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


# --- network ---------------------------------------------------------------------------------------------------------


def begin(
    run: Run[PretrainingArguments],
    model: PreTrainedModel,
    initial_weights: dict[str, str] | None,
    data: PretrainingData,
    predicts_words: type[PreTrainedModel],
) -> Origin:
    """Give the network what is counted in the text, and the teacher that ``--teacher`` names; say what is trained.

    Args:
        initial_weights: their file -> SHA-256; None for new ones.
        predicts_words: the class of the teacher.

    Returns:
        What the run began with, which must be the same in a resumed run.
    """
    origin = data.describe(run, model, initial_weights)
    train = data.corpora.train
    if run.args.initial_weights == "counted":
        counted = set_counted_weights(model, train[0], run.args.seed)
        rows = f"{counted:,} of {len(data.tokenizer):,} rows"
        run.say(f"initial weights from counts of the training text, with embeddings of {rows}")
    if run.args.model_name_or_path:
        count_new_weights(run, model, data.tokenizer, train)
    return learn_from_teacher(run, model, predicts_words, origin) if run.args.teacher else origin


def build_pretraining_network(
    run: Run[PretrainingArguments], cls: type[PreTrainedModel], tokenizer: PreTrainedTokenizerBase
) -> tuple[PreTrainedModel, dict[str, str] | None]:
    """The network with new weights, or with those of ``--model_name_or_path`` and their file -> SHA-256.

    ``--dropout`` changes the network but not its config, so that the saved folder is fine-tuned with the dropout of the
    config. The objective decides whether attention is left to right, even if the checkpoint was trained differently.

    Raises:
        ValueError: a special token is missing from the vocabulary, the network does not fit the tokenizer or
            ``--max_seq_length``, or the checkpoint lacks weights other than those of the heads and the pooler.
    """
    args, objective = run.args, objective_of(vars(run.args))
    if objective.masks:
        check_masking(tokenizer, args.whole_word_mask)
    if args.teacher:
        check_teacher(args, tokenizer)
    model, initial_weights = (_trained_further if args.model_name_or_path else _new)(run, cls, tokenizer)
    if objective.pairs and model.config.type_vocab_size == 1:
        raise UserError(
            f"--objective {args.objective} needs two segments, and {args.model_name_or_path or args.config_name} has "
            "one (type_vocab_size 1 in its config.json); give --objective mlm"
        )
    if args.model_impl == "repro":
        model.config.sparse_prediction = True
    model = as_implementation(model, args)
    if args.dropout is not None:
        set_dropout(model, args.dropout)
    prepare_for_training(model, args)
    return model, initial_weights


def _new(
    run: Run[PretrainingArguments], cls: type[PreTrainedModel], tokenizer: PreTrainedTokenizerBase
) -> tuple[PreTrainedModel, None]:
    args = run.args
    assert args.max_seq_length is not None  # the flags get their default when they are parsed
    config = new_config(args.config_name or "mini", tokenizer)
    config.is_decoder = objective_of(vars(args)).left_to_right
    if args.initializer_range is not None:
        config.initializer_range = args.initializer_range
    if multiple := args.pad_vocab_to_multiple_of:
        config.vocab_size = -(-config.vocab_size // multiple) * multiple
    check_fit(config, tokenizer, args.max_seq_length, quiet=bool(multiple))
    return cls(config), None


def _trained_further(
    run: Run[PretrainingArguments], cls: type[PreTrainedModel], tokenizer: PreTrainedTokenizerBase
) -> tuple[PreTrainedModel, dict[str, str]]:
    args, left_to_right = run.args, objective_of(vars(run.args)).left_to_right
    name = str(args.model_name_or_path)
    assert args.max_seq_length is not None
    config = checkpoint_config(name)
    origins = new_pieces_of(args, tokenizer)
    sized = sized_config(args, config, tokenizer, origins)
    check_fit(sized, tokenizer, args.max_seq_length, quiet=bool(args.pad_vocab_to_multiple_of))
    before, config.is_decoder = config.is_decoder, left_to_right
    model, new, _ = load_network(cls, name, ("cls.", "bert.pooler."), config=config)
    model, new = derive_weights(run, model, sized, tokenizer, origins, new)
    if args.kept_layers:
        numbers = ", ".join(map(str, args.kept_layers))
        run.say(f"layers {numbers} of the {model.config.num_hidden_layers} of {name}")
        model = with_layers(model, args.kept_layers)
    run.say(f"weights of {name}" + (f", newly initialised: {', '.join(new)}" if new else ""))
    if before != left_to_right:
        ways = ("left to right", "in both directions")
        now, then = ways if left_to_right else ways[::-1]
        run.say(f"attention: {now}, as --objective {args.objective} needs it; the checkpoint attended {then}")
    return model, weights_sha256(name, local_files_only=True)


def save_results(
    run: Run[PretrainingArguments], model: torch.nn.Module, data: PretrainingData, results: dict[str, float]
) -> None:
    """Write the finished folder: model, curves, model card and results; upload it with ``--push_to_hub``."""
    remove_projection(run.accelerator.unwrap_model(model))
    save_model_folder(run, model)
    if run.is_main:
        carry_modules(run.args.model_name_or_path, run.output_dir)
        draw_curves(run.output_dir)
        write_model_card(run.output_dir, datasets=[data.text.name], metrics=results, held_out=data.text.held_out_name)
    run.finish(results)
    run.say(f"finished: {run.output_dir}")
    if run.is_main:
        upload_finished(run.args)
