"""run_glue.py from end to end, on small networks and files in the official layouts."""

import copy
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import BertConfig

import run_glue
from bert_training.builtin_data import documentation
from bert_training.engine.errors import report_errors
from tests.helpers.glue_runs import train
from tests.helpers.records import events, results_of_rows
from tests.helpers.repository import ROOT
from tests.helpers.script_checks import fast_paths_are_on
from tests.helpers.small_networks import save_random_network
from tests.helpers.torchrun import torchrun

EXPECTED = {
    "cola": {"eval_matthews_correlation", "eval_loss"},
    "mrpc": {"eval_accuracy", "eval_f1", "eval_loss"},
    "stsb": {"eval_pearson", "eval_spearmanr", "eval_loss"},
    "mnli": {"eval_mnli_m_accuracy", "eval_mnli_m_loss", "eval_mnli_mm_accuracy", "eval_mnli_mm_loss"},
}
ALWAYS = {"train_runtime", "train_samples_per_second", "train_steps"}

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="session")
def files(glue_files) -> Path:
    return glue_files


@pytest.fixture(scope="session")
def mnli(tmp_path_factory, tokenizer_folder, pretrained_config, files) -> Path:
    """The folder of a run on MNLI that has learnt the task.

    It begins from wide random weights, with which every seed learns; from those of ``pretrained`` half of them do.
    """
    config = copy.deepcopy(pretrained_config)
    config.initializer_range = 0.2
    wide = save_random_network(tmp_path_factory.mktemp("wide"), tokenizer_folder, config)
    folder = tmp_path_factory.mktemp("mnli") / "run"
    train(folder, wide, files, "mnli", "--max_steps=60", "--learning_rate=3e-3", "--eval_steps=100", "--do_predict")
    return folder


def refused(capsys, *argv: str) -> str:
    """The only line that a run with a user's mistake prints."""
    assert report_errors(lambda: run_glue.main(list(argv))) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert ": error: " in error
    return error


# --- The tasks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", EXPECTED)  # one for each kind of metric
def test_every_task_runs_from_end_to_end(tmp_path, pretrained, files, task, capsys):
    folder = tmp_path / "run"
    results = train(folder, pretrained, files, task, "--max_steps=1", "--do_predict")
    assert set(results) == EXPECTED[task] | ALWAYS
    scores = {name for name, value in results.items() if name in EXPECTED[task] and value is not None}
    assert results_of_rows(folder) == {name for name in scores if not name.endswith("loss")}
    assert all(value is None or math.isfinite(value) for value in results.values())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    names = list(config["id2label"].values())
    assert len(names) == {"mnli": 3, "stsb": 1}.get(task, 2)
    assert not any(name.startswith("LABEL_") for name in names)
    assert config["label2id"] == {name: number for number, name in enumerate(names)}
    assert config["problem_type"] == ("regression" if task == "stsb" else "single_label_classification")
    assert len(list(folder.glob("*.tsv"))) == (2 if task == "mnli" else 1)
    present = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "tokenizer.json", "vocab.txt", "README.md", "run.json", "metrics.jsonl"} <= present
    recorded = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    facts = recorded["data"]
    # The example of the card passes as many texts as the task has.
    single = task in ("cola", "sst2")
    assert recorded["texts_per_example"] == (1 if single else 2)
    assert ("'text_pair'" in (folder / "README.md").read_text(encoding="utf-8")) == (not single)
    assert facts["task"] == task
    assert facts["splits"]["train"]["examples"] == 24
    assert len(facts["splits"]["train"]["sha256"]) == 64
    assert "newly initialised: classifier.bias, classifier.weight" in capsys.readouterr().out


def test_mnli_is_learnt_and_its_halves_are_kept_apart(mnli):
    results = json.loads((mnli / "all_results.json").read_text(encoding="utf-8"))
    assert results["eval_mnli_m_accuracy"] == results["eval_mnli_mm_accuracy"] == 1.0
    lines = (mnli / "MNLI-mm.tsv").read_text(encoding="utf-8").splitlines()
    assert lines[:4] == ["index\tprediction", "0\tentailment", "1\tneutral", "2\tcontradiction"]


@pytest.mark.slow
def test_regression_is_learnt(tmp_path, pretrained, files):
    results = train(
        tmp_path / "run", pretrained, files, "stsb", "--max_steps=60", "--learning_rate=3e-3", "--do_predict"
    )
    assert results["eval_pearson"] > 0.9
    assert events(tmp_path / "run", "train")[0]["loss"] > 4  # The labels are 0, 2.5 and 5.
    scores = [float(line.split("\t")[1]) for line in (tmp_path / "run" / "STS-B.tsv").read_text().splitlines()[1:]]
    assert min(scores) >= 0
    assert max(scores) <= 5


def test_diagnostics_are_evaluated_with_an_mnli_model(tmp_path, mnli, files):
    results = train(tmp_path / "run", mnli, files, "ax")
    assert set(results) == {"eval_matthews_correlation", "eval_loss"} | ALWAYS
    assert results["eval_matthews_correlation"] > 0.9
    assert (tmp_path / "run" / "AX.tsv").read_text(encoding="utf-8").startswith("index\tprediction\n0\tentailment\n")


# --- Training --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["stsb", *(pytest.param(task, marks=pytest.mark.slow) for task in ("mnli", "cola"))])
def test_control_has_the_same_losses(tmp_path, pretrained, mnli, files, task):
    """Both networks take the same steps from the same checkpoint, with the same new head where it has none."""
    model = mnli if task == "mnli" else pretrained
    runs = {}
    for name in ("repro", "transformers"):
        more = ("--max_steps=4", "--per_device_train_batch_size=4", "--gradient_accumulation_steps=2")
        train(tmp_path / name, model, files, task, f"--model_impl={name}", *more)
        runs[name] = [event["loss"] for event in events(tmp_path / name, "train")]
    assert runs["repro"] == pytest.approx(runs["transformers"], abs=1e-5)
    auto_map = {name: BertConfig.from_pretrained(tmp_path / name).to_dict().get("auto_map") for name in runs}
    assert "AutoModelForSequenceClassification" in auto_map["repro"]
    assert auto_map["transformers"] is None
    whole = tmp_path / "whole"
    train(whole, model, files, task, "--max_steps=4")
    assert runs["repro"] == pytest.approx([event["loss"] for event in events(whole, "train")], abs=1e-5)


def test_the_fast_paths_are_on(pretrained, files, tmp_path, fast_paths):
    def start(folder, *more):
        train(folder, pretrained, files, "mrpc", *more)

    fast_paths_are_on(start, tmp_path, fast_paths)


def test_random_weights_and_the_built_in_task_are_the_defaults(tmp_path, tokenizer_folder, monkeypatch):
    rows = [{"sentence1": f"the {word}", "sentence2": word, "label": n % 2} for n, word in enumerate(["red", "blue"])]
    monkeypatch.setattr(documentation, "pair_examples", lambda split: rows * 8)
    folder = tmp_path / "run"
    run_glue.main([
        f"--output_dir={folder}", "--config_name=tiny", f"--tokenizer_name={tokenizer_folder}", "--max_steps=2",
        "--per_device_train_batch_size=4", "--max_train_samples=8",
    ])  # fmt: skip
    results = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    assert set(results) == {"eval_accuracy", "eval_f1", "eval_loss"} | ALWAYS
    config = BertConfig.from_pretrained(folder)
    assert (config.num_hidden_layers, config.id2label) == (2, {0: "other_body", 1: "own_body"})


# --- Mistakes --------------------------------------------------------------------------------------------


def test_model_without_a_trained_head_is_not_evaluated(tmp_path, pretrained, files, capsys):
    model = tmp_path / "model"
    shutil.copytree(pretrained, model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config |= {"id2label": {"0": "negative", "1": "positive"}, "label2id": {"negative": 0, "positive": 1}}
    config.pop("architectures")  # as in an old checkpoint
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert "newly initialised: classifier.bias, classifier.weight; without training data" in refused(
        capsys, f"--output_dir={tmp_path / 'run'}", f"--model_name_or_path={model}", "--task_name=sst2",
        f"--validation_file={files / 'sst2' / 'dev.tsv'}", "--max_seq_length=32",
    )  # fmt: skip


# --- Processes -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_take_the_same_steps_as_one(tmp_path, pretrained, files):
    losses = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        flags = [f"--output_dir={folder}", f"--model_name_or_path={pretrained}"]
        flags += ["--task_name=mnli", f"--data_dir={files / 'mnli'}", "--max_seq_length=32", "--max_steps=4"]
        flags += [f"--per_device_train_batch_size={8 // processes}", "--logging_steps=1", "--do_predict"]
        torchrun("run_glue.py", flags, processes)
        losses[processes] = [event["loss"] for event in events(folder, "train")]
    assert losses[1] == pytest.approx(losses[2], abs=1e-5)
    one, two = ((tmp_path / n / "MNLI-m.tsv").read_text(encoding="utf-8") for n in "12")
    assert one == two


@pytest.mark.slow
def test_runs_without_the_optional_packages(tmp_path, pretrained, files):
    """Container images often lack these packages. --data_dir and a user's own files must still work."""
    code = (
        "import sys\n"
        "for name in ('evaluate', 'matplotlib'): sys.modules[name] = None\n"
        "import run_glue; run_glue.main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, f"--output_dir={tmp_path / 'run'}", f"--model_name_or_path={pretrained}"]
    command += ["--task_name=stsb", f"--data_dir={files / 'stsb'}", "--max_seq_length=32", "--max_steps=1"]
    subprocess.run(command, check=True, cwd=ROOT, timeout=300)
    assert (tmp_path / "run" / "all_results.json").exists()
