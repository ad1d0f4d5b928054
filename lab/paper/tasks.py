"""The tasks that models are fine-tuned for: the built-in ones and the paper's, with their flags at each scale."""

from dataclasses import dataclass, field, replace

from lab.paper.command_line import Flags
from lab.paper.places import DATA


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


def builtin_task(task: Task, suffix: str) -> Task:
    """The task with the flags of the two files that ``bert-repro builtin_data`` writes for it."""
    files: Flags = {
        "train_file": f"{DATA}/{task.key}_train.{suffix}",
        "validation_file": f"{DATA}/{task.key}_validation.{suffix}",
    }
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
            flags=fine_tuning(96, 32, 2, 5e-4, save_steps=0),
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
            flags=fine_tuning(80, 32, 2, 1e-3, save_steps=0),
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
            flags=fine_tuning(128, 32, 2, 5e-4, save_steps=0, max_query_length=24, doc_stride=64),
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
            flags=fine_tuning(96, 16, 3, 1e-3, save_steps=0, context="sentence"),
        ),
        "txt",
    ),
}

SMALL_LIMITS = (3000, 1000)  # training and validation examples
# These replace flags of fine-tuning.
SMOKE_FLAGS: Flags = {"max_steps": 2, "per_device_train_batch_size": 4}

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
