"""The page of answers: wrong answers come first, spans are marked, and nothing in the data becomes markup."""

import html.parser
import re

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.tasks.squad import answers_page
from bert_training.tasks.squad.answers import find_answers
from bert_training.tasks.squad.answers_page import marked_context, write_page
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.windows import build_windows
from tests.helpers.squad_examples import planted
from tests.helpers.words import WORDS

CONTEXT = "the old doctor opened a small red house by the river and the new teacher found a letter"
HOSTILE = "<script>document.title='owned'</script>\"'&<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def gold(text: str) -> tuple[tuple[str, int], ...]:
    return ((text, CONTEXT.index(text)),)


def answered(tokenizer, cases: list[tuple[Question, str]], negative: bool, lengths=(64, 16, 8)):
    """The answers of a network whose best spans are the given texts. "" stands for no answer."""
    questions = [question for question, _ in cases]
    windows = build_windows(questions, tokenizer, *lengths)
    places = {}
    for i, (question, text) in enumerate(cases):
        spans = windows.offsets[i]
        begin = question.context.index(text)
        first, last = (int(np.searchsorted(spans[:, 0], at, side="right")) - 1 for at in (begin, begin + len(text) - 1))
        for w in np.flatnonzero(windows.question == i):
            shift = windows.context_begin[w] - windows.first_token[w]
            if not text:
                places[w, 0, 0] = 9.0
            elif windows.first_token[w] <= first and last < windows.first_token[w] + windows.num_tokens[w]:
                places[w, first + shift, last + shift] = 9.0
    answers = find_answers(questions, windows, *planted(windows, places), version_2_with_negative=negative)
    return questions, windows, answers


def random_answers(tokenizer, count: int, negative: bool):
    rng, questions = np.random.default_rng(5), []
    for i in range(count):
        text = str(rng.choice(CONTEXT.split()))
        questions.append(Question(f"q{i}", "what ?", CONTEXT, () if negative and i % 3 == 0 else gold(text)))
    windows = build_windows(questions, tokenizer, 15, 5, 2)
    logits = [[rng.normal(size=len(ids)).astype(np.float32) * 3 for ids in windows.input_ids] for _ in "se"]
    answers = find_answers(questions, windows, *logits, max_answer_length=3, version_2_with_negative=negative)
    return questions, windows, answers


def test_the_page_marks_known_answers(tokenizer, tmp_path):
    cases = [(Question("right", "what ?", CONTEXT, gold("red house")), "red house")]
    cases += [(Question("wrong", "what ?", CONTEXT, gold("river")), "new"), (Question("none", "?", "\u200b"), "")]
    questions, _, answers = answered(tokenizer, cases, True)
    write_page(tmp_path / "a.html", questions, answers, {"eval_null_score_diff_threshold": -7.25, "eval_total": 3})
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    shown = page.split("<details")[1:]
    for part, answer, right in zip(shown, ("new", "red house", ""), ("river", "red house", "")):
        marks = re.findall('<mark class="([a-z ]+)">([^<]*)</mark>', part)
        for name, text in (("answer", answer), ("gold", right)):
            assert "".join(piece for classes, piece in marks if name in classes.split()) == text
        assert len(re.findall(r"<td class=.n.>[01]\.\d{4}</td>", part)) == (5 if answer else 1)
    assert '<td class="n">-7.25</td>' in page and '<td class="n">3.00</td>' in page
    assert "2 of 3 questions are answered exactly. Here are 3 " in page


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], "0123456789"),
        ([(2, 4, "gold")], '01<mark class="gold">23</mark>456789'),
        ([(0, 10, "answer")], '<mark class="answer">0123456789</mark>'),
        (
            [(2, 6, "gold"), (4, 8, "answer")],
            '01<mark class="gold">23</mark><mark class="answer gold">45</mark><mark class="answer">67</mark>89',
        ),
        (
            [(1, 9, "nbest"), (3, 5, "gold"), (3, 5, "gold")],
            '0<mark class="nbest">12</mark><mark class="gold nbest">34</mark><mark class="nbest">5678</mark>9',
        ),
    ],
)
def test_overlapping_marks_are_cut_into_pieces(spans, expected):
    assert marked_context("0123456789", spans) == expected


class Reader(html.parser.HTMLParser):
    """Collects the elements with their attributes, and the text."""

    def __init__(self, page: str):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def hostile_page(tokenizer, folder, negative: bool = True):
    context = f"old {HOSTILE} house <b>red</b> \u202e river"
    answer = context[4 : 4 + len(HOSTILE)]
    questions = [
        Question(HOSTILE, HOSTILE, context, ((answer, 4),), HOSTILE),
        Question("q1", "where ?", context, (("red", context.index("red")),)),
        *([Question("q2", "who ?", context)] if negative else []),
    ]
    windows = build_windows(questions, tokenizer, 200, 20, 40)
    answers = find_answers(questions, windows, *planted(windows, {}), version_2_with_negative=negative)
    results = {f"eval_{name}": value for name, value in answers.score(questions).items()}
    write_page(folder / "answers.html", questions, answers, results)
    return (folder / "answers.html").read_text(encoding="utf-8"), questions, results


def test_nothing_in_the_data_becomes_markup_or_a_request(tokenizer, tmp_path):
    folder = tmp_path / "<i>run & co"
    folder.mkdir()
    page, questions, results = hostile_page(tokenizer, folder)
    reader = Reader(page)
    tags = [tag for tag, _ in reader.elements]
    assert not {"script", "img", "b", "i", "iframe", "link", "a", "form"} & set(tags)
    assert {name for _, given in reader.elements for name in given if name.startswith("on")} == set()
    assert not [given for _, given in reader.elements if {"src", "href", "srcset", "data"} & set(given)]
    assert "http:" not in page and "https:" not in page and "url(" not in page
    assert "default-src 'none'" in page
    for text in (HOSTILE, "<i>run & co", questions[1].context[-20:], f"f1{results['eval_f1']:.2f}"):
        assert text in reader.text
    assert tags.count("details") == 3


def test_the_page_of_version_1_has_no_null_odds(tokenizer, tmp_path):
    page, _, _ = hostile_page(tokenizer, tmp_path, negative=False)
    assert [tag for tag, _ in Reader(page).elements].count("details") == 2 and "null odds" not in page


def test_the_page_leaves_out_questions_to_stay_small_and_says_so(tokenizer, tmp_path, monkeypatch):
    """There are 3,000 questions about contexts of 50,000 characters, some with questions and answers of that length."""
    monkeypatch.setattr(answers_page, "MOST", 5)
    context = " ".join(np.random.default_rng(0).choice(WORDS, 9000))
    assert len(context) > 40_000
    long = [Question(f"q{i}", context, context, ((context, 0),)) for i in range(20)]
    windows = build_windows(long, tokenizer, 384, 200, 64)
    write_page(tmp_path / "long.html", long, find_answers(long, windows, *planted(windows, {})), {})
    assert (tmp_path / "long.html").stat().st_size < 60_000
    questions, _, answers = random_answers(tokenizer, 300, True)
    right = [row["exact_match"] == 100 for row in answers.scored_rows(questions)]
    write_page(tmp_path / "many.html", questions, answers, {})
    reader = Reader((tmp_path / "many.html").read_text(encoding="utf-8"))
    wrong = [question.id for question, there in zip(questions, right) if not there]
    assert f"{sum(right)} of 300 questions are answered exactly. Here are 5 " in reader.text
    assert re.findall(r"(q\d+)\s*(?:wrong|right|$)", reader.text) == wrong[:5]
