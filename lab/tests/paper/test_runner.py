"""lab/paper/runner.py: on a machine with several GPUs every cell sees one of its own."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from bert_training.pretraining.corpus import Corpus
from lab.paper import runner
from lab.paper.runner import GPUS, gpus_to_share, least_used
from lab.tests.helpers.paper_plans import plan_of
from lab.tests.helpers.random_corpora import random_corpus


def write_environment(folder: str, name: str, script: str, argv: list[str], threads: int) -> None:
    """What a cell does here: it records what its process was started with."""
    seen = {variable: os.environ.get(variable) for variable in (GPUS, "OMP_NUM_THREADS")}
    Path(folder, f"{name}.json").write_text(json.dumps(seen))


def test_the_gpus_to_share(monkeypatch):
    for count, named, gpus in (
        (0, None, []),
        (1, None, []),  # The cells share it, and nothing needs to be said.
        (2, None, ["0", "1"]),
        (2, "5, 7", ["5", "7"]),
        (2, "GPU-1a,GPU-2b", ["GPU-1a", "GPU-2b"]),
        (1, "5", []),
        (0, "", []),
    ):
        monkeypatch.setattr("torch.cuda.device_count", lambda count=count: count)
        if named is None:
            monkeypatch.delenv(GPUS, raising=False)
        else:
            monkeypatch.setenv(GPUS, named)
        assert gpus_to_share() == gpus


def test_a_cell_gets_the_gpu_with_the_fewest_cells():
    assert least_used([], []) is None
    assert least_used(["0", "1"], []) == "0"
    assert least_used(["0", "1"], ["0"]) == "1"
    assert least_used(["0", "1"], ["1", "0", "0"]) == "1"


@pytest.mark.parametrize("count", [0, 2])
def test_a_process_is_started_with_its_gpu(count, monkeypatch, tmp_path):
    """It has the variable before torch is imported. Without GPUs nothing is set."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.setattr(runner, "run_cell", write_environment)
    monkeypatch.delenv(GPUS, raising=False)
    cells = plan_of("7").cells[:2]
    running: list[runner.RunningCell] = []
    with runner.threads_of(2):
        context = runner._context()
        assert context.get_start_method() == ("spawn" if count else "forkserver")
        for cell in cells:
            gpu = least_used(gpus_to_share(), [one.gpu for one in running])
            running.append(runner._start(context, tmp_path, cell, 2, gpu))
    for one in running:
        one.process.join()
        assert one.process.exitcode == 0
    assert GPUS not in os.environ
    seen = [json.loads((tmp_path / f"{cell.name}.json").read_text()) for cell in cells]
    expected = ["0", "1"] if count else [None, None]
    assert seen == [{GPUS: gpu, "OMP_NUM_THREADS": "1"} for gpu in expected]


@pytest.mark.parametrize("error", [EOFError(), ConnectionRefusedError(111, "Connection refused")])
def test_a_server_that_was_killed_ends_the_command_with_one_line(error, monkeypatch, tmp_path):
    """The server can be killed between a cell's request and its answer."""

    def start(process):
        raise error

    context = runner._context()
    monkeypatch.setattr(context.Process, "start", start)
    cell = plan_of("7").cells[0]
    with pytest.raises(ValueError, match=rf"{cell.name} could not be started \({type(error).__name__}.*same command"):
        runner._start(context, tmp_path, cell, 2, None)


@pytest.mark.parametrize("links", [True, False])
def test_later_cells_are_given_the_corpus_of_the_first(tmp_path, monkeypatch, links):
    if not links:

        def refuse(source: str, target: str) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr("os.link", refuse)
    runner.share_corpus(tmp_path, "first")
    assert not list(tmp_path.iterdir())  # There is nothing to share yet.
    random_corpus(tmp_path / "first/corpus/train")
    (tmp_path / "first/corpus/validation/shard-00000.incomplete").mkdir(parents=True)
    runner.share_corpus(tmp_path, "second")
    runner.share_corpus(tmp_path, "second")
    given = tmp_path / "second/corpus"
    assert [path.name for path in given.iterdir()] == ["train"]  # A corpus that is being built is not shared.
    tokens = "corpus/train/shard-00000/tokens.bin"
    assert (tmp_path / "second" / tokens).samefile(tmp_path / "first" / tokens) == links
    shutil.rmtree(tmp_path / "first")
    Corpus.open(given / "train")


def test_a_damaged_corpus_is_not_shared(tmp_path):
    for name in ("first", "second"):
        random_corpus(tmp_path / name / "corpus/train")
    tokens = tmp_path / "first/corpus/train/shard-00000/tokens.bin"
    tokens.write_bytes(bytes([tokens.read_bytes()[0] ^ 1]) + tokens.read_bytes()[1:])
    runner.share_corpus(tmp_path, "third")
    given = tmp_path / "third/corpus/train/shard-00000/tokens.bin"
    assert given.samefile(tmp_path / "second/corpus/train/shard-00000/tokens.bin")
    shutil.rmtree(tmp_path / "second")
    shutil.rmtree(tmp_path / "third")
    runner.share_corpus(tmp_path, "third")
    assert not given.exists()


def test_one_pretraining_builds_the_corpora_and_the_next_ones_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "is_built", Path.is_dir)
    cells = plan_of("5").cells
    first, second = [cell for cell in cells if cell.task is None][:2]
    tuning = next(cell for cell in cells if cell.task is not None)

    def must_wait(cell, beside):
        running = {beside.name: runner.RunningCell(beside, None, 0.0, None)}
        return runner._must_wait_for_corpus(tmp_path, cell, running)

    assert not must_wait(tuning, beside=first) and not must_wait(second, beside=tuning)
    for part, waits in (("train", True), ("validation", False)):
        assert must_wait(second, beside=first)
        (tmp_path / "cells" / first.name / "corpus" / part).mkdir(parents=True)
        assert must_wait(second, beside=first) == waits
