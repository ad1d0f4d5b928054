"""``bert-repro vocabulary --extend``: a tokenizer with new pieces and, with weights, the model with their rows."""

import argparse
import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.files.atomic import check_free, make_folder, new_folder, write_json
from bert_training.inputs.flags.pretraining import ROUNDED_TO
from bert_training.inputs.models import WEIGHT_FILES, check_fit, checkpoint_config
from bert_training.inputs.texts import check_files, read_lines
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.networks.embedding_modules import carry_modules
from bert_training.networks.initial_weights import load_network
from bert_training.networks.new_rows import (
    Origins,
    origins_of,
    set_counted_biases,
    set_rows_of_pieces,
    size_config,
    with_rows,
)
from tokenization.bert_tokenizer import save_tokenizer_files
from tokenization.extend_vocabulary import extend_vocabulary, read_words, remarks_in_lines

RECORD = "new_pieces.json"
OF_LEARNING = (
    *("vocab_size", "do_lower_case", "strip_accents", "layout", "min_frequency", "limit_alphabet"),
    "tokenize_chinese_chars",
)


def add_extension_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of an extension."""
    parser.add_argument("--extend", help="the folder or Hub name of a tokenizer or a model, whose vocabulary grows")
    parser.add_argument(
        "--extend_vocab",
        "--extend-vocab",
        help="with --extend: how many pieces to choose from the text, or a file with one word a line",
    )
    parser.add_argument(
        "--pad_vocab_to_multiple_of",
        "--pad-vocab-to-multiple-of",
        type=int,
        choices=ROUNDED_TO,
        help="with --extend and weights: round the rows of the embeddings up",
    )


def extend_from_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Extend as the flags say.

    Raises:
        ValueError, OSError: as ``extend_folder`` does.
    """
    for name in OF_LEARNING:
        if getattr(args, name) is not None:
            parser.error(f"--{name} has no effect with --extend, whose tokenizer decides it; leave it out")
    if not args.extend_vocab:
        parser.error("--extend needs --extend_vocab: a number of pieces, or a file with one word a line")
    number = int(args.extend_vocab) if args.extend_vocab.isdecimal() else None
    if number == 0:
        parser.error("--extend_vocab must be a number of at least 1, or a file with one word a line")
    if number and not args.train_file:
        parser.error("--extend_vocab with a number chooses the pieces from a text; give --train_file")
    lines = None
    if args.train_file:
        files = check_files(args.train_file)
        lines = tqdm(read_lines(files, args.text_column), unit=" lines", desc="reading", disable=None)
    extend_folder(args.extend, number or args.extend_vocab, lines, args.output_dir, args.pad_vocab_to_multiple_of)


def extend_folder(
    source: str, new: int | str, texts: Iterable[str | None] | None, output_dir: str, multiple: int | None = None
) -> None:
    """Write a tokenizer with new pieces and, if ``source`` has weights, the model with rows for them.

    Args:
        source: a folder or a name on the Hub.
        new: how many pieces to choose from ``texts``, or a file with one word a line.
        texts: see ``extend_vocabulary``.
        multiple: round the rows of the embeddings up to a multiple of this number.

    Raises:
        ValueError: the tokenizer cannot be extended, the list or the text is not as it should be, or the weights do not
            belong to the tokenizer.
        OSError: the folder could not be written.
    """
    target = Path(output_dir)
    check_free(target)
    own = load_tokenizer(source)
    pieces: Any = new
    if isinstance(new, str):
        pieces, remarks = read_words(new, own)
        print(*remarks_in_lines(remarks), sep="\n", end="\n" * bool(remarks))
    weights = _has_weights(source)
    if weights:
        check_fit(checkpoint_config(source), own, 1, quiet=True)
    extended = extend_vocabulary(own, texts, pieces)
    for line in extended.summary():
        print(line)
    transformers.logging.set_verbosity_error()  # what is new, this command says itself
    transformers.logging.disable_progress_bar()
    tokenizer, positions, segments = extended.tokenizer, own.model_max_length, 2
    model = None
    if weights:
        model = _model(source, tokenizer, origins_of(tokenizer, own), multiple, extended.counts)
        positions, segments = model.config.max_position_embeddings, model.config.type_vocab_size
    make_folder(target.parent)
    with new_folder(target) as draft:
        save_tokenizer_files(tokenizer, draft, positions, segments)
        write_json(draft / RECORD, extended.facts())
        if model is not None:
            model.save_pretrained(draft)
            carry_modules(source, draft)
    what = f"a vocabulary of {len(tokenizer):,} rows"
    if model is not None:
        what += f" and a {type(model).__name__} with {model.config.vocab_size:,}"
    print(f"{what} in {target}")


def _model(
    source: str, tokenizer: PreTrainedTokenizerBase, origins: Origins, multiple: int | None, counts: dict[str, int]
) -> PreTrainedModel:
    """The model of a folder, as transformers' class, with the rows of the new pieces."""
    config = checkpoint_config(source)
    vars(config).pop("auto_map", None)  # it names code files, which transformers' class does not save
    model = _opened(source, config)
    sized = copy.deepcopy(config)
    size_config(sized, len(tokenizer), origins, multiple)
    model = with_rows(model, sized)
    set_rows_of_pieces(model, origins, tokenizer.unk_token_id)
    if counts:
        ids, of_text = tokenizer.get_vocab(), torch.zeros(len(tokenizer), dtype=torch.float64)
        for piece, count in counts.items():
            of_text[ids[piece]] = count
        set_counted_biases(model, origins, of_text)
    return model


def _opened(source: str, config: BertConfig) -> PreTrainedModel:
    """The model of a folder, of the class that its config.json names, or with all heads of the pre-training.

    Published checkpoints have both heads, and name the class of one of them.
    """
    named = [name for name in config.architectures or () if name.startswith("Bert") and hasattr(transformers, name)]
    cls = next(iter(named), "BertModel")
    if cls in ("BertForMaskedLM", "BertForNextSentencePrediction"):
        whole = load_network(transformers.BertForPreTraining, source, ("bert.pooler.", "cls."), config=config)
        if not whole.new:
            return whole.model
    may_be_new = ("pooler.", "bert.pooler.") if cls == "BertModel" else ("bert.pooler.",)
    model, new, _ = load_network(getattr(transformers, cls), source, may_be_new, config=config)
    if new:
        print(f"{source} lacks {', '.join(new)}: newly initialised")
    return model


def _has_weights(source: str) -> bool:
    """Whether a folder has weights; a name on the Hub has."""
    folder = Path(source)
    if not folder.exists():
        return True
    return folder.is_dir() and any((folder / name).is_file() for name in WEIGHT_FILES)
