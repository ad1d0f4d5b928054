"""The checks that come before the text is read and a vocabulary is learnt, which may take hours."""

from pathlib import Path

from training.engine.checkpoint import named_checkpoint
from training.files.links import refuse_links
from training.flags.phases import phases_of
from training.flags.pretraining import PretrainingArguments
from training.networks.checkpoints import check_model_name, checkpoint_config, chosen_tokenizer
from training.networks.configuration import bert_config, check_fit, check_length
from training.networks.old_checkpoints import is_old_checkpoint
from training.pretraining.build_corpus import check_text


def check_early(args: PretrainingArguments) -> None:
    """Check the flags and files that do not depend on the vocabulary.

    They are the shape of the network, the length of its inputs, the checkpoint to start or resume from, the tokenizer
    if one is given, the folders of corpora that are still to be written, and the held-out text if it is in files of its
    own.

    Raises:
        ValueError: one of them is wrong.
    """
    if args.model_name_or_path:
        check_model_name(args.model_name_or_path)
    else:
        length = max(phase.length for phase in phases_of(vars(args)))
        check_length(bert_config(args.config_name or "mini", 1), length)
    if args.tokenizer_name:
        tokenizer = chosen_tokenizer(args.tokenizer_name, args.model_name_or_path)
        if args.model_name_or_path and not is_old_checkpoint(args.model_name_or_path):  # whose tensors are read once
            check_fit(checkpoint_config(args.model_name_or_path, quiet=True), tokenizer, 1, quiet=True)
    if args.resume_from_checkpoint not in (None, "auto"):
        named_checkpoint(args.resume_from_checkpoint)
    for name in ("train", "validation"):
        corpus = Path(args.output_dir, "corpus", name)
        if not (corpus / "manifest.json").is_file():  # a finished one is only read
            refuse_links(corpus)
    if args.validation_file:
        check_text(args.validation_file, args.objective == "mlm_nsp", args.text_column)
