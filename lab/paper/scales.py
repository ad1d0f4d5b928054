"""The names in the output folder; the three scales with their networks, text and settings; and the tasks.

All tables of a scale share what is here. What a table makes of it is said in ``experiments.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lab.paper.published import LADDER

# The output folder of lab/run_paper.py.
PLAN = "plan.json"  # every run with its command
RECORD = "record.json"  # the results of all runs, and what they were made with
DATA = "data"  # the folder of the built-in corpus and its tasks
VOCABULARY = "vocabulary"  # the folder of the tokenizer
SIZES = "sizes"  # the folder with a sub-folder for the config.json of each size
CELLS = "cells"  # the folder with a sub-folder for each run

# The name of a flag without its dashes -> its value: True for a switch that is on.
Flags = dict[str, str | int | float | bool | Sequence[str]]


@dataclass(frozen=True)
class Size:
    """The shape of a network: the numbers of layers, hidden units and attention heads."""

    layers: int
    hidden: int
    heads: int

    @property
    def name(self) -> str:
        """The name of the folder that holds its config.json."""
        return f"L{self.layers}_H{self.hidden}_A{self.heads}"

    @property
    def words(self) -> str:
        """The shape in words."""
        layers, heads = ("" if count == 1 else "s" for count in (self.layers, self.heads))
        return f"{self.layers} layer{layers}, {self.hidden} wide, {self.heads} head{heads}"


@dataclass(frozen=True)
class Scale:
    """The networks and settings of a scale.

    Attributes:
        data: whose text and tasks the runs read.
        size: the network of Table 5 and of Figure 5.
        table_7_size: the network of Table 7, which has more than four layers, so that the last four are not all.
        table_8_size: the network of Table 8, which has at least four layers, because features are taken from four.
        ladder: the networks of Table 6, by the names of the paper's rows.
        network: the fields of the configuration in which all networks differ from BERT-Base, apart from their sizes.
        phases: the phases of pre-training, in the form of --phases.
        phases_without_nsp: those of objectives without next sentence prediction. Their instances end with a whole
            sentence and hold fewer tokens; with larger batches all rows of a table read equally many in a step.
        pretraining: the other flags of pre-training.
        restarts: the runs of fine-tuning for each pre-training of Table 6.
        features: the flags that, together with --feature_based, turn a tagging task into that of the feature-based
            approach.
        keeps_case: whether tables that need upper case have a vocabulary with it.
        steps: the optimiser steps of every pre-training; None where each table has a number of its own.
    """

    name: str
    data: Literal["builtin", "small", "paper"]
    size: Size
    table_7_size: Size
    table_8_size: Size
    ladder: dict[str, Size]
    network: dict[str, Any]
    phases: str
    phases_without_nsp: str
    vocab_size: int
    pretraining: Flags
    restarts: int
    features: Flags
    keeps_case: bool = False
    steps: int | None = None

    @property
    def max_train_documents(self) -> int | None:
        """The number of documents that are read; None for all."""
        limit = self.pretraining.get("max_train_documents")
        assert limit is None or isinstance(limit, int)
        return limit


def ladder(*sizes: tuple[int, int, int]) -> dict[str, Size]:
    """The sizes of the six rows of Table 6."""
    return {row: Size(*size) for row, size in zip(LADDER, sizes, strict=True)}


BUILTIN = Scale(
    name="builtin",
    data="builtin",
    size=Size(2, 128, 2),
    table_7_size=Size(6, 128, 2),
    table_8_size=Size(4, 96, 3),
    ladder=ladder((1, 64, 2), (2, 64, 1), (2, 64, 2), (4, 64, 2), (4, 96, 3), (8, 96, 3)),
    # Little text is read, and not often. Without dropout, and with short sequences first, a network learns from it what
    # these tables vary (lab/notes/log.md, 2026-11-22, "What lets a small network leave the plateau").
    network={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    phases="32:0.4:64,64:0.6:64",
    phases_without_nsp="32:0.4:86,64:0.6:82",
    vocab_size=4096,
    # With random weights, some networks are still near the unigram entropy after twice the steps (lab/notes/log.md,
    # 2026-11-24). All sizes have one learning rate.
    pretraining={
        "recipe": "fast",
        "learning_rate": 1.5e-3,
        "warmup_steps": 0.1,
        "eval_steps": 0,
        "logging_steps": 50,
    },
    restarts=5,
    features={"lstm_size": 96, "learning_rate": 2e-3},
)
SMOKE = replace(
    BUILTIN,
    name="smoke",
    steps=5,
    size=Size(1, 32, 2),
    table_7_size=Size(5, 32, 2),
    table_8_size=Size(4, 32, 2),
    ladder=ladder((1, 24, 2), (2, 24, 1), (2, 24, 2), (3, 24, 2), (3, 32, 2), (4, 32, 2)),
    phases="32:1:4",
    phases_without_nsp="32:1:5",
    vocab_size=600,
    pretraining=BUILTIN.pretraining | {"max_train_documents": 100, "validation_split": 0.2, "max_eval_instances": 16},
    restarts=2,
    features={"lstm_size": 8, "learning_rate": 2e-3},
)
SMALL = Scale(
    name="small",
    data="small",
    size=Size(2, 192, 3),
    table_7_size=Size(6, 192, 3),
    table_8_size=Size(4, 128, 2),
    ladder=ladder((1, 192, 3), (2, 192, 1), (2, 192, 3), (4, 192, 3), (4, 256, 4), (8, 256, 4)),
    network={},
    phases="32:0.5:64,64:0.4:64,128:0.1:64",
    phases_without_nsp="32:0.5:84,64:0.4:87,128:0.1:79",
    vocab_size=8192,
    # With random weights and without dropout, 1,200 steps on real text ended at 6.4 nats, which is little better than
    # knowing how frequent the pieces are; the recipe's counted weights begin there. All sizes have one learning rate.
    pretraining={"recipe": "fast", "learning_rate": 1e-3, "eval_steps": 0, "logging_steps": 50},
    restarts=5,
    features={"lstm_size": 192, "learning_rate": 2e-3},
)
PAPER = Scale(
    name="paper",
    data="paper",
    size=Size(12, 768, 12),
    table_7_size=Size(12, 768, 12),
    table_8_size=Size(12, 768, 12),
    ladder=ladder((3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 768, 12), (12, 1024, 16), (24, 1024, 16)),
    network={},
    phases="128:0.9:32x8,512:0.1:8x32",
    phases_without_nsp="128:0.9:32x8,512:0.1:8x32",  # the paper says nothing of larger batches
    vocab_size=30522,
    pretraining={
        "learning_rate": 1e-4,
        "warmup_steps": 10000,
        "eval_steps": 50000,
        "logging_steps": 1000,
        "mixed_precision": "bf16",
    },
    restarts=5,
    features={"lstm_size": 768, "learning_rate": 1e-3, "num_train_epochs": 10},
    keeps_case=True,
)
SCALES = {"builtin": BUILTIN, "small": SMALL, "paper": PAPER}


# --- Tasks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A task of fine-tuning.

    Attributes:
        key: the name of the task in the names of runs and columns.
        title: the heading of its column.
        kind: "pair", "paraphrase", "classification", "qa", "tags" (fine-tuned) or "features" (of the frozen network).
        script: the name of the script that does it.
        metric: the key of its score in all_results.json.
        constant: the score of constant predictions, in per cent.
        flags: those of the script, without the network, the seed and the output folder.
        train_examples, validation_examples: how many examples there are at most; only the estimate of the cost needs
            these.
    """

    key: str
    title: str
    kind: str
    script: str
    metric: str
    constant: float
    train_examples: int
    validation_examples: int
    flags: Flags = field(default_factory=dict)

    @property
    def factor(self) -> float:
        """What turns the score into per cent, in which run_squad.py gives it already."""
        return 1.0 if self.script == "run_squad.py" else 100.0


def fine_tuning(length: int, batch: int, epochs: int, rate: float, **more: str | int) -> Flags:
    """The flags that every fine-tuning has, and ``more``. With save_steps=0 no checkpoints are written."""
    return {
        "max_seq_length": length,
        "per_device_train_batch_size": batch,
        "num_train_epochs": epochs,
        "learning_rate": rate,
        **more,
    }


def with_limits(task: Task, train_examples: int, validation_examples: int) -> Task:
    """The task on its first examples only."""
    return replace(
        task,
        train_examples=train_examples,
        validation_examples=validation_examples,
        flags=task.flags | {"max_train_samples": train_examples, "max_eval_samples": validation_examples},
    )


def builtin_files(key: str, suffix: str) -> Flags:
    """The flags of the two files that ``bert-repro builtin_data`` writes for a task."""
    return {"train_file": f"{DATA}/{key}_train.{suffix}", "validation_file": f"{DATA}/{key}_validation.{suffix}"}


# key, title, kind, script, metric, score of constant predictions, examples for training and for validation
GLUE, SQUAD, NER = "run_glue.py", "run_squad.py", "run_ner.py"
BUILTIN_TASKS = {
    task.key: replace(task, flags=builtin_files(task.key, suffix) | flags)
    for task, suffix, flags in (
        (
            Task("pair", "pairs of the documentation", "pair", GLUE, "eval_accuracy", 50.0, 22_000, 2_000),
            "tsv",
            fine_tuning(96, 32, 2, 5e-4, save_steps=0),
        ),
        (
            Task("kind", "kinds of documentation", "classification", GLUE, "eval_accuracy", 100 / 3, 5_700, 500),
            "tsv",
            fine_tuning(80, 32, 2, 1e-3, save_steps=0),
        ),
        (
            Task("qa", "questions on the documentation, F1", "qa", SQUAD, "eval_f1", 0.0, 15_000, 1_300),
            "json",
            fine_tuning(128, 32, 2, 5e-4, save_steps=0, max_query_length=24, doc_stride=64),
        ),
        (
            Task("code", "words marked as code, F1", "tags", NER, "eval_f1", 0.0, 5_000, 500),
            "txt",
            fine_tuning(96, 16, 3, 1e-3, save_steps=0, context="sentence"),
        ),
    )
}
# The paper's tasks on the official files, without flags. MNLI is validated on both halves.
OFFICIAL_TASKS = {
    task.key: task
    for task in (
        Task("mnli", "MNLI-m", "pair", GLUE, "eval_mnli_m_accuracy", 35.4, 392_702, 19_647),
        Task("qnli", "QNLI", "pair", GLUE, "eval_accuracy", 50.5, 104_743, 5_463),
        Task("mrpc", "MRPC", "paraphrase", GLUE, "eval_accuracy", 68.4, 3_668, 408),
        Task("sst2", "SST-2", "classification", GLUE, "eval_accuracy", 50.9, 67_349, 872),
        Task("squad", "SQuAD 1.1 F1", "qa", SQUAD, "eval_f1", 0.0, 87_599, 10_570),
        Task("conll", "CoNLL-2003 F1", "tags", NER, "eval_f1", 0.0, 14_041, 3_250),
    )
}

SMALL_LIMITS = (3000, 1000)  # training and validation examples
# These replace flags of fine-tuning.
SMOKE_FLAGS: Flags = {"max_steps": 2, "per_device_train_batch_size": 4}
# The paper's batches and epochs (sections 4.1 and 4.2). Of its learning rates this is the largest; the paper chooses
# one of four for each task of GLUE on the development set. Its section 5.3 names no settings for named entities.
PAPERS_FINE_TUNING = {
    "run_glue.py": fine_tuning(128, 32, 3, 5e-5),
    "run_squad.py": fine_tuning(384, 32, 3, 5e-5),
    "run_ner.py": fine_tuning(512, 8, 3, 5e-5),
}
# Small networks need larger learning rates, and with little data smaller batches.
SMALL_FINE_TUNING = {
    "run_glue.py": fine_tuning(128, 16, 3, 5e-4),
    "run_squad.py": fine_tuning(128, 16, 1, 5e-4, doc_stride=92, max_query_length=32),
    "run_ner.py": fine_tuning(128, 16, 3, 5e-4, context="sentence"),
}
