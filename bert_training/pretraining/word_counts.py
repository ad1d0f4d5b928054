"""Count the words of files, piece by piece in several processes, for a vocabulary.

The counts of the pieces are added up, and a vocabulary depends on the counts alone, so that it is the same, byte for
byte, for any number of processes.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from bert_training.files.hashing import unchanged
from bert_training.pretraining.encoding import results_in_order
from bert_training.pretraining.slices import Span, lines_of_span, pieces_of, plan_slices
from tokenization.train_wordpiece import count_words

PIECE_BYTES = 1 << 24
Rules = tuple[bool, bool | None, bool]  # do_lower_case, strip_accents, tokenize_chinese_chars


def count_words_of_files(
    files: Sequence[Path],
    do_lower_case: bool,
    strip_accents: bool | None,
    tokenize_chinese_chars: bool,
    *,
    text_column: str = "text",
    num_workers: int = 1,
    progress: bool = True,
) -> Counter[str]:
    """The words of the files as ``count_words`` counts them.

    Args:
        files: the files.
        do_lower_case: see ``count_words``, as for the next two.
        text_column: the field of the text.
        num_workers: processes to start; with 1 this process does the work.
        progress: show a progress bar if standard error is a terminal.

    Raises:
        ValueError: a file cannot be read, has no text, or is changed meanwhile.
    """
    rules = (do_lower_case, strip_accents, tokenize_chinese_chars)
    spans = [span for one in plan_slices(files, text_column) for span in one]
    pieces = [piece for span in spans for piece in pieces_of(span, PIECE_BYTES, text_column)]
    words: Counter[str] = Counter()
    with unchanged(*files):
        counts = results_in_order((partial(_count, piece, text_column, rules) for piece in pieces), num_workers)
        # disable=None means that tqdm shows no bar unless stderr is a terminal.
        disable = None if progress else True
        for counted in tqdm(counts, total=len(pieces), unit=" parts", desc="counting words", disable=disable):
            words.update(counted)
    return words


def _count(piece: Span, column: str, rules: Rules) -> Counter[str]:
    """The words of a piece; what a worker calls."""
    return count_words((line for line in lines_of_span(piece, column) if line is not None), *rules)
