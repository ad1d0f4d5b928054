"""Answers to questions by the functions of the evaluation, to which the pipeline of questions is compared."""

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import Features
from bert_training.engine.predict import predict_alone
from bert_training.tasks.squad.answers import Answers, find_answers
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.threshold import stored_threshold
from bert_training.tasks.squad.windows import build_windows, check_lengths
from bert_training.tasks.stored_flags import stored_settings


def evaluated(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    threshold: float | None = None,
    batch_size: int = 32,
) -> Answers:
    """Answer every question from its context, with all that an evaluation knows.

    Args:
        model: an extractive question-answering model with the interface of transformers.
        threshold: no answer is given if the null odds are above it. The default is the one stored with the model;
            a model without a stored threshold (SQuAD 1.1) always answers.
        batch_size: windows per forward pass.

    Raises:
        ValueError: the lengths stored with the model leave no room for context, or the tokenizer is not a fast one.
    """
    settings = stored_settings(model.config)
    lengths = (settings["max_seq_length"], settings["doc_stride"], settings["max_query_length"])
    check_lengths(*lengths)
    windows = build_windows(questions, tokenizer, *lengths)
    logits = predict_alone(model, Features(windows.columns(), tokenizer.pad_token_id), batch_size, model.device)
    threshold = stored_threshold(model.config) if threshold is None else threshold
    return find_answers(
        questions,
        windows,
        logits["start_logits"],
        logits["end_logits"],
        n_best_size=settings["n_best_size"],
        max_answer_length=settings["max_answer_length"],
        version_2_with_negative=threshold is not None,
        null_score_diff_threshold=threshold or 0.0,
    )
