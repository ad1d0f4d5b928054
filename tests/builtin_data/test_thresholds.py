"""bert_training/builtin_data/documentation.py: how much two texts may share, just below the limit and above it."""

import pytest

from bert_training.builtin_data import documentation
from bert_training.builtin_data.docstrings import Docstring


@pytest.mark.parametrize(("share", "kept"), [(0.2, ["train", "held"]), (0.21, ["train"]), (0.5, ["train"]), (0.51, [])])
def test_of_a_document_for_validation_a_fifth_may_occur_in_training(monkeypatch, share, kept):
    """And half of a document of training may occur in earlier ones."""
    monkeypatch.setattr(documentation, "is_held_out", lambda document: document.name == "held")
    monkeypatch.setattr(documentation, "share_seen", lambda document, seen: share)
    documents = [Docstring("m", name, "function", "Sum.", ["text"]) for name in ("train", "held")]
    train, validation = documentation.split_library(documents)
    assert [document.name for document in (*train, *validation)] == kept
