"""The corpus of numbered tokens that the tests of plans, instances and groups share."""

import pytest

from tests.helpers.numbered_corpus import make_corpus, numbered_tokenizer, random_lengths


@pytest.fixture(scope="session")
def tokenizer():
    return numbered_tokenizer()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, tokenizer):
    """About 7,500 tokens, so that no id occurs twice."""
    return make_corpus(tmp_path_factory.mktemp("c") / "c", tokenizer, random_lengths(60, (1, 30)))
