"""A damaged checkpoint is found and named; an older one, or none, gives the bits of a run that was never stopped."""

import random
from pathlib import Path

import pytest

from lab.tests.helpers.damage import KINDS, copied, damage, judge
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import run
from tests.helpers.short_runs import flags as short_flags
from tests.helpers.small_networks import small_config

FILES = ("config.json", "model.safetensors", "training_state.pt", "manifest.json", "generation_config.json")
KILL = "lab.tests.helpers.world_faults:kill_this_process"
WEIGHTS = "run/model.safetensors"


def killed_at(place: str, number: int) -> list:
    return [("lab.tests.helpers.world_faults:at_call", {"place": place, "number": number, "action": KILL})]


@pytest.fixture(scope="module")
def flags(tmp_path_factory, text_file, tokenizer_folder, vocab) -> list[str]:
    shape = tmp_path_factory.mktemp("shape")
    config = small_config(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=1, hidden_dropout_prob=0.2)
    config.save_pretrained(shape)
    return (
        f"--train_file {text_file} --max_train_documents 16 --validation_split 0.3 --tokenizer_name {tokenizer_folder} "
        f"--config_name {shape} --max_seq_length 16 --per_device_train_batch_size 4 --max_steps 9 --learning_rate 1e-2 "
        "--logging_steps 1 --eval_steps 4 --save_steps 3 --save_total_limit 2 --output_dir run"
    ).split()


@pytest.fixture(scope="module")
def whole(flags, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    ended = run("run_pretraining", flags, folder)
    assert ended.status == 0, ended.printed
    return folder


@pytest.fixture(scope="module")
def stopped(flags, tmp_path_factory) -> Path:
    """A run that was killed in step 8, with the checkpoints of steps 3 and 6."""
    folder = tmp_path_factory.mktemp("stopped")
    ended = run(
        "run_pretraining", flags, folder, prepare=killed_at("bert_training.pretraining.evaluation:Progress.log", 8)
    )
    assert ended.status < 0
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def damaged_file(draw: random.Random, folder: Path, step: int) -> str:
    """Damage a file of the checkpoint; returns its name."""
    name = draw.choice([name for name in FILES if (folder / f"run/checkpoint-{step}" / name).is_file()])
    other = folder / f"run/checkpoint-{9 - step}" / name
    damage(folder / f"run/checkpoint-{step}" / name, draw.choice(KINDS), draw, other)
    return name


@faults("damaged files", 45)
def test_the_newest_undamaged_checkpoint_is_used(seed, flags, whole, stopped, tmp_path, record_property):
    draw = random.Random(seed)
    folder = copied(stopped, tmp_path / "copy")
    damaged_file(draw, folder, 6)
    both = draw.random() < 0.3
    if both:
        damaged_file(draw, folder, 3)
    ended = run("run_pretraining", [*flags, "--resume_from_checkpoint", "auto"], folder)
    assert ended.status == 0, ended.printed
    same = (folder / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    outcome = judge(ended, "checkpoint-6", lambda: same)
    assert same, "the damage was found, but the results differ"
    passed_over = "ignoring checkpoint-3" if both else "resuming from run/checkpoint-3"
    assert "harmless" in outcome or passed_over in ended.printed or "no such folder" in ended.printed
    record_property("outcome", outcome if "harmless" in outcome else "an earlier checkpoint was used, bit-equal")


@faults("damaged files", 15)
def test_a_damaged_checkpoint_that_is_named_is_refused(seed, flags, whole, stopped, tmp_path, record_property):
    draw = random.Random(1000 + seed)
    folder = copied(stopped, tmp_path / "copy")
    name = damaged_file(draw, folder, 6)
    before = contents(folder)
    ended = run("run_pretraining", [*flags, "--resume_from_checkpoint", "run/checkpoint-6"], folder)
    outcome = judge(ended, "checkpoint-6", lambda: (folder / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes())
    if ended.status:
        assert name in ended.printed and contents(folder) == before
    record_property("outcome", outcome)


@faults("damaged files", 30)
def test_records_and_corpus_of_a_run_that_resumes(seed, flags, whole, stopped, tmp_path, record_property):
    """Records that are not needed are named, or not read; a corpus that is damaged is never trained on."""
    draw = random.Random(2000 + seed)
    folder = copied(stopped, tmp_path / "copy")
    corpora = [path for path in (folder / "run/corpus").rglob("*") if path.is_file()]
    records = [folder / "run" / name for name in ("metrics.jsonl", "run.json", "tokenizer.json", "vocab.txt")]
    path = draw.choice(draw.choice([corpora, records]))
    side = "validation" if path.parent.name == "train" else "train"
    other = path.parents[1] / side / path.name if path in corpora else whole / "run" / path.name
    damage(path, draw.choice(KINDS), draw, other)
    ended = run("run_pretraining", [*flags, "--resume_from_checkpoint", "auto"], folder)
    names = [path.name, f"run/corpus/{path.parent.name}"] if path in corpora else path.name
    same = lambda: (folder / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()  # noqa: E731
    outcome = judge(ended, names, same)
    assert ended.status or same(), "a record was damaged, and the weights differ"
    record_property("outcome", outcome)


@pytest.fixture(scope="module")
def tuning(tmp_path_factory, short_data, pretrained) -> tuple[list[str], Path, Path]:
    """Flags of a fine-tuning that keeps its best weights; the folder of a whole run, and that of a killed one."""
    flags = short_flags("run_glue", short_data, "run", pretrained, "--load_best_model_at_end", "--eval_steps", "1")
    flags[flags.index("--max_steps") + 1], flags[flags.index("--save_steps") + 1] = "6", "2"
    folders = [tmp_path_factory.mktemp(name) for name in ("whole", "killed")]
    assert run("run_glue", flags, folders[0]).status == 0
    killed = killed_at("bert_training.tasks.fine_tuning:save_checkpoint", 3)
    assert run("run_glue", flags, folders[1], prepare=killed).status < 0
    return flags, *folders


@faults("damaged files", 20)
def test_a_fine_tuning_that_keeps_its_best_weights(seed, tuning, tmp_path, record_property):
    """The weights of the best evaluation are checked like a checkpoint; metrics.jsonl says which evaluation it was."""
    draw = random.Random(3000 + seed)
    flags, whole, killed = tuning
    folder = copied(killed, tmp_path / "copy")
    best = sorted((folder / "run").glob("checkpoint-best-*"))[-1]
    files = [best / name for name in ("model.safetensors", "config.json", "manifest.json")]
    files += [folder / "run/metrics.jsonl", folder / "run/checkpoint-4/training_state.pt"]
    path = draw.choice(files)
    damage(path, draw.choice(KINDS), draw, whole / "run" / path.name if (whole / "run" / path.name).is_file() else None)
    ended = run("run_glue", [*flags, "--resume_from_checkpoint", "auto"], folder)
    same = lambda: (folder / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()  # noqa: E731
    outcome = judge(ended, path.parent.name if "checkpoint" in path.parent.name else path.name, same)
    record_property("outcome", outcome)
