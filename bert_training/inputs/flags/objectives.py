"""The objectives of pre-training: what the instances hold, what the network predicts, what results and cards say.

A new objective is a row of OBJECTIVES. If no objective has its segments yet, it also needs a function in
``bert_training/pretraining/segments.py: PLANNERS``. The table is in this package, and not beside the instances, because
the flags and the model cards read it too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """What the network has to tell about the two segments of an instance, with the head of next sentence prediction.

    Attributes:
        name: of its results, ``eval_{name}_accuracy`` and ``eval_{name}_loss``, and of ``{name}_loss`` in the records.
        title: its name before a noun, as in "next-sentence accuracy".
        classes: the names of the labels 0 and 1.
        random_second: whether the second segment of class 1 comes from another document. A text then needs two of them.
    """

    name: str
    title: str
    classes: tuple[str, str]
    random_second: bool


@dataclass(frozen=True, kw_only=True)
class Objective:
    """An objective of pre-training.

    Attributes:
        help: what --help says of it.
        learns_by: what the model card says that the network was trained by.
        network: the name of a class of ``modeling_bert_repro``. Without pairs, the pooler of BertForPreTraining would
            stay untrained; BertForMaskedLM has none.
        segments: how the text is divided into instances, a key of ``bert_training/pretraining/segments.py: PLANNERS``.
        pairs: what is asked about the two segments of an instance; None if it has one.
        left_to_right: each position attends only to those before it and predicts the next token of the segment, so
            that nothing is masked. Otherwise masked tokens are predicted.
    """

    help: str
    learns_by: str
    network: str
    segments: str
    pairs: PairTask | None = None
    left_to_right: bool = False

    @property
    def masks(self) -> bool:
        """Whether masked tokens are predicted."""
        return not self.left_to_right


NEXT_SENTENCE = PairTask(name="nsp", title="next-sentence", classes=("IsNext", "NotNext"), random_second=True)
SENTENCE_ORDER = PairTask(name="sop", title="sentence-order", classes=("InOrder", "Swapped"), random_second=False)

DEFAULT = "mlm_nsp"
OBJECTIVES = {
    DEFAULT: Objective(
        help="masked LM and next sentence prediction",
        learns_by="predicting masked word pieces and whether one passage follows another",
        network="BertForPreTraining",
        segments="next_or_random",
        pairs=NEXT_SENTENCE,
    ),
    "mlm": Objective(
        help="masked LM alone",
        learns_by="predicting masked word pieces",
        network="BertForMaskedLM",
        segments="packed",
    ),
    "ltr": Objective(
        help="left-to-right LM",
        learns_by="predicting word pieces from left to right",
        network="BertForMaskedLM",
        segments="packed",
        left_to_right=True,
    ),
    "mlm_sop": Objective(  # ALBERT's (Lan et al. 2019, section 3.1)
        help="masked LM and sentence-order prediction",
        learns_by="predicting masked word pieces and whether two consecutive passages are in order or swapped",
        network="BertForPreTraining",
        segments="in_order_or_swapped",
        pairs=SENTENCE_ORDER,
    ),
}


def objective_of(flags: Mapping[str, Any]) -> Objective:
    """The objective of a run; the default for flags without one.

    Args:
        flags: of run_pretraining.py, by name, for example those in run.json.
    """
    return OBJECTIVES[flags.get("objective", DEFAULT)]
