"""bert-repro serve answers OpenAI's client and huggingface_hub's InferenceClient as they expect."""

import threading
import time

import numpy as np
import pytest
import torch
from huggingface_hub import InferenceClient
from torch.nn.functional import cosine_similarity
from transformers import AutoModel, AutoTokenizer, pipeline

from modeling_bert_repro import BertForSequenceClassification
from tests.helpers.bert_pairs import randomise
from tests.helpers.ecosystem import deprecations, needed
from tests.helpers.small_networks import small_config

openai = needed("openai")
pytestmark = [pytest.mark.slow, *deprecations]
TEXTS = ["the old house by the river", "a king walked"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, tokenizer_folder, vocab):
    """A folder with a classifier of three classes, whose weights are large, so that texts have different scores."""
    folder = tmp_path_factory.mktemp("clients") / "classifier"
    torch.manual_seed(0)
    config = small_config(vocab_size=len(vocab), max_position_embeddings=64, num_labels=3)
    randomise(BertForSequenceClassification(config)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer_folder).save_pretrained(folder)
    return folder


@pytest.fixture
def tokenizer(classifier):
    return AutoTokenizer.from_pretrained(classifier)


@pytest.fixture(scope="module")
def address(classifier):
    """The address of a service with the classifier, in a thread of this process."""
    import uvicorn

    from bert_deploy.folder import open_folder
    from bert_deploy.serve import make_service

    config = uvicorn.Config(make_service(open_folder(str(classifier))), "127.0.0.1", 0, log_level="warning", ws="none")
    with config.bind_socket() as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def vectors(folder, tokenizer) -> torch.Tensor:
    """The mean of the last layer over all tokens of each text, of length 1."""
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        rows = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0) for text in TEXTS]
    return torch.stack([row / row.norm() for row in rows])


@pytest.mark.tried("openai", "`embeddings.create` asks `bert-repro serve`: vectors of length 1, as lists and in base64")
@pytest.mark.parametrize("form", [{}, {"encoding_format": "float"}])
def test_openais_client(address, classifier, tokenizer, form):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
    answer = client.embeddings.create(model="any", input=TEXTS, **form)
    found = torch.tensor([one.embedding for one in answer.data])
    assert torch.allclose(found, vectors(classifier, tokenizer), atol=1e-5)
    assert [one.index for one in answer.data] == [0, 1] and answer.model == "any"
    assert answer.usage.prompt_tokens == sum(len(tokenizer(text)["input_ids"]) for text in TEXTS)
    one = client.embeddings.create(model="any", input=TEXTS[1], **form).data[0].embedding
    assert cosine_similarity(torch.tensor(one), found[1], dim=0) > 0.99999
    with pytest.raises(openai.UnprocessableEntityError, match="at most"):
        client.embeddings.create(model="any", input="the " * 2000)


@pytest.mark.tried("huggingface_hub", "`InferenceClient` asks `bert-repro serve` for vectors and classes")
def test_the_client_of_the_hub(address, classifier, tokenizer, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    expected = vectors(classifier, tokenizer)
    at_embed = InferenceClient(model=f"{address}/embed")
    found = at_embed.feature_extraction(TEXTS[0])
    assert found.shape == (1, expected.shape[1]) and np.allclose(found[0], expected[0], atol=1e-5)
    longer = at_embed.feature_extraction(TEXTS[0], normalize=False)
    assert np.allclose(longer[0] / np.linalg.norm(longer[0]), expected[0], atol=1e-5) and np.linalg.norm(longer) > 1.01
    assert at_embed.feature_extraction("the " * 2000, truncate=True).shape == found.shape

    (judged,) = pipeline("text-classification", str(classifier), top_k=None)([TEXTS[0]])
    said = InferenceClient(model=address).text_classification(TEXTS[0])
    assert [one.label for one in said] == [one["label"] for one in judged]
    assert [one.score for one in said] == pytest.approx([one["score"] for one in judged], abs=1e-5)
