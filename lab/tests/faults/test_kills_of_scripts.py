"""Fine-tunings, series and tables of the paper that are killed at random moments end like those never stopped."""

import functools
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import run
from lab.tests.helpers.kills import INJECTION, QUICK_ORPHANS, Whole, draw_kill, whole_run
from tests.helpers import short_runs
from tests.helpers.same_runs import check_same
from tests.helpers.small_networks import LEARNS_FAST, save_random_network, small_config

ENGINE = [f"bert_training.engine.{name}" for name in ("launch", "loop", "run", "batches")]
FILES = [
    "bert_training.files.atomic",
    "bert_training.files.hashing",
    "bert_training.files.processes",
    "bert_training.engine.checkpoint",
]
SCRIPTS = ["run_glue", "run_squad", "run_ner", "run_swag"]
TASKS = [
    "bert_training.tasks.fine_tuning",
    "bert_training.tasks.seeds",
    "bert_training.engine.run",
    "bert_training.tasks.task_data",
    "bert_training.tasks.teachers",
]
GROUPS = {"engine": ENGINE, "files": FILES, "script": [*SCRIPTS, *TASKS]}
EDGES = {
    "bert_training.engine.loop:_update": (2, 4, 5, 7),
    "bert_training.tasks.fine_tuning:Best.add": (1, 2, 3),
    "bert_training.tasks.fine_tuning:Best.clear": (1,),
    "bert_training.engine.checkpoint:_drop_old": (1, 2, 3),
    "bert_training.engine.run:Run.write_facts": (1,),
    "bert_training.engine.run:Run.finish": (1,),
    "os:replace": tuple(range(1, 17)),
}
# Files of a table with the output of the starts, and with times.
OF_THE_PAPER = r"cells/[\w.-]+\.log|record\.json"


class Kind(NamedTuple):
    """A script, and what is added to its flags."""

    script: str
    flags: str = ""


BEST = "--load_best_model_at_end"
KINDS = {
    "glue": Kind("run_glue", BEST),
    "squad": Kind("run_squad"),
    "ner": Kind("run_ner", BEST),
    "swag": Kind("run_swag"),
    "series of glue": Kind("run_glue", "--seeds 2"),
    "series of squad with a teacher": Kind("run_squad", "--seeds 2 --teacher {teacher}"),
}


@pytest.fixture(scope="module")
def network(tmp_path_factory, tokenizer_folder, vocab) -> Path:
    """A network with dropout."""
    shape = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=64, **LEARNS_FAST)
    return save_random_network(tmp_path_factory.mktemp("network"), tokenizer_folder, shape)


@pytest.fixture(scope="module")
def teacher(network, short_data, tmp_path_factory) -> Callable[[str], Path]:
    """A finished model of a script."""

    @functools.cache
    def make(script: str) -> Path:
        folder = tmp_path_factory.mktemp("teacher")
        ended = run(script, short_runs.flags(script, short_data, folder / "run", network), folder)
        assert ended.status == 0, ended.printed
        return folder / "run"

    return make


@pytest.fixture(scope="module")
def flags(network, short_data, teacher) -> Callable[[str], list[str]]:
    """The flags of a kind, without the output folder: 7 steps of 4 rows in epochs of 2 or 4, and evaluations."""

    def make(kind: str) -> list[str]:
        script, more = KINDS[kind]
        given = short_runs.flags(script, short_data, Path("unused"), network)
        del given[:2]  # the output folder
        more = more.format(teacher=teacher(script)) if "{" in more else more
        return [*given, *f"--max_steps 7 --save_steps 2 --eval_steps 3 --save_total_limit 1 {more}".split()]

    return make


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory) -> Callable[[str], Whole]:
    @functools.cache
    def make(kind: str) -> Whole:
        return whole_run(KINDS[kind].script, flags(kind), tmp_path_factory.mktemp("whole"), GROUPS)

    return make


@faults("kills of other scripts", 46)
def test_a_killed_fine_tuning_goes_on(seed, flags, whole, tmp_path, record_property):
    draw = random.Random(seed)
    kind = draw.choice(list(KINDS))
    (tmp_path / "drafts").mkdir()
    environment = {"TMPDIR": str(tmp_path / "drafts")}
    given = [*flags(kind), "--output_dir", tmp_path / "run", "--dataloader_num_workers", draw.choice(["0", "0", "2"])]
    resumed = [] if "series" in kind else ["--resume_from_checkpoint", "auto"]
    script, more, outcome = KINDS[kind].script, [], "killed after its end"
    for _ in range(draw.choice([1, 1, 1, 2])):
        fault, arguments = draw_kill(draw, lambda rank: whole(kind), GROUPS, EDGES, tmp_path)
        ended = run(script, [*given, *more], tmp_path, environment=environment, **arguments)
        print(f"{kind}, {fault}: {ended.statuses}, {sorted(path.name for path in (tmp_path / 'run').glob('*'))}")
        assert not ended.left_behind and not ended.timed_out, ended.printed
        assert ended.status in (0, -signal.SIGKILL), ended.printed
        outcome = "resumed" if ended.status else outcome
        more = resumed
    ended = run(script, [*given, *more], tmp_path, environment=environment)
    assert ended.status == 0, ended.printed
    check_same(whole(kind).folder, tmp_path / "run")
    assert list((tmp_path / "drafts").iterdir()) == []
    record_property("outcome", outcome)


TABLE = ["--table", "7", "--smoke", "--seeds", "2", "--jobs", "2"]
FORKED_CELLS = (f"{INJECTION}:forked_cells", {})


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    ended = run("lab.run_paper", [*TABLE, "--output_dir", "run"], folder, prepare=[FORKED_CELLS], seconds=900)
    assert ended.status == 0, ended.printed
    return Whole(folder / "run", ended.seconds, {})


@faults("kills of other scripts", 4)
def test_a_killed_table_goes_on(seed, table, tmp_path, record_property):
    """The command is killed with all its cells. (lab/tests/paper/test_run_paper.py kills one process of several.)"""
    draw = random.Random(seed)
    given = [*TABLE, "--output_dir", "run"]
    kill = (draw.uniform(0.1, 0.5) * table.seconds, signal.SIGKILL, "group")
    ended = run("lab.run_paper", given, tmp_path, prepare=[QUICK_ORPHANS, FORKED_CELLS], signals=[kill], seconds=900)
    assert ended.status in (0, -signal.SIGKILL) and not ended.left_behind, ended.printed
    record_property("outcome", "resumed" if ended.status else "killed after its end")
    ended = run("lab.run_paper", given, tmp_path, prepare=[FORKED_CELLS], seconds=900)
    assert ended.status == 0, ended.printed
    check_same(table.folder, tmp_path / "run", but=OF_THE_PAPER)
