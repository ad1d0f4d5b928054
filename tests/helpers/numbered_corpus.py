"""A corpus in which every token is a different word, so that a token in an instance shows where it comes from."""

import numpy as np
import torch
from transformers import BertTokenizer

from bert_training.engine.batches import IGNORED
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LENGTH = 40  # the default of max_seq_length
NUM_WORDS = 8_000


def numbered_tokenizer() -> BertTokenizer:
    """The words are w0, w1, ..., w7999; the id of word number t is t + 5."""
    vocab = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(NUM_WORDS))]
    return BertTokenizer(vocab={word: number for number, word in enumerate(vocab)})


def make_corpus(path, tokenizer, documents, **settings):
    """A corpus whose documents have sentences of the given lengths. Its token number t has the id t + 5.

    After NUM_WORDS tokens the ids begin again.
    """
    number, texts = 0, []
    for lengths in documents:
        sentences = []
        for length in lengths:
            sentences.append(" ".join(f"w{(number + offset) % NUM_WORDS}" for offset in range(length)))
            number += length
        texts.append(sentences)
    return build_corpus(texts, tokenizer, path, **settings)


def random_lengths(documents, sentences, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 15, rng.integers(*sentences)).tolist() for _ in range(documents)]


def instances_of(corpus, tokenizer, **settings):
    return PretrainingInstances(
        corpus, tokenizer, InstanceSettings(**({"seed": 1, "max_seq_length": LENGTH} | settings))
    )


def originals(batch):
    """input_ids (B, L) before masking."""
    labels = batch["labels"]
    return torch.where(labels == IGNORED, batch["input_ids"], labels).numpy()


def document_of(corpus, tokens):
    starts = corpus.shards[0].sentences[corpus.shards[0].documents]
    return np.searchsorted(starts, np.asarray(tokens) - 5, side="right") - 1
