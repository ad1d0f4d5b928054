"""The answers of random logits on odd texts have the properties that every answer must have."""

import unicodedata

import numpy as np
import pytest

from bert_training.tasks.squad.answers import find_answers
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.windows import build_windows, max_context
from tests.helpers.words import WORDS
from tokenization import build_tokenizer

ODD = {
    "combining": ["\u0301", "e\u0301", "a\u0323\u0302", "\u0301\u0301"],
    "zero width": ["\u200b", "\u200d", "\ufeff", "ol\u200bd", "\u2060"],
    "direction": ["\u202e", "\u05d0\u05d1", "\u0627\u0644"],
    "wide": ["\U0001f468\u200d\U0001f469", "\u4e2d\u6587", "\uac00", "\uff21", "\ufdfa"],
    "white": ["\u00a0", "\u3000", "\t", "\u2028", "\u202f", "\n\n"],
    "marks": ["[SEP]", "[CLS]", "##a", "[UNK]", "\x00", "\x7f", "\ufffd", "''", "--", "\u00ad"],
}


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return build_tokenizer([*vocab, "cafe", "\u4e2d"])


def random_text(rng, pieces: int) -> str:
    odd = [piece for part in ODD.values() for piece in part]
    words = [str(rng.choice(odd if rng.random() < 0.4 else WORDS)) for _ in range(pieces)]
    return "".join(word + str(rng.choice(["", " ", " ", "  "])) for word in words)


def random_case(seed: int, tokenizer):
    rng = np.random.default_rng(seed)
    texts = [random_text(rng, int(rng.integers(0, 40))) for _ in range(3)]
    questions = [Question(f"q{i}", random_text(rng, 3), text) for i, text in enumerate(texts)]
    windows = build_windows(questions, tokenizer, int(rng.integers(12, 40)), int(rng.integers(1, 9)), 6)
    steps = 2 ** int(rng.integers(0, 8))  # With 1 many scores are equal; powers of two make sums exact.
    start, end = ([(rng.normal(size=len(ids)) * steps).round() / steps for ids in windows.input_ids] for _ in "se")
    if seed % 4 == 0:  # In these cases, every window prefers [CLS].
        for row in (*start, *end):
            row[0] += 50
    return rng, questions, windows, start, end


def test_what_holds_for_all_answers(tokenizer):
    nulls = answered = 0
    for seed in range(100):
        rng, questions, windows, start, end = random_case(seed, tokenizer)
        size, longest = int(rng.integers(1, 25)), int(rng.integers(1, 8))
        threshold = float(rng.normal())
        for negative in (False, True):
            answers = find_answers(
                questions,
                windows,
                start,
                end,
                n_best_size=size,
                max_answer_length=longest,
                version_2_with_negative=negative,
                null_score_diff_threshold=threshold,
            )
            for i, question in enumerate(questions):
                entries = answers.nbest[question.id]
                texts = [entry["text"] for entry in entries]
                assert len(set(texts)) == len(texts) <= size + negative
                assert texts.count("") == negative
                heights = [entry["start_logit"] + entry["end_logit"] for entry in entries]
                assert heights == sorted(heights, reverse=True)
                assert not entries or sum(entry["probability"] for entry in entries) == pytest.approx(1)
                for entry in entries:
                    check_span(question, windows.offsets[i], entry, longest)
                check_prediction(answers, question.id, texts, negative, threshold)
                nulls += negative and answers.predictions[question.id] == ""
                answered += bool(answers.predictions[question.id])
    assert nulls > 50 and answered > 100


def check_span(question: Question, spans: np.ndarray, entry: dict, longest: int) -> None:
    begin, end, text = entry["start"], entry["end"], entry["text"]
    if not text:
        assert (begin, end) == (0, 0)
        return
    assert 0 <= begin < end <= len(question.context)
    inside = (spans[:, 0] >= begin) & (spans[:, 1] <= end)
    assert 1 <= len(np.unique(spans[inside], axis=0)) <= longest
    assert end == len(question.context) or unicodedata.category(question.context[end]) != "Mn"
    assert question.context[begin:end] == text


def check_prediction(answers, id_: str, texts: list[str], negative: bool, threshold: float) -> None:
    best = next((text for text in texts if text), "")
    assert answers.span_predictions[id_] == best
    if negative:
        assert answers.predictions[id_] == ("" if answers.null_odds[id_] > threshold else best)
        assert np.isfinite(answers.null_odds[id_])
    else:
        assert answers.predictions[id_] == best and answers.null_odds == {}


def test_what_does_not_change_the_answers(tokenizer):
    """Padding after the logits, other questions, a smaller n-best list or a constant added to all starts change
    nothing.
    """
    for seed in range(40):
        rng, questions, windows, start, end = random_case(seed, tokenizer)
        options = {"n_best_size": 12, "max_answer_length": 5, "version_2_with_negative": True}
        expected = find_answers(questions, windows, start, end, **options)
        padded = [np.concatenate([row, rng.normal(size=7) + 99]) for row in start]
        assert find_answers(questions, windows, padded, end, **options) == expected
        fewer = find_answers(questions, windows, start, end, **options | {"n_best_size": 3})
        lifted = find_answers(questions, windows, [row + 2**10 for row in start], end, **options)
        assert fewer.predictions == expected.predictions == lifted.predictions
        for id_, entries in expected.nbest.items():
            texts = [entry["text"] for entry in entries if entry["text"]]
            assert [entry["text"] for entry in fewer.nbest[id_] if entry["text"]] == texts[:3]
        last = len(questions) - 1
        alone = build_windows(questions[last:], tokenizer, 64, 8, 6)
        rows = np.flatnonzero(windows.question == last)
        if len(rows) == 1 and len(alone) == 1:
            single = find_answers(questions[last:], alone, start[rows[0] :], end[rows[0] :], **options)
            assert single.nbest[f"q{last}"] == expected.nbest[f"q{last}"]


def test_an_answer_at_every_place_of_every_window(tokenizer):
    """A span of one to four tokens is found wherever it is, also at the edge of a window.

    It is read from the window in which its first token has the maximum context. In any other window, the same logits
    are ignored.
    """
    question = Question("q", "the old", " ".join(WORDS[:30]))
    for room, stride in ((5, 1), (5, 3), (7, 7), (9, 4)):
        windows = build_windows([question], tokenizer, room + 5, stride, 2)
        spans, read = windows.offsets[0], 0
        counted = max_context(windows.first_token, windows.num_tokens)
        for w, counts in enumerate(counted):
            begin, count, first = windows.context_begin[w], windows.num_tokens[w], windows.first_token[w]
            assert count <= room
            for s in range(count):
                for e in range(s, min(s + 4, count)):
                    start, end = ([np.full(len(row), -9.0) for row in windows.input_ids] for _ in "se")
                    start[w][begin + s] = end[w][begin + e] = 9.0
                    answers = find_answers([question], windows, start, end, n_best_size=5, max_answer_length=4)
                    best = answers.nbest["q"][0]
                    whole = question.context[spans[first + s, 0] : spans[first + e, 1]]
                    if counts[s]:
                        assert (best["text"], best["start_logit"], best["end_logit"]) == (whole, 9.0, 9.0)
                        read += s == e
                    else:
                        assert best["start_logit"] == -9.0
        assert len(windows) > 3 and read == len(spans)  # Every token was the first one of an answer once.
