"""The three scales: sizes, steps and tasks of the built-in, the small and the paper's own version of each table."""

from dataclasses import dataclass, field, replace

from training.paper.published import LADDER

# The name of a flag without its dashes -> its value: "" for a switch; the files of a list stand on lines of their own.
Flags = dict[str, str]
DATA = "data"  # the folder of the built-in corpus and its tasks, in the output folder of run_paper.py


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


@dataclass(frozen=True)
class Task:
    """A task of fine-tuning.

    Attributes:
        key: the name of the task in the names of runs and columns.
        title: the heading of its column.
        kind: "pair", "paraphrase", "classification", "qa", "tags" (fine-tuned) or "features" (of the frozen network).
        script: the name of the script that does it.
        metric: the key of its score in all_results.json.
        factor: turns this score into per cent.
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
    factor: float = 100.0


@dataclass(frozen=True)
class Scale:
    """What a scale makes of the paper.

    Attributes:
        size: the network of Table 5 and of Figure 5.
        deep: the network of Tables 7 and 8, which has at least four layers, because features are taken from four.
        ladder: the networks of Table 6, by the names of the paper's rows.
        steps: the optimiser steps of pre-training, by table.
        phases: the phases of pre-training, in the form of --phases.
        pretraining: the other flags of pre-training.
        restarts: the runs of fine-tuning for each pre-training of Table 6.
        features: the flags that, together with --feature_based, turn a tagging task into that of the feature-based
            approach.
        tasks: by table, the alternatives for each column; the first one that there is data for is taken.
        cased: the tables whose vocabulary keeps upper case.
    """

    name: str
    size: Size
    deep: Size
    ladder: dict[str, Size]
    steps: dict[str, int]
    phases: str
    vocab_size: int
    pretraining: Flags
    restarts: int
    features: Flags
    tasks: dict[str, tuple[tuple[str, ...], ...]]
    cased: tuple[str, ...] = ()


def ladder(*sizes: tuple[int, int, int]) -> dict[str, Size]:
    """The sizes of the six rows of Table 6."""
    return {row: Size(*size) for row, size in zip(LADDER, sizes, strict=True)}


def fine_tuning(length: int, batch: int, epochs: float, rate: str, **more: str) -> dict[str, str]:
    """The flags that every fine-tuning has, and ``more``. With save_steps="0" no checkpoints are written."""
    flags = {"max_seq_length": str(length), "per_device_train_batch_size": str(batch)}
    flags |= {"num_train_epochs": f"{epochs:g}", "learning_rate": rate}
    return flags | more


def with_limits(task: Task, train_examples: int, validation_examples: int) -> Task:
    """The task on its first examples only."""
    limits = {"max_train_samples": str(train_examples), "max_eval_samples": str(validation_examples)}
    return replace(
        task,
        train_examples=train_examples,
        validation_examples=validation_examples,
        flags=task.flags | limits,
    )


def builtin_task(task: Task, suffix: str) -> Task:
    """The task with the flags of the two files that ``python -m training builtin_data`` writes for it."""
    files = {"train_file": f"{DATA}/{task.key}_train.{suffix}"}
    files |= {"validation_file": f"{DATA}/{task.key}_validation.{suffix}"}
    return replace(task, flags=files | task.flags)


BUILTIN_TASKS = {
    "pair": builtin_task(
        Task(
            key="pair",
            title="pairs of the documentation",
            kind="pair",
            script="run_glue.py",
            metric="eval_accuracy",
            constant=50.0,
            train_examples=22_000,
            validation_examples=2_000,
            flags=fine_tuning(96, 32, 3, "3e-4", save_steps="0"),
        ),
        "tsv",
    ),
    "kind": builtin_task(
        Task(
            key="kind",
            title="kinds of documentation",
            kind="classification",
            script="run_glue.py",
            metric="eval_accuracy",
            constant=100 / 3,
            train_examples=5_700,
            validation_examples=500,
            flags=fine_tuning(80, 32, 3, "3e-4", save_steps="0"),
        ),
        "tsv",
    ),
    "qa": builtin_task(
        Task(
            key="qa",
            title="questions on the documentation, F1",
            kind="qa",
            script="run_squad.py",
            metric="eval_f1",
            constant=0.0,
            train_examples=15_000,
            validation_examples=1_300,
            flags=fine_tuning(128, 32, 3, "3e-4", save_steps="0", max_query_length="24", doc_stride="64"),
            factor=1.0,
        ),
        "json",
    ),
    "code": builtin_task(
        Task(
            key="code",
            title="words marked as code, F1",
            kind="tags",
            script="run_ner.py",
            metric="eval_f1",
            constant=0.0,
            train_examples=5_000,
            validation_examples=500,
            flags=fine_tuning(96, 32, 3, "3e-4", save_steps="0", context="sentence"),
        ),
        "txt",
    ),
}

BUILTIN = Scale(
    name="builtin",
    size=Size(2, 128, 2),
    deep=Size(4, 128, 2),
    ladder=ladder((1, 96, 3), (2, 96, 1), (2, 96, 3), (4, 96, 3), (4, 128, 4), (8, 128, 4)),
    steps={"5": 1200, "6": 500, "7": 1500, "8": 500, "figure5": 1500},
    phases="64:1:32",
    vocab_size=4096,
    pretraining={"learning_rate": "2e-3", "warmup_steps": "0.1", "eval_steps": "0", "logging_steps": "50"},
    restarts=5,
    features={"lstm_size": "96", "learning_rate": "2e-3"},
    tasks={
        "5": (("pair",), ("kind",), ("qa",)),
        "6": (("pair",), ("kind",)),
        "7": (("code",),),
        "8": (("kind",), ("code",)),
        "figure5": (("pair",), ("kind",)),
    },
)
# Training and validation examples by table, so that every table takes less than half an hour on two cores.
BUILTIN_LIMITS = {"5": (2500, 1000), "6": (600, 500), "7": (3000, 500), "8": (1200, 500), "figure5": (2000, 1000)}

SMOKE = replace(
    BUILTIN,
    name="smoke",
    size=Size(1, 32, 2),
    deep=Size(4, 32, 2),
    ladder=ladder((1, 24, 2), (2, 24, 1), (2, 24, 2), (3, 24, 2), (3, 32, 2), (4, 32, 2)),
    steps=dict.fromkeys(BUILTIN.steps, 5),
    phases="32:1:4",
    vocab_size=600,
    pretraining=BUILTIN.pretraining
    | {"max_train_documents": "100", "validation_split": "0.2", "max_eval_instances": "16", "peak_tflops": "1"},
    restarts=2,
    features={"lstm_size": "8", "learning_rate": "2e-3"},
)
# These replace flags of fine-tuning.
SMOKE_FLAGS = {"max_steps": "2", "per_device_train_batch_size": "4"}

PAPERS_TASKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "5": (("mnli",), ("qnli",), ("mrpc",), ("sst2",), ("squad",)),
    "6": (("mnli",), ("mrpc",), ("sst2",)),
    "7": (("conll",),),
    "8": (("mnli",), ("conll",)),
    "figure5": (("mnli",),),
}
SMALL = Scale(
    name="small",
    size=Size(4, 256, 4),
    deep=Size(4, 256, 4),
    ladder=ladder((1, 192, 3), (2, 192, 1), (2, 192, 3), (4, 192, 3), (4, 256, 4), (8, 256, 4)),
    steps={"5": 2000, "6": 2000, "7": 4000, "8": 2000, "figure5": 4000},
    phases="128:1:32",
    vocab_size=8192,
    pretraining={"learning_rate": "1e-3", "warmup_steps": "0.1", "eval_steps": "0", "logging_steps": "50"},
    restarts=5,
    features={"lstm_size": "192", "learning_rate": "1e-3"},
    tasks=PAPERS_TASKS
    | {
        "7": (("conll", "code"),),
        "8": (("mnli", "sst2", "mrpc"), ("conll", "code")),
        "figure5": (("mnli", "sst2", "mrpc"),),
    },
)
SMALL_LIMITS = (8000, 2000)  # training and validation examples

PAPER = Scale(
    name="paper",
    size=Size(12, 768, 12),
    deep=Size(12, 768, 12),
    ladder=ladder((3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 768, 12), (12, 1024, 16), (24, 1024, 16)),
    steps=dict.fromkeys(BUILTIN.steps, 1_000_000),
    phases="128:0.9:32x8,512:0.1:8x32",
    vocab_size=30522,
    pretraining={
        "learning_rate": "1e-4",
        "warmup_steps": "10000",
        "eval_steps": "50000",
        "logging_steps": "1000",
        "mixed_precision": "bf16",
    },
    restarts=5,
    features={"lstm_size": "768", "learning_rate": "1e-3", "num_train_epochs": "10"},
    tasks=PAPERS_TASKS,
    cased=("7",),
)
SCALES = {"builtin": BUILTIN, "small": SMALL, "paper": PAPER}

# The paper's tasks on the official files, without flags. MNLI is validated on both halves.
OFFICIAL_TASKS = {
    "mnli": Task(
        key="mnli",
        title="MNLI-m",
        kind="pair",
        script="run_glue.py",
        metric="eval_mnli_m_accuracy",
        constant=35.4,
        train_examples=392_702,
        validation_examples=19_647,
    ),
    "qnli": Task(
        key="qnli",
        title="QNLI",
        kind="pair",
        script="run_glue.py",
        metric="eval_accuracy",
        constant=50.5,
        train_examples=104_743,
        validation_examples=5_463,
    ),
    "mrpc": Task(
        key="mrpc",
        title="MRPC",
        kind="paraphrase",
        script="run_glue.py",
        metric="eval_accuracy",
        constant=68.4,
        train_examples=3_668,
        validation_examples=408,
    ),
    "sst2": Task(
        key="sst2",
        title="SST-2",
        kind="classification",
        script="run_glue.py",
        metric="eval_accuracy",
        constant=50.9,
        train_examples=67_349,
        validation_examples=872,
    ),
    "squad": Task(
        key="squad",
        title="SQuAD 1.1 F1",
        kind="qa",
        script="run_squad.py",
        metric="eval_f1",
        constant=0.0,
        train_examples=87_599,
        validation_examples=10_570,
        factor=1.0,
    ),
    "conll": Task(
        key="conll",
        title="CoNLL-2003 F1",
        kind="tags",
        script="run_ner.py",
        metric="eval_f1",
        constant=0.0,
        train_examples=14_041,
        validation_examples=3_250,
    ),
}
# The paper's batches and epochs (sections 4.1 and 4.2). Of its learning rates this is the largest; the paper chooses
# one of four for each task of GLUE on the development set. Its section 5.3 names no settings for named entities.
PAPERS_FINE_TUNING = {
    "run_glue.py": fine_tuning(128, 32, 3, "5e-5"),
    "run_squad.py": fine_tuning(384, 32, 3, "5e-5"),
    "run_ner.py": fine_tuning(512, 8, 3, "5e-5"),
}
# Small networks need larger learning rates.
SMALL_FINE_TUNING = {
    "run_glue.py": fine_tuning(128, 32, 3, "2e-4"),
    "run_squad.py": fine_tuning(128, 32, 2, "2e-4", doc_stride="64", max_query_length="32"),
    "run_ner.py": fine_tuning(128, 32, 3, "2e-4", context="sentence"),
}
