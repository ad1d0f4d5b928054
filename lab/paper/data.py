"""The flags of lab/run_paper.py, the text and the tasks that they name, and the files that all runs share."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from transformers import AutoTokenizer, BertConfig

from bert_training.builtin_data import documentation
from bert_training.files.atomic import damage, make_folder, sealed_folder, write_json
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.parsing import Flags as FlagsOfCommand
from bert_training.inputs.flags.parsing import flag
from bert_training.inputs.texts import check_files, read_documents
from bert_training.tasks.classification.glue import GLUE_TASKS
from bert_training.tasks.classification.sources import official_files
from lab.paper.experiments import EXPERIMENTS
from lab.paper.plan import Plan, files_in
from lab.paper.scales import (
    BUILTIN_TASKS,
    DATA,
    OFFICIAL_TASKS,
    PAPERS_FINE_TUNING,
    SCALES,
    SIZES,
    SMALL_FINE_TUNING,
    SMALL_LIMITS,
    SMOKE,
    SMOKE_FLAGS,
    VOCABULARY,
    Flags,
    Scale,
    Size,
    Task,
    with_limits,
)
from tokenization.errors import UserError
from tokenization.train_wordpiece import train_wordpiece

LAYOUT = (
    "expected text/ with documents (.txt, .jsonl, .parquet, also .xz and .gz; those with heldout in their name are "
    "held out), and as many as you have of: glue/MNLI and so on with the official files, squad/train-v1.1*.json and "
    "dev-v1.1*.json, conll/eng.train and eng.testa"
)
# The names of the files of a task outside GLUE: for training, for validation.
OFFICIAL_FILES = {
    "squad": ("squad/train-v1.1*.json*", "squad/dev-v1.1*.json*"),
    "conll": ("conll/eng.train*", "conll/eng.testa*"),
}


@dataclass
class PaperArguments(FlagsOfCommand):
    """Which table is made, at which scale, and where; `lab/run_paper.py --help` lists these flags.

    Attributes:
        table: The table, or Figure 5, of the paper.
        output_dir: Folder of the runs and the report. Give it again to continue an interrupted table.
        scale: builtin: this installation's documentation, minutes on two CPU cores. small: real text and tasks of
            --data_dir, hours. paper: the paper's sizes, steps and tasks.
        data_dir: For the scales small and paper: a folder with text/ and, for the tasks, glue/, squad/ and conll/.
        seeds: Number of seeds, at least 2. The first one is 42; each has its own pre-training.
        jobs: Number of runs side by side; if there are several, each has one thread. The default is 2 at the built-in
            scale and 1 otherwise.
        smoke: Try everything with a few steps of tiny networks at the built-in scale; the numbers mean nothing.
        dry_run: Print every run with its command, and start none.
    """

    table: Literal["5", "6", "7", "8", "figure5"] = flag(MISSING)
    output_dir: str = flag(MISSING)
    scale: Literal["builtin", "small", "paper"] = flag("builtin")
    data_dir: str | None = flag(None, needs=("scale small or scale paper",))
    seeds: int = flag(3, at_least=2)
    jobs: int | None = flag(None, at_least=1)
    smoke: bool = flag(False, needs=("scale builtin",))
    dry_run: bool = flag(False)

    def problems(self) -> Iterator[str]:
        """Real text and tasks that are nowhere."""
        if self.scale != "builtin" and not self.data_dir and not (self.scale == "paper" and self.dry_run):
            yield f"--scale {self.scale} needs --data_dir, a folder with text/, glue/, squad/ and conll/"


class TextFiles(NamedTuple):
    """The files of the text of pre-training; without held-out files a share of the training files is held out."""

    train: list[str]
    held_out: Sequence[str] = ()

    @property
    def flags(self) -> Flags:
        """The flags of run_pretraining.py that name them."""
        flags: Flags = {"train_file": self.train}
        return flags | {"validation_file": self.held_out} if self.held_out else flags


def scale_of(args: PaperArguments) -> Scale:
    """The scale that the flags ask for."""
    return SMOKE if args.smoke else SCALES[args.scale]


def find_tasks(args: PaperArguments, scale: Scale) -> list[Task]:
    """The tasks of the table, in the order of its columns.

    Raises:
        ValueError: there is no data of a task (at the paper's scale) or of any task (at the small scale), or a part of
            the data of a task is missing.
    """
    present, missing = [], []
    for alternatives in EXPERIMENTS[args.table].tasks[scale.data]:
        tasks = (_find_task(key, args) for key in alternatives)
        task = next((task for task in tasks if task is not None), None)
        if task is None:
            missing.append(alternatives[0])
        else:
            present.append(task)
    if missing and (scale.data == "paper" or not present):
        raise UserError(
            f"--data_dir {args.data_dir}: found no data of {', '.join(missing)}, which table {args.table} needs at the "
            f"scale {scale.name}; {LAYOUT}"
        )
    if missing:
        print(f"left out, because --data_dir {args.data_dir} has no data of it: {', '.join(missing)}", flush=True)
    return present


def find_text(args: PaperArguments) -> TextFiles:
    """The files of the text.

    Raises:
        ValueError: there is no text.
    """
    if args.scale == "builtin":
        return TextFiles([f"{DATA}/corpus.txt"])
    if args.data_dir is None:  # a dry run at the paper's scale
        return TextFiles(["text/wiki.jsonl", "text/books.jsonl"])
    folder = Path(args.data_dir).resolve() / "text"
    files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    held_out = [path for path in files if "heldout" in path.name]
    train = [path for path in files if path not in held_out]
    if not train:
        raise UserError(f"--data_dir {args.data_dir}: no text in {folder}; {LAYOUT}")
    check_files(files)
    return TextFiles([str(path) for path in train], [str(path) for path in held_out])


def checksums_of(flags_of_runs: Iterable[Flags]) -> dict[str, str]:
    """File -> SHA-256, for every file of the user's that the flags name, or table in a folder that they name."""
    named = {Path(name) for flags in flags_of_runs for name in files_in(flags)}
    files: set[Path] = set()
    for path in named:
        if path.is_absolute():  # the others are in the output folder
            files.update([path] if path.is_file() else path.rglob("*.tsv*"))
    return {str(path): sha256(path) for path in sorted(files) if path.is_file()}


def _find_task(key: str, args: PaperArguments) -> Task | None:
    """A task by its key, with the flags of its data; None if the user's folder lacks the data."""
    if key not in BUILTIN_TASKS:
        return _official_task(key, args)
    if args.smoke:
        return _smoke_task(BUILTIN_TASKS[key])
    limits = EXPERIMENTS[args.table].builtin_examples if args.scale == "builtin" else SMALL_LIMITS
    return with_limits(BUILTIN_TASKS[key], *limits)


def _smoke_task(task: Task) -> Task:
    """The task with a few steps on a few short examples."""
    task = with_limits(task, 8, 8)
    flags = task.flags | SMOKE_FLAGS | {"max_seq_length": 64}
    if task.script == "run_squad.py":
        flags |= {"max_query_length": 16, "doc_stride": 32}
    del flags["num_train_epochs"]  # --max_steps decides
    return replace(task, flags=flags)


def _official_task(key: str, args: PaperArguments) -> Task | None:
    task = OFFICIAL_TASKS[key]
    settings = PAPERS_FINE_TUNING if args.scale == "paper" else SMALL_FINE_TUNING
    data: Flags | None = {}
    if args.data_dir is not None:  # otherwise a dry run at the paper's scale
        data = _data_flags(task, Path(args.data_dir).resolve())
    if data is None:
        return None
    task = replace(task, flags=data | settings[task.script])
    if args.scale == "paper":
        return task
    train_limit, validation_limit = SMALL_LIMITS
    return with_limits(task, min(train_limit, task.train_examples), min(validation_limit, task.validation_examples))


def _data_flags(task: Task, folder: Path) -> Flags | None:
    """The flags that name the official files of a task; None if its data is missing.

    Raises:
        ValueError: the folder of a GLUE task lacks one of its files.
    """
    if task.script == "run_glue.py":
        glue_task = GLUE_TASKS[task.key]
        data_dir = folder / "glue" / glue_task.folder
        if not data_dir.is_dir():
            return None
        official_files(glue_task, data_dir, with_test=False)
        return {"task_name": task.key, "data_dir": str(data_dir)}
    train, validation = (sorted(folder.glob(pattern)) for pattern in OFFICIAL_FILES[task.key])
    if not train or not validation:
        return None
    return {"train_file": str(train[0]), "validation_file": str(validation[0])}


def prepare(folder: Path, args: PaperArguments, scale: Scale, text: TextFiles, plan: Plan) -> None:
    """Write what all runs share: the built-in files, the vocabulary, a config.json for every size.

    Raises:
        ValueError: the folder of the built-in files or that of the vocabulary was changed since it was written.
    """
    if plan.reads_builtin_files and not _is_whole(folder / DATA):
        print("writing the built-in corpus and its tasks", flush=True)
        with sealed_folder(folder / DATA) as draft:
            documentation.write_files(draft, packages=not args.smoke, joined_by_module=True)
    if not _is_whole(folder / VOCABULARY):
        print(f"learning a vocabulary of {scale.vocab_size:,} rows", flush=True)
        documents = read_documents([folder / name for name in text.train])
        lines = (line for document in islice(documents, scale.max_train_documents) for line in document)
        cased = scale.keeps_case and plan.experiment.needs_case
        with sealed_folder(folder / VOCABULARY) as draft:
            train_wordpiece(lines, scale.vocab_size, output_dir=draft, do_lower_case=not cased)
    tokenizer = AutoTokenizer.from_pretrained(folder / VOCABULARY)
    for size in plan.sizes:
        size_folder = folder / SIZES / size.name
        make_folder(size_folder)
        write_json(size_folder / "config.json", json.loads(config_of(scale, size, len(tokenizer)).to_json_string()))


def config_of(scale: Scale, size: Size, vocab_size: int) -> BertConfig:
    """The configuration of a network with new weights, for a vocabulary that begins with [PAD]."""
    return BertConfig(
        vocab_size=vocab_size,
        num_hidden_layers=size.layers,
        hidden_size=size.hidden,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        pad_token_id=0,
        **scale.network,
    )


def _is_whole(folder: Path) -> bool:
    """Whether the folder is complete; False if it does not exist. Raises ValueError if it was changed."""
    problem = damage(folder)
    if problem and folder.exists():
        raise UserError(f"{folder} was changed after the runs had begun ({problem}); give another --output_dir")
    return problem is None
