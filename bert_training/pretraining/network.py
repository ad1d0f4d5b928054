"""The network that a pre-training run trains: how it begins, and the folder that it ends in."""

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bert_training.cards.curves import draw_curves
from bert_training.cards.model_card import write_model_card
from bert_training.engine.checkpoint import save_model_folder
from bert_training.engine.output_folder import upload_finished
from bert_training.engine.run import Run
from bert_training.engine.state import Origin
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.models import check_fit, checkpoint_config, new_config
from bert_training.networks.control import as_implementation
from bert_training.networks.embedding_modules import carry_modules
from bert_training.networks.initial_weights import (
    load_network,
    prepare_for_training,
    set_dropout,
    weights_sha256,
    with_layers,
)
from bert_training.networks.new_rows import size_config
from bert_training.pretraining.counted_weights import set_counted_weights
from bert_training.pretraining.data import PretrainingData
from bert_training.pretraining.derived_weights import count_new_weights, derive_weights, new_pieces_of, sized_config
from bert_training.pretraining.masking import check_masking
from bert_training.pretraining.teacher import learn_from_teacher, remove_projection
from tokenization.special_tokens import check_special_tokens


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
    count_new_weights(run, model, data.tokenizer, train)
    return learn_from_teacher(run, model, predicts_words, origin)


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
    args = run.args
    objective, initial_weights = objective_of(vars(args)), None
    left_to_right = objective.left_to_right
    assert args.max_seq_length is not None  # the flags get their default when they are parsed
    if objective.masks:
        check_masking(tokenizer, args.whole_word_mask)
    else:
        check_special_tokens(tokenizer)
    if args.model_name_or_path:
        config = checkpoint_config(args.model_name_or_path)
        origins = new_pieces_of(args, tokenizer)
        sized = sized_config(args, config, tokenizer, origins)
        check_fit(sized, tokenizer, args.max_seq_length, quiet=bool(args.pad_vocab_to_multiple_of))
        before, config.is_decoder = config.is_decoder, left_to_right
        model, new, _ = load_network(cls, args.model_name_or_path, ("cls.", "bert.pooler."), config=config)
        initial_weights = weights_sha256(args.model_name_or_path, local_files_only=True)
        model, new = derive_weights(run, model, sized, tokenizer, origins, new)
        if args.kept_layers:
            numbers = ", ".join(map(str, args.kept_layers))
            run.say(f"layers {numbers} of the {model.config.num_hidden_layers} of {args.model_name_or_path}")
            model = with_layers(model, args.kept_layers)
        run.say(f"weights of {args.model_name_or_path}" + (f", newly initialised: {', '.join(new)}" if new else ""))
        if before != left_to_right:
            ways = ("left to right", "in both directions")
            now, then = ways if left_to_right else ways[::-1]
            run.say(f"attention: {now}, as --objective {args.objective} needs it; the checkpoint attended {then}")
    else:
        config = new_config(args.config_name or "mini", tokenizer)
        config.is_decoder = left_to_right
        if args.initializer_range is not None:
            config.initializer_range = args.initializer_range
        size_config(config, len(tokenizer), {}, args.pad_vocab_to_multiple_of)
        check_fit(config, tokenizer, args.max_seq_length, quiet=bool(args.pad_vocab_to_multiple_of))
        model = cls(config)
    if args.model_impl == "repro":
        model.config.sparse_prediction = True
    model = as_implementation(model, args)
    if args.dropout is not None:
        set_dropout(model, args.dropout)
    prepare_for_training(model, args)
    return model, initial_weights


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
