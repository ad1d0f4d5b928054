"""bert_training/app/drawing.py: nothing that a user, a config or a vocabulary says becomes HTML, and figures are
right.
"""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from bert_training.app import drawing
from bert_training.app.readings import CheckpointGuess, Guess, Piece, Pieces, Reply, TaggedSpan

HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>${alert(3)}{{value}}`&amp;\x00"


class Tags(HTMLParser):
    """The tags, attributes and text of a page, as a browser reads them."""

    def __init__(self, page: str):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("image", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in ("image", "rect"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


class FakeModel:
    """What the head of the page needs of a model."""

    class config:
        num_hidden_layers = num_attention_heads = 2

    def parameters(self):
        return []


class Folder:
    name, longest, model, tokenizer = HOSTILE, 64, FakeModel(), range(9)


def entry(text, share):
    return {"text": text, "probability": share, "start": 0, "end": len(text)}


DRAWINGS = {
    "notice": lambda text: drawing.notice(text),
    "bars": lambda text: drawing.bars([Guess(text, 0.5), Guess("b", 0.5)]),
    "gaps": lambda text: drawing.gaps([[Guess(text, 0.5)], [Guess(text, 0.5)]], [text, text]),
    "stops": lambda text: drawing.stops(
        [CheckpointGuess(1, [[Guess(text, 0.5)]], [0.5]), CheckpointGuess(None, [[Guess(text, 0.5)]], [0.5])], 3
    ),
    "score": lambda text: drawing.score(Guess(text, 1.0)),
    "reply": lambda text: drawing.reply(Reply(text, 0, len(text), [entry(text, 1.0)], None, None), text),
    "no answer": lambda text: drawing.reply(Reply("", 0, 0, [entry(text, 0.4), entry("", 0.6)], 3.0, 1.0), text),
    "names": lambda text: drawing.names([TaggedSpan(text, 0, 5, 0.5), TaggedSpan("b", 6, 9, 0.5)], text),
    "no names": lambda text: drawing.names([], text),
    "steps": lambda text: drawing.steps(
        Pieces(text, [text], [Piece(text, 1, None, 0, 0), Piece(text, 2, 0, 0, 9)]), text
    ),
    "heads": lambda text: drawing.heads([text[:11], "b"], np.full((3, 2, 2), 0.5), 1),
    "looks": lambda text: drawing.looks([text, "b"], np.full((3, 2, 2), 0.5), 1),
    "header": lambda text: drawing.header(Folder),
}
MARKUP = {
    *"div span p b i small mark h1 h4 header figure figcaption svg image rect text table thead tbody tr th td".split()
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_hostile_text_stays_text(name):
    page = DRAWINGS[name](HOSTILE)
    read = Tags(page)
    assert set(read.tags) <= MARKUP and read.open == []
    assert not [key for key, _ in read.attributes if key.startswith("on")]
    assert {value[:22] for key, value in read.attributes if key in ("src", "href")} <= {"data:image/png;base64,"}
    assert not re.search(r"[$`{}]", page)  # Gradio's templates would execute ${...}
    # Marks divide the text, and labels of pictures are cut.
    shown = (
        HOSTILE[:11] if name == "heads" else HOSTILE[9:].rstrip("\x00") if name == "names" else HOSTILE.rstrip("\x00")
    )
    assert shown in read.text


def test_probabilities_are_neither_rounded_to_nothing_nor_to_certainty():
    shares = {0.0: "0.0 %", 0.0004: "< 0.1 %", 0.001: "0.1 %", 0.1234: "12.3 %", 0.9994: "99.9 %", 1.0: "100.0 %"}
    assert {share: drawing.percent(share) for share in shares} == shares
    assert drawing.percent(0.99999) == "> 99.9 %"


def test_the_answer_is_marked_where_it_stands():
    context = "no; the old doctor, the old king"
    page = drawing.reply(Reply("the old", 20, 27, [entry("the old", 0.9)], -2.5, 0.5), context)
    assert "no; the old doctor, <mark>the old</mark> king" in page
    assert "No-answer odds: -2.50" in page and "threshold is 0.50; the odds are not above it, so it answers" in page
    assert "Pieces that were not read" not in page
    assert "above it, so it gives no answer" in DRAWINGS["no answer"]("a")
    assert "always gives one" in drawing.reply(Reply("a", 0, 1, [entry("a", 1.0)], None, None), "a")


def test_what_was_not_read_is_said_below_the_result():
    reply = drawing.reply(Reply("a", 0, 1, [entry("a", 1.0)], None, None, 3), "a")
    for page in (reply, drawing.score(Guess("a", 1.0, lost=3)), drawing.bars([Guess("a", 0.5, lost=3)] * 2)):
        assert "Pieces that were not read, as in the training: 3." in page
    assert "training: up to 3." in drawing.bars([Guess("a", 0.5, lost=3), Guess("b", 0.5)])


def test_the_final_row_is_the_last_and_left_out_checkpoints_are_counted():
    page = DRAWINGS["stops"]("king")
    assert page.index(">1<") < page.index(">final<") and "3 more checkpoints" in page
    assert "more checkpoints" not in drawing.stops([CheckpointGuess(None, [[Guess("a", 0.5)]], [0.5])], 0)


def test_a_picture_has_a_pixel_for_every_pair_of_pieces():
    weights = np.array([[[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.2, 0.3, 0.5]]])
    (data,) = re.findall(r"base64,([\w+/=]+)", drawing.heads(["a", "b", "c"], weights, 1))
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        strength = np.asarray(image)[..., 3].astype(float)
    assert strength.shape == (3, 3) and strength[0].tolist() == [255, 0, 0]
    order = np.argsort(weights[0], axis=None, kind="stable")
    assert (np.diff(strength.ravel()[order]) >= 0).all()  # stronger attention is never drawn weaker
    assert len(re.findall("<figure>", drawing.heads(["a", "b", "c"], np.repeat(weights, 12, 0), 1))) == 12


def test_looking_from_one_piece_shows_its_row_and_not_its_column():
    weights = np.array([[[1.0, 0.0], [0.25, 0.75]]])
    page = drawing.looks(["a", "b"], weights, 1)
    assert page.index("25.0 %") < page.index("75.0 %") and "100.0 %" not in page
    assert page.count("look from") == 1
