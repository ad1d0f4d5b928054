"""The page itself, made with Gradio: a tab for everything that the model's head can do, and two for every model."""

import atexit
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

# Both before the import, which may ask for a newer version; Gradio's own folder would belong to its first user.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_TEMP_DIR"] = tempfile.mkdtemp(prefix="bert-page-")

import fastapi
import gradio as gr
import transformers

from bert_training.app import drawing, file_box, readings
from bert_training.app.folder import (
    ANSWERS,
    CHOICE,
    CLASSES,
    MASKED,
    NAMES,
    NEXT_PIECE,
    NEXT_SENTENCE,
    OpenedModel,
    open_folder,
)
from bert_training.app.server import LOCAL, Guard, forget_tokens, free_port, start
from bert_training.app.style import CSS, MONO, SANS
from bert_training.tasks.classification.trained_for import SEVERAL_LABELS
from bert_training.tasks.classification.verdicts import is_regression

# What is not in a list is refused by `readings`, with a sentence; Gradio would print a traceback as well.
gr.Dropdown.preprocess = lambda self, payload: payload
atexit.register(shutil.rmtree, os.environ["GRADIO_TEMP_DIR"], ignore_errors=True)

# Cuts what is far too long before it is sent; the functions of `readings` then refuse it with a sentence. A character
# of Python has up to two units in JavaScript.
CUT = f"(...values) => values.map(v => typeof v === 'string' ? v.slice(0, {2 * readings.CHARACTERS + 2}) : v)"
# Each answer is the response to its question. Gradio's queue has two requests for each, whose order is a race.
EVENT: dict[str, Any] = {"js": CUT, "queue": False, "api_visibility": "private"}
ONE = threading.Lock()  # one function computes at a time: they share a tokenizer, which keeps settings
LOOK_FROM_ALL = -1  # the choice of all pieces instead of one


def build(opened: OpenedModel) -> gr.Blocks:
    """The page of a model."""
    tabs: dict[str, tuple[str, Callable[[OpenedModel], None]]] = {
        MASKED: ("Masked words", _masked_words),
        NEXT_PIECE: ("Next piece", _next_piece),
        NEXT_SENTENCE: ("Next sentence", _next_sentence),
        CLASSES: ("Classification", _classification),
        ANSWERS: ("Question answering", _answers),
        NAMES: ("Names", _names),
        CHOICE: ("Multiple choice", _choice),
    }
    with gr.Blocks(title="BERT", analytics_enabled=False) as page:
        _html(drawing.header(opened))
        with gr.Tabs():
            for name in opened.abilities:
                title, fill = tabs[name]
                with gr.Tab(title):
                    fill(opened)
            with gr.Tab("Attention"):
                _attention(opened)
            with gr.Tab("Pieces"):
                _pieces(opened)
    return page


def launch(
    page: gr.Blocks, port: int, host: str = LOCAL[0], hosts: tuple[str, ...] | None = LOCAL
) -> tuple[str, threading.Thread]:
    """Start to serve the page in a thread; return its address and the thread.

    Gradio's own ``launch`` would ask its server, through a proxy if the environment names one, whether it is there.

    Args:
        hosts: see ``Guard``. If it is not None, the address contains a token, without which nothing is shown.
    """
    forget_tokens()
    token = None if hosts is None else secrets.token_urlsafe(32)
    app = gr.mount_gradio_app(
        fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        page,
        path="/",
        server_name=host,
        server_port=port,
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=gr.themes.Default(primary_hue="blue", font=SANS, font_mono=MONO),
        head=f"<style>{CSS}</style><script>{file_box.SCRIPT}</script>",
    )
    inputs = {number: len(function.inputs) for number, function in page.fns.items()}
    thread = start(Guard(app, inputs, hosts, token), host, port)
    return f"http://{host}:{port}/" + (f"?token={token}" if token else ""), thread


# --- parts of a tab --------------------------------------------------------------------------------------


def _html(content: str = "", **options: Any) -> gr.HTML:
    return gr.HTML(content, elem_classes=["bert"], **options)


def _explain(sentence: str) -> None:
    _html(f'<p class="what-is-this">{sentence}</p>')


def _box(label: str, value: str = "", lines: int = 2, **options: Any) -> gr.Textbox:
    return gr.Textbox(value, label=label, lines=lines, max_lines=12, **options)


def _refusing(draw: Callable[..., str]) -> Callable[..., str]:
    """``draw`` with a notice instead of a ValueError."""

    def drawn(*inputs: Any) -> str:
        try:
            with ONE:
                return draw(*inputs)
        except ValueError as error:
            return drawing.notice(str(error))

    return drawn


def _ask(
    button: str, inputs: list[Any], draw: Callable[..., str], output: gr.HTML, listen: list[Any] | None = None
) -> Any:
    """A button that shows ``draw(*inputs)`` in ``output``; so does Enter in a box of one line."""
    pressed = gr.Button(button, variant="primary", size="md")
    # The example in the boxes is answered before anybody asks, so that the page explains itself.
    output.value = _refusing(draw)(*(box.value for box in inputs))
    events = [pressed.click, *(box.submit for box in inputs if isinstance(box, gr.Textbox))]
    events += [choice.change for choice in listen or []]
    return gr.on(events, _refusing(draw), inputs, output, show_progress="minimal", trigger_mode="always_last", **EVENT)


@contextmanager
def _beside() -> Iterator[gr.HTML]:
    """A context for the inputs, in a column on the left; it gives the output on their right."""
    with gr.Row():
        left, right = gr.Column(scale=4, min_width=300), gr.Column(scale=5, min_width=300)
    with right:
        output = _html()
    with left:
        yield output


# --- the heads of pre-training ---------------------------------------------------------------------------


def _masked_words(opened: OpenedModel) -> None:
    mask = opened.tokenizer.mask_token
    _explain(
        "Leave a gap in a sentence, and the model says which pieces of its vocabulary fit there. This is what it "
        "practised in pre-training."
    )
    example = f"Return the {mask} of the array." if opened.builtin else f"London is the {mask} of England."
    _gap_tab(opened, f"Your sentence, with {mask} for a missing word", example, "Fill the gap")


def _next_piece(opened: OpenedModel) -> None:
    _explain(
        "This model reads from left to right only. It says which piece of its vocabulary comes next after your text."
    )
    example = "Return the sum of the" if opened.builtin else "London is the capital of"
    _gap_tab(opened, "The beginning of a text", example, "Continue")


def _gap_tab(opened: OpenedModel, label: str, example: str, button: str) -> None:
    def guess(text: str) -> str:
        found = readings.masked_words(opened, text)
        return drawing.gaps(found, [f"Gap {number}" for number in range(1, len(found) + 1)])

    def look_back(text: str) -> str:
        try:
            readings.masked_words(opened, text, 1)
        except ValueError:
            return ""  # the notice beside the button says it
        found = readings.along_the_way(opened, text)
        return drawing.stops(found, len(opened.checkpoints) - len(found) + 1)

    with _beside() as output:
        box = _box(label, example)
        asked = _ask(button, [box], guess, output)
    if opened.checkpoints:
        _html(
            "<h4>Along the way</h4>"
            + drawing.hint(
                "What the checkpoints of the pre-training would have said, and how probable the final model's best "
                "guess was to each of them."
            )
        )
        looked = _refusing(look_back)
        earlier = _html(looked(example))
        asked.then(looked, [box], earlier, show_progress="minimal", **EVENT)


def _next_sentence(opened: OpenedModel) -> None:
    _explain(
        "Write a sentence, and below it some that may follow. For each one the model says how probable it is that it "
        "comes next in the same text, rather than from another one."
    )
    first, second = "She opened the case and took out her violin.", "Then she began to play.\nThe river is very long."
    if opened.builtin:
        first = "Return the sum of the array elements over the given axis."
        second = "The axis is that along which the sum is taken.\nThe server closes the connection after a timeout."
    with _beside() as output:
        boxes = [_box("First sentence", first), _box("What may follow, one sentence on each line", second, 4)]
        _ask("Compare", boxes, lambda a, b: drawing.bars(readings.next_sentence(opened, a, b)), output)


# --- fine-tuned heads ------------------------------------------------------------------------------------


def _classification(opened: OpenedModel) -> None:
    regression, pair = is_regression(opened.model.config), opened.texts == 2
    several = opened.model.config.problem_type == SEVERAL_LABELS
    what = "a score" if regression else "each of its labels, with a probability"
    if several:
        what += "; a text has those labels, with a tick, whose probability reaches the threshold of the label"
    long_texts = readings.how_long_texts_are_read(opened)
    _explain(f"The model reads {'two texts together' if pair else 'a text'} and gives {what}.{long_texts}")

    def judge(text: str, second: str = "") -> str:
        found = readings.classify(opened, text, second)
        draw = drawing.labels if several else drawing.bars
        return drawing.score(found[0]) if regression else draw(found)

    first, second = "The old doctor opened a small practice by the river.", "A doctor began to work beside the river."
    if opened.builtin:
        first, second = "Return the sum of the elements.", "The sum is taken along the given axis."
    with _beside() as output:
        boxes = [_box("First text" if pair else "Text", first, 3)]
        if opened.texts != 1:
            label = "Second text" if pair else "Second text, if the model was trained on pairs"
            boxes.append(_box(label, second if pair else "", 3))
        _ask("Judge", boxes, judge, output)


def _choice(opened: OpenedModel) -> None:
    _explain("Write how something begins, and several ways in which it may go on. The model chooses one.")
    endings = "She begins to play.\nShe begins to swim.\nThe case plays her.\nIt is a very long river."
    with _beside() as output:
        boxes = [
            _box("Beginning", "She takes the violin out of its case."),
            _box("Endings, one on each line", endings, 4),
        ]
        _ask("Choose", boxes, lambda a, b: drawing.bars(readings.choose(opened, a, b)), output)


def _answers(opened: OpenedModel) -> None:
    _explain(
        "Paste a text, or drop a text file, and ask about it. The model marks the part of the text that it takes for "
        "the answer; it cannot answer in words of its own."
    )
    question, context = "Where did Ada Lovelace grow up?", "Ada Lovelace was born in 1815. She grew up in London."
    if opened.builtin:
        question = "What does the parameter axis mean?"
        context = "axis (int): Axis along which the sum is taken. out (ndarray): Where the result is stored."
    with _beside() as output:
        asked, text = _box("Question", question, 1), _box("Text", context, 8, elem_id=file_box.BOX_FOR_TEXT)
        _ask("Answer", [asked, text], lambda q, c: drawing.reply(readings.answer(opened, q, c), c), output)
        # Read by the browser: a file that is sent to Gradio's server would stay there.
        _html(file_box.file_box(readings.CHARACTERS))


def _names(opened: OpenedModel) -> None:
    _explain("The model reads a text word by word and marks the names in it, each with its kind.")
    example = "Ada Lovelace grew up in London and wrote to Charles Babbage."
    if opened.builtin:
        example = "Call numpy.sum with axis=0 to add up the rows, or use the method sum of an ndarray."
    with _beside() as output:
        box = _box("Text", example, 6)
        _ask("Find names", [box], lambda text: drawing.names(readings.names_in(opened, text), text), output)


# --- every model -----------------------------------------------------------------------------------------


def _attention(opened: OpenedModel) -> None:
    config = opened.model.config
    _explain(
        "In every layer, every head of the model lets each piece look at all others. The darker a field, the more the "
        "piece on the left looks at the piece above."
    )

    def look(text: str, second: str, layer: int, place: int) -> str:
        tokens, weights = readings.attention(opened, text, second, layer)
        place = readings.check_number(place, "The piece", LOOK_FROM_ALL, len(tokens) - 1)
        if place == LOOK_FROM_ALL:
            return drawing.heads(tokens, weights, layer)
        return drawing.looks(tokens, weights, place)

    def places(text: str, second: str) -> list[tuple[str, int]]:
        try:
            with ONE:
                tokens, _ = readings.attention(opened, text, second, 1)
        except ValueError:
            tokens = []  # the notice below says it
        return [("all pieces", LOOK_FROM_ALL), *((f"{place}: {token}", place) for place, token in enumerate(tokens))]

    example = (
        "Return the sum of the elements of the array." if opened.builtin else "The animal was too tired to cross it."
    )
    with gr.Row():
        text = _box("Text", example, 1, scale=3, min_width=280)
        second = _box("Second text (may be empty)", "", 1, scale=3, min_width=280)
    with gr.Row():
        layers = [(f"layer {number}", number) for number in range(1, config.num_hidden_layers + 1)]
        layer = gr.Dropdown(layers, value=1, label="Layer", filterable=False, min_width=140)
        place = gr.Dropdown(
            places(example, ""), value=LOOK_FROM_ALL, label="Look from", filterable=False, min_width=140
        )
    _ask("Look inside", [text, second, layer, place], look, output := _html(render=False), [layer, place])
    output.render()
    for box in (text, second):
        box.blur(
            lambda a, b: gr.Dropdown(choices=places(a, b), value=LOOK_FROM_ALL),
            [text, second], place, show_progress="hidden", **EVENT,
        )  # fmt: skip


def _pieces(opened: OpenedModel) -> None:
    _explain(
        "A model reads numbers, not letters. This is how a text becomes pieces of the vocabulary and then numbers."
    )
    box = _box("Text", "Naïve café-goers, unbelievably, tokenize THIS!", 2)
    output = _html(render=False)
    _ask("Cut into pieces", [box], lambda text: drawing.steps(readings.pieces(opened, text), text), output)
    output.render()


def serve(folder: str | Path, name: str) -> None:
    """Show a model, under a name, inside a Space of the Hub, whose environment says where to listen.

    It returns when the process is ended.
    """
    host, port = os.environ.get("GRADIO_SERVER_NAME", LOCAL[0]), os.environ.get("GRADIO_SERVER_PORT", "7860")
    transformers.utils.logging.disable_progress_bar()
    page = build(replace(open_folder(str(folder)), name=name))
    url, thread = launch(page, free_port(int(port)), host, LOCAL if host in LOCAL else None)
    print(f"{url} (Ctrl-C ends it)", flush=True)
    thread.join()
