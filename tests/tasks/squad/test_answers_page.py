"""The page of answers: its kinds of errors and its curve are right, and nothing in the data becomes markup."""

import html.parser
import re
import shutil
import subprocess

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.tasks.squad import answers_page
from bert_training.tasks.squad.answers import find_answers
from bert_training.tasks.squad.answers_page import KINDS, error_kinds, marked_context, threshold_scores, write_page
from bert_training.tasks.squad.metrics import score
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


def test_kinds_of_errors_worked_by_hand(tokenizer):
    def case(answer: str | None, given: str) -> tuple[Question, str]:
        return Question(f"{answer}-{given}", "what ?", CONTEXT, gold(answer) if answer else ()), given

    cases = {
        "correct": [case("red house", "red house"), case("the river", "river"), case(None, "")],
        "boundary": [case("red house", "house by"), case("small red house", "red"), case("river", "by the river and")],
        "wrong null": [case("red house", ""), case(None, "river")],
        "missed window": [case("red house", "letter"), case("letter", "old")],
        "other": [case("red house", "opened"), case("letter", "teacher")],
    }
    flat = [one for part in cases.values() for one in part]
    # Windows have 10 tokens at steps of 5. The first one is "the old ... house by", the last "new teacher ... letter".
    found = error_kinds(*answered(tokenizer, flat, True, (15, 5, 2)))
    assert found == [kind for kind, part in cases.items() for _ in part]
    whole = error_kinds(*answered(tokenizer, flat, True))
    assert whole == ["other" if kind == "missed window" else kind for kind in found]


def test_kinds_of_errors_in_version_1(tokenizer):
    cases = [(Question("a", "?", CONTEXT, gold("river")), "river"), (Question("b", "?", CONTEXT, gold("old")), "red")]
    questions, windows, answers = answered(tokenizer, cases, False)
    assert error_kinds(questions, windows, answers) == ["correct", "other"]
    beside = [(Question(text, "?", "red,old house", (("red,", 0),)), text) for text in ("old", ",")]
    assert error_kinds(*answered(tokenizer, beside, False)) == ["other", "boundary"]
    empty = [Question("c", "?", "\u200b", (("\u200b", 0),))]
    windows = build_windows(empty, tokenizer)
    assert error_kinds(empty, windows, find_answers(empty, windows, *planted(windows, {}))) == ["other"]


def random_answers(tokenizer, count: int, negative: bool):
    rng, questions = np.random.default_rng(5), []
    for i in range(count):
        text = str(rng.choice(CONTEXT.split()))
        questions.append(Question(f"q{i}", "what ?", CONTEXT, () if negative and i % 3 == 0 else gold(text)))
    windows = build_windows(questions, tokenizer, 15, 5, 2)
    logits = [[rng.normal(size=len(ids)).astype(np.float32) * 3 for ids in windows.input_ids] for _ in "se"]
    answers = find_answers(questions, windows, *logits, max_answer_length=3, version_2_with_negative=negative)
    return questions, windows, answers


def test_the_curve_is_the_official_score_at_every_threshold(tokenizer):
    questions, _, answers = random_answers(tokenizer, 60, True)
    texts = {question.id: [text for text, _ in question.answers] for question in questions}
    thresholds, lines = threshold_scores(questions, answers)
    assert sorted(answers.null_odds.values()) == thresholds.tolist()
    for i, threshold in enumerate([thresholds[0] - 1, *thresholds]):
        official = score(texts, answers.span_predictions, True, answers.null_odds, threshold)
        for name in ("exact", "f1"):
            assert lines[name][i] == pytest.approx(official[name], abs=1e-9)
    assert max(lines["f1"]) == pytest.approx(answers.score(questions)["best_f1"])


def test_the_page_marks_known_answers(tokenizer, tmp_path):
    """Answers and gold answers are marked. The null odds of a context without tokens are nearly infinite, and do not
    stretch the curve.
    """
    cases = [(Question("right", "what ?", CONTEXT, gold("red house")), "red house")]
    cases += [(Question("wrong", "what ?", CONTEXT, gold("river")), "new"), (Question("none", "?", "\u200b"), "")]
    questions, windows, answers = answered(tokenizer, cases, True)
    answers.threshold = 2.5
    write_page(
        tmp_path / "a.html", questions, windows, answers, {"eval_null_score_diff_threshold": -7.25, "eval_total": 3}
    )
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    shown = page.split("<details")[1:]
    for part, answer, right in zip(shown, ("red house", "new", ""), ("red house", "river", "")):
        marks = re.findall('<mark class="([a-z ]+)">([^<]*)</mark>', part)
        for name, text in (("answer", answer), ("gold", right)):
            assert "".join(piece for classes, piece in marks if name in classes.split()) == text
        assert len(re.findall(r"<td class=.n.>[01]\.\d{4}</td>", part)) == (5 if answer else 1)
    assert '<td class="n">-7.25</td>' in page and '<td class="n">3</td>' in page
    assert "used here: 2.5, best F1: -7.25." in page
    labels = re.findall(r'text-anchor="middle">([^<]*)<', page)
    assert len(labels) == 6 and max(abs(float(label)) for label in labels) < 100
    (points,) = set(re.findall(r'polyline points="([^"]*)" fill="none" stroke="#2e9e4f"', page))
    # The curve of exact match in per cent has its top at 10 and its bottom at 230. Without answers 1 of 3 is right,
    # then one more becomes right, and no other.
    heights = [round((230 - float(point.split(",")[1])) / 2.2) for point in points.split()]
    assert heights == [33, 67, 67, 67]
    assert page.count("66.7%") == page.count("33.3%") == 1  # the shares of correct answers and of other errors


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
    write_page(folder / "answers.html", questions, windows, answers, results)
    return (folder / "answers.html").read_text(encoding="utf-8"), questions, results


def test_nothing_in_the_data_becomes_markup_or_a_request(tokenizer, tmp_path):
    folder = tmp_path / "<i>run & co"
    folder.mkdir()
    page, questions, results = hostile_page(tokenizer, folder)
    reader = Reader(page)
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("script") == 1 and not {"img", "b", "i", "iframe", "link", "a", "form"} & set(tags)
    assert {name for _, given in reader.elements for name in given if name.startswith("on")} == set()
    assert not [given for _, given in reader.elements if {"src", "href", "srcset", "data"} & set(given)]
    assert "http:" not in page and "https:" not in page and "url(" not in page
    assert "default-src 'none'" in page
    for text in (HOSTILE, "<i>run & co", questions[1].context[-20:], f"f1{results['eval_f1']:.2f}"):
        assert text in reader.text
    assert tags.count("details") == 3 and tags.count("svg") == 1


def test_the_page_of_version_1_has_no_thresholds(tokenizer, tmp_path):
    page, _, _ = hostile_page(tokenizer, tmp_path, negative=False)
    tags = [tag for tag, _ in Reader(page).elements]
    assert tags.count("details") == 2 and tags.count("svg") == 0 and "null odds" not in page


def test_the_page_leaves_out_questions_to_stay_small_and_says_so(tokenizer, tmp_path, monkeypatch):
    """There are 3,000 questions about contexts of 50,000 characters, some with questions and answers of that length."""
    monkeypatch.setattr(answers_page, "PER_KIND", 5)
    context = " ".join(np.random.default_rng(0).choice(WORDS, 9000))
    assert len(context) > 40_000
    long = [Question(f"q{i}", context, context, ((context, 0),)) for i in range(20)]
    windows = build_windows(long, tokenizer, 384, 200, 64)
    answers = find_answers(long, windows, *planted(windows, {}))
    write_page(tmp_path / "long.html", long, windows, answers, {})
    assert (tmp_path / "long.html").stat().st_size < 60_000
    questions, windows, answers = random_answers(tokenizer, 300, True)
    results = {f"eval_{name}": value for name, value in answers.score(questions).items()}
    write_page(tmp_path / "many.html", questions, windows, answers, results)
    reader = Reader((tmp_path / "many.html").read_text(encoding="utf-8"))
    kinds = [given["data-kind"] for tag, given in reader.elements if tag == "details"]
    assert {kind: kinds.count(kind) for kind in KINDS} == dict.fromkeys(KINDS, 5)
    assert "Here are 25 of 300 questions: the first 5 of every kind" in reader.text


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_runs_the_page(tokenizer, tmp_path):
    """The script of the page filters and counts, and the script in the data does not run."""
    hostile_page(tokenizer, tmp_path)
    page = tmp_path / "answers.html"
    text = page.read_text(encoding="utf-8")
    clicks = "document.querySelector('button[value=\"wrong null\"]').click();</script>"
    page.write_text(text.replace("</script></body>", clicks + "</body>"), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--no-first-run", "--disable-background-networking"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--screenshot={tmp_path / 'page.png'}", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    reader = Reader(done.stdout)
    hidden = {given["data-kind"] for tag, given in reader.elements if tag == "details" and "hidden" in given}
    shown = [given["data-kind"] for tag, given in reader.elements if tag == "details" and "hidden" not in given]
    assert set(shown) == {"wrong null"} and hidden and "wrong null" not in hidden
    assert f'<span id="shown">{len(shown)}</span>' in done.stdout
    assert "<title>owned" not in done.stdout and "<title>Answers of " in done.stdout
    assert (tmp_path / "page.png").stat().st_size > 10_000
