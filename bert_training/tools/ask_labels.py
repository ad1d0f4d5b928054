"""Ask a model that run_glue.py has fine-tuned what a text is: its class, its labels or its score.

``bert-repro ask --text`` prints an object a line. A model that gives a text several labels gives those whose
probability reaches the threshold that is stored with the model (``tasks/classification/multi_label_scores.py``).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from bert_training.tasks.classification.long_texts import text_logits
from bert_training.tasks.classification.trained_for import stored_facts
from bert_training.tasks.classification.verdicts import judge_of
from tokenization.errors import UserError


def judge(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    second: str | None = None,
    batch_size: int = 32,
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[dict[str, Any]]:
    """Yield what the model says of each text, in their order.

    Args:
        model: a BertForSequenceClassification, of this project or of transformers.
        second: the second text of every pair, for a model that was trained on pairs.
        warn: is called with a line for every text of which a part is not read.

    Raises:
        ValueError: a text is empty or cannot be read as in the training, or the model was trained on pairs and gets
            one text, or the reverse.
    """
    _check_texts(texts, second, stored_facts(model.config).get("texts_per_example"))
    verdict = judge_of(model.config)
    columns = [list(texts)] if second is None else [list(texts), [second] * len(texts)]
    logits, read = text_logits(model, tokenizer, columns, batch_size=batch_size)
    for text, length, lost in zip(texts, read.lengths, read.lost):
        if lost:
            warn(
                f"warning: the text {text!r:.60} has {length:,} tokens, of which {lost:,} are not read, as in training"
            )
    for text, of_text, lost in zip(texts, logits, read.lost):
        said = verdict(of_text)._replace(lost=lost).record()
        yield {"text": text} | ({} if second is None else {"second_text": second}) | said


def _check_texts(texts: Sequence[str], second: str | None, trained_on: object) -> None:
    for text in (*texts, *(() if second is None else (second,))):
        if not text.strip():
            raise UserError("expected a text, got an empty one; write something into the quotes")
    if trained_on == 2 and second is None:
        raise UserError("the model judges pairs of texts; give the second one with --second_text")
    if trained_on == 1 and second is not None:
        raise UserError("--second_text: the model judges single texts; leave the flag out")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of texts to the parser of ``bert-repro ask``."""
    parser.add_argument("--text", nargs="+", help="One or more texts, each in quotes, for a model of run_glue.py.")
    parser.add_argument("--second_text", help="The second text of a pair, for a model of pairs.")
