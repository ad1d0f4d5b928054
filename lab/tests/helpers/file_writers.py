"""The commands of this project that write files, and what must be true of these files when a command was broken off."""

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bert_training.files.atomic import damage
from bert_training.files.hashing import HASHES, hashes_of
from lab.tests.helpers.fault_runs import Ended, run
from tests.helpers import short_runs
from tests.helpers.old_checkpoints import WRITTEN

NAMES = (
    "pre-training", "run_glue", "run_squad", "series", "vectors.npz", "convert", "vocabulary", "report", "evaluation",
    "two processes", "run_paper",
)  # fmt: skip
# Names that say that something is not whole, or that a process is at work.
UNFINISHED = re.compile(r"\.(tmp|incomplete|building|lock|shares-[\w-]+)(/|$)|/progress\.json$")
TIMES = re.compile(
    r"^Started |^python run_|started|runtime|second|mfu|flops|metrics_(bytes|sha256)|checksum|command|[Cc]ommit|"
    r"resume_from_checkpoint"
)
AUTO = ("--resume_from_checkpoint", "auto")
STEPS = {"--max_steps 2": "--max_steps 4", "--save_steps 0": "--save_steps 1"}


class Writer(NamedTuple):
    """A command.

    Attributes:
        flags: its words; paths of what it writes are relative to the folder in which it is started.
        again: the words that are added when it is started again.
        earlier: makes what is in the folder before; gets the folder.
        writes: what it writes, relative to the folder: "out" or more.
        prepare: see ``run`` of lab/tests/helpers/fault_runs.py.
        ranks: the number of processes; faults come to the first.
    """

    script: str
    flags: list[str]
    again: tuple[str, ...] = ()
    earlier: Callable[[Path], object] = lambda folder: None
    prepare: tuple[tuple[str, dict], ...] = ()
    ranks: int = 1


def _training(script: str, data: Path, model: Path, *more: str) -> Writer:
    words = " ".join(short_runs.flags(script, data, Path("out"), model, *more))
    for old, new in STEPS.items():
        words = words.replace(old, new)
    return Writer(script, [*words.split(), "--save_total_limit", "1"], AUTO)


def _only_evaluation(data: Path, model: Path) -> list[str]:
    words = short_runs.flags("run_glue", data, Path("out"), model)
    at = words.index("--train_file")
    return [*words[:at], *words[at + 2 :]]


def writers(data: Path, model: Path, shape: Path, finished: Path) -> dict[str, Writer]:
    """The commands by their names.

    Args:
        data: the files of ``short_runs.write_data``.
        model: a pre-trained model.
        shape: a folder with a small config.json.
        finished: the output folder of a finished run.
    """
    text = data / "run_pretraining.txt"
    pretraining = f"--output_dir out --train_file {text} --config_name {shape} --vocab_size 60 --max_steps 4"
    pretraining += " --validation_split 0.3 --save_steps 1 --save_total_limit 1 --logging_steps 1 --eval_steps 2"
    pretraining += " --per_device_train_batch_size 4 --max_seq_length 24"
    best = ("--load_best_model_at_end", "--eval_steps", "1")
    texts = [
        "--model_name_or_path",
        str(model),
        "--input_file",
        str(text),
        "--max_seq_length",
        "24",
        "--layers",
        "-1,-2",
    ]

    def earlier(folder: Path) -> None:
        shutil.copytree(finished, folder / "finished")
        (folder / "out").mkdir()
        for name in ("report.md", "report.png"):
            (folder / "out" / name).write_text("an earlier report")

    return {
        "pre-training": Writer("run_pretraining", pretraining.split(), AUTO),
        "run_glue": _training("run_glue", data, model, "--test_file", str(data / "run_glue.csv"), *best),
        "run_squad": _training("run_squad", data, model),
        "series": _training("run_glue", data, model, "--seeds", "2"),
        "vectors.npz": Writer("extract_features", [*texts, "--output_file", "out/vectors.npz"]),
        "convert": Writer("bert_training", ["convert", str(WRITTEN / "pretrained"), "out"]),
        "vocabulary": Writer(
            "bert_training",
            ["vocabulary", "--train_file", str(text), "--vocab_size", "60", "--output_dir", "out"],
        ),
        "report": Writer("bert_training", ["report", "finished", "--output_dir", "out"], earlier=earlier),
        "evaluation": Writer("run_glue", _only_evaluation(data, finished), AUTO),
        "two processes": Writer("run_pretraining", pretraining.split(), AUTO, ranks=2),
        "run_paper": Writer(
            "lab.run_paper",
            ["--table", "5", "--smoke", "--seeds", "2", "--output_dir", "out"],
            prepare=(("lab.tests.helpers.disk_faults:finish_cells", {}),),
        ),
    }


class Unbroken(NamedTuple):
    """Two unbroken runs of a command, which differ in times only.

    Attributes:
        earlier: the files that were there before, with their content.
        moments: see ``Moments`` of lab/tests/helpers/disk_faults.py.
    """

    writer: Writer
    folders: list[Path]
    earlier: dict[str, bytes]
    moments: list[tuple[str, str, dict[str, int]]]

    def start(self, folder: Path, prepare: list[tuple[str, dict]], again: bool = False) -> Ended:
        flags = [*self.writer.flags, *(self.writer.again if again else ())]
        prepare = [*self.writer.prepare, *prepare]
        return run(self.writer.script, flags, folder, prepare=prepare, ranks=self.writer.ranks)


# --- what is in a folder ---------------------------------------------------------------------------------


def content(path: Path) -> Any:
    """The content of a file, in a form in which two runs of one command can be compared value by value.

    Of a record of hashes it is the names of the files; ``check_finished`` checks the hashes.
    """
    data = path.read_bytes()
    if path.suffix == ".json":
        read = json.loads(data)
        return sorted(read["sha256"]) if isinstance(read, dict) and read.keys() & {"sha256"} else read
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in data.decode().splitlines()]
    if path.suffix == ".pt":
        return _plain(torch.load(path, map_location="cpu", weights_only=True))
    if path.suffix == ".md":
        return [line for line in data.decode().splitlines() if not TIMES.search(line)]
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def agrees(one: Any, other: Any, third: Any) -> bool:
    """Whether ``third`` is as ``one`` and ``other``, of unbroken runs, wherever these two are equal, except for times.

    ``other`` has the flag of a resumed run. A resumed run also records its earlier starts.
    """
    if isinstance(one, dict) and isinstance(third, dict):
        known = {name: value for name, value in third.items() if name != "earlier"}
        return known.keys() == one.keys() and all(
            TIMES.search(str(name)) or agrees(one[name], other[name], known[name]) for name in one
        )
    if isinstance(one, list) and isinstance(third, list) and len(one) == len(other) == len(third):
        return all(map(agrees, one, other, third))
    return bool(third in (one, other) or (one != other and isinstance(third, float)))


def files(folder: Path) -> dict[str, Path]:
    """All files below a folder, by their names relative to it."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def folders(folder: Path) -> set[str]:
    """All folders below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir()}


def check_whole(folder: Path, earlier: dict[str, bytes], whole: list[Path]) -> None:
    """Check that every file has its earlier content or its final one, unless its name says that it is unfinished.

    Args:
        folder: what a command left that was broken off.
        earlier: the files before it, with their content.
        whole: the folders of two unbroken runs.
    """
    for name, path in files(folder).items():
        if UNFINISHED.search(name) or path.read_bytes() == earlier.get(name):
            continue
        if sealed := re.match(r"(.*/(checkpoint-(best-)?|shard-)\d+)/", name):
            assert damage(folder / sealed[1]) is None, f"{name}: {damage(folder / sealed[1])}"
        elif path.name == "metrics.jsonl":
            one, other = (content(run / name) for run in whole)
            lines = path.read_text().splitlines(keepends=True)
            known = [json.loads(line) for line in lines if line.endswith("\n")]
            assert agrees(one[: len(known)], other[: len(known)], known), f"{name} has other records"
        else:
            one, other = (content(run / name) for run in whole)
            try:
                found = content(path)
            except (ValueError, RuntimeError) as error:
                raise AssertionError(f"half of a file under its final name: {name} ({error})") from error
            assert agrees(one, other, found), f"neither the earlier content nor the final one: {name}"
    missing = [name for name in earlier if not (folder / name).exists()]
    assert not missing, f"earlier files are gone: {missing}"


def check_finished(folder: Path, whole: list[Path]) -> None:
    """Check that the folder holds the files of an unbroken run, and no others."""
    wanted = files(whole[0])
    found = files(folder)
    assert wanted.keys() == found.keys(), f"missing, or too many: {sorted(wanted.keys() ^ found.keys())}"
    assert folders(whole[0]) == folders(folder), sorted(folders(whole[0]) ^ folders(folder))
    for name, path in wanted.items():
        one, other, third = content(path), content(whole[1] / name), content(found[name])
        assert agrees(one, other, third), f"{name} differs from that of a run which was never stopped"
        if name == f"out/{HASHES}":
            hashes = json.loads(found[name].read_text())["sha256"]
            now = hashes_of(found[name].parent)
            assert hashes == now, f"{name} does not fit its folder"
        elif path.name == "manifest.json" and "checkpoint-" in name:
            assert damage(found[name].parent) is None


# --- a run that was broken off --------------------------------------------------------------------------


def draw_moment(draw: random.Random, moments: list, possible: tuple[str, ...] | None = None) -> int:
    """The number of a moment. All kinds of moments and of files are equally probable."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, (moment, path, _) in enumerate(moments):
        if possible is None or moment in possible:
            groups.setdefault((moment, re.sub(r"[0-9a-f]{32}|\d+", "#", path)), []).append(number)
    return draw.choice(draw.choice(list(groups.values())))


def draw_growth(draw: random.Random, moments: list[tuple[str, str, dict[str, int]]]) -> tuple[int, int]:
    """The first moment of a draft that gets its final name later, and a size that one of its files exceeds."""
    renamed = [
        (path[: unfinished.end(1)], max(sizes.values()))
        for moment, path, sizes in moments
        if moment == "rename" and any(sizes.values()) and (unfinished := UNFINISHED.search(path))
    ]
    draft, largest = draw.choice(renamed)
    begun = next(number for number, (_, path, _) in enumerate(moments) if path.startswith(draft))
    return begun, draw.randrange(largest)


def check_goes_on(unbroken: Unbroken, folder: Path, number: int = 0) -> str:
    """Start a command again that was broken off; return what it did.

    Args:
        number: the moment at which it was broken off, or an earlier one. A checkpoint that was complete by then, or a
            later one, must be there.
    """
    stood = {int(path.name[11:]) for path in folder.glob("out/checkpoint-*") if path.name[11:].isdigit()}
    paths = [path for moment, path, _ in unbroken.moments[:number] if moment == "rename"]
    complete = {int(found[1]) for path in paths if (found := re.fullmatch(r"out/checkpoint-(\d+)\.incomplete", path))}
    assert max(stood, default=0) >= max(complete, default=0), f"of {complete} only {stood} are left"
    finished = (folder / "out" / "all_results.json").exists()
    check_whole(folder, unbroken.earlier, unbroken.folders)
    ended = unbroken.start(folder, [], again=True)
    if ended.statuses == [2] and re.search("already holds|exists|is not an empty folder", ended.printed):
        outcome = "refused, as the files are whole"
    else:
        assert {*ended.statuses} == {0} and not ended.left_behind, ended.printed
        outcome = "started anew"
        if finished and unbroken.writer.again:
            assert "this run is finished" in ended.printed
            outcome = "had finished"
        elif stood:
            assert f"resuming from out/checkpoint-{max(stood)} " in ended.printed, (stood, ended.printed)
            outcome = "resumed from the newest checkpoint"
    check_finished(folder, unbroken.folders)
    return outcome
