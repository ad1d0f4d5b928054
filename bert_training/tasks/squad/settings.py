"""The lengths that a model was fine-tuned and evaluated with, stored in its config so that later questions use them.

They are in ``config.question_answering``, as is the no-answer threshold (``threshold.py``). The question-answering
pipeline of ``modeling_bert_repro`` reads both; the other flags are stored by ``bert_training/tasks/stored_flags.py``.
"""

from typing import TYPE_CHECKING

from bert_training.inputs.flags.fine_tuning import SquadArguments

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FIELD = "question_answering"
THRESHOLD = "null_score_diff_threshold"  # its field in the config, of models for questions without an answer
# All are in tokens except n_best_size.
STORED = ("max_seq_length", "doc_stride", "max_query_length", "max_answer_length", "n_best_size")
DEFAULTS: dict[str, int] = {name: getattr(SquadArguments, name) for name in STORED}


def store_settings(config: "PretrainedConfig", args: SquadArguments) -> None:
    """Write to ``config`` the lengths with which its model is fine-tuned and evaluated."""
    setattr(config, FIELD, {name: getattr(args, name) for name in STORED})


def stored_settings(config: "PretrainedConfig") -> dict[str, int]:
    """The stored settings; for a model without them ``DEFAULTS``, reduced to fit its position embeddings."""
    longest = min(DEFAULTS["max_seq_length"], config.max_position_embeddings)
    query = min(DEFAULTS["max_query_length"], longest // 4)
    stride = min(DEFAULTS["doc_stride"], max(1, (longest - query - 3) // 2))
    fitting = {"max_seq_length": longest, "max_query_length": query, "doc_stride": stride}
    return DEFAULTS | fitting | getattr(config, FIELD, {})
