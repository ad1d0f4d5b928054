"""The names in texts: what ``bert-repro ask``, the service and its page say, read as run_ner.py reads the texts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from bert_training.tasks.classification.verdicts import DIGITS, class_names
from bert_training.tasks.ner.raw_text import spans_of_words, stored_cutting, words_of
from bert_training.tasks.ner.schemes import plain_labels, with_types
from bert_training.tasks.ner.tagged_text import Rows, Sentence, Split, build_rows, find_tags, tag_probabilities
from bert_training.tasks.stored_flags import stored_length


@dataclass(frozen=True)
class TaggedSpan:
    """A tagged name with its place in the text; ``probability`` is the lowest of its words' tags."""

    kind: str
    start: int
    end: int
    probability: float

    def record(self, text: str) -> dict[str, Any]:
        """The span with its text, as it is printed."""
        return asdict(self) | {"text": text[self.start : self.end], "probability": round(self.probability, DIGITS)}


def rows_of_texts(
    texts: Sequence[str], config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[Split, Rows]:
    """Texts, each alone, cut into words as the model's training data was; and their overlapping rows for it."""
    sentences, cutting = list[Sentence](), stored_cutting(config)
    for number, text in enumerate(texts):
        places = [*words_of(text, cutting)]
        words = [text[begin:end] for begin, end in places]
        sentences.append(Sentence(words, None, number, "the text", raw=(number, text, places)))
    split, positions = Split("the texts", sentences), int(config.max_position_embeddings)
    return split, build_rows(split, tokenizer, min(positions, stored_length(config) or positions, 512))


def names_of_texts(
    split: Split, rows: Rows, logits: list[np.ndarray], config: PretrainedConfig
) -> list[list[TaggedSpan]]:
    """The names in every text; ``logits`` has one array (L, labels) for every row."""
    labels, found, done = with_types(class_names(config)), list[list[TaggedSpan]](), 0
    shares = tag_probabilities(split, rows, logits).max(axis=-1) if logits else np.empty(0)
    for sentence, tags in zip(split.sentences, find_tags(split, rows, logits, labels), strict=True):
        assert sentence.raw is not None
        places, own = sentence.raw[2], shares[done : done + len(tags)]
        done += len(tags)
        spans = spans_of_words(tags, plain_labels(labels))
        named = [(kind, first, after) for kind, first, after in spans if kind != "O"]
        found.append([TaggedSpan(kind, places[a][0], places[b - 1][1], float(own[a:b].min())) for kind, a, b in named])
    return found
