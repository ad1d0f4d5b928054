"""Ask a model that run_glue.py has fine-tuned what a text is: its class, its labels or its score.

``bert-repro ask --text`` prints an object a line. A model that gives a text several labels gives those whose
probability reaches the threshold that is stored with the model (``tasks/classification/thresholds.py``).
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from bert_training.flags.scripts import opened_by
from bert_training.networks.configuration import check_fit
from bert_training.networks.initial_weights import class_in, load_network
from bert_training.networks.old_checkpoints import is_old_checkpoint
from bert_training.networks.other_formats import check_holds_weights
from bert_training.networks.pretrained import checkpoint_config, load_tokenizer
from bert_training.tasks.classification.calibration import probabilities as softmax
from bert_training.tasks.classification.long_texts import text_logits
from bert_training.tasks.classification.multi_label_scores import labels_of
from bert_training.tasks.classification.thresholds import USUAL, probabilities, stored_thresholds
from bert_training.tasks.classification.trained_for import SEVERAL_LABELS, stored_facts, stored_temperature
from tokenization.errors import UserError
from tokenization.special_tokens import check_special_tokens


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
    columns = [list(texts)] if second is None else [list(texts), [second] * len(texts)]
    logits, read = text_logits(model, tokenizer, columns, batch_size=batch_size)
    for text, length, lost in zip(texts, read.lengths, read.lost):
        if lost:
            warn(
                f"warning: the text {text!r:.60} has {length:,} tokens, of which {lost:,} are not read, as in training"
            )
    for text, of_text in zip(texts, logits):
        yield {"text": text} | ({} if second is None else {"second_text": second}) | _says(model.config, of_text)


def _says(config: Any, logits: np.ndarray) -> dict[str, Any]:
    """The answer for one text, from its logits (C,)."""
    if not np.isfinite(logits).all():
        raise UserError("the outputs of the model are not finite; its training diverged, or its weights are damaged")
    names = [str(config.id2label[number]) for number in range(len(logits))]
    if config.problem_type == SEVERAL_LABELS:
        shares = probabilities(logits)
        thresholds = stored_thresholds(config) or [USUAL] * len(names)
        return {"labels": labels_of(shares, thresholds, names), "probabilities": _rounded(names, shares)}
    if len(names) == 1 or config.problem_type == "regression":
        return {"score": round(float(logits[0]), 6)}
    (shares,) = softmax(logits[None], stored_temperature(config))
    return {"label": names[int(shares.argmax())], "probabilities": _rounded(names, shares)}


def _rounded(names: Sequence[str], shares: np.ndarray) -> dict[str, float]:
    return {name: round(float(share), 6) for name, share in zip(names, shares, strict=True)}


def _check_texts(texts: Sequence[str], second: str | None, trained_on: object) -> None:
    for text in (*texts, *(() if second is None else (second,))):
        if not text.strip():
            raise UserError("expected a text, got an empty one; write something into the quotes")
    if trained_on == 2 and second is None:
        raise UserError("the model judges pairs of texts; give the second one with --second_text")
    if trained_on == 1 and second is not None:
        raise UserError("--second_text: the model judges single texts; leave the flag out")


def load(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a BERT from a folder, the Hub or an old checkpoint.

    Raises ValueError if they cannot be loaded or the checkpoint has no head that reads a label from [CLS].
    """
    old = is_old_checkpoint(name)
    if not old:
        check_holds_weights(Path(name), f"--model {name}")
    try:
        tokenizer = load_tokenizer(name)
        options = {} if old else {"config": checkpoint_config(name, quiet=True)}
        kind = class_in(options["config"]) if options else None
        if kind and kind != BertForSequenceClassification.__name__:
            raise UserError(
                f"--model {name}: expected a model with a head for texts, got a {kind}"
                + (f", of {opened_by()[kind]}" if kind in opened_by() else "")
                + "; a model that reads the label from the last token is asked by run_glue.py --test_file"
            )
        cls = BertForSequenceClassification if old else AutoModelForSequenceClassification
        model, new, _ = load_network(cls, name, ("classifier.",), trust_remote_code=False, **options)
    except OSError as error:
        raise UserError(f"--model {name}: cannot be opened ({str(error).splitlines()[0]})") from error
    if new:
        raise UserError(
            f"--model {name}: has no weights for {', '.join(new)}, so it is not fine-tuned for texts; give a folder "
            "that run_glue.py made"
        )
    check_special_tokens(tokenizer)
    check_fit(cast("BertConfig", model.config), tokenizer, 1)
    return model, tokenizer


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of texts to the parser of ``bert-repro ask``."""
    parser.add_argument("--text", nargs="+", help="One or more texts, each in quotes, for a model of run_glue.py.")
    parser.add_argument("--second_text", help="The second text of a pair, for a model of pairs.")
