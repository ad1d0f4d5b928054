"""--teacher and --keep_layers in the scripts of fine-tuning: tests/networks/test_distillation.py has the loss."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import run_glue
import run_ner
import run_squad
from bert_training.cards.model_card import write_model_card
from bert_training.engine.errors import report_errors
from tests.helpers import short_runs
from tests.helpers.records import events, read
from tests.helpers.same_runs import check_same
from tests.helpers.script_checks import stopped_after_saving
from tests.helpers.torchrun import torchrun
from tokenization import build_tokenizer

TAUGHT = ("run_glue", *(pytest.param(script, marks=pytest.mark.slow) for script in ("run_squad", "run_ner")))
SCRIPTS = {"run_glue": run_glue, "run_squad": run_squad, "run_ner": run_ner}

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def teacher_of(tmp_path_factory, pretrained, short_data):
    """A function that gives a finished teacher for the short data of a script."""
    made: dict[str, Path] = {}

    def make(script: str) -> Path:
        if script not in made:
            made[script] = tmp_path_factory.mktemp("teachers") / script
            with pytest.MonkeyPatch.context() as patch:
                short_runs.no_pictures(patch)
                flags = short_runs.flags(script, short_data, made[script], pretrained, "--learning_rate=1e-2")
                short_runs.start(script, flags)
            sharpen(made[script])
        return made[script]

    return make


def sharpen(teacher: Path) -> None:
    """Let the predictions of a teacher that was hardly trained differ from row to row."""
    path = teacher / "model.safetensors"
    weights = load_file(path)
    stronger = {name: 5 * one for name, one in weights.items() if "embeddings" not in name and one.dim() == 2}
    heads = {name: 20 * one for name, one in weights.items() if name in ("classifier.weight", "qa_outputs.weight")}
    save_file(weights | stronger | heads, path)
    (teacher / "hashes.json").unlink()


def taught(script, data, folder, teacher, *more, model=None) -> list[float]:
    """The losses of a student's steps; it begins with the weights of its teacher unless a model is given."""
    flags = short_runs.flags(script, data, folder, model or teacher, f"--teacher={teacher}", *more)
    short_runs.start(script, flags)
    return [event["loss"] for event in events(folder, "train")]


@pytest.mark.parametrize("script", TAUGHT)
def test_a_student_that_is_its_teacher_has_nothing_to_learn_and_half_of_it_has(
    tmp_path, teacher_of, short_data, script, capsys
):
    """Without dropout, the loss of the first step is 0, which no other row and no other class would give."""
    teacher = teacher_of(script)
    losses = taught(script, short_data, tmp_path / "same", teacher, "--teacher_weight=1")
    assert losses[0] == pytest.approx(0, abs=1e-6)
    more = ("--teacher_weight=1", "--keep_layers=1")
    losses = taught(script, short_data, tmp_path / "half", teacher, *more)
    assert losses[0] > 1e-5
    assert read(tmp_path / "half", "config.json")["num_hidden_layers"] == 1
    facts = read(tmp_path / "half", "run.json")
    assert (
        facts["teacher_weights"] == facts["initial_weights"] == read(tmp_path / "same", "run.json")["initial_weights"]
    )
    event = events(tmp_path / "half", "train")[0]
    assert event["loss"] == pytest.approx(event["teacher_loss"]) and event["labels_loss"] != event["loss"]


def test_the_layers_of_the_teacher_alone_are_enough(tmp_path, teacher_of, short_data):
    """Without --model_name_or_path; the student starts as a copy of the teacher without one layer."""
    teacher = teacher_of("run_glue")
    given = short_runs.flags("run_glue", short_data, tmp_path / "run", "-", f"--teacher={teacher}", "--keep_layers=1")
    at = given.index("--model_name_or_path")
    del given[at : at + 2]
    short_runs.start("run_glue", [*given, "--learning_rate=0"])
    student, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", teacher))
    assert {name for name in student if "layer.1" in name} == set()
    for name, weights in student.items():
        assert torch.equal(weights, whole[name.replace("layer.0.", "layer.1.")]), name
    assert read(tmp_path / "run", "run.json")["flags"]["model_name_or_path"] == str(teacher)


@pytest.mark.parametrize(
    "task", ["stsb", *(pytest.param(task, marks=pytest.mark.slow) for task in ("mrpc", "several", "windows"))]
)
def test_scores_several_labels_and_windows(tmp_path, pretrained, glue_files, task):
    """The first loss of a copy of the teacher is 0."""
    rows = [("the old house", "x|y"), ("the king walked", "y"), ("the queen opened the letter", ""), ("night", "x")]
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows * 2))
    flags = {
        "several": [f"--train_file={table}", f"--validation_file={table}", "--label_separator=|"],
        "windows": [f"--train_file={table}", f"--validation_file={table}", "--long_texts=windows"],
    }.get(task, [f"--task_name={task}", f"--data_dir={glue_files / task}"])
    if task == "windows":
        table.write_text(table.read_text().replace("x|y", "x").replace(",\n", ",x\n"))
        flags.append("--max_seq_length=5")
    flags += ["--max_steps=3", "--save_steps=0", "--logging_steps=1", "--per_device_train_batch_size=4"]
    flags += ["--learning_rate=1e-2", "--max_seq_length=16"][: 1 if task == "windows" else 2]
    run_glue.main([f"--output_dir={tmp_path / 'teacher'}", f"--model_name_or_path={pretrained}", *flags])
    learn = [f"--teacher={tmp_path / 'teacher'}", f"--model_name_or_path={tmp_path / 'teacher'}"]
    run_glue.main([f"--output_dir={tmp_path / 'copy'}", *learn, "--teacher_weight=1", *flags])
    assert events(tmp_path / "copy", "train")[0]["loss"] == pytest.approx(0, abs=1e-6)
    weighted = [f"--output_dir={tmp_path / 'half'}", f"--model_name_or_path={pretrained}", *flags]
    run_glue.main([*weighted, f"--teacher={tmp_path / 'teacher'}"])
    event = events(tmp_path / "half", "train")[0]
    assert event["loss"] == pytest.approx((event["labels_loss"] + event["teacher_loss"]) / 2)


def test_resumed_with_the_same_bits(tmp_path, pretrained, teacher_of, short_data, capsys):
    """With dropout and weights of classes."""
    teacher = teacher_of("run_glue")
    model = shutil.copytree(pretrained, tmp_path / "model")
    config = read(model, "config.json") | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    more = ("--max_steps=5", "--save_steps=2", "--save_total_limit=0", "--keep_layers=0", "--learning_rate=1e-3")
    more += ("--class_weights=balanced", "--gradient_accumulation_steps=2")
    whole, broken = tmp_path / "whole" / "run", tmp_path / "broken" / "run"
    taught("run_glue", short_data, whole, teacher, *more, model=model)
    with stopped_after_saving(step=2):
        taught("run_glue", short_data, broken, teacher, *more, model=model)
    again = (*more, "--resume_from_checkpoint=auto")

    with pytest.raises(ValueError, match="keep_layers 0 -> 1"):
        taught("run_glue", short_data, broken, teacher, *again, "--keep_layers=1", model=model)
    with pytest.raises(ValueError, match=r"teacher_weight 0.5 -> 0.25"):
        taught("run_glue", short_data, broken, teacher, *again, "--teacher_weight=0.25", model=model)
    other = shutil.copytree(teacher, tmp_path / "other" / "run_glue")
    place = tmp_path / "place"
    shutil.move(teacher, place)  # another teacher under the same name
    try:
        shutil.copytree(other, teacher)
        weights = load_file(teacher / "model.safetensors")
        save_file(weights | {"classifier.bias": weights["classifier.bias"] + 1}, teacher / "model.safetensors")
        with pytest.raises(ValueError, match="belongs to a run with another teacher"):
            taught("run_glue", short_data, broken, teacher, *again, model=model)
    finally:
        shutil.rmtree(teacher)
        shutil.move(place, teacher)
    capsys.readouterr()
    taught("run_glue", short_data, broken, teacher, *again, model=model)
    check_same(whole, broken)
    taught("run_glue", short_data, broken, teacher, *again, model=model)
    assert "this run is finished" in capsys.readouterr().out
    card = (whole / "README.md").read_text(encoding="utf-8")
    digest = read(whole, "run.json")["teacher_weights"]["model.safetensors"]
    assert f"Teacher: `run_glue` (model.safetensors, SHA-256 {digest})" in card and str(teacher.parent) not in card
    assert "| `teacher_weight` | 0.5 |" in card and "| `keep_layers` | 0 |" in card
    assert write_model_card(whole, datasets=["d"], metrics={}).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_control_and_micro_batches_have_the_same_losses(tmp_path, pretrained, teacher_of, short_data, script):
    teacher, losses = teacher_of(script), []
    for number, more in enumerate(
        (["8"], ["8", "--model_impl=transformers"], ["4", "--gradient_accumulation_steps=2"])
    ):
        size = f"--per_device_train_batch_size={more[0]}"
        given = (size, *more[1:], "--max_steps=3", "--learning_rate=1e-3")
        if script != "run_squad":
            given += ("--class_weights=balanced",)
        losses.append(taught(script, short_data, tmp_path / str(number), teacher, *given, model=pretrained))
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert losses[2] == pytest.approx(losses[0], abs=1e-5)


def test_classes_in_another_order_are_matched_by_name(tmp_path, teacher_of, short_data):
    teacher = shutil.copytree(teacher_of("run_glue"), tmp_path / "teacher")
    weights, config = load_file(teacher / "model.safetensors"), read(teacher, "config.json")
    config |= {"id2label": {"0": "y", "1": "x"}, "label2id": {"y": 0, "x": 1}}
    (teacher / "config.json").write_text(json.dumps(config), encoding="utf-8")
    swapped = {name: weights[name].flip(0).contiguous() for name in ("classifier.weight", "classifier.bias")}
    save_file(weights | swapped, teacher / "model.safetensors")
    model = teacher_of("run_glue")
    losses = taught("run_glue", short_data, tmp_path / "run", teacher, "--teacher_weight=1", model=model)
    assert losses[0] == pytest.approx(0, abs=1e-6)


def edited(folder: Path, teacher: Path, **fields) -> Path:
    """A copy of a teacher with other fields in its config, which nobody has damaged."""
    shutil.copytree(teacher, folder)
    (folder / "config.json").write_text(json.dumps(read(folder, "config.json") | fields), encoding="utf-8")
    return folder


def refused(script, data, folder, model, *more, capsys) -> str:
    flags = short_runs.flags(script, data, folder, model, *map(str, more))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [script])
        try:
            status = report_errors(lambda: SCRIPTS[script].main(flags))
        except SystemExit as ended:
            status = ended.code
    assert status == 2
    assert not (folder / "run.json").exists()
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_teachers_that_do_not_fit_are_refused_in_one_line(tmp_path, pretrained, teacher_of, short_data, vocab, capsys):
    teacher, run = teacher_of("run_glue"), tmp_path / "run"

    def line(script, name, *more):
        return refused(script, short_data, run, pretrained, "--teacher", name, *more, capsys=capsys)

    wrong = edited(tmp_path / "labels", teacher, id2label={"0": "x", "1": "z"}, label2id={"x": 0, "z": 1})
    assert "classes x, z, and this data has one class a text of the classes x, y" in line("run_glue", wrong)
    more = edited(tmp_path / "more", teacher, id2label={"0": "x", "1": "y", "2": "z"}, label2id=None)
    assert "x, y, z, and this data has" in line("run_glue", more)
    several = edited(tmp_path / "several", teacher, problem_type="multi_label_classification")
    assert "it gives several labels a text" in line("run_glue", several)
    assert "got a BertForSequenceClassification" in line("run_ner", teacher)
    headless = edited(tmp_path / "headless", teacher)
    weights = load_file(headless / "model.safetensors")
    save_file({name: one for name, one in weights.items() if "classifier" not in name}, headless / "model.safetensors")
    assert "headless: expected the weights" in (found := line("run_glue", headless)) and "classifier.bias" in found
    other = edited(tmp_path / "vocabulary", teacher)
    swapped = [*vocab]
    swapped[40], swapped[41] = swapped[41], swapped[40]
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (other / name).unlink()
    build_tokenizer(swapped).save_pretrained(other)
    assert f"that id stands for {vocab[41]!r}" in line("run_glue", other)


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one(tmp_path, pretrained, teacher_of, short_data):
    teacher, losses = teacher_of("run_ner"), {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        more = (f"--teacher={teacher}", f"--per_device_train_batch_size={8 // processes}", "--class_weights=balanced")
        torchrun("run_ner.py", short_runs.flags("run_ner", short_data, folder, pretrained, *more), processes)
        losses[processes] = [event["loss"] for event in events(folder, "train")]
    assert losses[1] == pytest.approx(losses[2], abs=1e-5)
