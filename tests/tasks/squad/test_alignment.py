"""From tokens back to the text of an answer: Google's alignment is a port of its code, ours goes by offsets."""

import math
from collections import OrderedDict

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.tasks.squad.answers import GoogleRealign, _with_accents, aligner, find_answers, get_final_text
from bert_training.tasks.squad.questions import Question, read_squad
from bert_training.tasks.squad.windows import build_windows, max_context
from tests.helpers.squad_examples import google_words, random_logits, random_questions
from tokenization import BasicTokenizer, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def google_answers(question, windows, rows, start, end, tokenizer, n_best_size, max_answer_length, version_2):
    """A port of write_predictions in run_squad.py of google-research/bert, for one question."""
    doc_tokens, word_of_char = google_words(question.context)
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
        tokens = tokenizer.convert_ids_to_tokens(windows.input_ids[w][s : e + 1].tolist())
        tok_text = " ".join(" ".join(tokens).replace(" ##", "").replace("##", "").strip().split())
        words = doc_tokens[word_of_char[spans[s + shift][0]] : word_of_char[spans[e + shift][1] - 1] + 1]
        nbest.setdefault(google_final_text(tok_text, " ".join(words)), (start_logit, end_logit))
    entries = [(text, *logits) for text, logits in nbest.items()]
    odds = None
    if version_2:
        odds = score_null - entries[0][1] - entries[0][2]
        entries.append(("", null_start, null_end))
    heights = [math.exp(s + e - max(x[1] + x[2] for x in entries)) for _, s, e in entries]
    return [(*entry, h / sum(heights)) for entry, h in zip(entries, heights)], odds


def google_final_text(pred_text: str, orig_text: str) -> str:
    def strip_spaces(text):
        kept, places = [], OrderedDict()
        for i, char in enumerate(text):
            if char != " ":
                places[len(kept)] = i
                kept.append(char)
        return "".join(kept), places

    tok_text = " ".join(BasicTokenizer(do_lower_case=True).tokenize(orig_text))
    start = tok_text.find(pred_text)
    if start == -1:
        return orig_text
    end = start + len(pred_text) - 1
    orig_ns_text, orig_places = strip_spaces(orig_text)
    tok_ns_text, tok_places = strip_spaces(tok_text)
    if len(orig_ns_text) != len(tok_ns_text):
        return orig_text
    back = {place: i for i, place in tok_places.items()}
    return orig_text[orig_places[back[start]] : orig_places[back[end]] + 1]


def test_google_realign_is_write_predictions(tokenizer, vocab):
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
        realign=GoogleRealign(tokenizer),
    )
    for i, question in enumerate(questions):
        rows = np.flatnonzero(windows.question == i)
        expected, odds = google_answers(question, windows, rows, start, end, tokenizer, 24, 4, version_2=True)
        found = answers.nbest[question.id]
        by_text = {e["text"]: (e["start_logit"], e["end_logit"], pytest.approx(e["probability"])) for e in found}
        assert {text: rest for text, *rest in expected} == {text: list(rest) for text, rest in by_text.items()}
        assert answers.null_odds[question.id] == pytest.approx(odds)
        assert answers.span_predictions[question.id] == expected[0][0]
        assert answers.predictions[question.id] == ("" if odds > 1.0 else expected[0][0])
        heights = [entry["start_logit"] + entry["end_logit"] for entry in found]
        assert heights == sorted(heights, reverse=True)
        assert sum(entry["probability"] for entry in found) == pytest.approx(1)


def test_final_text_of_googles_comment():
    assert get_final_text("steve smith", "Steve Smith's", "steve smith ' s") == "Steve Smith"
    # If the counts of letters differ, or if the text is not found, the whole words are the answer.
    assert get_final_text("cafe", "(cafe\u0301)", "( cafe )") == "(cafe\u0301)"
    assert get_final_text("smith", "Jones", "jones") == "Jones"


@pytest.mark.realdata
def test_the_two_alignments_on_the_gold_spans_of_the_dev_set(real_data):
    """Every distinct gold answer is converted to tokens and back.

    Both ways lose answers that begin or end inside a word piece. Google's also loses those in which its count of
    letters is wrong, because of zero-width or compatibility characters or repeated white space.
    """
    tokenizer = build_tokenizer(str(real_data / "assets" / "uncased_vocab.txt"))
    questions = read_squad(real_data / "squad" / "dev-v1.1.json.xz")
    pairs = [(question, gold) for question in questions for gold in dict.fromkeys(question.answers)]
    ones = [Question(str(i), "", question.context, (gold,)) for i, (question, gold) in enumerate(pairs)]
    windows = build_windows(ones, tokenizer, 2048, 128, with_answers=True)
    realign = {name: aligner(name, tokenizer) for name in ("offsets", "google")}
    realigned = {"offsets": [], "google": []}
    for w, question in enumerate(ones):
        place = slice(windows.start_positions[w], windows.end_positions[w] + 1)
        spans = windows.offsets[w][place.start - windows.context_begin[w] : place.stop - windows.context_begin[w]]
        begin, end = int(spans[0, 0]), _with_accents(question.context, int(spans[-1, 1]))
        for name, texts in realigned.items():
            texts.append(realign[name](windows.input_ids[w][place], question.context, begin, end))
    gold = [question.answers[0][0] for question in ones]
    assert len(gold) == 18_216
    assert sum(a == b for a, b in zip(realigned["offsets"], gold)) == 18_154
    assert sum(a == b for a, b in zip(realigned["google"], gold)) == 18_144
    assert sum(a != b for a, b in zip(realigned["offsets"], realigned["google"])) == 10
