"""The examples that show the model run without changes."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from bert_tools import report
from bert_training.inputs.flags.objectives import OBJECTIVES
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from bert_training.pretraining.segments import PLANNERS
from modeling_bert_repro import BertForMaskedLM
from tests.bert_deploy.finished_folders import findings_of
from tests.helpers.records import events, read
from tests.helpers.repository import ROOT
from tests.helpers.small_networks import save_random_network, small_config

EXAMPLES = ROOT / "examples"


@pytest.fixture
def folder(tmp_path, tokenizer_folder, vocab) -> Path:
    """A folder like those of `run_pretraining.py`, with a small network that was not trained."""
    config = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=128)
    return save_random_network(tmp_path / "model", tokenizer_folder, config)


def run_example(name: str, *arguments, monkeypatch, capsys) -> str:
    assert len((EXAMPLES / name).read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_the_folder_opens_in_three_ways(folder, tmp_path, monkeypatch, capsys):
    output = run_example("load_anywhere.py", folder, monkeypatch=monkeypatch, capsys=capsys)
    lines = [line for line in output.splitlines() if "largest difference" in line]
    modules = ["transformers.models.bert", "transformers_modules.", "modeling_bert_repro."]
    assert len(lines) == 3
    for line, module in zip(lines, modules):
        assert module in line
        assert float(re.search(r"difference (\S+)", line).group(1)) < 1e-5


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")  # transformers pins memory even without CUDA.
def test_transformers_trainer_trains_the_model(folder, tmp_path, monkeypatch, capsys):
    output = run_example("transformers_trainer.py", folder, tmp_path / "new", monkeypatch=monkeypatch, capsys=capsys)
    assert output.count("'loss'") == 4
    before = BertForMaskedLM.from_pretrained(folder)
    after = BertForMaskedLM.from_pretrained(tmp_path / "new")
    assert not torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)
    assert (tmp_path / "new" / "heads.py").exists()


def test_the_toy_objective_trains_a_model(
    tmp_path, text_file, tokenizer_folder, network_shape, monkeypatch, capsys, no_pictures
):
    """A row added from outside reaches the flags, the instances, the records, the results and the card."""
    monkeypatch.setitem(OBJECTIVES, "mlm_half", None)  # The example sets both rows; they are removed after the test.
    monkeypatch.setitem(PLANNERS, "halves", None)
    folder = tmp_path / "toy"
    flags = {"output_dir": folder, "train_file": text_file, "tokenizer_name": tokenizer_folder}
    flags |= {"config_name": network_shape, "max_seq_length": 32, "max_steps": 3, "validation_split": 0.2}
    flags |= {"per_device_train_batch_size": 8, "logging_steps": 1}
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    output = run_example("toy_objective.py", *words, monkeypatch=monkeypatch, capsys=capsys)
    results = read(folder, "all_results.json")
    assert 0 <= results["eval_half_accuracy"] <= 1 and results["eval_half_loss"] > 0
    assert f"eval_half_accuracy {results['eval_half_accuracy']:.4f}" in output
    assert all(event["half_loss"] > 0 for event in events(folder, "train"))
    assert "whether two halves belong together" in (folder / "README.md").read_text()
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    corpus = Corpus.open(folder / "corpus" / "train", tokenizer)
    settings = InstanceSettings(seed=1, max_seq_length=32, objective="mlm_half")
    plan = PretrainingInstances(corpus, tokenizer, settings).plan(0)
    follows = plan.b_start == plan.a_start + plan.a_length
    assert (follows == (plan.label == 0)).all() and plan.label.mean() == pytest.approx(0.5, abs=0.01)
    assert (plan.a_length + plan.b_length).max() <= settings.capacity


@pytest.mark.slow
def test_the_toy_task_trains_a_model(tmp_path, pretrained, monkeypatch, capsys, no_pictures):
    """A row added from outside reaches the record, the card, the report and the checks, which start its own script."""
    monkeypatch.setitem(SCRIPTS, "toy_task.py", None)  # The example sets the row; it is removed after the test.
    folder = tmp_path / "toy"
    short, long = "the king walked\n", "the king walked to the old house by the river .\n"
    (tmp_path / "lines.txt").write_text(9 * short + 7 * long)
    flags = {"output_dir": folder, "model_name_or_path": pretrained, "max_seq_length": 24, "max_steps": 3}
    flags |= {f"{split}_file": tmp_path / "lines.txt" for split in ("train", "validation")}
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    run_example("toy_task.py", *words, monkeypatch=monkeypatch, capsys=capsys)
    assert read(folder, "run.json")["script"] == "toy_task.py"
    assert read(folder, "all_results.json")["eval_accuracy"] in [count / 16 for count in range(17)]
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == {0: "short", 1: "long"} and model.config.fine_tuning["script"] == "toy_task.py"
    assert "that tells long lines from short ones, fine-tuned" in (folder / "README.md").read_text()
    assert "| length | accuracy, 16 rows |" in report.tables(report.read_finished_runs(folder))
    lines = [finding.line() for finding in findings_of(folder, evaluate=True)]
    assert not [line for line in lines if line.startswith("differs")]
    assert "computed again by toy_task.py" in "".join(lines)
