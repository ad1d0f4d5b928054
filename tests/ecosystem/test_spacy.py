"""spaCy computes the hidden states of its documents with the weights of a finished folder."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from tests.helpers.ecosystem import OWN, deprecations, needed, open_folder

spacy = needed("spacy")
needed("spacy_curated_transformers")
pytestmark = [pytest.mark.slow, *deprecations]
NAMES = "spacy-curated-transformers"
TEXTS = ["the old house by the river remembered .", "a king", "Unknown words , opened by the queen ."]


def pipeline_with(folder):
    """A pipeline of one component, which computes the network in ``folder``."""
    config = AutoConfig.from_pretrained(folder)
    model = {
        "@architectures": f"{NAMES}.BertTransformer.v1",
        "vocab_size": config.vocab_size,
        "hidden_width": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_width": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "model_max_length": config.max_position_embeddings,
        "piece_encoder": {"@architectures": f"{NAMES}.BertWordpieceEncoder.v1"},
        "with_spans": {"@architectures": f"{NAMES}.WithStridedSpans.v1"},
    }
    nlp = spacy.blank("en")
    component = nlp.add_pipe("curated_transformer", config={"model": model})
    for part, loader in (
        ("transformer", "HFTransformerEncoderLoader.v1"),
        ("piece_encoder", "HFPieceEncoderLoader.v1"),
    ):
        component.model.get_ref(part).init = spacy.registry.model_loaders.get(f"{NAMES}.{loader}")(name=str(folder))
    nlp.initialize()
    return nlp


def states_of(doc) -> np.ndarray:
    return doc._.trf_data.last_hidden_layer_state.dataXd


@pytest.mark.tried("spacy-curated-transformers", "the hidden states of a finished folder's pieces, in a `Doc`")
def test_a_document_has_our_hidden_states(finished, tokenizer, record_property):
    nlp, model = pipeline_with(finished), open_folder(OWN, "BertModel", finished)
    for text in TEXTS:
        with torch.no_grad():
            expected = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 1:-1].numpy()
        found = states_of(nlp(text))
        assert found.shape == expected.shape
        record_property("largest difference", difference := float(np.abs(found - expected).max()))
        assert difference < 1e-5


@pytest.mark.tried("spacy-curated-transformers", "the pipeline written with `to_disk` and read again")
def test_a_pipeline_is_saved_and_loaded(finished, tmp_path):
    nlp = pipeline_with(finished)
    nlp.to_disk(tmp_path / "pipeline")
    again = spacy.load(tmp_path / "pipeline")
    for text in TEXTS:
        np.testing.assert_array_equal(states_of(again(text)), states_of(nlp(text)))
