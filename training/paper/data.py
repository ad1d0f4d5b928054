"""The data of a scale: what of it the user's folder holds, and the built-in files, the vocabulary and the sizes."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from transformers import AutoTokenizer, BertConfig

from tokenization.train_wordpiece import train_wordpiece
from training.builtin_data import documentation
from training.files.atomic import damage, sealed_folder, write_json
from training.files.hashing import sha256
from training.paper.flags import PaperArguments
from training.paper.scales import (
    BUILTIN_LIMITS,
    BUILTIN_TASKS,
    DATA,
    OFFICIAL,
    PAPERS_FINE_TUNING,
    SCALES,
    SMALL_FINE_TUNING,
    SMALL_LIMITS,
    SMOKE,
    SMOKE_FLAGS,
    Flags,
    Scale,
    Size,
    Task,
    limited,
)
from training.pretraining.documents import check_files, read_documents
from training.tasks.classification.glue import GLUE_TASKS
from training.tasks.classification.sources import official_files

VOCABULARY = "vocabulary"
LAYOUT = (
    "expected text/ with documents (.txt, .jsonl, .parquet, also .xz and .gz; those with heldout in their name are "
    "held out), and as far as they are at hand glue/MNLI and so on with the official files, squad/train-v1.1*.json and "
    "dev-v1.1*.json, conll/eng.train and eng.testa"
)


def scale_of(args: PaperArguments) -> Scale:
    """The scale that the flags ask for."""
    return SMOKE if args.smoke else SCALES[args.scale]


def find_tasks(args: PaperArguments, scale: Scale) -> list[Task]:
    """The tasks of the table, in the order of its columns.

    Raises:
        ValueError: the data of a task is missing: at the paper's scale of any, at the small scale of all.
    """
    if args.scale == "builtin":
        return [_builtin(key, args) for (key,) in scale.tasks[args.table]]
    found, missing = [], []
    for alternatives in scale.tasks[args.table]:
        tasks = [task for key in alternatives if (task := _official(key, args))]
        found += tasks[:1]
        missing += [] if tasks else [alternatives[0]]
    if missing and (scale.name == "paper" or not found):
        raise ValueError(
            f"--data_dir {args.data_dir}: found no data of {', '.join(missing)}, which table {args.table} needs at the "
            f"scale {scale.name}; {LAYOUT}"
        )
    return found


def find_text(args: PaperArguments, scale: Scale) -> Flags:
    """The flags of pre-training that name the text.

    Raises:
        ValueError: there is no text.
    """
    if args.scale == "builtin":
        return {"train_file": f"{DATA}/corpus.txt"}
    if args.data_dir is None:  # a dry run
        return {"train_file": "text/wiki.jsonl\ntext/books.jsonl"}
    folder = Path(args.data_dir).resolve() / "text"
    files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    held_out = [path for path in files if "heldout" in path.name]
    train = [path for path in files if path not in held_out]
    if not train:
        raise ValueError(f"--data_dir {args.data_dir}: no text in {folder}; {LAYOUT}")
    check_files(files)
    flags = {"train_file": "\n".join(map(str, train))}
    return flags | ({"validation_file": "\n".join(map(str, held_out))} if held_out else {})


def checksums_of(flags: Iterable[Flags]) -> dict[str, str]:
    """File -> SHA-256 of all files and folders of the user's that the flags name."""
    paths = [value for one in flags for name, value in one.items() if name.endswith(("_file", "_dir"))]
    words = {word for value in paths for word in value.splitlines()}
    named = sorted(Path(word) for word in words if Path(word).is_absolute())
    files = [path for place in named for path in ([place] if place.is_file() else sorted(place.glob("*")))]
    return {str(path): sha256(path) for path in files if path.is_file()}


def _builtin(key: str, args: PaperArguments) -> Task:
    task = BUILTIN_TASKS[key]
    if not args.smoke:
        return limited(task, *BUILTIN_LIMITS[args.table])
    task = limited(task, 8, 8)
    lengths = {"max_seq_length": "64"} | ({"max_query_length": "16", "doc_stride": "32"} if key == "qa" else {})
    flags = {name: value for name, value in task.flags.items() if name != "num_train_epochs"}
    return replace(task, flags=flags | SMOKE_FLAGS | lengths)


def _official(key: str, args: PaperArguments) -> Task | None:
    """A task of the paper on the official files; None if the user's folder lacks them."""
    if key in BUILTIN_TASKS:
        return limited(BUILTIN_TASKS[key], *SMALL_LIMITS)
    script, kind, title, metric, constant, examples, evaluated = OFFICIAL[key]
    settings = PAPERS_FINE_TUNING if args.scale == "paper" else SMALL_FINE_TUNING
    data = _files_of(key, script, Path(args.data_dir).resolve()) if args.data_dir else {}
    if data is None:
        return None
    factor = 1.0 if key == "squad" else 100.0
    flags = {**data, **settings[script]}
    task = Task(key, title, kind, script, metric, constant, flags, examples, evaluated, factor)
    return (
        task
        if args.scale == "paper"
        else limited(task, *(min(pair) for pair in zip(SMALL_LIMITS, (examples, evaluated))))
    )


def _files_of(key: str, script: str, folder: Path) -> Flags | None:
    if script == "run_glue.py":
        try:
            official_files(GLUE_TASKS[key], folder / "glue", with_test=False)
        except ValueError:
            return None
        return {"task_name": key, "data_dir": str(folder / "glue" / GLUE_TASKS[key].folder)}
    patterns = ("squad/train-v1.1*.json*", "squad/dev-v1.1*.json*")
    patterns = patterns if key == "squad" else ("conll/eng.train*", "conll/eng.testa*")
    found = [next(iter(sorted(folder.glob(pattern))), None) for pattern in patterns]
    return None if None in found else {"train_file": str(found[0]), "validation_file": str(found[1])}


def prepare(
    folder: Path, args: PaperArguments, scale: Scale, text: Flags, sizes: Iterable[Size], builtin: bool
) -> None:
    """Write what all runs share: the built-in files, the vocabulary, a config.json for every size.

    Raises:
        ValueError: one of these folders is there and was changed since it was written.
    """
    if builtin and not _whole(folder / DATA):
        print("writing the built-in corpus and its tasks", flush=True)
        with sealed_folder(folder / DATA) as draft:
            documentation.write_files(draft, packages=not args.smoke)
    if not _whole(folder / VOCABULARY):
        print(f"learning a vocabulary of {scale.vocab_size:,} pieces", flush=True)
        limit = int(scale.pretraining.get("max_train_documents", "0")) or None
        files = [folder / name for name in text["train_file"].splitlines()]
        documents = (
            document for number, document in enumerate(read_documents(files)) if limit is None or number < limit
        )
        with sealed_folder(folder / VOCABULARY) as draft:
            lines = (line for document in documents for line in document)
            train_wordpiece(lines, scale.vocab_size, output_dir=draft, do_lower_case=args.table not in scale.cased)
    tokenizer = AutoTokenizer.from_pretrained(folder / VOCABULARY)
    for size in sizes:
        place = folder / "sizes" / size.name
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / "config.json", json.loads(config_of(size, len(tokenizer)).to_json_string()))


def config_of(size: Size, vocab_size: int) -> BertConfig:
    """The configuration of a network with new weights, for a vocabulary that begins with [PAD]."""
    return BertConfig(
        vocab_size=vocab_size,
        num_hidden_layers=size.layers,
        hidden_size=size.hidden,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        pad_token_id=0,
    )


def _whole(folder: Path) -> bool:
    problem = damage(folder)
    if problem and folder.exists():
        raise ValueError(f"{folder} was changed after the runs had begun ({problem}); give another --output_dir")
    return problem is None
