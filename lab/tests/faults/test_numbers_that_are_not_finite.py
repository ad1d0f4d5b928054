"""NaN and infinity in weights, gradients, labels and outputs: found before they reach the weights, and named."""

import random
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from lab.tests.helpers.damage import copied
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import Ended, run
from tests.helpers import short_runs

AUTO = ("--resume_from_checkpoint", "auto")
INJECTION = "lab.tests.helpers.world_faults:"
STEPS = 6


def injected(name: str, **arguments) -> tuple[str, dict]:
    return INJECTION + name, arguments


class Whole(NamedTuple):
    """Data, weights to start from, and the folder in which each script made a run that nothing disturbed."""

    data: Path
    model: Path
    folders: dict[str, Path]


def flags_of(script: str, data: Path, model: Path, *more: str) -> list[str]:
    """Six steps of two micro-batches of two, with a checkpoint after every step and no evaluation in between."""
    flags = short_runs.flags(script, data, Path("run"), model, "--gradient_accumulation_steps", "2", *more)
    changed = {"--max_steps": STEPS, "--save_steps": 1, "--per_device_train_batch_size": 2}
    for name, value in changed.items():
        flags[flags.index(name) + 1] = str(value)
    return [*flags, "--eval_steps", "100", "--save_total_limit", "2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, pretrained) -> Whole:
    place = tmp_path_factory.mktemp("whole")
    data = place / "data"
    data.mkdir()
    short_runs.write_data(data)
    rows = [f"the {word} house,{score}" for word in ("old", "new", "big", "red") for score in (0.5, 2.5, 4.5)]
    (data / "run_glue.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    folders = {}
    for script in ("run_pretraining", "run_glue", "run_squad"):
        folders[script] = place / script
        folders[script].mkdir()
        ended = run(script, flags_of(script, data, pretrained), folders[script])
        assert ended.status == 0, ended.printed
    return Whole(data, pretrained, folders)


def same_weights(one: Path, other: Path) -> bool:
    """Whether two files hold the same numbers; names that only one of them has are those of tied weights."""
    first, second = load_file(one), load_file(other)
    common = first.keys() & second.keys()
    assert len(common) > 10
    return all(torch.equal(first[name], second[name]) for name in common)


def check_end(ended: Ended, folder: Path, step: int) -> None:
    """The documented end of a run whose step is not finite; the weights are those of the step before."""
    assert max(ended.statuses, key=abs) in (1, -9) and 1 in ended.statuses, ended.printed
    assert "Traceback" not in ended.printed and f"error: step {step}: the loss is" in ended.printed, ended.printed
    assert f"the weights are still those of step {step - 1}" in ended.printed
    assert not (folder / "run/all_results.json").exists()
    newest = folder / f"run/checkpoint-{step - 1}/model.safetensors"
    assert newest.exists() == (step > 1) and not (folder / f"run/checkpoint-{step}").exists()
    assert step == 1 or same_weights(folder / "kept.safetensors", newest)


@faults("numbers that are not finite", 12)
def test_a_gradient_that_is_not_finite(seed, whole, tmp_path, record_property):
    """In one step, also of one process of two; without the fault, the run then goes on to the undisturbed result."""
    draw = random.Random(seed)
    script = ("run_pretraining", "run_glue", "run_squad")[seed % 3]
    step, value = draw.randint(1, STEPS), draw.choice([float("nan"), float("inf"), float("-inf")])
    ranks, flags = 2 if seed in (0, 4, 7) else 1, flags_of(script, whole.data, whole.model)
    if ranks == 2:
        flags[flags.index("--gradient_accumulation_steps") + 1] = "1"
    poison = injected("poison_gradients", steps=[step], value=value, rank=draw.randrange(ranks))
    keep = injected("keep_weights", path=str(tmp_path / "kept.safetensors"))
    ended = run(script, flags, tmp_path, prepare=[poison, keep], ranks=ranks, patience=5)
    check_end(ended, tmp_path, step)
    again = run(script, [*flags, *AUTO], tmp_path, ranks=ranks)
    assert set(again.statuses) == {0}, again.printed
    if ranks == 1:
        weights = "run/model.safetensors"
        assert (tmp_path / weights).read_bytes() == (whole.folders[script] / weights).read_bytes()
    record_property("outcome", "status 1; resumed bit-equal" if ranks == 1 else "status 1 on both processes; resumed")


@faults("numbers that are not finite", 4)
def test_weights_that_are_not_finite(seed, whole, tmp_path, record_property):
    """A checkpoint with such a weight is refused before the first step, and the weight is named."""
    draw = random.Random(200 + seed)
    script = ("run_pretraining", "run_glue", "run_squad", "run_glue")[seed]
    model = copied(whole.model, tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    name = draw.choice(sorted(name for name in weights if name.startswith("bert.encoder")))
    weights[name].view(-1)[draw.randrange(weights[name].numel())] = draw.choice([float("nan"), float("inf")])
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    ended = run(script, flags_of(script, whole.data, Path("model")), tmp_path)
    assert ended.status == 2 and "Traceback" not in ended.printed, ended.printed
    assert f"1 of its weights hold NaN or infinite numbers, such as {name.removeprefix('bert.')}" in ended.printed or (
        f"such as {name}," in ended.printed
    ), ended.printed
    assert not (tmp_path / "run/run.json").exists()
    record_property("outcome", "refused: the weight is named")


@faults("numbers that are not finite", 4)
def test_outputs_that_are_not_finite_in_an_evaluation(seed, whole, tmp_path, record_property):
    """No score is made of them; the rows are named, and the checkpoints stand."""
    script, network, field, rows = [
        ("run_pretraining", "BertForPreTraining", "prediction_logits", [0]),
        ("run_pretraining", "BertForPreTraining", "seq_relationship_logits", [1, 2]),
        ("run_glue", "BertForSequenceClassification", "logits", [1, 3]),
        ("run_squad", "BertForQuestionAnswering", "start_logits", [2]),
    ][seed]
    poison = injected("poison_evaluation", network=network, field=field, rows=rows)
    flags = flags_of(script, whole.data, whole.model)
    ended = run(script, flags, tmp_path, prepare=[poison])
    assert ended.status == 1 and "Traceback" not in ended.printed, ended.printed
    found = re.search(
        r"evaluation: the outputs of the network are NaN or infinite for (\d+) of (\d+) rows", ended.printed
    )
    assert found and int(found[1]) == len(rows), ended.printed
    if field == "seq_relationship_logits":
        assert "(counted from 0: 1, 2)" in ended.printed
    assert not (tmp_path / "run/all_results.json").exists()
    again = run(script, [*flags, *AUTO], tmp_path)
    assert again.status == 0, again.printed
    weights = "run/model.safetensors"
    assert (tmp_path / weights).read_bytes() == (whole.folders[script] / weights).read_bytes()
    record_property("outcome", "status 1; the rows are named; resumed bit-equal")
