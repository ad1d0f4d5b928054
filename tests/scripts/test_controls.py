"""--layer_decay, --freeze_layers, --average_last, --lr_scheduler, --class_weights and --label_smoothing in the scripts.

tests/tasks/test_loss_weights.py and tests/engine have what each of them computes.
"""

import json
import math
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file

import run_glue
import run_ner
from bert_training.engine.errors import report_errors
from bert_training.tools.findings import DIFFERS
from tests.helpers import short_runs
from tests.helpers.finished_folders import findings_of
from tests.helpers.glue_runs import train
from tests.helpers.records import events, read
from tests.helpers.same_runs import check_same
from tests.helpers.script_checks import stopped_after_saving
from tests.helpers.torchrun import torchrun

CONTROLS = ("--layer_decay=0.5", "--freeze_layers=1", "--lr_scheduler=cosine", "--learning_rate=1e-3")
RARE = ("--class_weights=balanced", "--label_smoothing=0.1")

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    short_runs.write_data(folder)
    return folder


def is_frozen(name: str) -> bool:
    return name.startswith(("bert.embeddings.", "bert.encoder.layer.0."))


def test_all_at_once_and_resumed_with_the_same_bits(tmp_path, pretrained, glue_files, capsys):
    """The network has dropout. The checkpoint from which the run resumes holds half of the mean."""
    model = shutil.copytree(pretrained, tmp_path / "model")
    config = read(model, "config.json") | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    given = ("--average_last=2", "--eval_steps=2", "--max_steps=6", "--save_steps=2", "--save_total_limit=0")
    file = tmp_path / "weights.json"
    file.write_text('{"acceptable": 0.5, "unacceptable": 2}')
    given += (*CONTROLS, f"--class_weights={file}", "--label_smoothing=0.1", "--warmup_steps=0")
    whole, broken = tmp_path / "whole" / "run", tmp_path / "broken" / "run"
    results = train(whole, model, glue_files, "cola", *given)
    assert "frozen: the embeddings and the lowest 1 of 2 layers" in capsys.readouterr().out

    start, last = load_file(model / "model.safetensors"), load_file(whole / "model.safetensors")
    steps = [load_file(whole / f"checkpoint-{step}" / "model.safetensors") for step in (4, 6)]
    for name, weights in last.items():
        assert torch.equal(weights, start.get(name, weights)) or not is_frozen(name)
        torch.testing.assert_close(weights, (steps[0][name] + steps[1][name]) / 2)
    assert any(not torch.equal(steps[0][name], steps[1][name]) for name in last)
    state = torch.load(whole / "checkpoint-4" / "training_state.pt", weights_only=True)
    assert len(state["optimizer"]["state"]) == sum(not is_frozen(name) for name in last)
    logged = [event["learning_rate"] for event in events(whole, "train")]
    assert logged == pytest.approx([1e-3 * (1 + math.cos(math.pi * step / 6)) / 2 for step in range(6)])

    assert results["averaged_evaluations"] == 2
    assert [event["step"] for event in events(whole, "eval")] == [2, 4, 6, 6]
    assert events(whole, "eval")[-1]["eval_loss"] == results["eval_loss"] != events(whole, "eval")[-2]["eval_loss"]
    card = (whole / "README.md").read_text(encoding="utf-8")
    assert "with the mean of the weights at the last 2 evaluations" in card
    assert "in the training loss: unacceptable 2, acceptable 0.5." in card
    assert not [finding.line() for finding in findings_of(whole) if finding.verdict == DIFFERS]

    with stopped_after_saving(step=4):
        train(broken, model, glue_files, "cola", *given)
    again = (*given, "--resume_from_checkpoint=auto")
    with pytest.raises(ValueError, match=r"steps averaged \[4, 6\] -> \[5, 6\]"):
        train(broken, model, glue_files, "cola", *again, "--eval_steps=5")
    file.write_text('{"acceptable": 0.5, "unacceptable": 3}')
    with pytest.raises(ValueError, match="belongs to a run on other data"):
        train(broken, model, glue_files, "cola", *again)
    file.write_text('{"acceptable": 0.5, "unacceptable": 2}')
    train(broken, model, glue_files, "cola", *again)
    check_same(whole, broken)


@pytest.mark.parametrize("script", short_runs.SCRIPTS[1:])
def test_every_script_has_the_controls(tmp_path, pretrained, data, script):
    flags = short_runs.flags(
        script, data, tmp_path / "run", pretrained, *CONTROLS, "--average_last=2", "--eval_steps=1"
    )
    short_runs.start(script, [*flags, *(RARE if script == "run_ner" else ())])
    start, end = (load_file(folder / "model.safetensors") for folder in (pretrained, tmp_path / "run"))
    same = {name for name in start.keys() & end.keys() if torch.equal(start[name], end[name])}
    assert same == {name for name in start if is_frozen(name)}
    if script == "run_ner":
        assert read(tmp_path / "run", "run.json")["data"]["weights_of_classes"]["weights"]["O"] < 1


def test_the_control_takes_the_same_steps(tmp_path, pretrained, glue_files):
    losses = {}
    for name in ("repro", "transformers"):
        more = ("--max_steps=4", "--gradient_accumulation_steps=2", "--per_device_train_batch_size=4", *CONTROLS, *RARE)
        train(tmp_path / name, pretrained, glue_files, "cola", f"--model_impl={name}", *more)
        losses[name] = [event["loss"] for event in events(tmp_path / name, "train")]
    assert losses["repro"] == pytest.approx(losses["transformers"], abs=1e-5)


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one(tmp_path, pretrained, glue_files):
    losses = {}
    for processes in (1, 2):
        folder, size = tmp_path / str(processes), 8 // processes
        flags = [f"--output_dir={folder}", f"--model_name_or_path={pretrained}", "--task_name=cola", "--max_steps=4"]
        flags += [f"--data_dir={glue_files / 'cola'}", "--max_seq_length=32", f"--per_device_train_batch_size={size}"]
        torchrun(
            "run_glue.py",
            [*flags, "--logging_steps=1", "--eval_steps=2", "--average_last=2", *CONTROLS, *RARE],
            processes,
        )
        losses[processes] = [event["loss"] for event in events(folder, "train")] + [
            read(folder, "all_results.json")["eval_loss"]
        ]
    assert losses[1] == pytest.approx(losses[2], abs=1e-5)


def refused(capsys, main) -> str:
    """The last line of the errors of a command that ends with status 2."""
    with pytest.raises(SystemExit) as caught:
        sys.exit(report_errors(main))
    assert caught.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--freeze_layers=3"], "--freeze_layers 3: the network has 2 layers; give at most that many"),
        (["--freeze_layers=-1"], "--freeze_layers must be at least 0; got -1"),
        (["--layer_decay=1.5"], "--layer_decay must be above 0 and at most 1; got 1.5"),
        (["--average_last=1"], "--average_last must be at least 2; got 1"),
        (["--average_last=3"], "--average_last 3: the run has only 1 evaluation in 2 steps; give a smaller number"),
        (["--average_last=2", "--load_best_model_at_end"], "and --load_best_model_at_end one of them; drop one"),
        (["--label_smoothing=1"], "--label_smoothing must be at least 0 and below 1; got 1.0"),
        (
            ["--class_weights=no.json"],
            "--class_weights no.json: expected balanced, or a JSON file; there is no such file",
        ),
        (["--problem_type=regression", "--class_weights=balanced"], "--class_weights is for classes"),
        (["--train_file="], "--lr_scheduler has no effect without training data; leave it out"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path, pretrained, data, capsys, more, message):
    out = tmp_path / "run"
    flags = short_runs.flags("run_glue", data, out, pretrained, *more)
    if "--problem_type=regression" in more:
        (tmp_path / "run_glue.csv").write_text("text,label\nthe king,1\nthe queen,2\nthe house,3\n")
        flags = short_runs.flags("run_glue", tmp_path, out, pretrained, *more)
    if "--train_file=" in more:
        run_glue.main(short_runs.flags("run_glue", data, tmp_path / "made", pretrained))
        flags = [f"--output_dir={out}", f"--model_name_or_path={tmp_path / 'made'}", "--lr_scheduler=constant"]
        flags += [f"--validation_file={data / 'run_glue.csv'}"]
    assert message in refused(capsys, lambda: run_glue.main(flags))
    assert not (out / "run.json").exists()


def test_a_frozen_bert_has_no_layers_to_control(tmp_path, pretrained, data, capsys):
    flags = short_runs.flags("run_ner", data, tmp_path / "run", pretrained, "--feature_based=last", "--freeze_layers=1")
    line = refused(capsys, lambda: run_ner.main(flags))
    assert "--freeze_layers has no effect with --feature_based, which trains no layer" in line
