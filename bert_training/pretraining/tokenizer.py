"""The tokenizer of a pre-training run: a given one, one with new pieces (``--extend_vocab``), or one that is learnt.

Also what it loses of the text, and what ``--whole_word_mask`` takes for a word in scripts without spaces: BERT's
tokenizer makes each ideograph a word, so that whole words of Chinese are single characters. In Thai, Lao, Khmer,
Burmese, kana and, with ``tokenize_chinese_chars`` off, in Chinese, everything between two spaces is one word, which is
mostly too long to be masked. Both would happen in silence.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.files.atomic import make_folder, new_folder, remove_folder, write_json
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.phases import is_mixed, mean_shares
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.models import bert_config, check_length
from bert_training.inputs.reading import read_object
from bert_training.inputs.tokenizers import chosen_tokenizer, load_tokenizer
from bert_training.pretraining.encoding import Side
from bert_training.pretraining.masking import FOR_CHINESE
from bert_training.pretraining.text import Text, beginning
from tokenization.bert_tokenizer import save_tokenizer_files, tokenizer_sha256
from tokenization.coverage import coverage
from tokenization.errors import UserError
from tokenization.extend_vocabulary import (
    check_extendable,
    count_mixed_words,
    extend_vocabulary,
    read_words,
    remarks_in_lines,
)
from tokenization.library_tables import CJK_RANGES
from tokenization.train_wordpiece import train_wordpiece

# --- what the tokenizer loses ----------------------------------------------------------------------------------------


# (how to get a vocabulary with the characters of the text, how to get a tokenizer that keeps accents)
GIVEN = (
    "take a tokenizer of this language, or learn a vocabulary (no --tokenizer_name)",
    "take a tokenizer that keeps them (strip_accents false), or learn a vocabulary (no --tokenizer_name)",
)
WEIGHTS_GIVEN = (
    "begin with a model of this language",
    "begin with a model whose tokenizer keeps them (strip_accents false in its tokenizer_config.json)",
)
LEARNT = (
    "give a larger --vocab_size, or learn one with bert-repro vocabulary and a larger --limit_alphabet",
    "learn one with bert-repro vocabulary --strip_accents false",
)


def check_losses(run: Run[PretrainingArguments], tokenizer: PreTrainedTokenizerBase, text: Text) -> None:
    """Warn of what the tokenizer loses of the beginnings of the texts, before they become a corpus.

    Raises:
        ValueError: practically all of a text becomes [UNK].
    """
    args = run.args
    remedies = WEIGHTS_GIVEN if args.model_name_or_path else GIVEN if args.tokenizer_name else LEARNT
    for name, documents in text.parts().items():
        found = coverage(tokenizer, beginning(documents.lines()))
        found.check_usable(name, remedies[0])
        for warning in found.warnings(name, *remedies):
            run.say(warning)


# --- borders of words ------------------------------------------------------------------------------------------------


_LONGEST_WORD = 20  # characters; words of these scripts are much shorter
_IDEOGRAPH = "".join(f"{chr(first)}-{chr(last)}" for first, last in CJK_RANGES)
# Thai and Lao, Burmese, Khmer, hiragana and katakana
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u309f\u30a1-\u30ff"
NOTED, REFUSED = 0.01, 0.5
FOR_OTHERS = "Put spaces between the words of the text with a segmenter"


def check_borders_of_words(run: Run[PretrainingArguments], text: Text) -> None:
    """Refuse --whole_word_mask where it would mask no words in most of the text; a resumed run is only warned.

    Raises:
        ValueError: it would mask none.
    """
    args = run.args
    apart = not args.tokenizer_name or ideographs_apart(load_tokenizer(args.tokenizer_name))
    single, long = shares(beginning(text.lines()), apart)
    of = f"of the first characters of {text.name}"
    problems = [
        (single, f"{of} are ideographs, each of which this tokenizer makes a word of its own", FOR_CHINESE),
        (long, f"{of} stand in words of more than {_LONGEST_WORD} characters without a space", FOR_OTHERS),
    ]
    by_recipe = "whole_word_mask" in args.choices_of_recipe()
    without = f"--recipe {args.recipe} sets it, so give --whole_word_mask false" if by_recipe else "leave the flag out"
    for share, what, remedy in problems:
        if share >= REFUSED and not args.resume_from_checkpoint:
            raise UserError(
                f"--whole_word_mask: {share:.1%} {what}, so that no words would be masked; {without}. {remedy}"
            )
        if share >= NOTED:
            run.say(f"warning: --whole_word_mask: {share:.1%} {what}; there it masks no words. {remedy}")


def ideographs_apart(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer makes each ideograph a word."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = backend and json.loads(backend.to_str())["normalizer"]
    return bool(normalizer and normalizer.get("handle_chinese_chars", False))


def shares(lines: Iterable[str], apart: bool) -> tuple[float, float]:
    """(share of ideographs that are words, share of characters in words that are too long).

    Args:
        lines: the text.
        apart: whether the tokenizer makes each ideograph a word.
    """
    ideographs = re.compile(f"[{_IDEOGRAPH}]")
    unspaced = re.compile(f"[{_UNSPACED}{'' if apart else _IDEOGRAPH}]{{{_LONGEST_WORD + 1},}}")
    characters = single = long = 0
    for line in lines:
        for word in line.split():
            characters += len(word)
            if word.isascii():
                continue
            single += len(ideographs.findall(word)) if apart else 0
            long += sum(map(len, unspaced.findall(word)))
    return single / max(1, characters), long / max(1, characters)


# --- tokenizer -------------------------------------------------------------------------------------------------------


RECORD = "new_pieces.json"


def tokenizer_of(run: Run[PretrainingArguments], text: Text) -> PreTrainedTokenizerBase:
    """The tokenizer of the run. All processes call it.

    Raises:
        ValueError: ``--whole_word_mask`` would mask no words of the text, or practically all of it becomes [UNK].
    """
    args = run.args

    def found() -> PreTrainedTokenizerBase:
        if args.extend_vocab:
            return extended_tokenizer(run, text)
        if args.tokenizer_name:
            return chosen_tokenizer(args.tokenizer_name, args.model_name_or_path)
        return learnt_tokenizer(run, text)

    if args.whole_word_mask:
        run.only_main(lambda: check_borders_of_words(run, text))
    tokenizer = run.main_first(found)
    run.only_main(lambda: check_losses(run, tokenizer, text))
    return tokenizer


def learnt_tokenizer(run: Run[PretrainingArguments], text: Text) -> PreTrainedTokenizerBase:
    """A tokenizer whose vocabulary is learnt from the text and kept in the output folder."""
    args = run.args
    case = "uncased" if args.do_lower_case else "cased"
    folder = run.output_dir / "corpus" / f"vocabulary-{args.vocab_size}-{case}-{text.checksum}"
    if not (folder / "vocab.txt").exists():  # it exists after an interruption, and on the other processes
        # A mistake in the shape of the new network is said before this work, which may take long.
        check_length(bert_config(args.config_name or "mini", args.vocab_size), args.max_seq_length or 0)
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


def extended_tokenizer(run: Run[PretrainingArguments], text: Text) -> PreTrainedTokenizerBase:
    """The tokenizer of the weights with new pieces; the first process makes it, and the others find it.

    Raises:
        ValueError: the text offers fewer pieces than were asked for.
    """
    args = run.args
    base = chosen_tokenizer(str(args.tokenizer_name), args.model_name_or_path)
    check_extendable(base)
    asked: str | int | None = args.new_pieces
    if asked is None:
        asked = sha256(Path(str(args.extend_vocab)))
    share = 0.0 if args.validation_file else args.validation_split
    shares = mean_shares(vars(args)) if is_mixed(vars(args)) else None
    key = json.dumps([asked, tokenizer_sha256(base), text.fingerprint, share, *([shares] if shares else [])])
    folder = run.output_dir / "corpus" / f"vocabulary-extended-{zlib.crc32(key.encode()):08x}"
    if not (folder / RECORD).exists():  # it exists after an interruption, and on the other processes
        run.say("choosing new pieces" if args.new_pieces else f"adding the words of {args.extend_vocab}")
        new: int | list[str] | None = args.new_pieces
        if new is None:
            listed = read_words(str(args.extend_vocab), base)
            new = listed.pieces
            for remark in remarks_in_lines(listed.remarks):
                run.say(remark)
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
