"""sentence-transformers opens a finished folder that has nothing of its own in it, encodes, trains and saves."""

from itertools import pairwise

import pytest
import torch

from tests.helpers import short_runs
from tests.helpers.ecosystem import PLAIN, TRUSTED, WAYS, deprecations, largest_difference, needed, open_folder

sentence_transformers = needed("sentence_transformers")
losses = needed("sentence_transformers.sentence_transformer.losses")
parts = needed("sentence_transformers.sentence_transformer.modules")
pytestmark = [pytest.mark.slow, *deprecations]
TEXTS = ["the old house by the river .", "a king", "the queen opened the letter , and the night was old ."]
bare_folder = pytest.mark.parametrize("way", [PLAIN, TRUSTED])  # It opens folders by their names, so not as OWN.


def open_bare(way: str, folder):
    model = sentence_transformers.SentenceTransformer(str(folder), trust_remote_code=way == TRUSTED, device="cpu")
    assert type(model[0].auto_model).__module__.startswith(WAYS[way])
    return model


@pytest.mark.tried("sentence-transformers", "a bare folder: `encode` gives the mean of the last hidden states")
@bare_folder
@pytest.mark.parametrize("kind", ["finished", "classifier"])  # The second one has larger weights.
def test_encode_is_the_mean_over_the_real_tokens(way, kind, request, tokenizer, record_property):
    folder = request.getfixturevalue(kind)
    model = open_bare(way, folder)
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling"]
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = open_folder(way, "BertModel", folder)(**batch).last_hidden_state
    lengths = batch["attention_mask"].sum(1)
    assert len(set(lengths.tolist())) == 3
    expected = torch.stack([rows[:length].mean(0) for rows, length in zip(states, lengths)])
    for size in (1, 32):
        found = model.encode(TEXTS, convert_to_tensor=True, batch_size=size, show_progress_bar=False)
        record_property("largest difference", difference := largest_difference(found, expected))
        assert difference < 1e-5


@pytest.mark.tried("sentence-transformers", "`CrossEncoder`: the scores of pairs of texts")
@bare_folder
def test_a_cross_encoder_scores_pairs(way, classifier, tokenizer, record_property):
    encoder = sentence_transformers.CrossEncoder(str(classifier), trust_remote_code=way == TRUSTED, device="cpu")
    assert type(encoder.model).__module__.startswith(WAYS[way])
    pairs = list(pairwise(TEXTS))
    found = encoder.predict(pairs, activation_fn=torch.nn.Softmax(-1), convert_to_tensor=True)
    batch = tokenizer([one for one, _ in pairs], [other for _, other in pairs], padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = open_folder(way, "BertForSequenceClassification", classifier)(**batch).logits.softmax(-1)
    record_property("largest difference", difference := largest_difference(found, expected))
    assert difference < 1e-5


@pytest.mark.tried(
    "sentence-transformers", "a folder of its own that a script continues from: pooling, modules, length"
)
@pytest.mark.parametrize("script", short_runs.SCRIPTS)
def test_the_vectors_of_a_folder_are_those_after_a_training_that_changes_nothing(
    script, finished, tmp_path, short_data, record_property, no_pictures
):
    torch.manual_seed(0)
    transformer = parts.Transformer(str(finished))
    transformer.max_seq_length = 6  # the third text has 13 pieces
    pooling = parts.Pooling(32, pooling_mode="max")
    modules = [transformer, pooling, parts.Dense(32, 8), parts.Normalize()]
    before = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the night "})
    before.save(str(tmp_path / "given"))
    flags = short_runs.flags(script, short_data, tmp_path / "run", tmp_path / "given", "--learning_rate", "1e-30")
    short_runs.start(script, flags)
    after = sentence_transformers.SentenceTransformer(str(tmp_path / "run"), device="cpu")
    assert after.max_seq_length == 6 and after.prompts == before.prompts
    for options in ({}, {"prompt_name": "query"}):
        found, expected = (model.encode(TEXTS, convert_to_tensor=True, **options) for model in (after, before))
        record_property("largest difference", difference := largest_difference(found, expected))
        assert difference < 1e-6
        torch.testing.assert_close((found * expected).sum(1), torch.ones(3))
