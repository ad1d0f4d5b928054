"""A question and its context as rows of the model; a long context becomes several overlapping windows.

A question and one window of its context make one row (max_seq_length 16, doc_stride 4):

    context  the man went to the store and bought a gallon of milk        (12 tokens)
    question what did he buy                                              ( 4 tokens: room for 16 - 4 - 3 = 9)

    row 0    [CLS] what did he buy [SEP] the man went to  the store and bought a [SEP]
    row 1    [CLS] what did he buy [SEP] the store and bought a gallon of milk [SEP]
    type ids   0    0    0   0   0    0   1    1    1    1    1   1    1   1    1
    answer "a gallon of milk": row 0 does not hold all of it -> start = end = 0, the [CLS];
                               row 1 -> start 10, end 13
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.tasks.squad.questions import Question
from bert_training.tasks.task_data import in_chunks
from tokenization.bert_tokenizer import text_tokenizer
from tokenization.errors import UserError


@dataclass
class Windows:
    """Rows for the model, each [CLS] question [SEP] part of the context [SEP], grouped by question.

    Shapes: W rows, T tokens of a context.

    Attributes:
        input_ids: W arrays of int32.
        token_type_ids: W arrays of int8.
        question: (W,) index of the question, in rising order.
        context_begin: (W,) position in the row of the first context token.
        first_token: (W,) index of that token in the context.
        num_tokens: (W,) number of context tokens in the row.
        question_lengths: for every question the number of its tokens, before it is cut.
        start_positions, end_positions: (W,) positions in the row of the answer's first and last token, 0 (the
            [CLS]) in rows that do not contain the whole answer; None unless requested.
        offsets: for every question the character spans (T, 2) of its context's tokens.
    """

    input_ids: list[np.ndarray]
    token_type_ids: list[np.ndarray]
    question: np.ndarray
    context_begin: np.ndarray
    first_token: np.ndarray
    num_tokens: np.ndarray
    offsets: list[np.ndarray] = field(repr=False)
    question_lengths: np.ndarray
    start_positions: np.ndarray | None = None
    end_positions: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    def columns(self) -> dict:
        """The model's inputs, for ``bert_training.engine.batches.Features``."""
        columns: dict = {"input_ids": self.input_ids, "token_type_ids": self.token_type_ids}
        if self.start_positions is not None:
            columns |= {"start_positions": self.start_positions, "end_positions": self.end_positions}
        return columns


def check_lengths(max_seq_length: int, doc_stride: int, max_query_length: int) -> None:
    """Raise UserError unless there is room for context after the longest question."""
    room = max_seq_length - max_query_length - 3
    if room < 1 or max_query_length < 1:
        raise UserError(
            f"--max_query_length {max_query_length} and three special tokens leave no room for the context in "
            f"--max_seq_length {max_seq_length}; give a query length from 1 to {max_seq_length - 4}"
        )


def window_starts(num_tokens: int, room: int, doc_stride: int) -> range:
    """The first token of every window of a context (Google's ``doc_spans``); even an empty context has one window."""
    # As in Google's code, the stride is the distance between two starts; in Hugging Face tokenizers it is the overlap.
    doc_stride = min(doc_stride, room)
    beyond_first = max(0, num_tokens - room)
    return range(0, -(-beyond_first // doc_stride) * doc_stride + 1, doc_stride)


def max_context(first_token: np.ndarray, num_tokens: np.ndarray) -> list[np.ndarray]:
    """For each window of one context a bool array: which of its tokens count in this window.

    A token that occurs in several windows counts only in the one where it is farthest from an edge, that is, where the
    smaller of its left and right context is largest; among equal windows, in the longer one, then in the earlier one
    (Google's ``_check_is_max_context``).
    """
    if len(first_token) == 1:
        return [np.ones(num_tokens[0], dtype=bool)]
    total = int((first_token + num_tokens).max())
    highest, best = np.full(total, -1.0), np.zeros(total, dtype=np.int64)
    for window, (first, count) in enumerate(zip(first_token, num_tokens)):
        # One window at a time: a table of all windows and tokens would grow with the square of the context.
        left = np.arange(count)
        # 0.01 x length: Google's tie-break in favour of the longer window.
        score = np.minimum(left, count - 1 - left) + 0.01 * count
        better = score > highest[first : first + count]
        highest[first : first + count][better] = score[better]
        best[first : first + count][better] = window
    spans = zip(first_token, num_tokens)
    return [best[first : first + count] == window for window, (first, count) in enumerate(spans)]


def build_windows(
    questions: Sequence[Question],
    tokenizer: PreTrainedTokenizerBase,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
    with_answers: bool = False,
) -> Windows:
    """Tokenise and cut into windows, as Google's ``convert_examples_to_features`` does.

    Every question has at least one row.

    Args:
        tokenizer: a fast tokenizer; a special token in the text, such as "[SEP]", is read as ordinary characters.
        with_answers: also find the start and end positions of the first gold answer.

    Raises:
        UserError: an answer consists only of characters that it drops.
    """
    contexts = list(dict.fromkeys(question.context for question in questions))
    coded = dict(zip(contexts, _encode(tokenizer, contexts)))
    texts = _encode(tokenizer, [question.text for question in questions])
    cls, sep = (np.array([token], dtype=np.int32) for token in (tokenizer.cls_token_id, tokenizer.sep_token_id))
    pieces, rows, places, offsets, question_lengths, dropped = [], [], [], [], [], list[Question]()
    for number, (question, (text_ids, _)) in enumerate(zip(questions, texts)):
        question_lengths.append(len(text_ids))
        text_ids = text_ids[:max_query_length]
        ids, spans = coded[question.context]
        offsets.append(spans)
        begin = len(text_ids) + 2
        room = max_seq_length - begin - 1
        answer = token_span(*question.answers[0], spans) if with_answers and question.answers else None
        if answer and answer[0] > answer[1]:
            dropped.append(question)
        for start in window_starts(len(ids), room, doc_stride):
            part = ids[start : start + room]
            pieces += [cls, text_ids, sep, part, sep]
            rows.append((number, begin, start, len(part)))
            first, last = answer or (-1, -1)
            if answer and start <= first and last < start + len(part):
                places.append((first - start + begin, last - start + begin))
            else:
                places.append((0, 0))
    if dropped:
        raise UserError(
            f"question {dropped[0].id!r}: the tokenizer drops every character of its answer "
            f"{dropped[0].answers[0][0]!r}, as of {len(dropped):,} of {len(questions):,}; correct or remove them"
        )
    question_index, begins, starts, counts = np.array(rows).T
    ends = np.cumsum(begins + counts + 1)
    types = np.repeat(np.tile(np.array([0, 1], dtype=np.int8), len(rows)), np.stack([begins, counts + 1], 1).ravel())
    start_positions, end_positions = np.array(places).T if with_answers else (None, None)
    return Windows(
        input_ids=_rows(np.concatenate(pieces), ends),
        token_type_ids=_rows(types, ends),
        question=question_index,
        context_begin=begins,
        first_token=starts,
        num_tokens=counts,
        offsets=offsets,
        question_lengths=np.array(question_lengths),
        start_positions=start_positions,
        end_positions=end_positions,
    )


def _encode(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], chunk: int = 1000
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the token ids (T,) and character spans (T, 2) of every text."""
    tokenizer = text_tokenizer(tokenizer)
    for part in in_chunks(len(texts), chunk):
        # In chunks, because a Python tuple per token of the whole training file would take 300 MB.
        coded = tokenizer(
            texts[part],
            add_special_tokens=False,
            split_special_tokens=True,
            return_token_type_ids=False,
            return_attention_mask=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        for ids, spans in zip(coded["input_ids"], coded["offset_mapping"]):
            yield np.array(ids, dtype=np.int32), np.array(spans, dtype=np.int32).reshape(-1, 2)


def lost_at_lengths(
    questions: Sequence[Question], windows: Windows, max_query_length: int, max_answer_length: int
) -> dict[str, int]:
    """How many questions are cut; of those to train on, whose answer no window holds whole, and whose is too long."""
    lost = {"cut_questions": int((windows.question_lengths > max_query_length).sum())}
    if windows.start_positions is not None and windows.end_positions is not None:
        held = windows.start_positions > 0
        long = held & (windows.end_positions - windows.start_positions >= max_answer_length)
        answerable = sum(bool(question.answers) for question in questions)
        lost["in_no_window"] = answerable - len(np.unique(windows.question[held]))
        lost["too_long"] = len(np.unique(windows.question[long]))
    return lost


def token_span(text: str, start: int, spans: np.ndarray) -> tuple[int, int]:
    """The first and the last token that share a character with this answer; the last is before the first if none do."""
    first = int(np.searchsorted(spans[:, 1], start, side="right"))
    return first, int(np.searchsorted(spans[:, 0], start + len(text), side="left")) - 1


def _rows(flat: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    return [flat[begin:end] for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist())]
