"""Find one answer for every question, and its n best spans, from the start and end logits of all windows.

A span (window, first token, last token) is inside the context part of a window, is at most max_answer_length tokens
long, and it begins at a token that counts in that window (``max_context``). Its score is start logit + end logit. The
search covers ALL such spans. Google's ``write_predictions`` considers only the n_best_size best starts and ends of each
window; if these form no valid pair, it invents the answer "empty".

SQuAD 2.0: the null score is the smallest start + end logit of the [CLS] over the windows; the null odds are the
null score minus the score of the best span. If they are above the threshold, the answer is the empty string.

A question without any span (its context has no tokens) gets the empty string and, in version 1.1, an empty n-best
list.
"""

import json
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert_training.files.atomic import write_text
from bert_training.tasks.squad import metrics
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.threshold import find_threshold_to_store, gives_no_answer
from bert_training.tasks.squad.windows import Windows, max_context
from tokenization.errors import UserError


@dataclass
class Answers:
    """The answers and their scores, by question id.

    Attributes:
        predictions: the answer; in version 2 empty where the null odds are above the threshold.
        span_predictions: the text of the best span, regardless of the threshold; empty if there is no span.
        nbest: entries with text, probability (softmax over the entries), start_logit, end_logit, start and end (the
            first character of the span in the context and the one after its last); best first. In version 2, one of
            the entries has the text "".
        null_odds: version 2 only; the answer is empty where they are above ``threshold``.
    """

    predictions: dict[str, str] = field(default_factory=dict)
    span_predictions: dict[str, str] = field(default_factory=dict)
    nbest: dict[str, list[dict]] = field(default_factory=dict)
    null_odds: dict[str, float] = field(default_factory=dict)
    threshold: float = 0.0

    def score(self, questions: Sequence[Question]) -> dict[str, float]:
        """The official scores of the predictions, with ``exact_match`` and ``f1`` in both versions.

        In version 2, the best scores over all thresholds are computed from ``span_predictions``, because the search
        must start from unfiltered answers. ``null_score_diff_threshold`` is the threshold to store with the model
        (``threshold.find_threshold_to_store``); ``at_best_...`` are the scores with it and ``at_0_...`` those with 0.
        ``best_f1`` can exceed ``at_best_f1``: the official search may stop between equal null odds, a threshold cannot.
        """
        gold = {question.id: [text for text, _ in question.answers] for question in questions}
        if not self.null_odds:
            return metrics.score(gold, self.predictions)
        scores = metrics.score(gold, self.span_predictions, True, self.null_odds, self.threshold)
        results = {"exact_match": scores["exact"], **scores}
        f1 = {id_: metrics.score_answer("f1", answers, self.span_predictions[id_]) for id_, answers in gold.items()}
        best = find_threshold_to_store(f1, self.null_odds, {id_: bool(texts) for id_, texts in gold.items()})
        for name, threshold in (("at_0", 0.0), ("at_best", best)):
            scores = metrics.score(gold, self.span_predictions, True, self.null_odds, threshold)
            results |= {f"{name}_exact": scores["exact"], f"{name}_f1": scores["f1"]}
        return results | {"null_score_diff_threshold": best}

    def scored_rows(self, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
        """The official scores of the predictions, question by question, for ``tasks/scored_rows.py``."""
        for one in questions:
            gold = {one.id: [text for text, _ in one.answers]}
            scores = metrics.score(gold, {one.id: self.predictions[one.id]}, bool(self.null_odds))
            yield {"id": one.id, "exact_match": scores.get("exact_match", scores.get("exact")), "f1": scores["f1"]}

    def write(self, folder: str | Path, prefix: str = "") -> None:
        """Write predictions.json and nbest_predictions.json, and in version 2 two more files.

        These are null_odds.json and span_predictions.json, the answers before the threshold is applied, which the
        official search for a threshold needs.
        """
        files = {"predictions": self.predictions, "nbest_predictions": self.nbest}
        if self.null_odds:
            files |= {"null_odds": self.null_odds, "span_predictions": self.span_predictions}
        for name, content in files.items():
            text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
            write_text(Path(folder) / f"{prefix}{name}.json", text + "\n")

    def write_lines(self, path: str | Path) -> None:
        """Write one object a line for every question: its id, the answer, its probability and the place of its tokens.

        The probability is the answer's share among the n best, in version 2 with "no answer" among them; None and no
        place if there is no candidate at all.
        """
        lines = []
        for id_, text in self.predictions.items():
            found = next((entry for entry in self.nbest[id_] if entry["text"] == text), {})
            values = {name: found.get(name) for name in ("probability", "start", "end")}
            lines.append(json.dumps({"id": id_, "answer": text} | values, ensure_ascii=False, allow_nan=False))
        write_text(Path(path), "\n".join(lines) + "\n")


def find_answers(
    questions: Sequence[Question],
    windows: Windows,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    *,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    version_2_with_negative: bool = False,
    null_score_diff_threshold: float = 0.0,
) -> Answers:
    """Search every question's windows for its best spans.

    Args:
        windows: the result of ``build_windows`` for these questions.
        start_logits, end_logits: for every window one number per token; numbers for padding after them are ignored.
        max_answer_length: in tokens.

    Raises:
        UserError: the logits are not finite.
    """
    _check_logits(windows, start_logits, end_logits)
    bounds = np.searchsorted(windows.question, np.arange(len(questions) + 1))
    answers = Answers(threshold=null_score_diff_threshold)
    for question, first, after in zip(questions, bounds[:-1], bounds[1:]):
        rows = range(first, after)
        entries = _best_spans(question, windows, rows, start_logits, end_logits, n_best_size, max_answer_length)
        best = entries[0] if entries else None
        text = best["text"] if best else ""
        answers.span_predictions[question.id] = answers.predictions[question.id] = text
        if version_2_with_negative:
            null = _null_entry(rows, start_logits, end_logits)
            # Without any span, "no answer" is certain; JSON has no infinity, so the largest float stands for it.
            odds = _score(null) - _score(best) if best else sys.float_info.max
            if gives_no_answer(odds, null_score_diff_threshold):
                answers.predictions[question.id] = ""
            answers.null_odds[question.id] = odds
            entries = sorted([*entries, null], key=_score, reverse=True)
        answers.nbest[question.id] = _with_probabilities(entries)
    return answers


def _check_logits(windows: Windows, *logits: Sequence[np.ndarray]) -> None:
    for name, rows in zip(("start", "end"), logits):
        for window, (row, ids) in enumerate(zip(rows, windows.input_ids, strict=True)):
            if not np.isfinite(row[: len(ids)]).all():
                raise UserError(
                    f"window {window} has {name} logits that are not finite: training diverged; lower --learning_rate"
                )


def _score(entry: dict) -> float:
    return entry["start_logit"] + entry["end_logit"]


def _null_entry(rows: range, start_logits: Sequence[np.ndarray], end_logits: Sequence[np.ndarray]) -> dict:
    row = min(rows, key=lambda window: float(start_logits[window][0]) + float(end_logits[window][0]))
    start, end = float(start_logits[row][0]), float(end_logits[row][0])
    return {"text": "", "start_logit": start, "end_logit": end, "start": 0, "end": 0}


def _with_probabilities(entries: list[dict]) -> list[dict]:
    if not entries:
        return []
    scores = np.array([_score(entry) for entry in entries])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    return [{"text": entry.pop("text"), "probability": float(share), **entry} for entry, share in zip(entries, shares)]


def _best_spans(
    question: Question,
    windows: Windows,
    rows: range,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    n_best_size: int,
    max_answer_length: int,
) -> list[dict]:
    """The n best spans with different texts, best first; equal scores are ordered by window, start and end."""
    scores = _span_scores(windows, rows, start_logits, end_logits, max_answer_length)
    offsets = windows.offsets[windows.question[rows[0]]]
    entries: dict[str, dict] = {}  # by text
    for place in _descending(scores.ravel(), n_best_size):
        row, first, offset = np.unravel_index(place, scores.shape)  # offset: from the first token to the last
        window = rows[row]
        token = windows.first_token[window] + first
        begin, end = int(offsets[token, 0]), _with_accents(question.context, int(offsets[token + offset, 1]))
        at = windows.context_begin[window] + first
        text = question.context[begin:end]
        if text and text not in entries:
            entries[text] = {
                "text": text,
                "start_logit": float(start_logits[window][at]),
                "end_logit": float(end_logits[window][at + offset]),
                "start": begin,
                "end": end,
            }
            if len(entries) == n_best_size:
                break
    return list(entries.values())


def _span_scores(
    windows: Windows,
    rows: range,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    max_answer_length: int,
) -> np.ndarray:
    """The scores of one question's spans, (windows, first token in the window's context, length - 1).

    -inf where there is no such span.
    """
    size = int(windows.num_tokens[rows].max())
    starts = np.full((len(rows), size), -np.inf)
    ends = np.full((len(rows), size + max_answer_length - 1), -np.inf)
    counted = max_context(windows.first_token[rows], windows.num_tokens[rows])
    for row, window in enumerate(rows):
        begin, count = windows.context_begin[window], windows.num_tokens[window]
        starts[row, :count] = np.where(counted[row], start_logits[window][begin : begin + count], -np.inf)
        ends[row, :count] = end_logits[window][begin : begin + count]
    if size == 0:
        return np.empty((len(rows), 0, max_answer_length))
    return starts[:, :, None] + np.lib.stride_tricks.sliding_window_view(ends, max_answer_length, axis=1)


def _descending(scores: np.ndarray, wanted: int) -> Iterator[int]:
    """Yield the indices of the finite scores, highest first and equal scores in order; sort only what is consumed."""
    done = np.inf
    left = int(np.isfinite(scores).sum())
    while left > 0:
        # Texts repeat, so take 4 times as many, then 16 times, ...
        wanted = min(4 * wanted, left)
        below = np.where(scores < done, scores, -np.inf)
        bound = np.partition(below, -wanted)[-wanted]
        batch = np.flatnonzero(below >= bound)
        yield from batch[np.argsort(-below[batch], kind="stable")]
        left -= len(batch)
        done = bound


def _with_accents(context: str, end: int) -> int:
    # An uncased tokenizer drops combining accents, so a token can end before the accent of its last letter.
    while end < len(context) and unicodedata.category(context[end]) == "Mn":
        end += 1
    return end
