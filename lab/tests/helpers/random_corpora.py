"""A corpus of random words."""

from pathlib import Path

import numpy as np
from transformers import BertTokenizer

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.corpus import Corpus

WORDS = [f"word{number}" for number in range(50)]


def random_corpus(folder: Path) -> Corpus:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(names)})
    rng = np.random.default_rng(0)
    texts = [[" ".join(rng.choice(WORDS, 12)) for _ in range(5)] for _ in range(200)]
    return build_corpus(texts, tokenizer, folder)
