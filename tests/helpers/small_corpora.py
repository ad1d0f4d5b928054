"""A tokenizer of a few words, and documents of these words."""

import numpy as np
from transformers import BertTokenizer

CORPUS_WORDS = "the dog cat sat ran on mat far away and a bird sang it was one red blue house went home".split()
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = "The dog sat. The cat ran away!\nA bird sang.\n\nOne red house. It was far.\n"
DOCUMENTS = [["The dog sat. The cat ran away!", "A bird sang."], ["One red house. It was far."]]


def make_tokenizer(extra=()):
    vocab = [*SPECIALS, *CORPUS_WORDS, ".", "!", "[", "]", "sep", "##s", *extra]
    return BertTokenizer(vocab={word: number for number, word in enumerate(vocab)})


def random_documents(count, seed=0, sentences=6):
    rng = np.random.default_rng(seed)
    return [
        [
            " ".join(
                " ".join(rng.choice(CORPUS_WORDS, rng.integers(3, 12))).capitalize() + "."
                for _ in range(rng.integers(1, sentences))
            )
            for _ in range(rng.integers(1, 3))
        ]
        for _ in range(count)
    ]


def data_bytes(path):
    """The bytes of all files with ids and offsets in a corpus."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.glob("shard-*/*.bin"))}
