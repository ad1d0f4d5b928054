"""bert-repro serve: its answers are those of readings.py, and neither bodies nor clients can stop it."""

import asyncio
import contextlib
import dataclasses
import http.client
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import transformers

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

from bert_training.__main__ import main  # noqa: E402
from bert_training.app import (  # noqa: E402
    readings,
    serve,
    service,
    service_limits,
    service_log,
    service_readers,
    service_workers,
)
from bert_training.app.folder import open_folder  # noqa: E402
from bert_training.app.service import Settings, make_service, server_config  # noqa: E402
from bert_training.app.service_limits import LARGEST_BODY  # noqa: E402
from bert_training.app.service_log import MOST  # noqa: E402
from bert_training.app.service_readers import Readers  # noqa: E402
from modeling_bert_repro import lstm_heads  # noqa: E402
from tests.helpers.model_folders import save_model  # noqa: E402
from tests.helpers.repository import ROOT  # noqa: E402

TEXT, OTHER = "the old doctor opened a small red house", "he went home ."
NAMES = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
SETTINGS = Settings("", ("127.0.0.1", "localhost"))
CONTEXT = f"{TEXT} by the river . " * 4
WINDOWS = {"question_answering": {"max_seq_length": 24, "doc_stride": 5, "max_query_length": 6}}
LABELS = {"id2label": {0: "red", 1: "old", 2: "small"}}
SEVERAL = LABELS | {"problem_type": "multi_label_classification"}
# A head: its class, and fields of its config.
HEADS = {
    "classes": ("BertForSequenceClassification", LABELS),
    "several labels": ("BertForSequenceClassification", SEVERAL | {"fine_tuning": {"thresholds": [0.9, 0.1, 0.5]}}),
    "score": ("BertForSequenceClassification", {"id2label": {0: "score"}, "problem_type": "regression"}),
    "names": ("BertForTokenClassification", {"id2label": NAMES}),
    "last token": ("BertForTokenClassification", LABELS | {"fine_tuning": {"label_token": "last"}, "is_decoder": True}),
    "answers": ("BertForQuestionAnswering", WINDOWS),
    "no answers": ("BertForQuestionAnswering", WINDOWS | {"null_score_diff_threshold": -1000.0}),
    "pretrained": ("BertForPreTraining", {}),
    "choice": ("BertForMultipleChoice", {}),
    "encoder": ("BertModel", {}),
}
LONG = {
    "windows": (
        "BertForSequenceClassification",
        LABELS | {"fine_tuning": {"script": "run_glue.py", "long_texts": "windows", "max_seq_length": 24}},
    )
}
LSTMS = {
    "names with an LSTM": ("BertBiLSTMForTokenClassification", {"id2label": NAMES}),
    "answers with an LSTM": ("BertBiLSTMForQuestionAnswering", WINDOWS),
    "features": ("BertFeatureTagger", {"id2label": NAMES, "feature_based": "last", "lstm_size": 8}),
}


@pytest.fixture(autouse=True)
def prompt_log(monkeypatch):
    """Lines are written at once, and before the next test begins."""
    made = []
    monkeypatch.setattr(service_log, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(service, "Log", lambda: made.append(service_log.Log()) or made[-1])
    yield
    for log in made:
        log.flush(10)


@pytest.fixture(scope="module")
def opened(tmp_path_factory, pretrained):
    """A function: the name of a head -> its opened folder."""
    folder, made = tmp_path_factory.mktemp("heads"), {}

    def of(name):
        if name not in made:
            cls, fields = (HEADS | LONG | LSTMS)[name]
            library = lstm_heads if name in LSTMS else transformers
            made[name] = open_folder(str(save_model(folder / name, pretrained, cls, library, **fields)))
        return made[name]

    return of


def ask(app, body=b"", path="/predict", method="POST", **headers):
    """Status, headers and content of the answer of an application that no server runs."""
    sent, given = [], [{"type": "http.request", "body": body if isinstance(body, bytes) else json.dumps(body).encode()}]

    async def receive():
        if not given:
            await asyncio.sleep(60)  # the client waits for the answer
        return given.pop() if given else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = {"host": "127.0.0.1:8000", "content_type": "application/json"} | headers
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    asyncio.run(app(scope | {"headers": lines, "http_version": "1.1", "scheme": "http"}, receive, send))
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], {key.decode(): value.decode() for key, value in sent[0]["headers"]}, content


def answers(app, body, path="/predict"):
    status, _, content = ask(app, body, path)
    assert status == 200, content
    return json.loads(content)["answers"]


def rounded(guesses):
    return [{"text": guess.text, "probability": round(guess.probability, 6)} for guess in guesses]


# --- the answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 2])
def test_classes_labels_and_scores(opened, batch_size):
    """One request at a time: it has the digits of the functions, however many may be read at once."""
    app = make_service(opened("classes"), Settings("", None, batch_size))
    pair, single = (readings.classify(opened("classes"), TEXT, second) for second in (OTHER, None))
    said = [
        {"label": found[0].text, "probabilities": {guess.text: round(guess.probability, 6) for guess in found}}
        for found in (pair, single)
    ]
    assert answers(app, {"text": TEXT, "second_text": OTHER}) == answers(app, {"pairs": [[TEXT, OTHER]]}) == said[:1]
    assert answers(app, {"text": TEXT}) == said[1:] != said[:1]

    found = readings.classify(opened("several labels"), TEXT)
    (labels,) = answers(make_service(opened("several labels"), SETTINGS), {"text": TEXT})
    assert labels["labels"] == [guess.text for guess in found if guess.given]
    assert labels["thresholds"] == {"red": 0.9, "old": 0.1, "small": 0.5}
    assert list(labels["probabilities"].values()) == [round(guess.probability, 6) for guess in found]

    (score,) = readings.classify(opened("score"), TEXT)
    assert answers(make_service(opened("score"), SETTINGS), {"text": TEXT}) == [{"score": round(score.probability, 6)}]


def test_names_with_their_places(opened):
    (found,) = answers(make_service(opened("names"), SETTINGS), {"text": TEXT})
    expected = readings.names_in(opened("names"), TEXT)
    places = [(name["kind"], name["start"], name["end"], name["probability"]) for name in found["names"]]
    assert places == [(name.kind, name.start, name.end, round(name.probability, 6)) for name in expected] != []
    assert all(TEXT[name["start"] : name["end"]] == name["text"] for name in found["names"])


@pytest.mark.parametrize("head", ["answers", "no answers"])
def test_answers_from_windows(opened, head):
    asked = {"question": "who opened it ?", "context": CONTEXT}
    app = make_service(opened(head), SETTINGS)
    (found,) = answers(app, asked)
    reply = readings.answer(opened(head), *asked.values())
    assert (found["answer"], found["start"], found["end"]) == (reply.answer, reply.start, reply.end)
    assert found.get("null_odds") == reply.null_odds and found.get("threshold") == reply.threshold
    assert (found["answer"] == "") == (head == "no answers") == ("null_odds" in found)
    assert found["score"] in [
        round(entry["probability"], 6) for entry in reply.entries if entry["text"] == reply.answer
    ]
    assert answers(app, {"questions": [asked, asked]}) == [found, found]


def test_masked_words_next_sentences_endings_and_vectors(opened):
    app, model, lines = make_service(opened("pretrained"), SETTINGS), opened("pretrained"), [OTHER, "a house ."]
    gaps = [rounded(gap) for gap in readings.masked_words(model, "the [MASK] house")]
    assert answers(app, {"text": "the [MASK] house"}) == [{"gaps": gaps}]
    ranked = rounded(readings.next_sentence(model, TEXT, "\n".join(lines)))
    assert answers(app, {"text": TEXT, "candidates": lines}) == [{"candidates": ranked}]
    ranked = rounded(readings.choose(opened("choice"), TEXT, "\n".join(lines)))
    assert answers(make_service(opened("choice"), SETTINGS), {"text": TEXT, "endings": lines}) == [{"endings": ranked}]
    vector = [round(value, 6) for value in readings.vector(opened("encoder"), TEXT).tolist()]
    app = make_service(opened("encoder"), SETTINGS)
    assert answers(app, {"texts": [OTHER, TEXT]})[1] == answers(app, {"text": TEXT}, "/embed")[0] == {"vector": vector}
    assert len(vector) == opened("encoder").model.config.hidden_size


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", [*HEADS, *LSTMS])
def test_every_model_gives_vectors(opened, name, size):
    """They are those of the encoder, also where a head takes other inputs or says nothing of hidden states."""
    model = opened(name)
    app = make_service(model, Settings("", None, batch_size=size))
    expected = [[round(value, 6) for value in readings.vector(model, text).tolist()] for text in (TEXT, OTHER)]
    found = [answer["vector"] for answer in answers(app, {"texts": [TEXT, OTHER]}, "/embed")]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    assert len(found[0]) == model.model.config.hidden_size


LONG_WORDS = f"{TEXT} by the river . " * 12
CUT = {
    "a text": ("classes", {"text": LONG_WORDS}),
    "a pair": ("classes", {"text": LONG_WORDS, "second_text": CONTEXT}),
    "several labels": ("several labels", {"text": LONG_WORDS}),
    "a score": ("score", {"text": LONG_WORDS}),
    "the last token": ("last token", {"text": LONG_WORDS}),
}


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("what", CUT)
def test_a_long_text_is_read_as_in_the_training_and_the_answer_says_so(opened, what, batch_size):
    """The independent source is the tokenizer's own cut at the 64 positions, which the trained network is given."""
    head, body = CUT[what]
    model, texts = opened(head), [*body.values()]
    (found,) = answers(make_service(model, Settings("", None, batch_size)), body)
    cut = model.tokenizer(*texts, truncation="longest_first", max_length=64, return_tensors="pt")
    with torch.no_grad():
        logits = model.model(**cut).logits
    said = model.judge((logits[0, -1] if model.at_the_end else logits[0]).numpy()).ranked().record()
    lost = len(model.tokenizer(*texts)["input_ids"]) - 64
    found.pop("thresholds", None)
    assert found == said | {"tokens_not_read": lost} and lost > 0
    refusing = make_service(dataclasses.replace(model, refuses_long_texts=True), Settings("", None, batch_size))
    status, _, content = ask(refusing, body)
    assert status == 422 and f"{lost + 64} pieces, of which this model would not read {lost}; shorten" in str(content)
    assert "tokens_not_read" not in answers(refusing, dict.fromkeys(body, TEXT))[0]


def test_a_long_question_and_long_endings_are_cut_as_in_the_training(opened):
    model, context = opened("answers"), {"context": CONTEXT}
    app = make_service(model, SETTINGS)
    (found,) = answers(app, context | {"question": "the king walked to the old house by the river"})
    assert found.pop("tokens_not_read") == 4  # of 10; the model reads 6
    assert answers(app, context | {"question": "the king walked to the old"}) == [found]
    refusing = make_service(dataclasses.replace(model, refuses_long_texts=True), SETTINGS)
    status, _, content = ask(refusing, context | {"question": "the king walked to the old house by the river"})
    assert status == 422 and b"The question has 10 pieces, of which this model would not read 4" in content

    model, endings = opened("choice"), [CONTEXT, OTHER]
    (found,) = answers(make_service(model, SETTINGS), {"text": CONTEXT, "endings": endings})
    pairs = [CONTEXT.strip()] * 2, [ending.strip() for ending in endings]
    cut = model.tokenizer(*pairs, truncation="longest_first", max_length=64, padding=True, return_tensors="pt")
    with torch.no_grad():
        shares = model.model(**{name: rows[None] for name, rows in cut.items()}).logits[0].softmax(0).tolist()
    said = {ending["text"]: ending for ending in found["endings"]}
    assert [said[ending]["probability"] for ending in pairs[1]] == pytest.approx(shares, abs=1e-5)
    whole = [len(ids) for ids in model.tokenizer(*pairs)["input_ids"]]
    assert [said[ending].get("tokens_not_read", 0) for ending in pairs[1]] == [max(0, n - 64) for n in whole] != [0, 0]


# --- many clients ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(app):
    """A port at which uvicorn serves the application."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, server = listener.getsockname()[1], uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join()


def http_get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", "/predict", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.mark.parametrize("head", ["classes", "last token", "answers", "encoder"])
def test_simultaneous_requests_share_forward_passes_and_get_their_own_answers(opened, head):
    words, passes = f"{TEXT} and walked to the river".split(), []
    texts = [" ".join(words[: 2 + number % 11]) for number in range(16)]
    bodies = [{"text": text} for text in texts]
    if head == "answers":
        bodies = [{"question": "who ?", "context": text} for text in texts]
    expected = [answers(make_service(opened(head), SETTINGS), body) for body in bodies]
    app = make_service(opened(head), Settings("", None, batch_size=4, wait_s=0.02))
    note = opened(head).model.register_forward_pre_hook(lambda *_: passes.append(1))
    with running(app) as port, ThreadPoolExecutor(4) as clients:
        found = list(clients.map(lambda body: post(port, body), bodies))
    note.remove()
    assert len(passes) < 16
    for (status, answer), wanted in zip(found, expected):
        assert status == 200 and numbers(answer["answers"]) == pytest.approx(numbers(wanted), abs=1e-5)
        assert re.sub(r"[\d.e-]+", "", json.dumps(answer["answers"])) == re.sub(r"[\d.e-]+", "", json.dumps(wanted))


def numbers(answer):
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", json.dumps(answer))]


def test_who_has_gone_is_not_answered(opened, monkeypatch):
    """What waits for a turn is not computed, so that it takes no place from the others."""
    app, ended = make_service(opened("classes"), SETTINGS), []

    async def long(*_):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(1)
            raise

    (limits,) = [found for found in (app, getattr(app, "app", None)) if isinstance(found, service_limits.Limits)]
    monkeypatch.setitem(limits.posts, "/predict", long)
    with running(app) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = json.dumps({"text": TEXT})
            head = f"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n"
            client.sendall(f"{head}content-type: application/json\r\n\r\n{body}".encode())
            time.sleep(0.3)
        end = time.monotonic() + 10
        while not ended and time.monotonic() < end:
            time.sleep(0.02)
        assert ended
        counts = http_get(port, "/metrics")
    assert 'requests_total{path="/predict",status="499"} 1' in counts


def test_a_full_queue_says_when_to_come_again(opened, monkeypatch):
    made = []
    monkeypatch.setattr(service, "Readers", lambda *args: made.append(Readers(*args)) or made[-1])
    app = make_service(opened("classes"), Settings("", None, most=2))
    made[0].pending = 1
    status, headers, _ = ask(app, {"texts": ["a", "b"]})
    assert status == 503 and int(headers["retry-after"]) >= 1
    made[0].pending = 0
    status, _, content = ask(app, {"texts": ["a", "b", "c"]})
    assert status == 422 and b"at most 2 texts" in content
    assert len(answers(app, {"texts": ["a", "b"]})) == 2


# --- what is refused -------------------------------------------------------------------------------------

BAD = {
    "broken JSON": (b'{"text": ', 400, "not JSON"),
    "not UTF-8": (b'{"text": "\xff"}', 400, ""),
    "nested": (b"[" * 100_000, 400, ""),
    "a list": (b"[1]", 422, "body"),
    "a number": (b'{"text": 5}', 422, "text: "),
    "texts are no list": (b'{"texts": "a"}', 422, "texts: "),
    "NUL": (b'{"text": "a\\u0000b"}', 422, "NUL"),
    "half a character": (b'{"text": "\\ud800"}', 422, "text: "),
    "half a character in a name": (b'{"\\ud800": 1, "text": "a"}', 422, ""),
    "empty": (b'{"text": " "}', 422, "empty"),
    "nothing": (b"{}", 422, "expected one of the fields text, texts, pairs, got none"),
    "both": (b'{"text": "a", "texts": ["a"]}', 422, "got text and texts"),
    "no text of this pair": (b'{"texts": ["a"], "second_text": "b"}', 422, "belongs to text"),
    "a pair of three": (b'{"pairs": [["a", "b", "c"]]}', 422, "pairs"),
    "a model of the client's": (b'{"text": "a", "model": "/etc/passwd"}', 422, "model: "),
    "10,000 texts": (json.dumps({"texts": ["a"] * 10_000}).encode(), 422, "at most 64"),
    "a long text": (json.dumps({"text": "a" * 20_001}).encode(), 422, "at most 20000 characters"),
    "10 MB": (b'{"text": "' + b"a" * 10 * 2**20 + b'"}', 413, "at most 1,048,576 bytes"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_body_is_refused_with_a_sentence_and_the_service_lives(opened, what, capsys):
    app = make_service(opened("classes"), SETTINGS)
    body, status, sentence = BAD[what]
    found, headers, content = ask(app, body)
    assert (found, headers["content-type"]) == (status, "application/json"), content
    assert sentence in json.loads(content)["error"] and len(content) < 1000
    assert ask(app, {"text": TEXT})[0] == 200
    assert "/etc" not in capsys.readouterr().err


def test_lines_to_choose_from_are_single_lines(opened):
    app = make_service(opened("choice"), SETTINGS)
    assert b"line break" in ask(app, {"text": TEXT, "endings": ["a\u2028b", "c"]})[2]
    assert ask(app, {"text": TEXT, "endings": ["a"]})[0] == 422
    assert ask(app, {"text": TEXT, "endings": ["x" * 15_000, "y" * 15_000]})[0] == 200  # each may be as long as a text


def test_other_hosts_paths_methods_and_lengths(opened):
    app = make_service(opened("classes"), SETTINGS)
    body = {"text": TEXT}
    assert ask(app, body, host="localhost")[0] == 200 and ask(app, body, host="evil.example:8000")[0] == 421
    assert ask(app, body, content_type="text/plain")[0] == 422  # what a form of another web page may send
    assert ask(app, body, "/docs/../etc")[0] == 404
    status, headers, _ = ask(app, body, method="GET")
    assert status == 405 and headers["allow"] == "POST"
    for length in (str(LARGEST_BODY + 1), "-1", "many", "9" * 20):
        status, headers, content = ask(app, body, content_length=length)
        assert status == 413 and headers["content-length"] == str(len(content))


def test_health_counts_page_and_log_say_nothing_of_the_texts(opened, capsys):
    app = make_service(opened("classes"), SETTINGS)
    assert ask(app, {"texts": ["secret words", "more"]})[0] == 200 and ask(app, {"text": 5, "secret": 1})[0] == 422
    assert json.loads(ask(app, path="/health", method="GET")[2])["abilities"] == ["classification"]
    counts = ask(app, path="/metrics", method="GET")[2].decode()
    for line in ('requests_total{path="/predict",status="200"} 1', "texts_total 2", 'bucket{le="+Inf"} 1'):
        assert f"bert_{line}\n" in counts or f"bert_request_seconds_{line}\n" in counts
    assert {"/predict", "/embed"} <= set(json.loads(ask(app, path="/openapi.json", method="GET")[2])["paths"])
    page = ask(app, path="/docs", method="GET")[2].decode()
    assert "second_text" in page and not re.search("<script|src=|//", page)
    app.log.flush(10)
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["status"] for line in logged[:2]] == [200, 422] and "secret" not in str(logged) + counts


def test_a_mistake_of_the_service_is_logged_without_its_message(opened, capsys, monkeypatch):
    monkeypatch.setattr(readings, "verdict", lambda *_: 1 / 0)
    app = make_service(opened("classes"), SETTINGS)
    status, _, content = ask(app, {"text": TEXT})
    assert status == 500 and json.loads(content) == {"error": service_limits.BROKEN}
    app.log.flush(10)
    logged = capsys.readouterr().err
    assert '"ZeroDivisionError", "at": "test_service.py:' in logged and "Traceback" not in logged


def test_a_log_that_nobody_reads_stops_no_request(opened, monkeypatch):
    """A pipe holds 64 KB; then whoever writes to it waits."""
    reader, writer = os.pipe()
    app = make_service(opened("classes"), SETTINGS)
    with open(writer, "w") as unread, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", unread)
        for _ in range(MOST + 2_000):
            app.log.write(event="x" * 100)
        assert ask(app, {"text": TEXT})[0] == 200
        with running(app) as port, socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")
            assert b" 200 " in client.recv(100), "uvicorn says something of its own about such a request"
        assert app.log.lost > 1_000
        counts = ask(app, path="/metrics", method="GET")[2].decode()
        assert f"bert_log_lines_lost_total {app.log.lost}\n" in counts
        late = ThreadPoolExecutor(1).submit(lambda: Path(f"/dev/fd/{reader}").read_text().splitlines())
        app.log.flush(20)
    assert MOST < len(late.result()) <= MOST + 2_010 - app.log.lost
    os.close(reader)


def test_slow_and_half_closed_clients_are_left(opened, monkeypatch):
    monkeypatch.setattr(service_limits, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(service_limits, "BODY_SECONDS", 0.2)
    head = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n"
    with running(make_service(opened("classes"), SETTINGS)) as port:
        clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(4)]
        for client, sent in zip(clients, (b"", head, head + b"\r\n{", head + b"\r\n{")):
            client.sendall(sent)
        clients[3].shutdown(socket.SHUT_WR)
        assert post(port, {"text": TEXT})[0] == 200
        began = time.monotonic()
        for client, expected in zip(clients, (b"", b"", b"HTTP/1.1 408", b"")):
            with client, contextlib.suppress(ConnectionResetError):
                assert client.recv(100).startswith(expected) or not expected
        assert time.monotonic() - began < 5
        assert post(port, {"text": TEXT})[0] == 200


def test_an_answer_is_sent_to_a_slow_reader_whole(opened, monkeypatch):
    """It is larger than the buffers between the two, and waits there for longer than an idle connection may last."""
    monkeypatch.setattr(service_limits, "IDLE_SECONDS", 0.1)

    async def large(*_):
        return service_limits.Response(200, b"x" * 20_000_000)

    app = make_service(opened("classes"), SETTINGS)
    app.posts["/predict"] = large
    with running(app) as port, socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        head = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
        client.sendall(f"{head}Connection: close\r\n\r\n{{}}".encode())
        time.sleep(1)
        assert sum(map(len, iter(lambda: client.recv(1 << 20), b""))) > 20_000_000


def test_headers_without_end_close_the_connection(opened):
    """Of the two parsers that uvicorn has, one knows no limit to them; it may be installed, and is not used."""
    with running(make_service(opened("classes"), SETTINGS)) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            began, sent = time.monotonic(), 0
            client.sendall(b"GET /health HTTP/1.1\r\nX: ")
            with contextlib.suppress(ConnectionError):
                for _ in range(100):
                    client.sendall(b"a" * 65_536)
                    sent += 1
                    time.sleep(0.01)
            assert sent < 100 and time.monotonic() - began < service_limits.IDLE_SECONDS
        body = {"texts": [TEXT * 400] * 20}  # a body that comes in several pieces is no such thing
        assert post(port, body)[0] == 200


HEAD = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"


async def never(*_):
    await asyncio.sleep(60)


def test_headers_without_end_behind_a_request_that_waits_are_not_read(opened, monkeypatch):
    monkeypatch.setattr(service, "STOP_SECONDS", 1)  # a connection that is not read is not seen to close
    app = make_service(opened("classes"), SETTINGS)
    app.posts["/predict"] = never
    with running(app) as port, socket.create_connection(("127.0.0.1", port), timeout=1) as client:
        client.sendall(HEAD + b"{}GET /health HTTP/1.1\r\nX: ")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 2**26:
                sent += client.send(b"a" * 2**16)
    assert sent < 2**25, "more than the buffers of the two sockets hold"


@pytest.mark.parametrize("sent", [HEAD, HEAD + b"{}"])
def test_what_is_cut_off_at_the_end_gets_an_answer_in_json(opened, monkeypatch, sent):
    """A request whose body is not complete, and one that is being answered, when patience ends after SIGTERM."""
    monkeypatch.setattr(service, "STOP_SECONDS", 1)
    app = make_service(opened("classes"), SETTINGS)
    app.posts["/predict"] = never
    with running(app) as port:
        client = socket.create_connection(("127.0.0.1", port), timeout=20)
        client.sendall(sent)
        time.sleep(0.3)
    with client, client.makefile("rb") as answer:
        head, _, body = answer.read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"content-type: application/json" in head
    assert json.loads(body) == {"error": service_limits.ENDING}
    assert app.metrics.requests == {("/predict", 503): 1}


# --- the command -----------------------------------------------------------------------------------------


def test_sigterm_lets_it_finish_what_it_has(opened, monkeypatch):
    """The command ends with 0, after the answer to a request that came before the signal."""
    ports, clients, answered, listening, verdict = [], [], [], serve._listening, readings.verdict

    def noted(*address):
        listener = listening(*address)
        port = listener.getsockname()[1]
        ports.append(port)
        clients.append(threading.Thread(target=lambda: answered.append(post(port, {"texts": [TEXT] * 20}))))
        clients[0].start()
        return listener

    def classified(*texts):
        if ports:  # the first text
            ports.clear()
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        return verdict(*texts)

    monkeypatch.setattr(serve, "_listening", noted)
    monkeypatch.setattr(readings, "verdict", classified)
    monkeypatch.setattr(service, "forget_tokens", lambda: None)
    assert main(["serve", str(opened("classes").folder), "--port", "0"]) == 0
    clients[0].join()
    assert [(status, len(content["answers"])) for status, content in answered] == [(200, 20)]


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_others_answer(opened):
    """Nobody reads what the service logs, and the signal to end comes while the new worker starts."""
    command = [sys.executable, "-m", "bert_training", "serve", str(opened("classes").folder)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        port = int(process.stdout.readline().split("/docs")[0].rpartition(":")[2])
        until(lambda: answered(port), 120)
        killed = workers_of(process)[0]
        os.kill(killed, signal.SIGKILL)
        for _ in range(20):
            with contextlib.suppress(OSError, http.client.HTTPException):  # a connection that the killed one had
                assert post(port, {"text": TEXT})[0] == 200
        until(lambda: len({*workers_of(process)} - {killed}) == 2, 30)
        assert [post(port, {"text": TEXT})[0] for _ in range(10)] == [200] * 10
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def workers_of(process):
    """The worker processes; multiprocessing has one more, which looks after shared resources."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def answered(port):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return post(port, {"text": TEXT})[0] == 200
    return False


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def error_of(capsys, *words):
    assert main(["serve", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_mistakes_of_the_command(opened, tmp_path, capsys, monkeypatch):
    folder = opened("classes").folder
    assert "there is no such folder" in error_of(capsys, tmp_path / "absent")
    assert "--batch_size 0: expected a number from 1 to 64" in error_of(capsys, folder, "--batch_size", 0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: cannot be opened" in error_of(capsys, folder, "--port", port)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert 'pip install ".[train,serve]"' in error_of(capsys, folder)


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("head", [*HEADS, *LONG])
def test_a_thread_for_each_batch_or_all_for_one(opened, monkeypatch, head, batch_size):
    """Batches are computed side by side, by one thread each, only where texts are single rows of the network."""
    served, threads, side_by_side = [], [], []
    monkeypatch.setattr(service_workers, "serve_until_signal", lambda server, _: served.append(server.config.app))
    monkeypatch.setattr(service_readers, "Batches", lambda openeds, size: side_by_side.append(len(openeds)))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    assert main(["serve", str(opened(head).folder), "--port", "0", "--batch_size", str(batch_size)]) == 0
    monkeypatch.setattr(service, "open_folder", lambda *_: threads.append("opened") or opened(head))
    served[0]()
    single = head in ("classes", "several labels", "score", "last token", "encoder")
    assert threads == [1 if single and batch_size > 1 else 3, "opened"]  # a session keeps the number that it finds
    assert side_by_side == ([3 if single else 1] if batch_size > 1 else [])


@pytest.mark.parametrize(("words", "status"), [((), 200), (("--refuse_long_texts",), 422)])
def test_a_flag_refuses_long_texts(opened, monkeypatch, words, status):
    served = []
    monkeypatch.setattr(service_workers, "serve_until_signal", lambda server, _: served.append(server.config.app))
    monkeypatch.setattr(service, "forget_tokens", lambda: None)
    assert main(["serve", str(opened("classes").folder), "--port", "0", *words]) == 0
    assert ask(served[0](), {"text": LONG_WORDS})[0] == status


@pytest.mark.parametrize(("host", "hosts"), [("127.0.0.1", serve.LOCAL), ("127.0.0.2", serve.LOCAL), ("0.0.0.0", None)])
def test_other_machines_are_let_in_with_a_warning_alone(opened, capsys, monkeypatch, host, hosts):
    let_in = []
    monkeypatch.setattr(serve, "_serve", lambda args, listener, hosts, _: let_in.append(hosts))
    assert main(["serve", str(opened("classes").folder), "--port", "0", "--host", host]) == 0
    assert let_in == [hosts and (*hosts, host)] and ("no password" in capsys.readouterr().err) == (hosts is None)


def test_the_image_is_pinned_and_runs_without_root():
    text = (ROOT / "examples" / "Dockerfile").read_text()
    assert len(re.findall(r"^FROM python:3\.\d+\.\d+-slim-bookworm(?: AS build)?$", text, re.MULTILINE)) == 2
    last = text.rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d+$", last, re.MULTILINE) and "HEALTHCHECK" in last and " torch\n" not in last
    missing = [name for line in re.findall(r"^COPY ([^-].*) \S+$", text, re.MULTILINE) for name in line.split()]
    assert missing and all(list(ROOT.glob(name)) for name in missing)


def test_the_surplus_connection_alone_is_turned_away(opened, monkeypatch):
    monkeypatch.setattr(service_limits, "CONNECTIONS", 2)
    body = service_limits.CROWDED.partition(b"\r\n\r\n")[2]
    assert json.loads(body)["error"] and f"content-length: {len(body)}\r\n".encode() in service_limits.CROWDED
    with running(make_service(opened("classes"), SETTINGS)) as port:
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.closing(kept), socket.create_connection(("127.0.0.1", port)):
            kept.request("GET", "/health")
            assert kept.getresponse().read()
            with socket.create_connection(("127.0.0.1", port), timeout=20) as third:
                assert third.recv(1000).startswith(b"HTTP/1.1 503 ")
            kept.request("GET", "/health")  # an open connection goes on
            assert kept.getresponse().status == 200
