"""bert-repro serve: its answers are those of readings.py, alone and among others, and no body can stop it."""

import asyncio
import contextlib
import dataclasses
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("httpx2")

from starlette.testclient import TestClient  # noqa: E402

from bert_deploy import readings, serve  # noqa: E402
from bert_deploy.folder import open_folder  # noqa: E402
from bert_deploy.serve import make_service  # noqa: E402
from bert_training.__main__ import main  # noqa: E402
from modeling_bert_repro import lstm_heads  # noqa: E402
from tests.bert_deploy.guesses import alone, classify  # noqa: E402
from tests.helpers.model_folders import save_model  # noqa: E402
from tests.helpers.repository import ROOT  # noqa: E402

TEXT, OTHER = "the old doctor opened a small red house", "he went home ."
NAMES = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
CONTEXT = f"{TEXT} by the river . " * 4
WINDOWS = {"question_answering": {"max_seq_length": 24, "doc_stride": 5, "max_query_length": 6}}
LABELS = {"id2label": {0: "red", 1: "old", 2: "small"}}
SEVERAL = LABELS | {"problem_type": "multi_label_classification"}
LONG = {"script": "run_glue.py", "long_texts": "windows", "max_seq_length": 24}
# A head: its class, and fields of its config.
HEADS = {
    "classes": ("BertForSequenceClassification", LABELS),
    "several labels": ("BertForSequenceClassification", SEVERAL | {"fine_tuning": {"thresholds": [0.9, 0.1, 0.5]}}),
    "score": ("BertForSequenceClassification", {"id2label": {0: "score"}, "problem_type": "regression"}),
    "windows": ("BertForSequenceClassification", LABELS | {"fine_tuning": LONG}),
    "names": ("BertForTokenClassification", {"id2label": NAMES}),
    "last token": ("BertForTokenClassification", LABELS | {"fine_tuning": {"label_token": "last"}, "is_decoder": True}),
    "answers": ("BertForQuestionAnswering", WINDOWS),
    "no answers": ("BertForQuestionAnswering", WINDOWS | {"null_score_diff_threshold": -1000.0}),
    "pretrained": ("BertForPreTraining", {}),
    "left to right": ("BertForMaskedLM", {"is_decoder": True}),
    "choice": ("BertForMultipleChoice", {}),
    "encoder": ("BertModel", {}),
    "names with an LSTM": ("BertBiLSTMForTokenClassification", {"id2label": NAMES}),
    "answers with an LSTM": ("BertBiLSTMForQuestionAnswering", WINDOWS),
    "features": ("BertFeatureTagger", {"id2label": NAMES, "feature_based": "last", "lstm_size": 8}),
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory, pretrained):
    """A function: the name of a head -> its opened folder."""
    folder, made = tmp_path_factory.mktemp("heads"), {}

    def of(name):
        if name not in made:
            cls, fields = HEADS[name]
            library = transformers if hasattr(transformers, cls) else lstm_heads
            made[name] = open_folder(str(save_model(folder / name, pretrained, cls, library, **fields)))
        return made[name]

    return of


def client(model, batch_size=1):
    """One text at a time: only then has an answer the digits that it has elsewhere, on every processor."""
    return TestClient(make_service(model, batch_size))


def answers(asked, body, path="/predict"):
    response = asked.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()["answers"]


def rounded(guesses):
    return [{"text": guess.text, "probability": round(guess.probability, 6)} for guess in guesses]


# --- the answers -----------------------------------------------------------------------------------------


def test_classes_labels_and_scores(opened, batch_size=4):
    """One text at a time: it has the digits of the functions, however many may be read at once."""
    asked = client(opened("classes"), batch_size)
    pair, single = (classify(opened("classes"), TEXT, second) for second in (OTHER, None))
    said = [
        {"label": found[0].text, "probabilities": {guess.text: round(guess.probability, 6) for guess in found}}
        for found in (pair, single)
    ]
    assert (
        answers(asked, {"text": TEXT, "second_text": OTHER}) == answers(asked, {"pairs": [[TEXT, OTHER]]}) == said[:1]
    )
    assert answers(asked, {"text": TEXT}) == answers(asked, {"texts": [TEXT]}) == said[1:] != said[:1]

    found = classify(opened("several labels"), TEXT)
    (labels,) = answers(client(opened("several labels"), batch_size), {"text": TEXT})
    assert labels["labels"] == [guess.text for guess in found if guess.given]
    assert labels["thresholds"] == {"red": 0.9, "old": 0.1, "small": 0.5}
    assert list(labels["probabilities"].values()) == [round(guess.probability, 6) for guess in found]

    (score,) = classify(opened("score"), TEXT)
    assert answers(client(opened("score"), batch_size), {"text": TEXT}) == [{"score": round(score.probability, 6)}]


def test_names_with_their_places(opened):
    asked = client(opened("names"))
    (found,) = answers(asked, {"text": TEXT})
    expected = alone(readings.names_in, opened("names"), TEXT)
    places = [(name["kind"], name["start"], name["end"], name["probability"]) for name in found["names"]]
    assert places == [(name.kind, name.start, name.end, round(name.probability, 6)) for name in expected] != []
    assert all(TEXT[name["start"] : name["end"]] == name["text"] for name in found["names"])


@pytest.mark.parametrize("head", ["answers", "no answers"])
def test_answers_from_windows(opened, head):
    question = {"question": "who opened it ?", "context": CONTEXT}
    asked = client(opened(head))
    (found,) = answers(asked, question)
    reply = alone(readings.answer, opened(head), *question.values())
    assert (found["answer"], found["start"], found["end"]) == (reply.answer, reply.start, reply.end)
    assert found.get("null_odds") == reply.null_odds and found.get("threshold") == reply.threshold
    assert (found["answer"] == "") == (head == "no answers") == ("null_odds" in found)
    shares = [round(entry["probability"], 6) for entry in reply.entries if entry["text"] == reply.answer]
    assert found["score"] in shares
    assert answers(asked, {"questions": [question, question]}) == [found, found]


def test_masked_words_next_sentences_endings_and_vectors(opened):
    asked, model, lines = client(opened("pretrained")), opened("pretrained"), [OTHER, "a house ."]
    gaps = [rounded(gap) for gap in alone(readings.masked_words, model, "the [MASK] house")]
    assert answers(asked, {"text": "the [MASK] house"}) == [{"gaps": gaps}]
    ranked = rounded(alone(readings.next_sentence, model, TEXT, lines))
    assert answers(asked, {"text": TEXT, "candidates": lines}) == [{"candidates": ranked}]
    ranked = rounded(alone(readings.choose, opened("choice"), TEXT, lines))
    assert answers(client(opened("choice")), {"text": TEXT, "endings": lines}) == [{"endings": ranked}]
    vector = [round(value, 6) for value in alone(readings.vector, opened("encoder"), TEXT).tolist()]
    asked = client(opened("encoder"))
    assert (
        answers(asked, {"texts": [OTHER, TEXT]})[1] == answers(asked, {"text": TEXT}, "/embed")[0] == {"vector": vector}
    )


@pytest.mark.parametrize("name", HEADS)
def test_every_model_gives_vectors(opened, name):
    """They are those of the encoder, also where a head takes other inputs or says nothing of hidden states."""
    model = opened(name)
    found = answers(client(model, 2), {"texts": [TEXT, OTHER]}, "/embed")
    for one, text in zip(found, (TEXT, OTHER), strict=True):
        assert one["vector"] == pytest.approx(alone(readings.vector, model, text).tolist(), abs=1e-5)
    assert len(found[0]["vector"]) == model.model.config.hidden_size


LONG_WORDS = f"{TEXT} by the river . " * 12
CUT = {
    "a text": ("classes", {"text": LONG_WORDS}),
    "a pair": ("classes", {"text": LONG_WORDS, "second_text": CONTEXT}),
    "several labels": ("several labels", {"text": LONG_WORDS}),
    "a score": ("score", {"text": LONG_WORDS}),
    "the last token": ("last token", {"text": LONG_WORDS}),
}


@pytest.mark.parametrize("what", CUT)
def test_a_long_text_is_read_as_in_the_training_and_the_answer_says_so(opened, what):
    """The independent source is the tokenizer's own cut at the 64 positions, which the trained network is given."""
    head, body = CUT[what]
    model, texts = opened(head), [*body.values()]
    (found,) = answers(client(model), body)
    cut = model.tokenizer(*texts, truncation="longest_first", max_length=64, return_tensors="pt")
    with torch.no_grad():
        logits = model.model(**cut).logits
    said = model.judge((logits[0, -1] if model.at_the_end else logits[0]).numpy()).ranked().record()
    lost = len(model.tokenizer(*texts)["input_ids"]) - 64
    found.pop("thresholds", None)
    assert found == said | {"tokens_not_read": lost} and lost > 0
    refusing = client(dataclasses.replace(model, refuses_long_texts=True))
    response = refusing.post("/predict", json=body)
    assert response.status_code == 422
    assert f"{lost + 64} pieces, of which this model would not read {lost}; shorten" in response.json()["detail"]
    assert "tokens_not_read" not in answers(refusing, dict.fromkeys(body, TEXT))[0]


def test_a_long_question_and_long_endings_are_cut_as_in_the_training(opened):
    model, context = opened("answers"), {"context": CONTEXT}
    asked = client(model)
    (found,) = answers(asked, context | {"question": "the king walked to the old house by the river"})
    assert found.pop("tokens_not_read") == 4  # of 10; the model reads 6
    assert answers(asked, context | {"question": "the king walked to the old"}) == [found]
    refusing = client(dataclasses.replace(model, refuses_long_texts=True))
    response = refusing.post("/predict", json=context | {"question": "the king walked to the old house by the river"})
    assert response.status_code == 422 and "question has 10 pieces, of which this model would not" in response.text

    model, endings = opened("choice"), [CONTEXT, OTHER]
    (found,) = answers(client(model), {"text": CONTEXT, "endings": endings})
    pairs = [CONTEXT] * 2, endings
    cut = model.tokenizer(*pairs, truncation="longest_first", max_length=64, padding=True, return_tensors="pt")
    with torch.no_grad():
        shares = model.model(**{name: rows[None] for name, rows in cut.items()}).logits[0].softmax(0).tolist()
    said = {ending["text"]: ending for ending in found["endings"]}
    assert [said[ending]["probability"] for ending in endings] == pytest.approx(shares, abs=1e-5)
    whole = [len(ids) for ids in model.tokenizer(*pairs)["input_ids"]]
    assert [said[ending].get("tokens_not_read", 0) for ending in endings] == [max(0, n - 64) for n in whole] != [0, 0]


def test_what_the_page_draws_comes_from_its_own_routes(opened):
    model = opened("pretrained")
    asked = client(model)
    names, weights = readings.attention(model, TEXT, OTHER, 2)
    (found,) = answers(asked, {"text": TEXT, "second_text": OTHER, "layer": 2}, "/attention")
    assert found["heads"][0][0] == [round(share, 4) for share in found["heads"][0][0]]
    assert found["pieces"] == names and torch.tensor(found["heads"]).allclose(torch.tensor(weights), atol=1e-4)
    (found,) = answers(asked, {"text": TEXT}, "/pieces")
    assert found == dataclasses.asdict(readings.pieces(model, TEXT))
    assert asked.post("/attention", json={"text": TEXT, "layer": 3}).json()["detail"][0]["loc"] == ["body", "layer"]
    facts = asked.get("/model").json()
    assert (facts["mask"], facts["longest"], facts["layers"]) == ("[MASK]", 64, 2)
    assert '<main id="panels">' in asked.get("/").text and "openapi.json" in asked.get("/docs").text


# --- many clients ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def running(app):
    """A port at which uvicorn serves the application."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_level="warning")
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with contextlib.closing(connection):
        connection.request("POST", "/predict", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def bodies_of(head):
    """Sixteen bodies of different lengths."""
    words = f"{TEXT} and walked to the river".split()
    texts = [" ".join(words[: 2 + number % 11]) for number in range(16)]
    if "answers" in head:
        return [{"question": "who ?", "context": f"{text} . " * 5} for text in texts]
    if head == "choice":
        return [{"text": text, "endings": [TEXT, *texts[: 1 + number % 4]]} for number, text in enumerate(texts)]
    if head == "pretrained":
        return [{"text": f"{text} [MASK]"} for text in texts[:8]] + [
            {"text": text, "candidates": texts[: 1 + number % 4]} for number, text in enumerate(texts[8:])
        ]
    return [{"text": f"{text} . " * (8 if head == "windows" else 1)} for text in texts]


@pytest.mark.parametrize("head", ["classes", "windows", "names", "answers", "pretrained", "choice", "features"])
def test_simultaneous_requests_share_forward_passes_and_get_their_own_answers(opened, head):
    bodies, passes = bodies_of(head), []
    alone = client(opened(head))
    expected = [answers(alone, body) for body in bodies]
    encoder = getattr(opened(head).model, "bert", opened(head).model)
    note = encoder.register_forward_hook(lambda *_: passes.append(1))
    with running(make_service(opened(head), 4)) as port, ThreadPoolExecutor(16) as clients:
        found = list(clients.map(lambda body: post(port, body), bodies * 2))
    note.remove()
    assert len(passes) < 32 or "answers" in head or head in ("windows", "choice")  # which need several rows each
    for (status, answer), wanted in zip(found, expected * 2, strict=True):
        assert status == 200 and numbers(answer["answers"]) == pytest.approx(numbers(wanted), abs=2e-5)
        assert re.sub(r"[\d.e-]+", "", json.dumps(answer["answers"])) == re.sub(r"[\d.e-]+", "", json.dumps(wanted))


def numbers(answer):
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", json.dumps(answer))]


def test_clients_that_were_answered_together_are_awaited_and_read_together(monkeypatch):
    sizes = []

    def run(_, asks):
        sizes.append(len(asks))
        time.sleep(0.2)  # while others come
        return asks

    async def ask():
        queue = serve.Queue(None, 2)
        for more in ([repr, repr], [repr]):
            answers = queue.put([repr])
            await asyncio.sleep(0.1)
            await asyncio.gather(*answers, *queue.put(more))

    monkeypatch.setattr(readings, "run", run)
    monkeypatch.setattr(serve, "PATIENCE", 30)
    asyncio.run(ask())
    assert sizes == [1, 2, 2]


def test_a_refused_text_is_alone_with_its_error_and_a_failed_pass_is_not_the_last(opened, monkeypatch):
    model, compute = opened("pretrained"), readings.outputs_of

    def broken(opened, rows, *others):
        if any(len(row["input_ids"]) == 42 for row in rows):
            raise MemoryError
        return compute(opened, rows, *others)

    good, refused, fatal = ({"text": text} for text in ("the [MASK]", "no gap", "[MASK] " * 40))
    with running(make_service(model, 4)) as port, ThreadPoolExecutor(12) as clients:
        statuses = [status for status, _ in clients.map(lambda body: post(port, body), [good, refused] * 6)]
        assert statuses == [200, 422] * 6
        monkeypatch.setattr(readings, "outputs_of", broken)
        with pytest.raises(json.JSONDecodeError):  # "Internal Server Error"
            post(port, fatal)
        assert post(port, good)[0] == 200
        counts = get(port, "/metrics")
    assert 'requests_total{path="/predict",status="500"} 1\n' in counts and "texts_total 7\n" in counts
    assert "bert_request_seconds_count 7\n" in counts and "pending_texts 0\n" in counts


# --- what is refused -------------------------------------------------------------------------------------

BAD = {
    "broken JSON": (b'{"text": ', "JSON decode error"),
    "not UTF-8": (b'{"text": "\xff"}', ""),
    "a list": (b"[1]", "valid dictionary"),
    "half a character": (b'{"text": "\\ud800"}', ""),
    "half a character in a name": (b'{"\\ud800": 1, "text": "a"}', "valid string"),
    "empty": (b'{"text": " "}', "the text is empty"),
    "an empty list": (b'{"texts": []}', "at least 1 item"),
    "both": (b'{"text": "a", "texts": ["a"]}', "not permitted"),
    "a model of the client's": (b'{"text": "a", "model": "/etc/passwd"}', "not permitted"),
    "10,000 texts": (json.dumps({"texts": ["a"] * 10_000}).encode(), "at most 64"),
    "a long text": (json.dumps({"text": "a" * 20_001}).encode(), "at most 20000 characters"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_body_is_refused_with_a_sentence_and_the_service_lives(opened, what):
    asked = client(opened("classes"))
    body, sentence = BAD[what]
    response = asked.post("/predict", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422) and sentence in response.text and len(response.text) < 2000
    assert answers(asked, {"text": TEXT})


def test_forms_of_other_pages_and_other_paths_are_refused(opened):
    asked = client(opened("classes"))
    body = json.dumps({"text": TEXT})
    assert asked.post("/predict", content=body, headers={"content-type": "text/plain"}).status_code == 422
    assert asked.get("/predict").status_code in (404, 405) and asked.get("/docs/../../serve.py").status_code == 404
    assert json.loads(asked.get("/health").text)["abilities"] == ["classification"]
    assert {"/predict", "/embed"} <= set(asked.get("/openapi.json").json()["paths"])


# --- the command -----------------------------------------------------------------------------------------


def started(opened, *flags):
    """The process of the command, and its port."""
    command = [sys.executable, "-m", "bert_training", "serve", str(opened("classes").folder), "--port", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    return process, int(re.search(r"http://127\.0\.0\.1:(\d+)/ ", process.stdout.readline())[1])


@pytest.mark.slow
def test_sigterm_lets_it_finish_what_it_has_begun(opened):
    """The command ends with 0, after the answers to requests that came before the signal."""
    process, port = started(opened)
    try:
        assert post(port, {"text": TEXT})[0] == 200
        with ThreadPoolExecutor(4) as clients:
            asked = [clients.submit(post, port, {"texts": [LONG_WORDS] * 64}) for _ in range(4)]
            while int(re.search(r"pending_texts (\d+)\n", get(port, "/metrics"))[1]) <= 3 * 64:  # until all have come
                assert not any(one.done() for one in asked)
            process.send_signal(signal.SIGTERM)
            assert [(one.result()[0], len(one.result()[1]["answers"])) for one in asked] == [(200, 64)] * 4
        assert process.wait(600) == 0
    finally:
        process.kill()
        process.communicate()


def test_other_hosts_are_refused_while_it_listens_here_alone(opened, monkeypatch):
    served = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, listeners: served.append(server.config.app))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    folder = str(opened("classes").folder)
    monkeypatch.setattr(uvicorn.Config, "bind_socket", lambda _: socket.create_server(("127.0.0.1", 0)))
    hosts = ("127.0.0.1", "localhost", "::1", "0.0.0.0")
    for host in hosts:
        assert main(["serve", folder, "--host", host, "--batch_size", "2"]) == 0
    for host, app in zip(hosts, served, strict=True):
        client = TestClient(app, base_url="http://127.0.0.1")
        for name in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000"):
            assert client.get("/health", headers={"host": name}).status_code == 200
        evil = client.get("/health", headers={"host": "evil.example"})
        assert evil.status_code == (200 if host == "0.0.0.0" else 400)


@pytest.mark.parametrize(("words", "status"), [((), 200), (("--refuse_long_texts",), 422)])
def test_a_flag_refuses_long_texts(opened, monkeypatch, words, status):
    served = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, listeners: served.append(server.config.app))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["serve", str(opened("classes").folder), "--port", "0", *words]) == 0
    asked = TestClient(served[0], base_url="http://127.0.0.1")
    assert asked.post("/predict", json={"text": LONG_WORDS}).status_code == status


def test_the_forms_of_text_embeddings_inference(opened):
    """Its documentation: a text or a pair gives one list of classes, and a list of lists one list for each."""
    asked = client(opened("classes"))
    expected = answers(asked, {"texts": [TEXT, OTHER]})

    def said(inputs, path="/predict", **more):
        return asked.post(path, json={"inputs": inputs} | more)

    classes = said(TEXT).json()
    assert {one["label"]: one["score"] for one in classes} == expected[0]["probabilities"]
    assert [one["score"] for one in classes] == sorted((one["score"] for one in classes), reverse=True)
    assert said([[TEXT], [OTHER]]).json()[0] == classes and len(said([[TEXT], [OTHER]]).json()) == 2
    (pair,) = answers(asked, {"text": TEXT, "second_text": OTHER})
    assert {one["label"]: one["score"] for one in said([TEXT, OTHER]).json()} == pair["probabilities"]
    assert said([[TEXT, OTHER]]).json() == [said([TEXT, OTHER]).json()]
    assert said(TEXT, raw_scores=True).status_code == said([]).status_code == 422
    assert said(LONG_WORDS).status_code == 200 and said(LONG_WORDS, truncate=False).status_code == 422
    (vector,) = answers(asked, {"text": TEXT}, "/embed")
    (other,) = said(TEXT, "/embed", normalize=False).json()
    assert other == pytest.approx(vector["vector"], abs=1e-6)
    assert said("the " * 2000, "/embed").status_code == 422 and said([TEXT] * 65, "/embed").status_code == 422
    score = client(opened("score"))
    assert score.post("/predict", json={"inputs": TEXT}).json() == [
        {"label": "score", "score": answers(score, {"text": TEXT})[0]["score"]}
    ]
