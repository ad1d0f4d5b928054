"""The checks that come before the text is read and a vocabulary is learnt, which may take hours."""

from pathlib import Path
from typing import Any

from transformers import BertConfig, PreTrainedTokenizerBase

from bert_training.engine.checkpoint import named_checkpoint
from bert_training.engine.optimizer import steps_of_warmup
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import phases_of, with_steps
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.models import (
    bert_config,
    check_fit,
    check_kept_layers,
    check_length,
    check_model_name,
    checkpoint_config,
)
from bert_training.inputs.tokenizers import chosen_tokenizer
from bert_training.pretraining.corpus import Corpus, is_finished
from bert_training.pretraining.network import new_pieces_of, sized_config
from bert_training.pretraining.teacher import check_teacher
from bert_training.pretraining.tokenizer import check_extension
from bert_training.record import Record
from tokenization.errors import UserError

OF_CORPUS = ("text_column", "max_train_documents", "deduplicate", "validation_split", "mixture")
OF_VOCABULARY = ("tokenizer_name", "vocab_size", "do_lower_case")


def check_early(args: PretrainingArguments) -> dict[str, Any]:
    """Check the flags and files that do not depend on the vocabulary.

    They are the flags that an unfinished run in the folder was started with, the steps of phases and warm-up,
    the shape of the network, the length of its inputs, the checkpoint to start or resume from, the tokenizer if one is
    given, and the folders of corpora that are still to be written.

    Returns:
        What run.json says of the run that is resumed; {} if none is.

    Raises:
        ValueError: one of them is wrong.
    """
    begun = check_unfinished(args)
    if args.max_steps > 0:
        with_steps(phases_of(vars(args)), args.max_steps)
        steps_of_warmup(args.warmup_steps, args.max_steps)
    if args.model_name_or_path:
        check_model_name(args.model_name_or_path)
    else:
        length = max(phase.length for phase in phases_of(vars(args)))
        config = bert_config(args.config_name or "mini", 1)
        check_length(config, length)
        _check_segments(args, config)
    if args.tokenizer_name:
        tokenizer = chosen_tokenizer(args.tokenizer_name, args.model_name_or_path)
        check_extension(args, tokenizer, begun)
        check_teacher(args, tokenizer)
        if args.model_name_or_path:
            _check_weights(args, args.model_name_or_path, tokenizer)
        if args.corpus_dir and not is_finished(Path(args.output_dir, "corpus", "train")):
            Corpus.open(args.corpus_dir, tokenizer, verify=False)
    if args.resume_from_checkpoint not in (None, "auto"):
        named_checkpoint(args.resume_from_checkpoint)
    return begun


def _check_weights(args: PretrainingArguments, weights: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check that the network can have the rows and the positions that the flags ask for."""
    config = checkpoint_config(weights)
    _check_segments(args, config)
    check_kept_layers(args.kept_layers, config)
    sized = sized_config(args, config, tokenizer, new_pieces_of(args, tokenizer))
    check_fit(sized, tokenizer, args.max_seq_length or 1, quiet=True)


def _check_segments(args: PretrainingArguments, config: BertConfig) -> None:
    """Raise ValueError if pairs of segments would be asked of a network that cannot tell their two texts apart."""
    if objective_of(vars(args)).pairs and config.type_vocab_size == 1:
        raise UserError(
            f"--objective {args.objective} needs two segments, and {args.model_name_or_path or args.config_name} has "
            "one (type_vocab_size 1 in its config.json); give --objective mlm"
        )


def check_unfinished(args: PretrainingArguments) -> dict[str, Any]:
    """Check that the flags that decide the vocabulary and the corpus are those of the run that is resumed.

    Returns:
        What run.json says of that run; {} if none is resumed.

    Raises:
        ValueError: they are not, so that its corpus and its checkpoints would be refused when a vocabulary was learnt.
    """
    folder = Path(args.output_dir)
    begun = any(map(is_finished, folder.glob("corpus/train*"))) or any(folder.glob("checkpoint-[0-9]*"))
    if not args.resume_from_checkpoint or not begun or not (folder / "run.json").is_file():
        return {}
    try:
        facts = Record.read(folder).facts
    except ValueError:  # the start of the run has warned of it, and nothing else needs it
        return {}
    then = facts["flags"]
    names = [*OF_CORPUS, "extend_vocab"] if args.tokenizer_name else [*OF_CORPUS, *OF_VOCABULARY]
    changed = [f"{name} {then[name]} -> {now}" for name in names if then[name] != (now := getattr(args, name))]
    if changed:
        raise UserError(
            f"{folder} holds an unfinished run whose text or vocabulary was chosen by other flags "
            f"({', '.join(changed)}); give the same flags, or another --output_dir"
        )
    return facts
