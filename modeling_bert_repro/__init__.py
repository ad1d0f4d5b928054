"""BERT in plain torch with the interface of transformers: eight model classes, and ``register()``."""

import transformers

from . import heads
from .heads import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from .modeling_bert import BertModel
from .pretrained import AUTO_MAP, BertPreTrainedModel
from .pretraining_heads import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForPreTrainingOutput,
)

__version__ = "1.0.0"  # written only here; pyproject.toml reads it

__all__ = [
    "BertForMaskedLM",
    "BertForMultipleChoice",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
    "BertForPreTrainingOutput",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
    "BertPreTrainedModel",
    "register",
]


def register() -> None:
    """Make transformers' Auto classes return these classes for every ``bert`` config, in this process only.

    It is never called on import, because it replaces BERT for all other code in the process.
    """
    for auto_class, reference in AUTO_MAP.items():
        own_class = getattr(heads, reference.partition(".")[2])
        # Around version 5.17, the public `AutoModel.register` silently ignores transformers' own config classes.
        getattr(transformers, auto_class)._model_mapping._extra_content[transformers.BertConfig] = own_class
