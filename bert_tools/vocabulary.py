"""Learn a WordPiece vocabulary from files, or extend that of a tokenizer or a model, and save it in a folder.

bert-repro vocabulary --train_file a.txt b.txt.xz --vocab_size 30522 --output_dir vocab
bert-repro vocabulary --extend MODEL --extend_vocab 2000 --train_file domain.txt --output_dir extended
bert-repro vocabulary --extend MODEL --extend_vocab words.txt --output_dir extended

If MODEL has weights, the folder gets them too, with rows for the new pieces.
"""

import argparse
import logging
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bert_tools.extension import add_extension_flags, extend_from_flags
from bert_training.files.atomic import files_into, make_folder
from bert_training.files.processes import usable_cores
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.texts import PLACES, check_files
from bert_training.inputs.tokenizers import TOKENIZER, TOKENIZER_CONFIG, VOCABULARY
from bert_training.pretraining.encoding import count_words_of_files
from tokenization.extend_vocabulary import UNUSED
from tokenization.train_wordpiece import LAYOUTS, train_wordpiece

logger = logging.getLogger(__name__)


def learn_vocabulary(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    vocab_size: int,
    *,
    text_column: str = "text",
    progress: bool = True,
    num_workers: int = 1,
    **settings: Any,
) -> list[str]:
    """Learn a vocabulary from files and return its pieces in the order of their ids.

    Args:
        files: a path, or several; ``read_documents`` says which forms the files may have.
        vocab_size: number of rows of the vocabulary, including special and unused ones.
        text_column: the name of the field of the text in .jsonl and .parquet files.
        progress: show progress bars if standard error is a terminal.
        num_workers: processes that count words; with 1 this process does. The vocabulary is the same.
        settings: further arguments of ``train_wordpiece``, such as ``output_dir``.

    Raises:
        ValueError: a file cannot be read, or as ``train_wordpiece`` does.
        OSError: the tokenizer could not be written.
    """
    paths = [files] if isinstance(files, str | os.PathLike) else files
    checked = check_files(paths)
    count = partial(count_words_of_files, checked, text_column=text_column, num_workers=num_workers, progress=progress)
    return train_wordpiece((), vocab_size, progress=progress, count=count, **settings)


def main(argv: list[str] | None = None) -> None:
    """Learn a vocabulary as the flags say.

    Raises:
        ValueError, OSError: as ``learn_vocabulary`` does.
    """
    parser, args = _parse(argv)
    if args.extend is not None:
        extend_from_flags(parser, args)
        return
    settings = {
        "do_lower_case": args.do_lower_case != "false",
        "strip_accents": None if args.strip_accents is None else args.strip_accents == "true",
        "tokenize_chinese_chars": args.tokenize_chinese_chars != "false",
        "layout": args.layout,
        "min_frequency": 2 if args.min_frequency is None else args.min_frequency,
        "limit_alphabet": args.limit_alphabet,
    }
    workers = args.num_workers or usable_cores()
    make_folder(Path(args.output_dir))
    with files_into(Path(args.output_dir), "tokenizer") as draft:
        settings |= {"text_column": args.text_column, "num_workers": workers, "output_dir": draft}
        pieces = learn_vocabulary(args.train_file, args.vocab_size, **settings)
    unused = sum(bool(UNUSED.fullmatch(piece)) for piece in pieces)
    part = f" ({unused} of them [unused])" if unused else ""
    print(f"{len(pieces):,} rows{part} in {args.output_dir}")


def _parse(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = command_parser("vocabulary", __doc__)
    parser.add_argument("--train_file", "--train-file", nargs="+", help=PLACES)
    parser.add_argument("--vocab_size", "--vocab-size", type=int, help="size of the vocabulary to learn")
    add_extension_flags(parser)
    parser.add_argument("--output_dir", "--output-dir", required=True)
    parser.add_argument("--do_lower_case", "--do-lower-case", choices=["true", "false"], help="default: true")
    parser.add_argument(
        "--strip_accents",
        "--strip-accents",
        choices=["true", "false"],
        help="drop accents and other non-spacing marks, which are vowels in many scripts. Default: only if the case is "
        "lowered, and if that changes few words of the text",
    )
    parser.add_argument("--layout", choices=sorted(LAYOUTS), help="default: google for 1,000 rows or more")
    parser.add_argument("--min_frequency", "--min-frequency", type=int, help="default: 2")
    parser.add_argument(
        "--limit_alphabet",
        "--limit-alphabet",
        type=int,
        help="number of characters to keep; default: 1,000, and more where rows would stay free",
    )
    parser.add_argument(
        "--text_column", "--text-column", default="text", help="field of the text in .jsonl and .parquet files"
    )
    parser.add_argument(
        "--tokenize_chinese_chars",
        "--tokenize-chinese-chars",
        choices=("true", "false"),
        help="make each CJK ideograph a word; false: for texts with spaces between their words. Default: true",
    )
    parser.add_argument(
        "--num_workers", "--num-workers", type=int, help="processes that count words; default: the cores it may use"
    )
    args = parser.parse_args(argv)
    of_others = () if os.path.exists(Path(args.output_dir) / "tokenizer.incomplete") else (TOKENIZER, TOKENIZER_CONFIG)
    for name in (VOCABULARY, *of_others, "config.json"):  # a killed process has left its draft, and no vocab.txt
        if os.path.exists(Path(args.output_dir) / name):  # a name that is too long is no error here
            parser.error(f"{args.output_dir} already holds a {name}; name another folder")
    make_folder(Path(args.output_dir).parent)  # before hours of reading
    if args.extend is not None:
        return parser, args
    for name in ("extend_vocab", "pad_vocab_to_multiple_of"):
        if getattr(args, name) is not None:
            parser.error(f"--{name} has no effect without --extend; leave it out")
    for name in ("train_file", "vocab_size"):
        if getattr(args, name) is None:
            parser.error(f"the following arguments are required: --{name}")
    return parser, args
