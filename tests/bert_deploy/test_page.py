"""The page of the service in headless Chromium: type, click, read; for every kind of head, and for hostile input.

Nothing may be asked for at another host, neither by the browser nor by the process that serves the page.
"""

import sys
import warnings
from urllib.parse import urlsplit

import psutil
import pytest

from bert_deploy import readings
from bert_deploy.folder import open_folder
from tests.bert_deploy.guesses import alone, classify
from tests.helpers.browsers import need_browser, serving, started_browser
from tests.helpers.model_folders import save_model

pytestmark = [pytest.mark.slow, pytest.mark.browser]

ATTACK = "<img src=x onerror=window.hacked=1><script>window.hacked=2</script>${window.hacked=3}{{window.hacked}}\"'"
TEXT, PAIR = "the old doctor opened a small red house", ("the king walked to the river .", "he went home .")
NAMES = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
SEVERAL = {"id2label": {0: "red", 1: "old"}, "problem_type": "multi_label_classification"}
# The name of a page: its class, fields of its config, and run.json.
MODELS = {
    "pretrained": ("BertForPreTraining", {}, None),
    "pairs": ("BertForSequenceClassification", {"id2label": {0: "no", 1: "yes"}}, {"texts_per_example": 2}),
    "several": ("BertForSequenceClassification", SEVERAL | {"fine_tuning": {"thresholds": [0.999, 0.001]}}, None),
    "score": ("BertForSequenceClassification", {"id2label": {0: "score"}}, {"texts_per_example": 2}),
    "answers": ("BertForQuestionAnswering", {"null_score_diff_threshold": 1000.0}, None),
    "names": ("BertForTokenClassification", {"id2label": NAMES}, None),
    "hostile": (
        "BertForSequenceClassification",
        {"id2label": {0: ATTACK, 1: "b"}, "max_position_embeddings": 128},  # the attack has 83 pieces
        {"texts_per_example": 1},
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, pretrained):
    """The folders of MODELS; the last one is hostile."""
    need_browser()
    folder = tmp_path_factory.mktemp("models")
    names = {name: name for name in MODELS} | {"hostile": "<img src=x onerror=window.hacked=4>"}
    folders = {
        name: save_model(folder / names[name], pretrained, head, run=run, **fields)
        for name, (head, fields, run) in MODELS.items()
    }
    return folders


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    """The address of every page, the process, and the file with its connections to other hosts."""
    notes = tmp_path_factory.mktemp("notes") / "hosts"
    command = [sys.executable, "tests/bert_deploy/guarded_app.py", str(notes), *map(str, models.values())]
    with serving(command, len(models), PYTHONPATH=".") as (process, addresses):
        yield dict(zip(models, addresses)), process, notes


@pytest.fixture(scope="module")
def browser():
    need_browser()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the driver's event loop
        with started_browser() as started:
            yield started


@pytest.fixture
def visit(browser, served):
    """A function that opens the page of a model. At the end, none has asked another host or run hostile text."""
    pages, asked, troubles = [], [], []

    def opened(name):
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on(
            "console",
            lambda line: line.type == "error" and "status of 422" not in line.text and troubles.append(line.text),
        )
        page.goto(served[0][name])
        page.get_by_role("tab").last.wait_for()
        pages.append(page)
        return page

    yield opened
    hacked = [page.evaluate("window.hacked") for page in pages]
    for page in pages:
        page.close()
    assert pages and {urlsplit(url).hostname for url in asked} == {"127.0.0.1"}
    assert hacked == [None] * len(pages)
    assert troubles == []


def use(page, button, **boxes):
    """Type into boxes, named by the beginning of their labels, and press a button."""
    for label, text in boxes.items():
        page.get_by_label(label.replace("_", " ")).and_(page.locator("textarea:visible")).first.fill(text)
    page.get_by_role("button", name=button, exact=True).click()


def shows(page, *texts):
    """Wait until the visible results contain all texts."""
    for text in texts:
        page.locator(".output:visible").filter(has_text=text).first.wait_for()


def tab(page, name):
    page.get_by_role("tab", name=name).click()


# --- every head ------------------------------------------------------------------------------------------


def percent(share):
    if 0 < share < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


def lines_of(guesses):
    return [f"{guess.text}{percent(round(guess.probability, 6))}" for guess in guesses]


def check_bars(page, guesses):
    bars = (
        "[...document.querySelectorAll('section:not([hidden]) .bar')].map(bar => bar.innerText.replaceAll('\\n', ''))"
    )
    page.wait_for_function(f"lines => JSON.stringify({bars}) === JSON.stringify(lines)", arg=lines_of(guesses))


def test_masked_words_and_a_text_without_a_gap(visit, models):
    model, text = open_folder(str(models["pretrained"])), "the [MASK] doctor went [MASK] ."
    page = visit("pretrained")
    titles = [tab.inner_text() for tab in page.get_by_role("tab").all()]
    assert titles == ["Masked words", "Next sentence", "Attention", "Pieces"]
    use(page, "Fill the gap", Your_sentence=text)
    first, second = alone(readings.masked_words, model, text)
    shows(page, "Gap 2")
    check_bars(page, [*first, *second])
    use(page, "Fill the gap", Your_sentence=" ")
    shows(page, "the text is empty")
    use(page, "Fill the gap", Your_sentence="no gap")
    shows(page, "Write [MASK] where a word is missing.")


def test_classes_of_a_pair_and_a_missing_second_text(visit, models):
    page = visit("pairs")
    use(page, "Judge", First_text=PAIR[0], Second_text=PAIR[1])
    check_bars(page, classify(open_folder(str(models["pairs"])), *PAIR))
    use(page, "Judge", Second_text=" ")
    shows(page, "This model judges pairs; write a second text.")


def test_several_labels_and_a_score(visit, models):
    page = visit("several")
    use(page, "Judge", Text=TEXT)
    found = classify(open_folder(str(models["several"])), TEXT)
    check_bars(page, found)
    given = [guess.text for guess in found if guess.given]
    assert page.locator(".bar.given .what").all_inner_texts() == given == ["old"]
    assert page.locator(".bar.given").get_attribute("title") == "threshold 0.001"
    page = visit("score")
    use(page, "Judge", First_text=PAIR[0], Second_text=PAIR[1])
    (found,) = classify(open_folder(str(models["score"])), *PAIR)
    page.locator(".score").filter(has_text=f"{found.probability:.2f}").wait_for()


def test_an_answer_in_its_context(visit, models):
    """Characters beyond the basic plane are two in JavaScript, and one for the service."""
    context = "𝔸 the old doctor opened a small red house by the river .\nthe king went home ."
    page = visit("answers")
    use(page, "Answer", Question="who went home ?", Text=context)
    found = alone(readings.answer, open_folder(str(models["answers"])), "who went home ?", context)
    shows(page, f"No-answer odds: {found.null_odds:.2f}")
    assert page.locator("mark:visible").inner_text() == found.answer == context[found.start : found.end]
    assert page.locator(".text:visible").inner_text() == context


def test_names_are_marked(visit, models):
    page = visit("names")
    use(page, "Find names", Text=TEXT)
    found = alone(readings.names_in, open_folder(str(models["names"])), TEXT)
    page.wait_for_function("count => document.querySelectorAll('mark').length === count", arg=len(found))
    marks = [f"{TEXT[name.start : name.end]}{name.kind}" for name in found]
    assert [mark.inner_text().replace("\n", "") for mark in page.locator("mark:visible").all()] == marks


# --- hostile and oversized input -------------------------------------------------------------------------


def test_texts_labels_pieces_and_names_of_folders_stay_text(visit, models):
    page = visit("hostile")
    assert page.locator("h1").inner_text() == "<img src=x onerror=window.hacked=4>"
    use(page, "Judge", Text=ATTACK)
    found = classify(open_folder(str(models["hostile"])), ATTACK)
    assert ATTACK in [label.text for label in found]
    check_bars(page, found)
    tab(page, "Pieces")
    use(page, "Cut into pieces", Text=ATTACK)
    shows(page, "window.hacked=2")
    page.goto(page.url + "docs")
    page.get_by_role("heading", name="POST /predict").wait_for()


def test_a_text_that_is_too_long_is_refused_with_a_sentence(visit):
    page = visit("answers")
    box = page.get_by_label("Text").and_(page.locator("textarea:visible"))
    assert box.evaluate("box => (box.value = 'word '.repeat(200000)).length") == 1_000_000
    page.get_by_role("button", name="Answer", exact=True).click()
    shows(page, "String should have at most 20000 characters")
    use(page, "Answer", Question="who ?", Text="the old doctor opened it .")
    page.locator("mark:visible").wait_for()


def test_the_process_listens_and_connects_on_this_machine_only(served):
    """This test comes after the others of its process, whose connections it sees."""
    _, process, notes = served
    sockets = psutil.Process(process.pid).net_connections("inet")
    assert {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    assert not notes.exists(), notes.read_text()
