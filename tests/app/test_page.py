"""The page of bert_training/app in headless Chromium: type, click, read; for every kind of head, and for hostile input.

Nothing may be asked for at another host, neither by the browser nor by the process that serves the page.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from safetensors.torch import load_file, save_file

from bert_training.app import readings
from bert_training.app.drawing import percent
from bert_training.app.folder import open_folder
from bert_training.app.server import FOLDERS, ROUTES
from tests.helpers.browsers import need_browser, serving, started_browser
from tests.helpers.model_folders import edit_json, save_model
from tests.helpers.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.browser]

ATTACK = "<img src=x onerror=window.hacked=1><script>window.hacked=2</script>${window.hacked=3}{{window.hacked}}\"'"
WORD = "<img src=x onerror=window.hacked=5>${window.hacked=6}"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
TEXT, PAIR = "the old doctor opened a small red house", ("the king walked to the river .", "he went home .")
NAMES = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
# The name of a page: its class, fields of its config, and run.json.
MODELS = {
    "pretrained": ("BertForPreTraining", {}, None),
    "left to right": ("BertForMaskedLM", {"is_decoder": True}, None),
    "pairs": ("BertForSequenceClassification", {"id2label": {0: "no", 1: "yes"}}, {"texts_per_example": 2}),
    "score": ("BertForSequenceClassification", {"id2label": {0: "score"}}, {"texts_per_example": 2}),
    "answers": ("BertForQuestionAnswering", {"null_score_diff_threshold": 1000.0}, None),
    "names": ("BertForTokenClassification", {"id2label": NAMES}, None),
    "choice": ("BertForMultipleChoice", {}, None),
    "hostile words": ("BertForMaskedLM", {}, None),
    "hostile": (
        "BertForSequenceClassification",
        {"id2label": {0: ATTACK, 1: "b"}, "max_position_embeddings": 128},  # the attack has 83 pieces
        {"texts_per_example": 1},
    ),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, pretrained):
    """The folders of MODELS; the first has two checkpoints, the last two are hostile."""
    need_browser()
    folder = tmp_path_factory.mktemp("models")
    names = {name: name for name in MODELS} | {"hostile": "<img src=x onerror=window.hacked=4>"}
    folders = {
        name: save_model(folder / names[name], pretrained, head, run=run, **fields)
        for name, (head, fields, run) in MODELS.items()
    }
    for step in (10, 20):
        copy = folders["pretrained"] / f"checkpoint-{step}"
        save_model(copy, pretrained, "BertForPreTraining", initializer_range=0.1 * step)
    _poison(folders["hostile words"], "doctor", WORD)
    return folders


def _poison(folder, word, hostile):
    """Give a word of the vocabulary another spelling, and make the network guess it everywhere."""
    vocabulary, weights = folder / "tokenizer.json", folder / "model.safetensors"
    number = open_folder(str(folder)).tokenizer.convert_tokens_to_ids(word)
    text = vocabulary.read_text()
    assert text.count(f'"{word}"') == 1
    vocabulary.write_text(text.replace(f'"{word}"', json.dumps(hostile)))
    (folder / "vocab.txt").unlink()  # it would contradict tokenizer.json
    tensors = load_file(weights)
    tensors["cls.predictions.bias"][number] = 1000.0
    save_file(tensors, weights, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    """The address of every page, the process, and the file with its connections to other hosts."""
    notes = tmp_path_factory.mktemp("notes") / "hosts"
    command = [sys.executable, "tests/programs/guarded_app.py", str(notes), *map(str, models.values())]
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

    def opened(name, viewport=DESK):
        page = browser.new_page(viewport=viewport)
        page.set_default_timeout(60_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda line: line.type == "error" and troubles.append(line.text))
        page.goto(served[0][name])
        page.get_by_role("tab").last.wait_for()
        pages.append(page)
        return page

    yield opened
    hacked = [page.evaluate("window.hacked") for page in pages]
    for page in pages:
        page.close()
    hosts = {urlsplit(url).hostname for url in asked if urlsplit(url).scheme not in ("data", "blob")}
    assert pages and hosts == {"127.0.0.1"}
    assert hacked == [None] * len(pages)
    assert troubles == []


def use(page, button, **boxes):
    """Type into boxes, named by the beginning of their labels, and press a button."""
    typed = {
        page.get_by_label(label.replace("_", " ")).and_(page.locator("textarea:visible, input:visible")): text
        for label, text in boxes.items()
    }
    for _ in range(20):
        for box, text in typed.items():
            box.fill(text)
        page.wait_for_timeout(150)
        # Gradio writes the example into a box when it first draws a tab, on a busy machine after a program has typed.
        if all(box.input_value() == text for box, text in typed.items()):
            break
    page.get_by_role("button", name=button, exact=True).click()


def shows(page, *texts):
    """Wait until the visible results contain all texts."""
    for text in texts:
        page.locator(".bert:visible").filter(has_text=text).first.wait_for()


def tab(page, name):
    page.get_by_role("tab", name=name).click()


# --- every head ------------------------------------------------------------------------------------------


def lines_of(guesses):
    return [f"{guess.text}{percent(guess.probability)}" for guess in guesses]


def bars_of(page):
    return [bar.inner_text().replace("\n", "") for bar in page.locator(".bar:visible").all()]


def check_bars(page, guesses):
    shows(page, guesses[0].text)
    page.wait_for_function(
        "line => [...document.querySelectorAll('.bar')].some(bar => bar.innerText.replaceAll('\\n', '') === line)",
        arg=lines_of(guesses)[0],
    )
    assert bars_of(page) == lines_of(guesses)


def test_masked_words_and_what_the_checkpoints_would_have_said(visit, models):
    model, text = open_folder(str(models["pretrained"])), "the [MASK] doctor went [MASK] ."
    page = visit("pretrained")
    assert [tab.inner_text() for tab in page.get_by_role("tab").all()] == [
        "Masked words", "Next sentence", "Attention", "Pieces",
    ]  # fmt: skip
    use(page, "Fill the gap", Your_sentence=text)
    first, second = readings.masked_words(model, text)
    shows(page, "Gap 2")
    assert bars_of(page) == [*lines_of(first), *lines_of(second)]
    page.locator("table:visible").nth(1).wait_for()
    rows = page.locator("table:visible").first.locator("tbody tr")
    stops = readings.along_the_way(model, text)
    assert [row.locator("th").inner_text() for row in rows.all()] == ["10", "20", "final"]
    assert [row.locator("td.number").inner_text() for row in rows.all()] == [percent(stop.final[0]) for stop in stops]
    use(page, "Fill the gap", Your_sentence="no gap")
    shows(page, "Write [MASK] where a word is missing.")
    page.wait_for_function("[...document.querySelectorAll('th')].every(cell => cell.innerText !== 'final')")


def test_the_sentence_that_follows(visit, models):
    page = visit("pretrained")
    tab(page, "Next sentence")
    lines = "he went home .\nthe red river\na house"
    use(page, "Compare", First_sentence=PAIR[0], What_may_follow=lines)
    check_bars(page, readings.next_sentence(open_folder(str(models["pretrained"])), PAIR[0], lines))


def test_classes_of_a_pair_and_a_missing_second_text(visit, models):
    page = visit("pairs")
    use(page, "Judge", First_text=PAIR[0], Second_text=PAIR[1])
    check_bars(page, readings.classify(open_folder(str(models["pairs"])), *PAIR))
    use(page, "Judge", Second_text="")
    shows(page, "This model judges pairs; write a second text.")


def test_an_answer_in_a_pasted_and_in_a_dropped_text(visit, models, tmp_path):
    model = open_folder(str(models["answers"]))
    context = "the old doctor opened a small red house by the river .\nthe king went home ."
    page = visit("answers")
    use(page, "Answer", Question="who went home ?", Text=context)
    found = readings.answer(model, "who went home ?", context)
    shows(page, f"No-answer odds: {found.null_odds:.2f}")
    assert page.locator("mark:visible").inner_text() == found.answer == context[found.start : found.end]
    assert page.locator(".text:visible").inner_text() == context
    assert page.locator("table:visible tbody tr").count() == len(found.entries)
    dropped = "the small doctor walked to the old house ."
    transfer = page.evaluate_handle(
        "text => { const transfer = new DataTransfer();"
        "transfer.items.add(new File([text], 'a.txt', {type: 'text/plain'})); return transfer; }",
        dropped,
    )
    page.locator("label.file").dispatch_event("drop", {"dataTransfer": transfer})
    page.wait_for_function(
        "text => [...document.querySelectorAll('textarea')].some(box => box.value === text)", arg=dropped
    )
    page.get_by_role("button", name="Answer", exact=True).click()
    page.wait_for_function("text => document.querySelector('.text')?.innerText === text", arg=dropped)


def test_names_are_marked(visit, models):
    page = visit("names")
    use(page, "Find names", Text=TEXT)
    found = readings.names_in(open_folder(str(models["names"])), TEXT)
    page.wait_for_function("count => document.querySelectorAll('.bert mark').length === count", arg=len(found))
    marks = [f"{TEXT[name.start : name.end]}{name.kind}" for name in found]
    assert [mark.inner_text().replace("\n", "") for mark in page.locator("mark:visible").all()] == marks


def test_the_choice_of_an_ending(visit, models):
    page = visit("choice")
    use(page, "Choose", Beginning=PAIR[0], Endings="he went home .\na river\na red house")
    check_bars(
        page, readings.choose(open_folder(str(models["choice"])), PAIR[0], "he went home .\na river\na red house")
    )


def test_attention_of_every_head_and_from_one_piece(visit):
    page = visit("pretrained")
    tab(page, "Attention")
    pictures = "[...document.querySelectorAll('.bert svg image')].map(image => image.getAttribute('href'))"
    page.get_by_role("textbox", name="Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Look inside", exact=True).click()
    page.wait_for_function(
        "[...document.querySelectorAll('.bert svg text')].some(label => label.innerHTML === 'doctor')"
    )
    before = page.evaluate(pictures)
    assert len(set(before)) == len(before) == 2  # heads
    page.get_by_role("combobox", name="Layer").click()
    page.get_by_role("option", name="layer 2").click()
    page.wait_for_function(f"before => {pictures}[0] !== before[0]", arg=before)
    page.get_by_role("combobox", name="Look from").click()
    page.get_by_role("option", name="3: doctor").click()
    page.locator(".look.from").first.wait_for()
    assert [piece.inner_text() for piece in page.locator(".look.from").all()] == ["doctor", "doctor"]


def test_the_steps_from_text_to_pieces(visit, models):
    page = visit("pretrained")
    tab(page, "Pieces")
    text = "Thé old DOCTOR,went"
    use(page, "Cut into pieces", Text=text)
    shows(page, "the old doctor,went")
    found = readings.pieces(open_folder(str(models["pretrained"])), text)
    rows = [row.locator("td").all_inner_texts() for row in page.locator("table:visible tbody tr").all()]
    assert rows[0] == ["0", "[CLS]", "2", "", "added"]
    assert rows[1] == ["1", "the", str(found.pieces[1].id), "0–3", "Thé"]
    assert [row[1] for row in rows] == [piece.text for piece in found.pieces]


def test_one_function_computes_at_a_time():
    from bert_training.app import page

    computing, most = [], []

    def draw(text):
        computing.append(text)
        most.append(len(computing))
        time.sleep(0.01)
        computing.remove(text)
        return text

    functions = [page._refusing(draw), page._refusing(draw)]
    with ThreadPoolExecutor(8) as threads:
        texts = [str(number) for number in range(16)]
        assert list(threads.map(lambda text: functions[int(text) % 2](text), texts)) == texts
    assert set(most) == {1}


# --- hostile and oversized input -------------------------------------------------------------------------


def test_texts_labels_pieces_and_names_of_folders_stay_text(visit, models):
    page = visit("hostile")
    shows(page, "<img src=x onerror=window.hacked=4>")
    use(page, "Judge", Text=ATTACK)
    found = readings.classify(open_folder(str(models["hostile"])), ATTACK)
    assert ATTACK in [label.text for label in found]
    check_bars(page, found)
    tab(page, "Pieces")
    use(page, "Cut into pieces", Text=ATTACK)
    shows(page, "window.hacked=2")
    tab(page, "Attention")
    page.get_by_role("textbox", name="Text", exact=True).fill("house $ { } `")
    page.get_by_role("button", name="Look inside", exact=True).click()
    page.wait_for_function(
        "[...document.querySelectorAll('.bert svg text')].some(label => label.innerHTML === 'house')"
    )
    words = visit("hostile words")
    use(words, "Fill the gap", Your_sentence="[MASK] house")
    words.wait_for_function("word => document.querySelector('.bar .what')?.innerText === word", arg=WORD)
    page.wait_for_timeout(500)


def test_a_paste_of_ten_megabytes_is_refused_with_a_sentence_and_not_sent(visit):
    page, sizes = visit("answers"), []
    page.on("request", lambda request: sizes.append(len(request.post_data or "")))
    paste = (
        "box => { box.value = 'word '.repeat(2000000); box.dispatchEvent(new Event('input', {bubbles: true})); "
        "return box.value.length; }"
    )
    box = page.get_by_label("Text").and_(page.locator("textarea:visible"))
    assert box.evaluate(paste) == 10_000_000
    page.get_by_role("button", name="Answer", exact=True).click()
    shows(page, "The text has more than 20,000 characters, the most that this page reads; shorten it.")
    assert 0 < max(sizes) < 100_000


def test_a_chosen_file_that_is_too_large_or_no_text(visit, tmp_path):
    (tmp_path / "large.txt").write_text("word " * 50_000)
    (tmp_path / "long.txt").write_text("é" * 20_001)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "short.txt").write_text("\ufeff" + "é" * 20_000, encoding="utf-8")
    page = visit("answers")
    box, notice = page.locator("#text-of-a-file textarea"), page.locator(".file + .notice")
    for name, sentence in (
        ("large.txt", "The file has more than 20,000 characters"),
        ("long.txt", "The file has more than 20,000 characters"),
        ("binary.txt", "The file is not UTF-8 text"),
    ):
        before = box.input_value()
        page.locator("input[type=file]").set_input_files(tmp_path / name)
        notice.filter(has_text=sentence).wait_for()
        assert box.input_value() == before
    page.locator("input[type=file]").set_input_files(tmp_path / "short.txt")
    page.wait_for_function("document.querySelector('#text-of-a-file textarea').value.length === 20000")
    assert notice.is_hidden()


def response(address, path, method="GET", body=None, **headers):
    """The status of the answer to a request with the token of the address in a cookie, unless another is given."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.netloc, timeout=60)
    names = {"Cookie": f"bert-{place.port}={place.query.removeprefix('token=')}"}
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {name: value for name, value in names.items() if value is not None})
    status = connection.getresponse().status
    connection.close()
    return status


ASK = "/gradio_api/run/drawn"


def test_requests_that_do_not_come_from_the_page(served, models):
    address = served[0]["pretrained"]
    host = urlsplit(address).netloc
    assert response(address, "/") == 200
    assert response(address, "/", Host="evil.example") == 421
    assert response(address, ASK, "POST", Content_Length="10000000") == 413
    for path in ("/etc/hostname", models["pretrained"] / "config.json", "setup.py", "../setup.py", "http://a.example/"):
        assert response(address, f"/gradio_api/file={path}") == 404, path
    assert response(address, "/", Sec_Fetch_Site="same-origin", Origin=f"http://{host}") == 200
    for headers in (
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ):
        assert response(address, "/assets/none.js", **headers) == 403, headers
        assert response(address, ASK, "POST", "{}", **headers) == 403, headers


def test_every_other_route_of_the_library_is_refused(served):
    """Among them are those that fetch an address, take files, and use the user's token of the Hub."""
    import gradio as gr

    address = served[0]["pretrained"]
    routes = gr.routes.App.create_app(gr.Blocks(analytics_enabled=False)).openapi()["paths"]
    tried, allowed = set(), {*ROUTES, ("POST", ASK.replace("drawn", "x"))}
    for path, methods in routes.items():
        for method in map(str.upper, methods):
            filled = re.sub(r"\{[^}]*\}", "x", path)
            if (method, filled) not in allowed and not filled.startswith(FOLDERS):
                assert response(address, filled, method) == 404, (method, path)
                tried.add(path)
    assert {"/gradio_api/run-history/buckets", "/gradio_api/upload", "/gradio_api/file={path_or_url}"} <= tried
    assert len(tried) > 30


def test_the_process_has_no_token_of_the_user_and_asks_no_proxy(models, tmp_path):
    (tmp_path / "token").write_text("hf_secret")
    program = (
        "import os, huggingface_hub, sys; from bert_training.app import page;"
        "from bert_training.app.folder import open_folder;"
        "assert huggingface_hub.get_token() is not None;"
        "folder = os.environ['GRADIO_TEMP_DIR'];"
        "page.launch(page.build(open_folder(sys.argv[1])), page.free_port(0));"
        "print(huggingface_hub.get_token(), 'hf_' in str(os.environ), folder)"
    )
    places = {"HF_TOKEN_PATH": str(tmp_path / "token"), "http_proxy": "http://127.0.0.1:9", "PYTHONPATH": str(ROOT)}
    for token in ({"HF_TOKEN": "hf_secret"}, {}):
        settings = {**os.environ, **places, **token}
        command = [sys.executable, "-c", program, str(models["pairs"])]
        done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        shown, secret, folder = done.stdout.splitlines()[-1].split()
        assert (shown, secret) == ("None", "False")
        assert not Path(folder).exists()  # what Gradio may have put there ends with the process


def test_the_process_listens_and_connects_on_this_machine_only(served):
    """This test comes after the others of its process, whose connections it sees."""
    _, process, notes = served
    sockets = psutil.Process(process.pid).net_connections("inet")
    assert {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    assert not notes.exists(), notes.read_text()


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("name", ["pretrained", "answers", "names", "pairs"])
def test_nothing_is_cut_at_the_width_of_a_phone_or_a_desk(visit, name, viewport):
    page = visit(name, viewport)
    page.wait_for_timeout(1000)  # tabs that do not fit would move into a menu
    for one in page.get_by_role("tab").all():
        assert one.is_visible()
        one.click()
        for button in page.locator("button.primary:visible").all():
            box = button.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= viewport["width"]
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


# --- the command and the Space ---------------------------------------------------------------------------


def test_the_command_serves_the_page(browser, models):
    command = [sys.executable, "-m", "bert_training", "app", "--model", str(models["pairs"]), "--port", "0"]
    with serving(command, 1) as (process, (address,)):
        page = browser.new_page()
        page.goto(address)
        page.get_by_role("button", name="Judge", exact=True).wait_for()
        page.close()
        process.send_signal(2)  # Ctrl-C
        assert process.wait(timeout=90) in (0, 130)


def test_a_space_starts_in_a_folder_of_its_own(browser, models, tmp_path):
    space = tmp_path / "space"
    command = [
        sys.executable,
        "-m",
        "bert_training",
        "app",
        "--model",
        str(models["pretrained"]),
        "--space",
        str(space),
    ]
    with serving(command, 0) as (process, _):
        assert process.wait(timeout=120) == 0
    shutil.rmtree(models["pretrained"] / "checkpoint-10")
    edit_json(models["pretrained"] / "config.json", vocab_size=1)  # the Space holds a copy
    with serving([sys.executable, "app.py"], 1, cwd=space, PYTHONPATH="", GRADIO_SERVER_PORT="0") as (_, (address,)):
        page = browser.new_page()
        page.goto(address)
        page.locator("th").filter(has_text="final").wait_for()
        assert page.locator("table:visible tbody th").all_inner_texts() == ["10", "20", "final"]
        page.close()
