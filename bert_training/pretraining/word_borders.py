"""What --whole_word_mask takes for a word in scripts that have no spaces between words.

BERT's tokenizer makes each ideograph a word, so that whole words of Chinese are single characters. In Thai, Lao, Khmer,
Burmese, kana and, with ``tokenize_chinese_chars`` off, in Chinese, everything between two spaces is one word, which is
mostly too long to be masked. Both would happen in silence.
"""

import json
import re
from collections.abc import Iterable, Sequence

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.masking import FOR_CHINESE
from bert_training.pretraining.text import Text
from tokenization.errors import UserError
from tokenization.library_tables import CJK_RANGES

_SAMPLE = 1 << 20  # characters
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
    if not args.whole_word_mask:
        return
    apart = not args.tokenizer_name or ideographs_apart(load_tokenizer(args.tokenizer_name))
    single, long = shares((line for line in text.lines() if line is not None), apart)
    beginning = f"of the first characters of {text.name}"
    problems = [
        (single, f"{beginning} are ideographs, each of which this tokenizer makes a word of its own", FOR_CHINESE),
        (long, f"{beginning} stand in words of more than {_LONGEST_WORD} characters without a space", FOR_OTHERS),
    ]
    by_recipe = "whole_word_mask" in args.choices_of_recipe()
    without = f"--recipe {args.recipe} sets it, so give --whole_word_mask false" if by_recipe else "leave the flag out"
    for share, what, remedy in problems:
        if share >= REFUSED and not args.resume_from_checkpoint:
            raise UserError(
                f"--whole_word_mask: {share:.1%} {what}, so that no words would be masked; {without}. {remedy}"
            )
    if long >= NOTED:
        run.say(f"warning: --whole_word_mask: {long:.1%} {problems[1][1]}; there it masks no words. {FOR_OTHERS}")


def note_single_characters(
    run: Run[PretrainingArguments], corpora: Sequence[Corpus], tokenizer: PreTrainedTokenizerBase
) -> None:
    """Print a warning if --whole_word_mask masks single ideographs, with their exact share of the tokens."""
    if run.args.whole_word_mask and ideographs_apart(tokenizer):
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        single = np.array([re.fullmatch(f"[{_IDEOGRAPH}]", piece) is not None for piece in pieces])
        ideographs = sum(int(corpus.unigrams[single].sum()) for corpus in corpora)
        share = ideographs / sum(corpus.num_tokens for corpus in corpora)
        if share >= NOTED:
            run.say(
                f"warning: --whole_word_mask: {share:.1%} of the tokens are ideographs, each of which this tokenizer "
                f"makes a word of its own; they are masked one by one. {FOR_CHINESE}"
            )


def ideographs_apart(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer makes each ideograph a word."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    normalizer = backend and json.loads(backend.to_str())["normalizer"]
    return bool(normalizer and normalizer.get("handle_chinese_chars", False))


def shares(lines: Iterable[str], apart: bool) -> tuple[float, float]:
    """(share of ideographs that are words, share of characters in words that are too long), of the first characters.

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
        if characters >= _SAMPLE:
            break
    return single / max(1, characters), long / max(1, characters)
