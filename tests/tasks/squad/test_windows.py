"""The windows of long contexts are those of Google's code, of which this file contains a port."""

import itertools

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.tasks.squad.questions import Question, read_squad
from bert_training.tasks.squad.windows import build_windows, check_lengths, lost_at_lengths, max_context, window_starts
from tests.helpers.squad_examples import google_words
from tokenization import build_tokenizer

CONTEXT = "the old doctor opened a small red house by the river ."


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def google_windows(question: Question, tokenizer, max_seq_length: int, doc_stride: int, max_query_length: int):
    """A port of read_squad_examples and convert_examples_to_features with is_training=True, from run_squad.py of
    google-research/bert.
    """
    doc_tokens, char_to_word = google_words(question.context)
    text, start = question.answers[0]
    start_word, end_word = char_to_word[start], char_to_word[start + len(text) - 1]

    query = tokenizer.tokenize(question.text)[:max_query_length]
    all_tokens, orig_to_tok = [], []
    for word in doc_tokens:
        orig_to_tok.append(len(all_tokens))
        all_tokens += tokenizer.tokenize(word)
    tok_start = orig_to_tok[start_word]
    tok_end = orig_to_tok[end_word + 1] - 1 if end_word < len(doc_tokens) - 1 else len(all_tokens) - 1
    answer = " ".join(tokenizer.tokenize(text))
    improved = [
        (s, e)
        for s in range(tok_start, tok_end + 1)
        for e in range(tok_end, s - 1, -1)
        if " ".join(all_tokens[s : e + 1]) == answer
    ]
    tok_start, tok_end = improved[0] if improved else (tok_start, tok_end)

    room, spans, offset = max_seq_length - len(query) - 3, [], 0
    while offset < len(all_tokens):
        length = min(len(all_tokens) - offset, room)
        spans.append((offset, length))
        if offset + length == len(all_tokens):
            break
        offset += min(length, doc_stride)
    for index, (offset, length) in enumerate(spans):
        tokens = ["[CLS]", *query, "[SEP]", *all_tokens[offset : offset + length], "[SEP]"]
        types = [0] * (len(query) + 2) + [1] * (length + 1)
        inside = offset <= tok_start and tok_end < offset + length
        shift = len(query) + 2 - offset
        positions = (tok_start + shift, tok_end + shift) if inside else (0, 0)
        best = [google_is_max_context(spans, index, offset + i) for i in range(length)]
        yield tokenizer.convert_tokens_to_ids(tokens), types, positions, best


def google_is_max_context(spans, current: int, position: int) -> bool:
    best_score, best_index = None, None
    for index, (offset, length) in enumerate(spans):
        end = offset + length - 1
        if position < offset or position > end:
            continue
        score = min(position - offset, end - position) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best_index = score, index
    return current == best_index


def random_questions(rng, words: list[str], count: int) -> list[Question]:
    questions = []
    for i in range(count):
        pieces = [str(w) + str(rng.choice(["", "", ",", ".", "?x"])) for w in rng.choice(words, rng.integers(1, 60))]
        context = "".join(p + str(rng.choice([" ", " ", "  ", "\n"])) for p in pieces).strip()
        first = int(rng.integers(len(pieces)))
        start = len(context) - len(context.split(maxsplit=first)[-1]) if first else 0
        answer = " ".join(context[start:].split(" ")[: rng.integers(1, 4)]).strip(" ,.\n")
        question = " ".join(rng.choice(words, rng.integers(0, 12)))
        questions.append(Question(f"q{i}", question, context, ((answer, start),)))
    return questions


def test_windows_are_those_of_google(tokenizer, vocab):
    rng = np.random.default_rng(1)
    questions = random_questions(rng, [*vocab[60:], "xyz", "redhouse"], 150)
    windows = build_windows(questions, tokenizer, 24, 5, 8, with_answers=True)
    row = 0
    for i, question in enumerate(questions):
        rows = np.flatnonzero(windows.question == i)
        best = max_context(windows.first_token[rows], windows.num_tokens[rows])
        for w, (ids, types, positions, counted) in enumerate(google_windows(question, tokenizer, 24, 5, 8)):
            assert windows.input_ids[row].tolist() == ids
            assert windows.token_type_ids[row].tolist() == types
            assert (windows.start_positions[row], windows.end_positions[row]) == positions
            assert best[w].tolist() == counted
            row += 1
        assert row == rows[-1] + 1
    assert row == len(windows) > 2 * len(questions)
    assert 0.1 < (windows.start_positions == 0).mean() < 0.9


def test_the_example_of_the_header():
    words = "the man went to store and bought a gallon of milk what did he buy".split()
    tokenizer = build_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    context = "the man went to the store and bought a gallon of milk"
    question = Question("q", "what did he buy", context, (("a gallon of milk", 37),))
    windows = build_windows([question], tokenizer, 16, 4, 8, with_answers=True)
    assert [" ".join(tokenizer.convert_ids_to_tokens(row)) for row in windows.input_ids] == [
        "[CLS] what did he buy [SEP] the man went to the store and bought a [SEP]",
        "[CLS] what did he buy [SEP] the store and bought a gallon of milk [SEP]",
    ]
    assert [row.tolist() for row in windows.token_type_ids] == [[0] * 6 + [1] * 10, [0] * 6 + [1] * 9]
    assert (windows.start_positions.tolist(), windows.end_positions.tolist()) == ([0, 10], [0, 13])


def test_max_context_as_in_googles_comment():
    """Spans have 5 of 12 tokens at stride 3. "bought" (token 7) has 4 tokens to its left and none to its right in span
    B, and 1 to its left and 3 to its right in span C.
    """
    first, size = np.array([0, 3, 6, 9]), np.array([5, 5, 5, 3])
    best = max_context(first, size)
    assert [int(b[7 - f]) for b, f in list(zip(best, first))[1:3]] == [0, 1]
    # These are worked by hand, with the score min(left, right) + 0.01 * length of every token in every span.
    assert [b.astype(int).tolist() for b in best] == [[1, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1, 1, 0], [0, 1, 1]]
    assert sum(int(b.sum()) for b in best) == 12


def test_a_window_is_the_pair_that_the_tokenizer_itself_makes(tokenizer):
    question = Question("q", "is the doctor old ?", CONTEXT)
    windows = build_windows([question], tokenizer, 64, 16, 32)
    pair = tokenizer(question.text, question.context)
    assert windows.input_ids[0].tolist() == pair["input_ids"]
    assert windows.token_type_ids[0].tolist() == pair["token_type_ids"]
    assert list(windows.columns()) == ["input_ids", "token_type_ids"]


def test_text_is_never_markup(tokenizer):
    question = Question("q", "[MASK]", "old [SEP] [CLS] doctor")
    windows = build_windows([question], tokenizer, 64, 16, 32)
    ids = windows.input_ids[0].tolist()
    assert ids.count(tokenizer.sep_token_id) == 2
    assert ids.count(tokenizer.cls_token_id) == 1
    assert tokenizer.mask_token_id not in ids
    assert tokenizer("[MASK]", add_special_tokens=False)["input_ids"] == [tokenizer.mask_token_id]


@pytest.mark.parametrize("context", ["", " \n ", "\u200b"])
def test_a_context_without_tokens_has_one_row(tokenizer, context):
    windows = build_windows([Question("q", "old", context)], tokenizer, 64, 16, 32, with_answers=True)
    assert tokenizer.convert_ids_to_tokens(windows.input_ids[0]) == ["[CLS]", "old", "[SEP]", "[SEP]"]
    assert (windows.num_tokens.tolist(), windows.start_positions.tolist()) == ([0], [0])


def test_answers_at_the_edges_of_windows(tokenizer):
    """An answer of two tokens is the label of each window that contains both; in other windows the label is [CLS]."""
    words = "red green blue small large old new house river mountain".split() * 4
    context = " ".join(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    for token in range(39):
        answer = f"{words[token]} {words[token + 1]}"
        question = Question("q", "the", context, ((answer, int(starts[token])),))
        windows = build_windows([question], tokenizer, 14, 7, 8, with_answers=True)
        held = 0
        for w, ids in enumerate(windows.input_ids):
            span = ids[windows.start_positions[w] : windows.end_positions[w] + 1]
            inside = windows.first_token[w] <= token and token + 1 < windows.first_token[w] + windows.num_tokens[w]
            assert tokenizer.decode(span) == (answer if inside else "[CLS]")
            held += inside
        assert held >= 1


def test_an_answer_of_dropped_characters_is_refused(tokenizer):
    question = Question("q7", "old", "old \u200b doctor", (("\u200b", 4),))
    with pytest.raises(ValueError, match=r"question 'q7': the tokenizer drops every character of its answer '\\u200b'"):
        build_windows([question], tokenizer, with_answers=True)


def test_what_the_lengths_lose_is_counted(tokenizer):
    """Of three questions, the answer of one is too long for a window of 6 tokens, and that of another for the limit."""
    context = "red green blue small large old new house river mountain"
    answers = (
        ("red green blue small large old new", 0),
        ("new house", context.index("new")),
        ("river", context.index("river")),
    )
    questions = [Question(f"q{i}", "the old doctor", context, (answer,)) for i, answer in enumerate(answers)]
    questions.append(Question("none", "the", context))
    windows = build_windows(questions, tokenizer, 11, 4, 2, with_answers=True)
    assert lost_at_lengths(questions, windows, 2, 1) == {"cut_questions": 3, "in_no_window": 1, "too_long": 1}
    windows = build_windows(questions, tokenizer, 11, 4, 2)
    assert lost_at_lengths(questions, windows, 3, 1) == {"cut_questions": 0}


def test_answers_inside_a_token_or_before_combining_accents(tokenizer):
    context = "the old cafe\u0301 by the river"
    context += ", red.blue"
    for answer, start, expected in (
        ("ld", 5, "old"),
        ("cafe\u0301", 8, "cafe"),
        ("cafe", 8, "cafe"),
        ("blue", context.index("blue"), "blue"),
        ("red", context.index("red"), "red"),
        (".", context.index("."), "."),
    ):
        windows = build_windows([Question("q", "the", context, ((answer, start),))], tokenizer, with_answers=True)
        span = windows.input_ids[0][windows.start_positions[0] : windows.end_positions[0] + 1]
        assert tokenizer.decode(span) == expected


def test_windows_cover_the_context_for_every_stride():
    for tokens in range(0, 60):
        for room in range(1, 12):
            for stride in range(1, 15):
                starts = window_starts(tokens, room, stride)
                assert starts[-1] + room >= tokens
                assert len(starts) == 1 or starts[-2] + room < tokens
                assert all(b - a <= room for a, b in itertools.pairwise(starts))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((64, 32, 61), "--max_query_length 61 and three special tokens leave no room .* from 1 to 60"),
        ((64, 32, 0), "--max_query_length 0"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths, message):
    with pytest.raises(ValueError, match=message):
        check_lengths(*lengths)
    check_lengths(64, 128, 24)  # as in Google's code, windows then touch, so that the default suits all lengths
    assert [*window_starts(100, 37, 128)] == [*window_starts(100, 37, 37)] == [0, 37, 74]


# --- Real data -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.realdata
def test_the_training_file_makes_as_many_windows_as_googles_code(real_data):
    """It makes 88,641 uncased windows with the lengths 384, 128 and 64, as is reported for google-research/bert and for
    transformers' run_squad.
    """
    tokenizer = build_tokenizer(str(real_data / "assets" / "uncased_vocab.txt"))
    questions = read_squad(real_data / "squad" / "train-v1.1.reconstructed.json.xz")
    assert len(questions) == 87_599
    assert len(build_windows(questions, tokenizer, with_answers=True)) == 88_641
