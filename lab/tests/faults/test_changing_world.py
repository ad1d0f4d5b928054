"""Files that change while they are read: refused or survived, never mixed."""

import json
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from lab.tests.helpers.damage import copied, judge
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import run
from tests.helpers import short_runs
from tests.helpers.small_networks import small_config
from tests.helpers.squad_examples import squad_content

WEIGHTS = "run/model.safetensors"
AUTO = ("--resume_from_checkpoint", "auto")
INJECTION = "lab.tests.helpers.world_faults:"


def at_call(place: str, number: int, action: str, **arguments) -> list:
    given = {"place": place, "number": number, "action": INJECTION + action, "arguments": arguments}
    return [(f"{INJECTION}at_call", given)]


class Pretraining(NamedTuple):
    """A run that nothing disturbed, its flags and its text; the flags name paths in the current folder."""

    folder: Path
    flags: list[str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, text_file, tokenizer_folder, vocab) -> Pretraining:
    folder = tmp_path_factory.mktemp("world")
    config = small_config(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=1, hidden_dropout_prob=0.2)
    config.save_pretrained(folder / "shape")
    shutil.copytree(tokenizer_folder, folder / "tokenizer")
    shutil.copy(text_file, folder / "text.txt")
    (folder / "other.txt").write_text(text_file.read_text().replace("the", "a"))
    flags = (
        "--train_file text.txt --validation_split 0.3 --tokenizer_name tokenizer --config_name shape "
        "--max_seq_length 16 --per_device_train_batch_size 4 --max_steps 9 --learning_rate 1e-2 --logging_steps 1 "
        "--eval_steps 4 --save_steps 3 --save_total_limit 2 --output_dir run"
    ).split()
    ended = run("run_pretraining", flags, folder)
    assert ended.status == 0, ended.printed
    return Pretraining(folder, flags)


@pytest.fixture
def begun(whole, tmp_path) -> Path:
    """A folder with what the run needs, and no run yet."""
    return Path(shutil.copytree(whole.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("run")))


@faults("a world that changes", 8)
def test_text_that_changes_while_the_corpora_are_built(seed, whole, begun, record_property):
    """The change comes before a document of a shard.

    A file that is touched, or written again with its content, counts as changed.
    """
    draw = random.Random(seed)
    ways = ["appended", "truncated", "flipped", "replaced", "deleted", "touched", "written again"]
    how = ways[seed] if seed < len(ways) else draw.choice(ways)
    change = {"path": str(begun / "text.txt"), "how": how, "other": str(begun / "other.txt")}
    prepare = at_call("bert_training.pretraining.encoding:is_held_out", draw.randint(1, 56), "change_file", **change)
    before = (begun / "text.txt").stat()
    ended = run("run_pretraining", whole.flags, begun, prepare=prepare)
    assert how == "deleted" or (begun / "text.txt").stat().st_mtime_ns != before.st_mtime_ns, "nothing was changed"
    outcome = judge(ended, "text.txt", lambda: (begun / WEIGHTS).read_bytes() == (whole.folder / WEIGHTS).read_bytes())
    assert ended.status == 2, ended.printed
    if ended.status:
        assert not list((begun / "run/corpus").glob("*/shard-*")) or "validation" not in ended.printed
        shutil.copy(whole.folder / "text.txt", begun / "text.txt")
        again = run("run_pretraining", [*whole.flags, *AUTO], begun)
        assert again.status == 0, again.printed
        assert (begun / WEIGHTS).read_bytes() == (whole.folder / WEIGHTS).read_bytes()
    record_property("outcome", "refused, and nothing of it is kept" if ended.status else outcome)


@faults("a world that changes", 6)
def test_a_corpus_that_changes_while_it_is_trained_on(seed, whole, begun, record_property):
    """A corpus that is deleted or replaced stays mapped; one that is written to stops the run before the next step."""
    draw = random.Random(100 + seed)
    how, name = [
        ("deleted", ""),
        ("replaced", ""),
        *((how, "shard-00000/tokens.bin") for how in ("truncated", "flipped") * 2),
    ][seed]
    change = {"path": str(begun / "run/corpus/train" / name), "how": how, "other": str(begun / "shape")}
    prepare = at_call("bert_training.pretraining.evaluation:Progress.log", draw.randint(4, 7), "change_file", **change)
    workers = seed % 2
    flags = [*whole.flags, "--dataloader_num_workers", str(workers)]
    ended = run("run_pretraining", flags, begun, prepare=prepare)
    outcome = judge(
        ended, "tokens.bin", lambda: (begun / WEIGHTS).read_bytes() == (whole.folder / WEIGHTS).read_bytes()
    )
    if how in ("deleted", "replaced") or not workers:  # a worker may have prepared the last batches already
        assert ("harmless" in outcome) == (how in ("deleted", "replaced")), ended.printed
    if ended.status:
        shutil.rmtree(begun / "run/corpus/train")
        again = run("run_pretraining", [*flags, *AUTO], begun)
        assert again.status == 0 and "resuming from" in again.printed, again.printed
        assert (begun / WEIGHTS).read_bytes() == (whole.folder / WEIGHTS).read_bytes()
    record_property("outcome", "stopped before it read the change; resumed bit-equal" if ended.status else outcome)


@faults("a world that changes", 4)
def test_data_of_a_task_that_changes(seed, pretrained, tmp_path, record_property):
    """While it is read, between two runs of a series, and before a resume."""
    data = tmp_path / "data"
    data.mkdir()
    short_runs.write_data(data)
    (data / "run_squad.json").write_text(json.dumps(squad_content(12)))
    (data / "other").write_text((data / "run_glue.csv").read_text().replace("old", "new"))
    (data / "other.json").write_text(json.dumps(squad_content(13)))
    outcome = [
        read_twice,
        lambda *given: read_twice(*given, script="run_squad", other="other.json"),
        between_two_runs,
        before_a_resume,
    ][seed](tmp_path, data, pretrained)
    record_property("outcome", outcome)


def read_twice(folder: Path, data: Path, model: Path, script: str = "run_glue", other: str = "other") -> str:
    """The file is replaced after it was read and before it is hashed."""
    (file,) = data.glob(f"{script}.*")
    change = {"path": str(file), "how": "replaced", "other": str(data / other)}
    prepare = at_call("bert_training.inputs.rows:sha256", 1, "change_file", **change)
    ended = run(script, short_runs.flags(script, data, Path("run"), model), folder, prepare=prepare)
    assert ended.status == 2 and f"{file.name}: it was changed or replaced while it was being read" in ended.printed
    assert not (folder / "run").exists()
    return "refused, and nothing of it is kept"


def between_two_runs(folder: Path, data: Path, model: Path) -> str:
    """Both runs of the series use what was read at the start; the next start of the command refuses the new file."""
    flags = short_runs.flags("run_glue", data, Path("run"), model, "--seeds", "2")
    assert run("run_glue", flags, folder).status == 0
    undisturbed = [json.loads((folder / f"run/seed-{seed}/all_results.json").read_text()) for seed in (42, 43)]
    copied(folder / "run", folder / "kept")
    shutil.rmtree(folder / "run")
    change = {"path": str(data / "run_glue.csv"), "how": "replaced", "other": str(data / "other")}
    ended = run("run_glue", flags, folder, prepare=at_call("run_glue:start_run", 2, "change_file", **change))
    assert ended.status == 0, ended.printed
    for seed, before in zip((42, 43), undisturbed):
        now = json.loads((folder / f"run/seed-{seed}/all_results.json").read_text())
        assert now["eval_loss"] == before["eval_loss"]
        weights = f"seed-{seed}/model.safetensors"
        assert (folder / "run" / weights).read_bytes() == (folder / "kept" / weights).read_bytes()
    again = run("run_glue", flags, folder)
    assert again.status == 2 and "seed-42 holds a run that differs in the data" in again.printed, again.printed
    return "survived; the next start is refused"


def before_a_resume(folder: Path, data: Path, model: Path) -> str:
    flags = short_runs.flags("run_glue", data, Path("run"), model)
    flags[flags.index("--save_steps") + 1] = "1"
    killed = at_call("bert_training.tasks.fine_tuning:save_checkpoint", 2, "kill_this_process")
    assert run("run_glue", flags, folder, prepare=killed).status < 0
    (data / "run_glue.csv").write_bytes((data / "other").read_bytes())
    ended = run("run_glue", [*flags, *AUTO], folder)
    assert ended.status == 2 and "belongs to a run on other data" in ended.printed, ended.printed
    return "refused"
