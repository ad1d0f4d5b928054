"""The tokenizer of a pre-training run: a given one, one with new pieces (``--extend_vocab``), or one that is learnt."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.files.atomic import make_folder, new_folder, remove_folder, write_json
from bert_training.files.harmless_output import say
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.mixtures import is_mixed, mean_shares
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.json_files import read_object
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.coverage import check_beginning
from bert_training.pretraining.held_out import Side
from bert_training.pretraining.text import Text
from bert_training.pretraining.word_borders import check_borders_of_words
from tokenization.bert_tokenizer import save_tokenizer_files
from tokenization.errors import UserError
from tokenization.extend_vocabulary import (
    check_extendable,
    count_mixed_words,
    extend_vocabulary,
    read_words,
    remarks_in_lines,
)
from tokenization.fingerprint import tokenizer_sha256
from tokenization.train_wordpiece import train_wordpiece

RECORD = "new_pieces.json"


def tokenizer_of(run: Run[PretrainingArguments], text: Text) -> PreTrainedTokenizerBase:
    """The tokenizer of the run. All processes call it.

    Raises:
        ValueError: it makes nearly all of the text [UNK], or ``--whole_word_mask`` would mask no words of the text.
    """
    args = run.args

    def found() -> PreTrainedTokenizerBase:
        if args.extend_vocab:
            return extended_tokenizer(run, text)
        if args.tokenizer_name:
            return load_tokenizer(args.tokenizer_name, quiet=True)  # check_early has opened it and said what it found
        return learnt_tokenizer(run, text)

    run.only_main(lambda: check_borders_of_words(run, text))
    tokenizer = run.main_first(found)
    run.only_main(lambda: check_beginning(text, tokenizer))
    return tokenizer


def learnt_tokenizer(run: Run[PretrainingArguments], text: Text) -> PreTrainedTokenizerBase:
    """A tokenizer whose vocabulary is learnt from the text and kept in the output folder."""
    args = run.args
    case = "uncased" if args.do_lower_case else "cased"
    folder = run.output_dir / "corpus" / f"vocabulary-{args.vocab_size}-{case}-{text.checksum}"
    if not (folder / "vocab.txt").exists():  # it exists after an interruption, and on the other processes
        run.say(f"learning a vocabulary of {args.vocab_size:,} rows")
        lines = (line for line in tqdm(text.lines(), unit=" lines", desc="reading", disable=None) if line is not None)
        make_folder(folder.parent)
        with new_folder(folder) as draft:
            train_wordpiece(
                lines,
                args.vocab_size,
                output_dir=draft,
                do_lower_case=args.do_lower_case,
                count=text.word_counter(),
            )
    return AutoTokenizer.from_pretrained(folder)


def check_extension(args: PretrainingArguments, tokenizer: PreTrainedTokenizerBase, begun: dict[str, Any]) -> None:
    """Check --extend_vocab before the text is read: the tokenizer and, if there is one, the list of words.

    Args:
        begun: what run.json says of the run that is resumed; {} for a new one.

    Raises:
        ValueError: the list cannot be read, is not that with which the run began, or the tokenizer is not one of BERT.
    """
    if args.extend_vocab is None:
        return
    check_extendable(tokenizer)
    if args.new_pieces is not None:
        return
    listed = read_words(args.extend_vocab, tokenizer)
    then = (begun.get("new_pieces") or {}).get("list_sha256")
    if then not in (None, sha256(Path(args.extend_vocab))):
        raise UserError(
            f"--extend_vocab {args.extend_vocab}: the list has changed since the run in {args.output_dir} began; give "
            "the list that it was started with, or another --output_dir"
        )
    for remark in remarks_in_lines(listed.remarks):
        say(remark)


def extended_tokenizer(run: Run[PretrainingArguments], text: Text) -> PreTrainedTokenizerBase:
    """The tokenizer of the weights with new pieces; the first process makes it, and the others find it.

    Raises:
        ValueError: the text offers fewer pieces than were asked for.
    """
    args = run.args
    base = load_tokenizer(str(args.tokenizer_name), quiet=True)
    asked: str | int | None = args.new_pieces
    if asked is None:
        asked = sha256(Path(str(args.extend_vocab)))
    share = 0.0 if args.validation_file else args.validation_split
    shares = mean_shares(vars(args)) if is_mixed(vars(args)) else None
    key = json.dumps([asked, tokenizer_sha256(base), text.fingerprint, share, *([shares] if shares else [])])
    folder = run.output_dir / "corpus" / f"vocabulary-extended-{zlib.crc32(key.encode()):08x}"
    if not (folder / RECORD).exists():  # it exists after an interruption, and on the other processes
        run.say("choosing new pieces" if args.new_pieces else f"adding the words of {args.extend_vocab}")
        new = args.new_pieces or read_words(str(args.extend_vocab), base).pieces
        if shares:
            files = (_training_lines(text.of_file(number), share) for number in range(len(shares)))
            extended = extend_vocabulary(base, count_mixed_words(base, files, shares), new)
        else:
            extended = extend_vocabulary(base, _training_lines(text, share), new)
        for line in extended.summary():
            run.say(line)
        make_folder(folder.parent)
        remove_folder(folder)
        with new_folder(folder) as draft:
            save_tokenizer_files(extended.tokenizer, draft, base.model_max_length)
            own = {} if args.new_pieces else {"list_sha256": asked}
            write_json(draft / RECORD, own | extended.facts())
    run.add_facts(new_pieces=read_object(folder / RECORD))
    return load_tokenizer(str(folder), quiet=True)


def _training_lines(text: Text, share: float) -> Iterator[str | None]:
    """The documents to train on: what is held out must not decide on the vocabulary with which it is evaluated."""
    return iter(tqdm(Side(share).of(text.lines()), unit=" lines", desc="reading", disable=None))
