"""Run the cells of a plan: several side by side, each in a process of its own, in the order of what they need.

A server process imports the scripts once and forks a child for every cell, which saves each of them the seconds of
importing torch. On a machine with GPUs every cell is a process of its own instead, because a forked process cannot use
a GPU that its parent has looked for; if there are several GPUs, each cell sees one of them. The child does what
``python SCRIPT FLAGS`` in the output folder would do; its output is in ``cells/NAME.log``.

All pre-trainings of a table read the same text with the same vocabulary, so only the first one encodes it, while the
others wait; then they are given its corpus.

A cell that was interrupted goes on from its checkpoint, because its command says ``--resume_from_checkpoint auto``.
On SIGTERM or Ctrl-C all cells save a checkpoint, and the command ends with status 75. If the command itself was killed,
its cells may still be running when it is given again: a child first waits for the lock of its cell's output folder.
"""

import contextlib
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bert_training.engine.errors import report_errors
from bert_training.engine.run import lock_output_dir
from bert_training.files.atomic import make_folder, new_folder, open_own
from bert_training.files.processes import STOPPED, StopSignals
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.corpus import is_finished as is_built
from lab.paper.plan import Cell, Plan
from lab.paper.record import check_finished_cells, is_finished
from lab.paper.scales import CELLS
from tokenization.errors import UserError

GPUS = "CUDA_VISIBLE_DEVICES"  # the names of the GPUs that a process sees
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class RunningCell(NamedTuple):
    """A cell and its process.

    Attributes:
        process: one of multiprocessing's, whose classes have no common public name.
        started: that of ``time.time()``.
        gpu: the name of the only GPU that the process sees; None if it sees all.
    """

    cell: Cell
    process: Any
    started: float
    gpu: str | None


def run_cells(folder: Path, plan: Plan, jobs: int) -> None:
    """Run all cells that are not finished.

    Args:
        jobs: the largest number of cells that run side by side.

    Raises:
        ValueError: a cell that was finished before is not the run that the plan asks for; or a cell failed, and the
            others that were running have been stopped with a checkpoint.
        SystemExit: a signal asked to stop; all cells have saved a checkpoint.
    """
    check_finished_cells(folder, plan)
    waiting = {cell.name: cell for cell in plan.cells if not is_finished(folder, cell)}
    running: dict[str, RunningCell] = {}
    make_folder(folder / CELLS)
    with threads_of(jobs), StopSignals() as signals:
        gpus = gpus_to_share()
        context = _context()
        try:
            while (waiting or running) and not signals.asked:
                for cell in list(waiting.values()):
                    unfinished = {*waiting, *running}
                    ready = unfinished.isdisjoint(cell.needs) and not _must_wait_for_corpus(folder, cell, running)
                    if len(running) < jobs and ready:
                        gpu = least_used(gpus, [one.gpu for one in running.values()])
                        running[cell.name] = _start(context, folder, waiting.pop(cell.name), jobs, gpu)
                wait([one.process.sentinel for one in running.values()], timeout=1)
                ended = [one for one in running.values() if one.process.exitcode is not None]
                if signals.asked:
                    break
                for one in ended:
                    del running[one.cell.name]
                    _check_end(folder, one.cell, one.process.exitcode)
                    done = len(plan.cells) - len(waiting) - len(running)
                    seconds = time.time() - one.started
                    print(f"{done} of {len(plan.cells)}: {one.cell.name}, {seconds:.0f} s", flush=True)
        finally:
            _stop(list(running.values()))
        if signals.asked:
            print("stopped; give the same command again to continue", flush=True)
            raise SystemExit(STOPPED)
    check_finished_cells(folder, plan)


def run_cell(folder: str, name: str, script: str, argv: list[str], threads: int) -> None:
    """What a child process does: run a script in the output folder, and end with its status.

    Args:
        folder: the output folder.
        name: the name of the cell.
        argv: the words after the name of the script.
        threads: the number of threads for computing; 0 leaves it to torch.
    """
    os.chdir(folder)
    with open_own(Path(CELLS, f"{name}.log"), "ab") as log:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        # This waits for a process that an earlier lab/run_paper.py has left behind.
        lock_output_dir(f"{CELLS}/{name}", wait=True)
        if threads:
            torch.set_num_threads(threads)
        if script == "run_pretraining.py":
            share_corpus(Path(CELLS), name)
        sys.argv = [script, *argv]
        sys.exit(report_errors(importlib.import_module(script.removesuffix(".py")).main))


def _must_wait_for_corpus(folder: Path, cell: Cell, running: Mapping[str, RunningCell]) -> bool:
    """Whether another pre-training is about to build the corpora that this one needs, too."""
    if cell.task is not None or all(one.cell.task is not None for one in running.values()):
        return False
    return not any(map(is_built, (folder / CELLS).glob("*/corpus/validation")))  # the second of the two


def share_corpus(cells: Path, name: str) -> None:
    """Give the corpora that another cell has built to a cell that has none, as hard links or as copies.

    Damaged corpora are not shared, and the script compares text and vocabulary with them before it uses them. A link
    keeps its file when the other cell is deleted, and nothing writes into a finished corpus.

    Args:
        cells: the folder of all cells.
        name: the name of the cell.
    """
    for part in ("train", "validation"):
        own = cells / name / "corpus" / part
        if own.exists():
            continue
        built = next((path for path in sorted(cells.glob(f"*/corpus/{part}")) if _is_undamaged(path)), None)
        if built is None:
            continue
        make_folder(own.parent)
        with new_folder(own) as draft:
            shutil.copytree(built, draft, copy_function=_link, dirs_exist_ok=True)


def _is_undamaged(corpus: Path) -> bool:
    """Whether another cell may be given the corpus."""
    try:
        Corpus.open(corpus)
    except ValueError:
        return False
    return True


def _link(source: str, target: str) -> None:
    """Make ``target`` a hard link to the file ``source``, or a copy where the file system has no such links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextlib.contextmanager
def threads_of(jobs: int) -> Iterator[None]:
    """A context in which new processes compute in one thread if several of them are to run side by side."""
    with environment(dict.fromkeys(THREADS, "1") if jobs > 1 else {}):
        yield


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """A context in which these environment variables have these values."""
    earlier = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in earlier.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def gpus_to_share() -> list[str]:
    """The names of the GPUs that this process sees, as CUDA_VISIBLE_DEVICES has them; [] if there are not several."""
    count = torch.cuda.device_count()
    named = os.environ.get(GPUS)
    names = [name.strip() for name in named.split(",")] if named else [str(number) for number in range(count)]
    return names[:count] if count > 1 else []


def least_used(gpus: list[str], in_use: list[str | None]) -> str | None:
    """The GPU on which the fewest cells run, the first of several; None if there are no GPUs to share."""
    return min(gpus, key=in_use.count, default=None)


def _context() -> Any:
    """multiprocessing with new processes on a machine with GPUs, and elsewhere with a server that forks.

    The server has imported the scripts; it starts with the first child.
    """
    if torch.cuda.device_count():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["run_pretraining", "run_glue", "run_squad", "run_ner", "lab.paper.runner"])
    return context


def _start(context: Any, folder: Path, cell: Cell, jobs: int, gpu: str | None) -> RunningCell:
    print(f"--- {cell.name}", flush=True)
    arguments = (str(folder), cell.name, cell.script, cell.command, 1 if jobs > 1 else 0)
    process = context.Process(target=run_cell, args=arguments, name=cell.name)
    with environment({} if gpu is None else {GPUS: gpu}):  # a new process has it before it imports torch
        try:
            process.start()
        except (OSError, EOFError) as error:  # EOFError: the server has ended before it told the number of the child
            raise UserError(
                f"{cell.name} could not be started ({type(error).__name__}: {error}); give the same command again"
            ) from error
    return RunningCell(cell, process, time.time(), gpu)


def _check_end(folder: Path, cell: Cell, status: int) -> None:
    """Raise ValueError with the last line of its log unless the cell, whose process has ended, is finished."""
    if status == 0 and is_finished(folder, cell):
        return
    log = folder / CELLS / f"{cell.name}.log"
    lines = _end_of(log).strip().splitlines() if log.is_file() else []
    raise UserError(
        f"{cell.name} ended with status {status}: {lines[-1] if lines else 'it wrote nothing'} (the whole output is in "
        f"{log}); give the same command again to repeat it"
    )


def _end_of(log: Path, size: int = 1 << 16) -> str:
    """The last ``size`` bytes of a file, as text."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - size))
        return file.read(size).decode(errors="replace")


def _stop(running: list[RunningCell]) -> None:
    """End the processes; those that train save a checkpoint first."""
    for one in running:
        if one.process.exitcode is None:  # the number of a process that has ended may belong to another one
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.process.pid, signal.SIGTERM)
    for one in running:
        one.process.join()
