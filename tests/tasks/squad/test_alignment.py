"""From logits to the text of an answer: the search is that of Google's code, and the text goes by offsets."""

import math
from collections import OrderedDict

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.tasks.squad.answers import _with_accents, find_answers
from bert_training.tasks.squad.windows import build_windows, max_context
from tests.helpers.squad_examples import random_logits, random_questions


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def google_answers(question, windows, rows, start, end, n_best_size, max_answer_length, version_2):
    """A port of write_predictions in run_squad.py of google-research/bert, for one question; texts go by offsets."""
    spans = windows.offsets[windows.question[rows[0]]]
    counted = max_context(windows.first_token[rows], windows.num_tokens[rows])
    prelim, score_null = [], 1000000
    for best, w in zip(counted, rows):
        null = float(start[w][0]) + float(end[w][0])
        if null < score_null:
            score_null, null_start, null_end = null, float(start[w][0]), float(end[w][0])
        begin, count = windows.context_begin[w], windows.num_tokens[w]
        best_starts = sorted(range(len(start[w])), key=lambda i: start[w][i], reverse=True)[:n_best_size]
        best_ends = sorted(range(len(end[w])), key=lambda i: end[w][i], reverse=True)[:n_best_size]
        for s in best_starts:
            for e in best_ends:
                if not begin <= s < begin + count or not begin <= e < begin + count or not best[s - begin]:
                    continue
                if e < s or e - s + 1 > max_answer_length:
                    continue
                prelim.append((w, s, e, float(start[w][s]), float(end[w][e])))
    prelim.sort(key=lambda p: p[3] + p[4], reverse=True)
    nbest = OrderedDict()
    for w, s, e, start_logit, end_logit in prelim:
        if len(nbest) >= n_best_size:
            break
        shift = windows.first_token[w] - windows.context_begin[w]
        text = question.context[spans[s + shift][0] : _with_accents(question.context, spans[e + shift][1])]
        nbest.setdefault(text, (start_logit, end_logit))
    entries = [(text, *logits) for text, logits in nbest.items()]
    odds = None
    if version_2:
        odds = score_null - entries[0][1] - entries[0][2]
        entries.append(("", null_start, null_end))
    heights = [math.exp(s + e - max(x[1] + x[2] for x in entries)) for _, s, e in entries]
    return [(*entry, h / sum(heights)) for entry, h in zip(entries, heights)], odds


def test_the_search_is_that_of_write_predictions(tokenizer, vocab):
    """The n-best list is as long as a window, so that Google's search over the best starts and ends is complete."""
    rng = np.random.default_rng(3)
    questions = random_questions(rng, [*vocab[60:], "Red", "xyz", "caf\u00e9"], 40)
    windows = build_windows(questions, tokenizer, 24, 5, 8)
    start, end = random_logits(rng, windows)
    answers = find_answers(
        questions,
        windows,
        start,
        end,
        n_best_size=24,
        max_answer_length=4,
        version_2_with_negative=True,
        null_score_diff_threshold=1.0,
    )
    for i, question in enumerate(questions):
        rows = np.flatnonzero(windows.question == i)
        expected, odds = google_answers(question, windows, rows, start, end, 24, 4, version_2=True)
        found = answers.nbest[question.id]
        by_text = {e["text"]: (e["start_logit"], e["end_logit"], pytest.approx(e["probability"])) for e in found}
        assert {text: rest for text, *rest in expected} == {text: list(rest) for text, rest in by_text.items()}
        assert answers.null_odds[question.id] == pytest.approx(odds)
        assert answers.span_predictions[question.id] == expected[0][0]
        assert answers.predictions[question.id] == ("" if odds > 1.0 else expected[0][0])
        heights = [entry["start_logit"] + entry["end_logit"] for entry in found]
        assert heights == sorted(heights, reverse=True)
        assert sum(entry["probability"] for entry in found) == pytest.approx(1)
