"""A cache of windows on disk, addressed by content: windows that have been built once are read in a second.

A file is named by the SHA-256 of everything that its windows depend on: contexts, questions and answers, the
tokenizer with its vocabulary and rules, the lengths, the version of the tokenizers library and the code that
builds windows. If any of these changes, a new file is written. A file is never stale, and any may be deleted.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tokenizers
from transformers import PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.files.array_files import DAMAGE, load_arrays, save_arrays
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.tasks.squad import windows as windows_module
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.windows import Windows, build_windows

ARRAYS = ("question", "context_begin", "first_token", "num_tokens", "question_lengths", "start_positions",
          "end_positions")  # fmt: skip


def shared_windows(
    run: Run[SquadArguments], questions: Mapping[str, Sequence[Question]], tokenizer: PreTrainedTokenizerBase
) -> dict[str, Windows]:
    """The windows of every split; those of "train" have answers.

    The main process builds them once; other processes and later runs read them from ``--cache_dir``.
    """
    args, folder = run.args, run.args.cache_dir
    assert folder is not None  # run_squad.py fills in the default
    lengths = (args.max_seq_length, args.doc_stride, args.max_query_length)

    def of(split: str) -> Windows:
        windows, origin = cached_windows(folder, questions[split], tokenizer, *lengths, split == "train")
        run.say(f"{len(windows):,} {split} windows, {origin}")
        return windows

    return run.main_first(lambda: {split: of(split) for split in questions})


def cached_windows(
    folder: str | Path,
    questions: Sequence[Question],
    tokenizer: PreTrainedTokenizerBase,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    with_answers: bool = False,
) -> tuple[Windows, str]:
    """The result of ``build_windows``, read from ``folder`` if it contains the file.

    If it does not, or if the file is damaged, the windows are built and written to ``folder``.

    Returns:
        The windows, and how they were obtained: "read", "built", or "built again, ... was damaged".

    Raises:
        ValueError: as ``build_windows``.
        OSError: the folder cannot be written.
    """
    lengths = (max_seq_length, doc_stride, max_query_length)
    key = fingerprint(questions, tokenizer, lengths, with_answers)
    path = Path(folder) / f"windows-{key[:32]}.npz"
    origin = "built"
    if path.exists():
        try:
            return load_windows(path, key), "read"
        except DAMAGE as error:
            origin = f"built again, {path} was damaged ({error})"
    windows = build_windows(questions, tokenizer, *lengths, with_answers)
    save_windows(path, windows, key)
    return windows, origin


def fingerprint(
    questions: Sequence[Question],
    tokenizer: PreTrainedTokenizerBase,
    lengths: tuple[int, int, int],
    with_answers: bool,
) -> str:
    """The SHA-256, in hexadecimal, of everything that the result of ``build_windows`` depends on."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    for left_by_other_calls in ("truncation", "padding"):
        rules.pop(left_by_other_calls)
    digest = hashlib.sha256()
    for code in (windows_module.__file__, __file__):
        digest.update(Path(code).read_bytes())
    specials = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    for part in (tokenizers.__version__, rules, specials, lengths, with_answers):
        digest.update(json.dumps(part).encode() + b"\n")
    for question in questions:
        answer = question.answers[:1] if with_answers else ()
        digest.update(json.dumps([question.context, question.text, answer]).encode() + b"\n")
    return digest.hexdigest()


def save_windows(path: Path, windows: Windows, key: str) -> None:
    """Write windows to a file that is always complete, even if several processes write it at the same time.

    Args:
        key: the ``fingerprint`` of what they were built from.
    """
    spans = {id(offsets): offsets for offsets in windows.offsets}  # questions about one context share their spans
    numbers = {key: number for number, key in enumerate(spans)}
    columns = {name: array for name in ARRAYS if (array := getattr(windows, name)) is not None}
    columns |= {
        "input_ids": np.concatenate(windows.input_ids),
        "lengths": np.array([len(row) for row in windows.input_ids]),
        "context": np.array([numbers[id(offsets)] for offsets in windows.offsets]),
        "spans": np.concatenate(list(spans.values())),
        "span_counts": np.array([len(offsets) for offsets in spans.values()]),
    }
    save_arrays(path, key, columns)


def load_windows(path: Path, key: str) -> Windows:
    """Read what ``save_windows`` wrote.

    A damaged file raises one of ``DAMAGE``, because zip files have checksums.

    Raises:
        ValueError: the file holds windows of another ``key``, such as those of another file that was renamed.
    """
    columns = load_arrays(path, key, "the windows of other questions, tokenizer or lengths")
    begins, lengths = columns["context_begin"], columns["lengths"]
    types = np.repeat(
        np.tile(np.array([0, 1], dtype=np.int8), len(begins)), np.stack([begins, lengths - begins], 1).flat
    )
    ends, span_ends = np.cumsum(lengths), np.cumsum(columns["span_counts"])
    spans = np.split(columns["spans"], span_ends[:-1])
    return Windows(
        np.split(columns["input_ids"], ends[:-1]),
        np.split(types, ends[:-1]),
        question=columns["question"],
        context_begin=begins,
        first_token=columns["first_token"],
        num_tokens=columns["num_tokens"],
        offsets=[spans[number] for number in columns["context"]],
        question_lengths=columns["question_lengths"],
        start_positions=columns.get("start_positions"),
        end_positions=columns.get("end_positions"),
    )
