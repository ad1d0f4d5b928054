"""Requests to the page's own route, with its token, that the page never sends: each gets one sentence or a result.

The process that serves the page may print no traceback, and answers the next request as before.
"""

import http.client
import json
import random
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest

from lab.tests.helpers.fault_campaign import faults
from tests.helpers.browsers import serving
from tests.helpers.model_folders import save_model
from tests.helpers.repository import ROOT

HEADS = ("BertForPreTraining", "BertForSequenceClassification", "BertForQuestionAnswering", "BertForMultipleChoice")
VALUES = [
    *(
        None,
        True,
        0,
        -1,
        99,
        10**30,
        10**400,
        0.5,
        float("nan"),
        float("inf"),
        [],
        ["a"],
        {},
        {"path": "/etc/hostname"},
    ),
    *("", " ", "\x00", "\ud800", "\u2028", "1", "[MASK]", "a\nb", "a" * 19_999, "b" * 20_001, "9" * 5000),
]
OTHERS = ("session_hash", "trigger_id", "event_data", "event_id", "batched", "simple_format", "oauth_token")
REFUSED = b"This page has no such function, or it takes other texts, numbers and choices."


@pytest.fixture(scope="module")
def pages(tmp_path_factory, pretrained):
    """The addresses of the pages, and the file with what their process prints."""
    pytest.importorskip("gradio")
    place = tmp_path_factory.mktemp("pages")
    folders = [save_model(place / name, pretrained, name, run={"texts_per_example": 2}) for name in HEADS]
    command = [sys.executable, "tests/programs/guarded_app.py", str(place / "hosts"), *map(str, folders)]
    errors = place / "errors"
    shell = ["bash", "-c", 'exec "$@" 2> "$0"', str(errors), *command]
    with serving(shell, len(folders), PYTHONPATH=str(ROOT)) as (_, addresses):
        yield addresses, errors


def response(address: str, method: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.netloc, timeout=60)
    cookie = f"bert-{place.port}={place.query.removeprefix('token=')}"
    connection.request(method, path, body, {"Cookie": cookie, "Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def ask(address: str, function: Any, values: Any, **others: Any) -> tuple[int, str]:
    """The status of a question, and the page's HTML or the sentence of a refusal."""
    body = json.dumps({"data": values, "fn_index": function} | others)
    status, content = response(address, "POST", "/gradio_api/run/drawn", body)
    return status, content.decode() if status != 200 else str(json.loads(content)["data"][0])


@faults("hostile input", 60)
def test_a_question_that_the_page_does_not_ask(seed, pages, record_property):
    draw, (addresses, errors) = random.Random(seed), pages
    address = draw.choice(addresses)
    for _ in range(10):
        values: Any = [draw.choice(VALUES) for _ in range(draw.choice((1, 2, 4, 4, 7)))]
        function: Any = draw.choice([*range(8), draw.choice((-1, 24, 10**30, "0", None, 1.0, True, [0]))])
        status, shown = ask(address, function, values, **{draw.choice(OTHERS): draw.choice(VALUES)})
        assert (status, shown.encode()) == (400, REFUSED) or status == 200, shown[:500]
    assert {ask(address, 0, ["the [MASK] ."] * count)[0] for count in (1, 2)} == {200, 400}
    assert "Traceback" not in errors.read_text(), errors.read_text()[-3000:]
    record_property("outcome", "refused")
