"""The lengths that a model was fine-tuned and evaluated with, stored in its config so that later questions use them.

They are in ``config.question_answering``, beside the no-answer threshold (``threshold.py``). The question-answering
pipeline of ``modeling_bert_repro`` reads both.
"""

from collections.abc import Mapping

from transformers import PretrainedConfig

from training.flags.fine_tuning import SquadArguments
from training.tasks.squad.threshold import store_threshold

# All are in tokens except n_best_size.
STORED = ("max_seq_length", "doc_stride", "max_query_length", "max_answer_length", "n_best_size")
DEFAULTS: dict[str, int] = {name: getattr(SquadArguments, name) for name in STORED}


def store_settings(config: PretrainedConfig, args: SquadArguments, results: Mapping[str, float]) -> None:
    """Write to ``config`` how its model was evaluated: the lengths and, in version 2, the threshold.

    Args:
        results: the results of the kept weights, see ``store_threshold``.
    """
    config.question_answering = {name: getattr(args, name) for name in STORED}
    store_threshold(config, args.version_2_with_negative, results)


def stored_settings(config: PretrainedConfig) -> dict[str, int]:
    """The stored settings; for a model without them ``DEFAULTS``, reduced to fit its position embeddings."""
    longest = min(DEFAULTS["max_seq_length"], config.max_position_embeddings)
    query = min(DEFAULTS["max_query_length"], longest // 4)
    stride = min(DEFAULTS["doc_stride"], max(1, (longest - query - 3) // 2))
    fitting = {"max_seq_length": longest, "max_query_length": query, "doc_stride": stride}
    return DEFAULTS | fitting | getattr(config, "question_answering", {})
