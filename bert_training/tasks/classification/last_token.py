"""The label of a text, read from its last token, for networks that attend left to right.

BERT reads the label from [CLS], which comes first; in a left-to-right network it would see no other token. The last
token, the final [SEP], sees the whole text; OpenAI's GPT reads its labels there as well. The network is then one for
token classification in which only this token has a label:

    tokens   [CLS] the king walked [SEP] he went home [SEP]
    labels    -100 -100 -100  -100  -100 -100 -100 -100   1

The saved folder is that of a token classifier, which every tool opens as such.
"""

from typing import Any

import numpy as np

from bert_training.engine.batches import IGNORED, Features


def with_labels_at_the_end(rows: Features) -> Features:
    """The same rows with a label for every token: that of the row at its last token, and -100 at all others.

    The weights of rows move with their labels.
    """
    columns = dict(rows.columns)
    for name, elsewhere, kind in (("labels", IGNORED, np.int64), ("loss_weights", 0, np.float64)):
        if name in columns:
            columns[name] = []
            for length, value in zip(rows.lengths, rows.columns[name], strict=True):
                values = np.full(length, elsewhere, dtype=kind)
                values[-1] = value
                columns[name].append(values)
    return Features(columns, rows.pad_token_id)


def with_logits_at_the_end(outputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs of ``predict`` with the logits of each row's last token only: (rows, classes).

    Args:
        outputs: "logits" holds an array (length, classes) for each row, without padding.
    """
    return outputs | {"logits": np.stack([row[-1] for row in outputs["logits"]])}
