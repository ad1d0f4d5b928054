"""The scripts that train, each as one object: its flags, its networks, and what cards and reports say of its runs.

A new task of fine-tuning is a row of SCRIPTS, besides its script, its flags (``fine_tuning.py``) and its data
(``bert_training/tasks/``). The table is in this package, and not beside the tasks, because the engine, the networks and
the model cards read it too.

HEADS has the classes of finished models, as config.json names them, for scripts, page, export and conversion. A new
head is a row there, besides its class. The modules of the flags import no torch, and so the classes are named.
"""

import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from bert_training.inputs.flags.parsing import Nature, natures
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.shared import SharedArguments

# --- heads -----------------------------------------------------------------------------------------------------------


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
        exported: whether transformers has it, so that programs read exported files of it; otherwise it has an LSTM.
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


# --- scripts ---------------------------------------------------------------------------------------------------------


# --- the table ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script that trains; its name is its key in SCRIPTS and stands in run.json.

    Attributes:
        arguments: the class of its flags.
        pipeline: the pipeline tag of its models on the Hub, which has a program in
            ``bert_training/cards/use.jinja``.
        hub_task: the name of the task on the Hub.
        sentence: the first one of the model card, with the places ``{size}`` and ``{origin}``.
        title: of a fine-tuning, the title of the task in reports if the run does not name one.
        metrics: of a fine-tuning, the results that have rows in reports, keys of ``bert_training/cards/metrics.py:
            METRICS``. Of those that a run has, only the first is drawn.
        place: the file of the script; None if it is one of the scripts of this project.
    """

    arguments: type[SharedArguments]
    pipeline: str
    hub_task: str
    sentence: str
    title: str = ""
    metrics: tuple[str, ...] = ()
    place: Path | None = None

    @property
    def pretrains(self) -> bool:
        """Whether it is the script of pre-training; the others fine-tune."""
        return issubclass(self.arguments, PretrainingArguments)


SCRIPTS = {
    "run_pretraining.py": Script(
        arguments=PretrainingArguments,
        pipeline="fill-mask",
        hub_task="Masked language modelling",
        sentence="A BERT encoder ({size}) trained by {origin}.",
    ),
    "run_glue.py": Script(
        arguments=GlueArguments,
        pipeline="text-classification",
        hub_task="Text classification",
        sentence="A BERT text classifier ({size}) fine-tuned {origin}.",
        title="classification",
        metrics=tuple(
            "eval_matthews_correlation eval_pearson eval_spearmanr eval_mnli_m_accuracy eval_mnli_mm_accuracy "
            "eval_accuracy eval_f1 eval_f1_micro eval_f1_macro eval_subset_accuracy eval_average_precision_micro "
            "eval_average_precision_macro".split()
        ),
    ),
    "run_squad.py": Script(
        arguments=SquadArguments,
        pipeline="question-answering",
        hub_task="Extractive question answering",
        sentence="A BERT model ({size}) that marks the answer to a question in a text, fine-tuned {origin}.",
        title="question answering",
        metrics=("eval_exact_match", "eval_f1"),
    ),
    "run_ner.py": Script(
        arguments=NerArguments,
        pipeline="token-classification",
        hub_task="Named entities",
        sentence="A BERT tagger ({size}) that marks names and other spans in sentences, fine-tuned {origin}.",
        title="named entities",
        metrics=("eval_f1", "eval_precision", "eval_recall", "eval_f1_macro"),
    ),
    "run_swag.py": Script(
        arguments=SwagArguments,
        pipeline="multiple-choice",
        hub_task="Multiple choice",
        sentence="A BERT model ({size}) that chooses how a text goes on, fine-tuned {origin}.",
        title="multiple choice",
        metrics=("eval_accuracy",),
    ),
}


def script_of(arguments: type) -> str:
    """The name of the script that has these flags; "" if none has."""
    return next((name for name, script in SCRIPTS.items() if script.arguments is arguments), "")


def flags_with(nature: Nature) -> tuple[str, ...]:
    """Names of the flags of all ``SCRIPTS`` that have at least one of the natures, in the order of --help."""
    classes = [script.arguments for script in SCRIPTS.values()]
    named = [name for cls in classes for name, found in natures(cls).items() if found & nature]
    return tuple(dict.fromkeys(named))


def chooses_best(args: SharedArguments) -> bool:
    """Whether the best of a run's evaluations decides which weights are kept; only fine-tuning has the flag."""
    return bool(getattr(args, "load_best_model_at_end", False))


def path_of(name: str) -> str:
    """The path of a script: beside the packages in a checkout, else among the installed programs."""
    places = (SCRIPTS[name].place, Path(__file__).parents[3] / name, Path(sysconfig.get_path("scripts"), name))
    return next((str(path) for path in places if path and path.is_file()), name)
