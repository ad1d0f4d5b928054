"""The classes of finished models, as config.json names them: one table for scripts, page, export and conversion.

A new head is a row here, besides its class. The modules of the flags import no torch, and so the classes are named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MASKED, NEXT_PIECE, NEXT_SENTENCE = "masked words", "next piece", "next sentence"
CLASSES, ANSWERS, NAMES, CHOICE = "classification", "question answering", "names", "multiple choice"
ENCODER = "BertModel"


@dataclass(frozen=True, kw_only=True)
class Head:
    """What is known of a class.

    Attributes:
        abilities: what it can say of a text, in the order in which the page shows it.
        tensors: the first parts of the names of its own weights, without "cls.".
        pooler: whether it has the pooler of [CLS].
        outputs: what an exported file of it gives.
        exported: whether transformers has it, and so every program that reads exported files.
        scripts: the scripts that fine-tune it, with the flags that each needs.
    """

    abilities: tuple[str, ...]
    tensors: tuple[str, ...] = ("classifier",)
    pooler: bool = True
    outputs: tuple[str, ...] = ("logits",)
    exported: bool = True
    scripts: Mapping[str, str] = field(default_factory=dict)


HEADS = {
    ENCODER: Head(abilities=(), tensors=(), outputs=("last_hidden_state",)),
    "BertForPreTraining": Head(abilities=(MASKED, NEXT_SENTENCE), tensors=("predictions", "seq_relationship")),
    "BertForMaskedLM": Head(abilities=(MASKED,), tensors=("predictions",), pooler=False),
    "BertForNextSentencePrediction": Head(abilities=(NEXT_SENTENCE,), tensors=("seq_relationship",)),
    "BertForSequenceClassification": Head(abilities=(CLASSES,), scripts={"run_glue.py": ""}),
    "BertForTokenClassification": Head(
        abilities=(NAMES,), pooler=False, scripts={"run_ner.py": "", "run_glue.py": "--label_token last"}
    ),
    "BertForMultipleChoice": Head(abilities=(CHOICE,), scripts={"run_swag.py": ""}),
    "BertForQuestionAnswering": Head(
        abilities=(ANSWERS,),
        tensors=("qa_outputs",),
        pooler=False,
        outputs=("start_logits", "end_logits"),
        scripts={"run_squad.py": ""},
    ),
    "BertFeatureTagger": Head(abilities=(NAMES,), exported=False, scripts={"run_ner.py": ""}),
    "BertBiLSTMForTokenClassification": Head(
        abilities=(NAMES,), exported=False, scripts={"run_glue.py": "--label_token bilstm"}
    ),
    "BertBiLSTMForQuestionAnswering": Head(
        abilities=(ANSWERS,), exported=False, scripts={"run_squad.py": "--bilstm_on_top"}
    ),
}


def heads_of(script: str) -> set[str]:
    """The classes that a script fine-tunes."""
    return {name for name, head in HEADS.items() if script in head.scripts}


def opened_by() -> dict[str, str]:
    """The class of a fine-tuned network -> the scripts that open it, with their flags."""
    ways = {
        name: [f"{script} with {flags}" if flags else script for script, flags in head.scripts.items()]
        for name, head in HEADS.items()
    }
    return {name: ", or ".join(found) for name, found in ways.items() if found}
