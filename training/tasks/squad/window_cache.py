"""Windows kept on disk by content: what has been tokenised and cut once is read back in a second.

A file is named by the SHA-256 of everything that its windows depend on: contexts, questions and answers, the
tokenizer with its vocabulary and rules, the lengths, the version of the tokenizers library and the code that
cuts. Whatever changes, another file is made; none is ever wrong, and any may be deleted.
"""

import hashlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers

from training.files.atomic import whole_file
from training.tasks.squad import squad_data
from training.tasks.squad.squad_data import Question, Windows, build_windows

ARRAYS = ("question", "context_begin", "first_token", "num_tokens", "start_positions", "end_positions")


def shared_windows(run, questions: dict[str, Sequence[Question]], tokenizer) -> dict[str, Windows]:
    """The windows of every split, with answers for "train": made once, by the main process, then read from
    ``--cache_dir`` by the others and by later runs."""
    args = run.args
    lengths = (args.max_seq_length, args.doc_stride, args.max_query_length)

    def of(split: str) -> Windows:
        windows, origin = cached_windows(args.cache_dir, questions[split], tokenizer, *lengths, split == "train")
        run.say(f"{len(windows):,} {split} windows, {origin}")
        return windows

    return run.main_first(lambda: {split: of(split) for split in questions})


def cached_windows(
    folder: str | Path,
    questions: Sequence[Question],
    tokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    with_answers: bool = False,
) -> tuple[Windows, str]:
    """``build_windows``, from ``folder`` if it has been done before.

    Returns:
        The windows, and where they are from: "read", "built", or "built again, ... was damaged".

    Raises:
        ValueError: as ``build_windows``.
        OSError: the folder cannot be written.
    """
    lengths = (max_seq_length, doc_stride, max_query_length)
    path = Path(folder) / f"windows-{fingerprint(questions, tokenizer, lengths, with_answers)[:32]}.npz"
    origin = "built"
    if path.exists():
        try:
            return load_windows(path), "read"
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            origin = f"built again, {path} was damaged ({error})"
    windows = build_windows(questions, tokenizer, *lengths, with_answers)
    save_windows(path, windows)
    return windows, origin


def fingerprint(questions: Sequence[Question], tokenizer, lengths: tuple[int, int, int], with_answers: bool) -> str:
    """SHA-256, in hexadecimal, of all that decides what ``build_windows`` makes."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    for left_by_other_calls in ("truncation", "padding"):
        rules.pop(left_by_other_calls)
    digest = hashlib.sha256()
    for code in (squad_data.__file__, __file__):
        digest.update(Path(code).read_bytes())
    specials = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    for part in (tokenizers.__version__, rules, specials, lengths, with_answers):
        digest.update(json.dumps(part).encode() + b"\n")
    for question in questions:
        answer = question.answers[:1] if with_answers else ()
        digest.update(json.dumps([question.context, question.text, answer]).encode() + b"\n")
    return digest.hexdigest()


def save_windows(path: Path, windows: Windows) -> None:
    """Write beside the target, then rename: under its name the file is whole, whoever else writes it too."""
    spans = {id(one): one for one in windows.offsets}  # questions about one context share theirs
    number = {key: n for n, key in enumerate(spans)}
    columns = {name: array for name in ARRAYS if (array := getattr(windows, name)) is not None}
    columns |= {
        "input_ids": np.concatenate(windows.input_ids),
        "lengths": np.array([len(row) for row in windows.input_ids]),
        "context": np.array([number[id(one)] for one in windows.offsets]),
        "spans": np.concatenate(list(spans.values())),
        "span_counts": np.array([len(one) for one in spans.values()]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, shared=True) as draft, open(draft, "wb") as file:
        np.savez(file, **columns)


def load_windows(path: Path) -> Windows:
    """What ``save_windows`` wrote. Raises one of five kinds of errors if the file is damaged: zip keeps checksums."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        columns = dict(arrays)
    begins, lengths = columns["context_begin"], columns["lengths"]
    types = np.repeat(
        np.tile(np.array([0, 1], dtype=np.int8), len(begins)), np.stack([begins, lengths - begins], 1).flat
    )
    ends, span_ends = np.cumsum(lengths), np.cumsum(columns["span_counts"])
    spans = np.split(columns["spans"], span_ends[:-1])
    return Windows(
        np.split(columns["input_ids"], ends[:-1]),
        np.split(types, ends[:-1]),
        offsets=[spans[n] for n in columns["context"]],
        **{name: columns.get(name) for name in ARRAYS},
    )
