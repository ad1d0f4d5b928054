"""Requests to the routes of the service that its page never sends: each gets an answer, or a refusal with a sentence.

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
FIELDS = (
    *("text", "texts", "second_text", "pairs", "question", "context", "questions", "candidates", "endings", "layer"),
    *("\ud800", "model", ""),
)
ROUTES = ("/predict", "/embed", "/pieces", "/attention")


@pytest.fixture(scope="module")
def pages(tmp_path_factory, pretrained):
    """The addresses of the services, and the file with what their process prints."""
    pytest.importorskip("fastapi")
    place = tmp_path_factory.mktemp("pages")
    folders = [save_model(place / name, pretrained, name, run={"texts_per_example": 2}) for name in HEADS]
    command = [sys.executable, "tests/bert_deploy/guarded_app.py", str(place / "hosts"), *map(str, folders)]
    errors = place / "errors"
    shell = ["bash", "-c", 'exec "$@" 2> "$0"', str(errors), *command]
    with serving(shell, len(folders), PYTHONPATH=str(ROOT)) as (_, addresses):
        yield addresses, errors


def response(address: str, path: str, body: Any) -> tuple[int, Any]:
    """Status and content of an answer."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


@faults("hostile input", 60)
def test_a_question_that_the_page_does_not_ask(seed, pages, record_property):
    draw, (addresses, errors) = random.Random(seed), pages
    address = draw.choice(addresses)
    for _ in range(10):
        names = draw.sample(FIELDS, draw.choice((1, 1, 2, 2, 3)))
        values: Any = [draw.choice([one, [one], [one, "a"], [[one, "a"]]]) for one in draw.choices(VALUES, k=3)]
        status, content = response(address, draw.choice(ROUTES), dict(zip(names, values)))
        assert status in (200, 400, 422), content
        assert content["answers" if status == 200 else "detail"]
    assert response(address, "/pieces", {"text": "the house"})[0] == 200
    assert "Traceback" not in errors.read_text(), errors.read_text()[-3000:]
    record_property("outcome", "refused")
