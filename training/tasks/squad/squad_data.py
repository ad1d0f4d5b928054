"""SQuAD 1.1 and 2.0: read questions from files and cut their contexts into windows of tokens.

A question and one window of its context make one row (max_seq_length 16, doc_stride 4):

    context  the man went to the store and bought a gallon of milk        (12 tokens)
    question what did he buy                                              ( 4 tokens: room for 16 - 4 - 3 = 9)

    row 0    [CLS] what did he buy [SEP] the man went to  the store and bought a [SEP]
    row 1    [CLS] what did he buy [SEP] the store and bought a gallon of milk [SEP]
    type ids   0    0    0   0   0    0   1    1    1    1    1   1    1   1    1
    answer "a gallon of milk": row 0 does not hold all of it -> start = end = 0, the [CLS];
                               row 1 -> start 10, end 13
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from tokenization.compressed_files import read_text

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Question:
    """One question about one context.

    Attributes:
        answers: (text, first character in ``context``) of every gold answer; empty if there is none.
    """

    id: str
    text: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()
    title: str = ""


# --- reading ---------------------------------------------------------------------------------------------


def read_squad(path: str | Path, version_2_with_negative: bool = False) -> list[Question]:
    """The questions of a SQuAD JSON file (.json, .json.xz, .json.gz), in file order.

    Raises:
        ValueError: the file cannot be read, or violates a rule of ``parse_squad``.
    """
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}:{error.lineno}: not JSON at column {error.colno} ({error.msg}); "
            "expected one SQuAD object with a field 'data'"
        ) from error
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply to be SQuAD JSON") from error
    return parse_squad(document, str(path), version_2_with_negative)


def parse_squad(document: object, source: str, version_2_with_negative: bool = False) -> list[Question]:
    """The questions of a SQuAD object, {data: [{paragraphs: [{context, qas: [{id, question, answers}]}]}]}.

    Args:
        source: the name of the document in error messages, usually a file name.

    Raises:
        ValueError: a field is missing or of another type, an id occurs twice, an answer is not the text at
            its place in the context, a question has no answer (allowed in version 2, where ``is_impossible``
            must agree), or there is no question at all.
    """
    questions, seen = [], set()
    for article_number, article in enumerate(_get(document, "data", list, source)):
        place = f"{source}, article {article_number}"
        title = article.get("title", "") if isinstance(article, dict) else ""
        for number, paragraph in enumerate(_get(article, "paragraphs", list, place)):
            place = f"{source}, article {article_number} ({title!r}), paragraph {number}"
            context = _get(paragraph, "context", str, place)
            for position, entry in enumerate(_get(paragraph, "qas", list, place)):
                id_ = _get(entry, "id", str, f"{place}, question {position}")
                here = f"{source}, question {id_!r}"
                if id_ in seen:
                    raise ValueError(f"{here}: this id occurs twice; predictions are stored by id, make it unique")
                seen.add(id_)
                text = _get(entry, "question", str, here)
                answers = [
                    (_get(answer, "text", str, here), _get(answer, "answer_start", int, here))
                    for answer in _get(entry, "answers", list, here)
                ]
                question = Question(id_, text, context, tuple(answers), str(title))
                _check(question, entry.get("is_impossible"), here, version_2_with_negative)
                questions.append(question)
    if not questions:
        raise ValueError(f"{source}: expected questions, got none")
    return questions


def _get(holder: object, key: str, kind: type[Value], place: str) -> Value:
    if not isinstance(holder, dict):
        raise ValueError(f"{place}: expected an object with {key!r}, got {_short(holder)}")
    if key not in holder:
        raise ValueError(f"{place}: lacks {key!r}; it has {sorted(map(str, holder))}")
    # type() instead of isinstance(), because JSON's true is a bool, which is an int in Python
    value = holder[key]
    if type(value) is not kind:
        raise ValueError(f"{place}: {key!r} must be of type {kind.__name__}, got {_short(value)}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check(question: Question, is_impossible: object, here: str, version_2_with_negative: bool) -> None:
    for name, text in (("question", question.text), ("context", question.context), ("id", question.id)):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{here}: half a surrogate pair in its {name} at character {error.start}") from error
    if is_impossible not in (None, bool(not question.answers)):
        raise ValueError(
            f"{here}: 'is_impossible' is {_short(is_impossible)} but there are {len(question.answers)} answers"
        )
    if not question.answers and not version_2_with_negative:
        raise ValueError(f"{here}: has no answer; for data with unanswerable questions give --version_2_with_negative")
    for text, start in question.answers:
        end = start + len(text)
        if not text.strip():
            raise ValueError(f"{here}: has an empty answer; leave 'answers' empty for an unanswerable question")
        if start < 0 or end > len(question.context):
            raise ValueError(
                f"{here}: answer {_short(text)} at characters {start} to {end} lies outside its context of "
                f"{len(question.context)} characters; correct 'answer_start'"
            )
        if question.context[start:end] != text:
            found = question.context.find(text)
            hint = f"it occurs at {found}" if found >= 0 else "it does not occur in the context"
            raise ValueError(
                f"{here}: expected answer {_short(text)} at character {start}, the context has "
                f"{_short(question.context[start:end])} there; {hint}; correct 'answer_start' or the text"
            )


# --- windows ---------------------------------------------------------------------------------------------


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
    start_positions: np.ndarray | None = None
    end_positions: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    def columns(self) -> dict:
        """The model's inputs, for ``training.engine.batches.Features``."""
        columns: dict = {"input_ids": self.input_ids, "token_type_ids": self.token_type_ids}
        if self.start_positions is not None:
            columns |= {"start_positions": self.start_positions, "end_positions": self.end_positions}
        return columns


def check_lengths(max_seq_length: int, doc_stride: int, max_query_length: int) -> None:
    """Raise ValueError unless there is room for context beside the longest question, and windows leave no gaps."""
    room = max_seq_length - max_query_length - 3
    if room < 1 or max_query_length < 1:
        raise ValueError(
            f"--max_query_length {max_query_length} and three special tokens leave no room for the context in "
            f"--max_seq_length {max_seq_length}; give a query length from 1 to {max_seq_length - 4}"
        )
    if not 1 <= doc_stride <= room:
        raise ValueError(
            f"--doc_stride {doc_stride} must be from 1 to {room}, the context tokens in a row "
            f"(--max_seq_length {max_seq_length} - --max_query_length {max_query_length} - 3 special tokens)"
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
    position = np.arange(int((first_token + num_tokens).max()))
    left = position - first_token[:, None]
    right = num_tokens[:, None] - 1 - left
    score = np.where((left >= 0) & (right >= 0), np.minimum(left, right) + 0.01 * num_tokens[:, None], -1)
    best = score.argmax(axis=0)
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
        ValueError: the tokenizer has no offsets, or an answer consists only of characters that it drops.
    """
    if not tokenizer.is_fast:
        raise ValueError(f"SQuAD needs a fast tokenizer, for its character offsets; got {type(tokenizer).__name__}")
    contexts = list(dict.fromkeys(question.context for question in questions))
    coded = dict(zip(contexts, _encode(tokenizer, contexts)))
    texts = _encode(tokenizer, [question.text for question in questions])
    cls, sep = (np.array([token], dtype=np.int32) for token in (tokenizer.cls_token_id, tokenizer.sep_token_id))
    pieces, shape, places, offsets = [], [], [], []
    for number, (question, (text_ids, _)) in enumerate(zip(questions, texts)):
        text_ids = text_ids[:max_query_length]
        ids, spans = coded[question.context]
        offsets.append(spans)
        begin = len(text_ids) + 2
        room = max_seq_length - begin - 1
        answer = _token_span(question, spans) if with_answers else None
        for start in window_starts(len(ids), room, doc_stride):
            part = ids[start : start + room]
            pieces += [cls, text_ids, sep, part, sep]
            shape.append((number, begin, start, len(part)))
            first, last = answer or (-1, -1)
            if answer and start <= first and last < start + len(part):
                places.append((first - start + begin, last - start + begin))
            else:
                places.append((0, 0))
    question_index, begins, starts, counts = np.array(shape).T
    ends = np.cumsum(begins + counts + 1)
    types = np.repeat(np.tile(np.array([0, 1], dtype=np.int8), len(shape)), np.stack([begins, counts + 1], 1).ravel())
    start_positions, end_positions = np.array(places).T if with_answers else (None, None)
    return Windows(
        input_ids=_rows(np.concatenate(pieces), ends),
        token_type_ids=_rows(types, ends),
        question=question_index,
        context_begin=begins,
        first_token=starts,
        num_tokens=counts,
        offsets=offsets,
        start_positions=start_positions,
        end_positions=end_positions,
    )


def _encode(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], chunk: int = 1000
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the token ids (T,) and character spans (T, 2) of every text."""
    for begin in range(0, len(texts), chunk):
        # In chunks, because a Python tuple per token of the whole training file would take 300 MB.
        coded = tokenizer(
            texts[begin : begin + chunk],
            add_special_tokens=False,
            split_special_tokens=True,
            return_token_type_ids=False,
            return_attention_mask=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        for ids, spans in zip(coded["input_ids"], coded["offset_mapping"]):
            yield np.array(ids, dtype=np.int32), np.array(spans, dtype=np.int32).reshape(-1, 2)


def _token_span(question: Question, spans: np.ndarray) -> tuple[int, int] | None:
    """The first and the last token that share a character with the first gold answer; None if there is no answer."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    first = int(np.searchsorted(spans[:, 1], start, side="right"))
    last = int(np.searchsorted(spans[:, 0], start + len(text), side="left")) - 1
    if first > last:
        raise ValueError(
            f"question {question.id!r}: the tokenizer drops every character of its answer {text!r}; "
            "correct or remove the question"
        )
    return first, last


def _rows(flat: np.ndarray, ends: np.ndarray) -> list[np.ndarray]:
    return [flat[begin:end] for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist())]
