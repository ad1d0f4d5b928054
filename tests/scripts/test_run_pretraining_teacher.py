"""--teacher and --keep_layers of run_pretraining.py; tests/pretraining/test_teacher.py has the loss."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

import run_pretraining
from bert_training.engine.errors import report_errors
from bert_training.pretraining.teacher import PROJECTION
from modeling_bert_repro import BertModel
from tests.helpers.records import events, read
from tests.helpers.same_runs import check_same
from tests.helpers.small_networks import LEARNS_FAST, save_random_network, small_config
from tests.helpers.torchrun import torchrun
from tokenization import build_tokenizer

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, tokenizer_folder, vocab):
    """Four layers of 48 units, with dropout."""
    config = small_config(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=4, max_position_embeddings=32)
    return save_random_network(tmp_path_factory.mktemp("teacher"), tokenizer_folder, config)


@pytest.fixture(scope="module")
def shape(tmp_path_factory, vocab):
    folder = tmp_path_factory.mktemp("shape")
    small_config(vocab_size=len(vocab), **LEARNS_FAST).save_pretrained(folder)
    return folder


@pytest.fixture
def start(text_file, teacher, no_pictures):
    def start(folder, *more) -> list[dict]:
        flags = ["--train_file", str(text_file), "--max_train_documents", "16", "--validation_split", "0.3"]
        flags += ["--teacher", str(teacher), "--per_device_train_batch_size", "4"]
        flags += [] if "--phases" in more else ["--max_seq_length", "24"]
        flags += ["--max_steps", "4", "--learning_rate", "1e-2", "--logging_steps", "1", "--eval_steps", "0"]
        flags += ["--save_steps", "0", "--output_dir", str(folder), *map(str, more)]
        run_pretraining.main(flags)
        return events(folder, "train")

    return start


def test_a_narrower_student_is_resumed_with_the_same_bits(tmp_path, start, shape, teacher, monkeypatch, capsys):
    """Its projection is in the checkpoints and their optimiser, and not in the finished folder."""
    more = ("--config_name", shape, "--gradient_accumulation_steps", "2", "--save_steps", "2", "--save_total_limit", 0)
    whole, broken = tmp_path / "whole" / "run", tmp_path / "broken" / "run"
    logged = start(whole, *more)
    assert "hidden states: layers of student and teacher 1-2, 2-4" in capsys.readouterr().out
    for event in logged:
        terms = 0.29 * event["mlm_loss"] + 0.71 * event["teacher_loss"] + event["hidden_loss"] + event["nsp_loss"]
        assert event["loss"] == pytest.approx(terms, abs=1e-5)

    save = run_pretraining.checkpoint.save_checkpoint

    def save_then_stop(run, step, state):
        save(run, step, state)
        raise KeyboardInterrupt

    monkeypatch.setattr(run_pretraining.checkpoint, "save_checkpoint", save_then_stop)
    with pytest.raises(KeyboardInterrupt):
        start(broken, *more)
    monkeypatch.setattr(run_pretraining.checkpoint, "save_checkpoint", save)
    projected = {name for name in load_file(broken / "checkpoint-2" / "model.safetensors") if PROJECTION in name}
    assert projected == {f"{PROJECTION}.weight", f"{PROJECTION}.bias"}
    with pytest.raises(ValueError, match=r"teacher_weight 0.71 -> 0.4"):
        start(broken, *more, "--resume_from_checkpoint", "auto", "--teacher_weight", "0.4")
    start(broken, *more, "--resume_from_checkpoint", "auto")
    check_same(whole, broken, r"corpus.*")
    assert not [name for name in load_file(whole / "model.safetensors") if PROJECTION in name]
    student = AutoModelForMaskedLM.from_pretrained(whole)
    assert student.config.hidden_size == 32 and student.config.num_hidden_layers == 2
    BertModel.from_pretrained(whole / "checkpoint-4")  # the projection of a checkpoint disturbs nobody
    card = (whole / "README.md").read_text(encoding="utf-8")
    assert read(whole, "run.json")["teacher_weights"]["model.safetensors"] in card and f"`{teacher.name}`" in card
    assert "whose predictions were learnt as well: weight 0.71." in " ".join(card.split())
    start(broken, *more, "--resume_from_checkpoint", "auto")
    assert "this run is finished" in capsys.readouterr().out


def test_the_layers_of_the_teacher_are_enough_and_start_as_they_are(tmp_path, start, teacher, capsys):
    start(tmp_path / "run", "--keep_layers", "1,2", "--learning_rate", "0", "--phases", "16:0.5:4,24:0.5:4")
    student, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path / "run", teacher))
    for name, weights in student.items():
        old = name.replace("layer.1.", "layer.2.").replace("layer.0.", "layer.1.")
        assert torch.equal(weights, whole[old]), name
    assert read(tmp_path / "run", "run.json")["paired_layers"] == [[1, 2], [2, 4]]


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one(tmp_path, text_file, teacher, pretrained):
    """Rows differ in length and in their number of masks, so that a mean over means would be another loss."""
    losses = {}
    for processes in (1, 2):
        folder, size = tmp_path / str(processes), 8 // processes
        flags = ["--train_file", text_file, "--max_train_documents", 16, "--validation_split", 0.3, "--max_steps", 3]
        flags += ["--teacher", teacher, "--model_name_or_path", pretrained, "--max_seq_length", 24, "--eval_steps", 0]
        flags += ["--per_device_train_batch_size", size, "--learning_rate", 1e-3, "--logging_steps", 1]
        flags += ["--output_dir", folder, "--short_seq_prob", 0.5]
        torchrun("run_pretraining.py", flags, processes)
        names = ("loss", "mlm_loss", "teacher_loss", "hidden_loss", "nsp_loss")
        losses[processes] = [event[name] for event in events(folder, "train") for name in names]
    assert losses[1] == pytest.approx(losses[2], abs=1e-5)


def test_teachers_that_do_not_fit_are_refused_in_one_line(tmp_path, start, shape, teacher, vocab, capsys):
    def line(name, *more) -> str:
        def main():
            start(tmp_path / "run", "--config_name", shape, "--teacher", name, *more)

        try:
            status = report_errors(main)
        except SystemExit as ended:
            status = ended.code
        assert status == 2 and not (tmp_path / "run" / "run.json").exists()
        return capsys.readouterr().err.strip().splitlines()[-1]

    other = shutil.copytree(teacher, tmp_path / "other")
    swapped = [*vocab]
    swapped[40], swapped[41] = swapped[41], swapped[40]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (other / name).unlink()
    build_tokenizer(swapped).save_pretrained(other)
    given = ("--tokenizer_name", teacher)
    assert f"has the id 40, but for the weights of {other} that id stands for {vocab[41]!r}" in line(other, *given)
    assert "'s maximum of 32; give --max_seq_length 32" in (found := line(teacher, "--max_seq_length", "48"))
    assert "--teacher" in found
    assert "attends in both directions" in line(teacher, "--objective", "ltr")
    headless = shutil.copytree(teacher, tmp_path / "headless")
    weights = load_file(headless / "model.safetensors")
    save_file({name: one for name, one in weights.items() if "cls." not in name}, headless / "model.safetensors")
    assert "headless: expected the weights of" in (found := line(headless)) and "cls.predictions" in found
