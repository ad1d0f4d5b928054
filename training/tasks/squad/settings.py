"""The lengths that a model was fine-tuned and evaluated with, stored in its config so that it is asked with the same.

They stand in ``config.question_answering``, beside the no-answer threshold (``threshold.py``); the question-answering
pipeline of ``modeling_bert_repro`` reads both.
"""

from collections.abc import Mapping

from transformers import PretrainedConfig

from training.arguments import SquadArguments
from training.tasks.squad.threshold import store_threshold

DEFAULTS = {  # in tokens, except for n_best_size; those of run_squad.py's flags of the same names
    "max_seq_length": 384,
    "doc_stride": 128,
    "max_query_length": 64,
    "max_answer_length": 30,
    "n_best_size": 20,
}


def store_settings(config: PretrainedConfig, args: SquadArguments, results: Mapping[str, float]) -> None:
    """Write to ``config`` how its model was evaluated: the lengths and, in version 2, the threshold.

    Args:
        results: of the last evaluation, see ``store_threshold``.
    """
    config.question_answering = {name: getattr(args, name) for name in DEFAULTS}
    store_threshold(config, args.version_2_with_negative, results)


def settings_of(config: PretrainedConfig) -> dict[str, int]:
    """The settings stored with a model; for other models ``DEFAULTS``, cut down to the positions that they have."""
    longest = min(DEFAULTS["max_seq_length"], config.max_position_embeddings)
    query = min(DEFAULTS["max_query_length"], longest // 4)
    stride = min(DEFAULTS["doc_stride"], max(1, (longest - query - 3) // 2))
    fitting = {"max_seq_length": longest, "max_query_length": query, "doc_stride": stride}
    return DEFAULTS | fitting | getattr(config, "question_answering", {})
