"""captum attributes a score to the embeddings of the input and to the layers inside the network."""

import pytest
import torch

from tests.helpers.ecosystem import OWN, PLAIN, every_way, largest_difference, needed, open_folder

attribution = needed("captum.attr")
pytestmark = pytest.mark.slow
TEXTS = ["the old house", "a king walked by the river", "the queen opened the letter , and the night was old ."]


@pytest.fixture
def batch(tokenizer) -> dict[str, torch.Tensor]:
    return dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))


def open_classifier(way: str, folder):
    return open_folder(way, "BertForSequenceClassification", folder).double()


def attribute(model, batch, part, target: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Integrated gradients of a score at the output of ``part``, against [PAD], and how far the two scores differ."""

    def score(ids, mask, types):
        return model(ids, mask, types).logits[:, target]

    others = (batch["attention_mask"], batch["token_type_ids"])
    nothing = torch.zeros_like(batch["input_ids"])
    found = attribution.LayerIntegratedGradients(score, part).attribute(
        batch["input_ids"], baselines=nothing, additional_forward_args=others, n_steps=100
    )
    with torch.no_grad():
        return found, score(batch["input_ids"], *others) - score(nothing, *others)


@pytest.mark.tried("captum", "`LayerIntegratedGradients` at the embeddings: the sum is the difference of the scores")
@every_way
def test_attributions_add_up(way, classifier, batch, record_property):
    model = open_classifier(way, classifier)
    found, difference = attribute(model, batch, model.bert.embeddings)
    assert found.shape == (*batch["input_ids"].shape, model.config.hidden_size)
    assert difference.abs().min() > 0.1
    record_property("largest difference", missing := largest_difference(found.sum((1, 2)), difference))
    assert missing < 1e-4


@pytest.mark.tried("captum", "the attributions of our class and of transformers', at the embeddings and at a layer")
@pytest.mark.parametrize("part", ["bert.embeddings", "bert.encoder.layer.0.intermediate.dense"])
def test_attributions_are_those_of_transformers(part, classifier, batch, record_property):
    models = [open_classifier(way, classifier) for way in (OWN, PLAIN)]
    mine, theirs = (attribute(model, batch, model.get_submodule(part))[0] for model in models)
    assert theirs.abs().max() > 1e-3
    record_property("largest difference", difference := largest_difference(mine, theirs))
    assert difference < 1e-9


@pytest.mark.tried("captum", "`FeatureAblation`: what the scores lose when [MASK] replaces a word")
@every_way
def test_ablation_of_one_word_at_a_time(way, classifier, batch, record_property):
    model, mask = open_classifier(way, classifier), 4
    others = (batch["attention_mask"], batch["token_type_ids"])

    def score(ids, *more):
        return model(ids, *more).logits[:, 1]

    with torch.no_grad():
        found = attribution.FeatureAblation(score).attribute(
            batch["input_ids"], baselines=mask, additional_forward_args=others
        )
        for column in range(batch["input_ids"].shape[1]):
            ids = batch["input_ids"].clone()
            ids[:, column] = mask
            difference = largest_difference(
                found[:, column].double(), score(batch["input_ids"], *others) - score(ids, *others)
            )
            record_property("largest difference", difference)
            assert difference < 1e-5


@pytest.mark.tried("captum", "`LayerIntegratedGradients` with our switch `unpad_inputs` set")
@pytest.mark.xfail(
    strict=True,
    raises=RuntimeError,
    reason="the fast path lays all sequences into one row, and captum repeats rows: leave `unpad_inputs` unset",
)
def test_the_fast_path_has_one_row(classifier, batch):
    model = open_classifier(OWN, classifier)
    model.config.unpad_inputs = True
    attribute(model, batch, model.bert.embeddings)
