"""The answers of given logits are those of a search through all spans, and those worked by hand."""

import math
import sys

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.tasks.squad.answers import find_answers
from bert_training.tasks.squad.metrics import score
from bert_training.tasks.squad.questions import Question, read_squad
from bert_training.tasks.squad.windows import build_windows
from tests.helpers.squad_examples import planted
from tokenization import build_tokenizer

CONTEXT = "the old doctor opened a small red house by the river ."


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


# --- Worked by hand --------------------------------------------------------------------------------------


def test_answer_is_read_off_the_planted_span(tokenizer):
    question = Question("q", "what ?", CONTEXT)
    windows = build_windows([question], tokenizer, 64, 16, 32)
    begin = windows.context_begin[0]
    tokens = tokenizer.tokenize(CONTEXT)
    red = tokens.index("red")
    answers = find_answers([question], windows, *planted(windows, {(0, begin + red, begin + red + 1): 5.0}))
    assert answers.predictions == {"q": "red house"}
    best = answers.nbest["q"][0]
    assert list(best) == ["text", "probability", "start_logit", "end_logit", "start", "end"]
    assert (best["start_logit"], best["end_logit"], best["start"], best["end"]) == (5.0, 5.0, 30, 39)
    assert len(answers.nbest["q"]) == 20


def test_question_cls_and_padding_are_never_the_answer(tokenizer):
    question = Question("q", "the old doctor", "small red house")
    windows = build_windows([question], tokenizer, 64, 16, 32)
    start, end = planted(windows, {(0, 0, 0): 50.0, (0, 1, 3): 40.0, (0, 4, 8): 30.0, (0, 6, 6): 1.0})
    start, end = (np.concatenate([row[0], [60.0, 60.0]]) for row in (start, end))
    answers = find_answers([question], windows, [start], [end])
    assert answers.predictions == {"q": "red"}
    assert all(entry["text"] in "small red house" for entry in answers.nbest["q"])


def test_an_end_before_the_start_or_too_far_is_passed_over(tokenizer):
    question = Question("q", "what", "small red house by the river")
    windows = build_windows([question], tokenizer, 64, 16, 32)
    begin = int(windows.context_begin[0])
    start, end = planted(windows, {})
    start[0][begin + 2], end[0][begin] = 9, 8  # The best start is "house", the best end is "small" before it.
    assert find_answers([question], windows, start, end).predictions["q"].startswith("house")
    start, end = planted(windows, {(0, begin, begin + 3): 9.0, (0, begin + 1, begin + 2): 3.0})
    assert find_answers([question], windows, start, end, max_answer_length=4).predictions["q"] == "small red house by"
    # Four tokens are too many. "small red house" (9 + 3) and "red house by" (3 + 9) have the same score, and the
    # earlier one is taken.
    assert find_answers([question], windows, start, end, max_answer_length=3).predictions["q"] == "small red house"


def test_the_window_with_the_larger_context_decides(tokenizer):
    """Of windows with 5 of 12 tokens at stride 3, token 7 counts in the third one only (see test_windows.py)."""
    context = "red green blue small large old new house river mountain city school"
    question = Question("q", "the of", context)
    windows = build_windows([question], tokenizer, 10, 3, 2)
    assert windows.first_token.tolist() == [0, 3, 6, 9]
    second, third = (1, 4 + 4, 4 + 4), (2, 4 + 1, 4 + 1)
    assert {tokenizer.decode(windows.input_ids[w][s : s + 1]) for w, s, _ in (second, third)} == {"house"}
    answers = find_answers([question], windows, *planted(windows, {second: 9.0, third: 1.0}))
    best = answers.nbest["q"][0]
    assert (best["text"], best["start_logit"]) == ("house", 1.0)
    # As the end of a span, token 7 may be in the second window, because only the start needs its maximum context.
    start, end = planted(windows, {second: 9.0})
    start[1][4 + 2] = 9.0
    assert find_answers([question], windows, start, end).predictions["q"] == "old new house"


def test_null_score_is_the_smallest_of_the_windows(tokenizer):
    question = Question("q", "the of", "red green blue small large old new house river mountain city school")
    windows = build_windows([question], tokenizer, 10, 3, 2)
    places = {(0, 0, 0): 5.0, (1, 0, 0): 2.0, (2, 0, 0): 4.0, (3, 0, 0): 3.0, (0, 5, 5): 1.5}
    logits = planted(windows, places)

    def answer(threshold):
        return find_answers(
            [question], windows, *logits, version_2_with_negative=True, null_score_diff_threshold=threshold
        )

    assert answer(0).null_odds == {"q": 1.0}  # This is (2 + 2) - (1.5 + 1.5).
    assert answer(0).predictions == {"q": ""}
    assert answer(1.0).predictions == {"q": "green"}
    assert answer(0.999).predictions == {"q": ""}
    assert answer(0).span_predictions == {"q": "green"}
    null, best = answer(0).nbest["q"][:2]
    assert (null["text"], null["start_logit"], best["text"]) == ("", 2.0, "green")
    assert null["probability"] / best["probability"] == pytest.approx(math.e)


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("context", ["", "\u200b \u0301"])
def test_no_answer_is_made_up_for_an_empty_context(tokenizer, tmp_path, context, version_2):
    questions = [Question("q0", "what", CONTEXT), Question("q1", "what", context), Question("q2", "what", CONTEXT)]
    windows = build_windows(questions, tokenizer, 64, 16, 32)
    answers = find_answers(questions, windows, *planted(windows, {}), version_2_with_negative=version_2)
    assert answers.predictions["q1"] == answers.span_predictions["q1"] == ""
    assert answers.predictions["q0"] == answers.predictions["q2"] == "the"
    assert [entry["text"] for entry in answers.nbest["q1"]] == ([""] if version_2 else [])
    assert answers.null_odds == ({"q0": 0.0, "q1": sys.float_info.max, "q2": 0.0} if version_2 else {})
    answers.write(tmp_path)


def test_ties_go_to_the_earlier_and_shorter_span(tokenizer):
    question = Question("q", "what", "red green blue red green blue")
    windows = build_windows([question], tokenizer, 64, 16, 32)
    answers = find_answers([question], windows, *planted(windows, {}), n_best_size=4)
    assert [entry["text"] for entry in answers.nbest["q"]] == [
        "red",
        "red green",
        "red green blue",
        "red green blue red",
    ]
    assert [entry["probability"] for entry in answers.nbest["q"]] == [0.25] * 4
    everything = find_answers([question], windows, *planted(windows, {}), n_best_size=999).nbest["q"]
    assert len(everything) == 15  # Of 21 spans, 6 repeat a text: 3 of one word, 2 of two words and 1 of three.


@pytest.mark.parametrize(
    ("context", "first", "last", "answer"),
    [
        ("the cafe\u0301 by the river", "cafe", "cafe", "cafe\u0301"),  # The accent is a character of its own.
        ("the caf\u00e9 by the river", "cafe", "cafe", "caf\u00e9"),
        ("the cafe\u0323\u0302, by", "cafe", "cafe", "cafe\u0323\u0302"),  # There are two accents.
        ("the ca\u200bfe by", "cafe", "cafe", "ca\u200bfe"),  # There is a zero-width space inside the word.
        ("the \ufeffcafe by", "cafe", "cafe", "cafe"),
        ("old cafe\u0301 river", "cafe", "river", "cafe\u0301 river"),
        ("old\u3000river", "old", "river", "old\u3000river"),
    ],
)
def test_combining_and_zero_width_characters_stay_with_their_word(vocab, context, first, last, answer):
    tokenizer = build_tokenizer([*vocab, "cafe"])
    question = Question("q", "what", context)
    windows = build_windows([question], tokenizer, 64, 16, 32)
    tokens = tokenizer.convert_ids_to_tokens(windows.input_ids[0])
    span = (0, tokens.index(first), tokens.index(last))
    answers = find_answers([question], windows, *planted(windows, {span: 9.0}), max_answer_length=6)
    assert answers.predictions == {"q": answer}


def test_the_best_threshold_is_searched_above_and_below_zero(tokenizer):
    """With threshold 0 all answers are empty. With the best threshold, 2, both right answers are given."""
    gold = (("old", 4),)
    questions = [Question("a", "x", CONTEXT, gold), Question("b", "x", CONTEXT, gold), Question("c", "x", CONTEXT)]
    windows = build_windows(questions, tokenizer, 64, 16, 32)
    first = int(windows.context_begin[0])
    nulls, place = {0: 5.0, 1: 4.5, 2: 6.0}, first + tokenizer.tokenize(CONTEXT).index("old")
    places = {(w, 0, 0): height for w, height in nulls.items()} | {(w, place, place): 4.0 for w in nulls}
    answers = find_answers(questions, windows, *planted(windows, places), version_2_with_negative=True)
    assert answers.null_odds == {"a": 2.0, "b": 1.0, "c": 4.0}
    scores = answers.score(questions)
    assert (scores["exact_match"], scores["exact"], scores["NoAns_f1"]) == (pytest.approx(100 / 3),) * 2 + (100.0,)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (100.0, 2.0)
    assert (scores["at_0_f1"], scores["at_best_f1"], scores["at_best_exact"]) == (pytest.approx(100 / 3), 100.0, 100.0)
    options = {"version_2_with_negative": True, "null_score_diff_threshold": 1.5}
    between = find_answers(questions, windows, *planted(windows, places), **options).score(questions)
    assert (between["exact"], between["at_0_exact"]) == (pytest.approx(200 / 3), pytest.approx(100 / 3))
    start, end = planted(windows, places)
    windows = build_windows(questions[:2], tokenizer, 64, 16, 32)
    one = find_answers(questions[:2], windows, start[:2], end[:2])
    assert one.score(questions[:2]) == {"exact_match": 100.0, "f1": 100.0}


def test_where_no_answer_at_all_is_best_the_threshold_gives_none(tokenizer):
    """The official search returns the threshold 0, with which the only question would be answered."""
    question = Question("a", "x", CONTEXT)
    windows = build_windows([question], tokenizer, 64, 16, 32)
    place = int(windows.context_begin[0]) + tokenizer.tokenize(CONTEXT).index("old")
    answers = find_answers(
        [question], windows, *planted(windows, {(0, place, place): 4.0}), version_2_with_negative=True
    )
    scores = answers.score([question])
    assert (scores["best_f1"], scores["best_f1_thresh"], scores["at_0_f1"]) == (100.0, 0.0, 0.0)
    assert scores["at_best_f1"] == 100.0
    assert scores["null_score_diff_threshold"] < answers.null_odds["a"] < 0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda start, end: start[0].__setitem__(1, np.nan), "window 0 has start logits that are not finite"),
        (lambda start, end: end[0].__setitem__(1, np.inf), "window 0 has end logits that are not finite"),
    ],
)
def test_logits_that_are_not_finite_are_refused(tokenizer, spoil, message):
    question = Question("q", "old", "old")
    windows = build_windows([question], tokenizer, 64, 16, 32)
    start, end = planted(windows, {})
    spoil(start, end)
    with pytest.raises(ValueError, match=message):
        find_answers([question], windows, start, end)


# --- Real data -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.realdata
def test_perfect_logits_recover_the_dev_answers(real_data):
    """Not recoverable: answers that cut a word piece ("8" in "18") and answers over 30 tokens."""
    tokenizer = build_tokenizer(str(real_data / "assets" / "uncased_vocab.txt"))
    questions = read_squad(real_data / "squad" / "dev-v1.1.json.xz")
    windows = build_windows(questions, tokenizer, with_answers=True)
    spans = zip(range(len(windows)), windows.start_positions, windows.end_positions)
    logits = planted(windows, dict.fromkeys(spans, 9.0))
    gold = {question.id: [text for text, _ in question.answers] for question in questions}
    answers = find_answers(questions, windows, *logits)
    scores = score(gold, answers.predictions)
    assert (round(scores["exact_match"], 2), round(scores["f1"], 2)) == (99.70, 99.76)
