"""Series of runs: their statistics are those worked by hand, and run_glue.py makes them from end to end."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import run_glue
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks import seeds, statistics
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.task_data import metric_of
from tests.helpers.glue_runs import train
from tests.helpers.records import write_summary
from tests.helpers.torchrun import torchrun

BATCH = "--per_device_train_batch_size=32"
QUICK = ("--max_steps=2", "--learning_rate=1e-3")

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def counted(monkeypatch) -> list[str]:
    """The folders of the runs that were really made."""
    done: list[str] = []
    start_run = run_glue.start_run

    def counting(args):
        done.append(Path(args.output_dir).name)
        return start_run(args)

    monkeypatch.setattr(run_glue, "start_run", counting)
    return done


def run(folder: Path, model: Path, files: Path, task: str, *more: str) -> dict:
    flags = [f"--output_dir={folder}", f"--model_name_or_path={model}", f"--task_name={task}"]
    flags += [f"--data_dir={files / task}", "--max_seq_length=32", "--save_steps=0"]
    run_glue.main([*flags, *more])
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


# --- The statistics --------------------------------------------------------------------------------------


def test_statistics_worked_by_hand():
    found = statistics.statistics([0.5, 0.7, 0.9, None, 0.4], constant=0.5)
    interval = found.pop("interval")
    expected = {"n": 5, "mean": 0.5, "median": 0.5, "max": 0.9, "degenerate": 0.6, "undefined": 1}
    expected["std"] = math.sqrt((0.04 + 0.16 + 0.25 + 0.01) / 4)  # The deviations are 0, 0.2, 0.4, -0.5 and -0.1.
    assert found == pytest.approx(expected, abs=1e-12)
    half = 2.7764451 * math.sqrt(0.46 / 4 / 5)  # The quantile of 97.5 % with 4 degrees of freedom is from a table.
    assert interval == pytest.approx([0.5 - half, 0.5 + half], abs=1e-7)
    one = statistics.statistics([0.8], constant=0.5)
    assert (one["n"], one["mean"], one["std"], one["interval"], one["degenerate"]) == (1, 0.8, None, None, 0.0)


def test_significance_tests_worked_by_hand():
    for (wins, losses), expected in {(5, 0): 2 / 32, (0, 5): 2 / 32, (3, 2): 1, (0, 0): 1, (7, 1): 18 / 256}.items():
        assert statistics.sign_test(wins, losses) == pytest.approx(expected, abs=1e-12)
    ours, theirs = (0.4, 0.7, 0.9), (0.3, 0.5, 0.6)  # The differences are 0.1, 0.2 and 0.3, so that t = sqrt(12).
    runs = [[{"seed": i, "results": {"m": v}} for i, v in enumerate(values)] for values in (ours, theirs)]
    found = statistics.compare(*runs, ["m"])["m"]
    # With two degrees of freedom, the distribution has a closed form, and its quantile is from a table.
    assert found["t_test_p"] == pytest.approx(1 - math.sqrt(12) / math.sqrt(2 + 12), abs=1e-12)
    half = 4.3026527 * 0.1 / math.sqrt(3)
    assert found["interval"] == pytest.approx([0.2 - half, 0.2 + half], abs=1e-7)


def test_values_without_spread_have_no_test():
    assert statistics.mean_interval([0.1]) is None and statistics.t_test([0.1]) is None
    assert statistics.t_test([0.1, 0.1]) is None and statistics.mean_interval([0.5, 0.5]) == [0.5, 0.5]
    assert statistics.t_test([0.9 - 0.8, 0.8 - 0.7]) < 1e-10  # They differ by rounding, of which nobody is warned.


def test_runs_are_paired_by_seed():
    def runs(*keys):
        return [{"seed": seed, "learning_rate": rate, "results": {"m": value}} for seed, rate, value in keys]

    ours = runs((1, 1e-3, 0.5), (2, 1e-3, 0.7), (3, 1e-3, 0.4), (9, 1e-3, 9.0))
    theirs = runs((3, 2e-3, 0.4), (1, 2e-3, 0.3), (2, 2e-3, 0.8))
    found = statistics.compare(ours, theirs, ["m"])
    assert found["pairs"] == 3
    assert found["m"]["mean_difference"] == pytest.approx(0.1 / 3, abs=1e-12)  # The differences are 0.2, -0.1 and 0.
    assert (found["m"]["wins"], found["m"]["losses"], found["m"]["sign_test_p"]) == (1, 1, 1.0)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("cola", {"eval_matthews_correlation": 0.0}),
        ("sst2", {"eval_accuracy": 0.8}),
        ("mrpc", {"eval_accuracy": 0.8, "eval_f1": 2 * 0.8 / 1.8}),
        ("stsb", {"eval_pearson": 0.0, "eval_spearmanr": 0.0}),
        ("mnli", {"eval_mnli_m_accuracy": 0.8, "eval_mnli_mm_accuracy": 0.8}),
    ],
)
def test_the_score_of_a_constant_answer(glue_files, task, expected):
    data = load_data(parse_arguments(GlueArguments, [
        "--output_dir=x", "--model_name_or_path=y", f"--task_name={task}", f"--data_dir={glue_files / task}",
    ]))  # fmt: skip
    for split, examples in data.splits.items():
        if split.startswith("validation") and task != "stsb":
            examples.labels = ([1] * 4 + [0]) * 4
    assert data.baselines() == pytest.approx(expected, abs=1e-12)


# --- The command -----------------------------------------------------------------------------------------


def test_seeds_are_the_runs_that_each_would_be_alone(tmp_path, pretrained, glue_files, capsys):
    summary = run(tmp_path / "all", pretrained, glue_files, "mrpc", "--seeds=2", "--seed=7", *QUICK)
    assert [(r["folder"], r["seed"], r["learning_rate"]) for r in summary["runs"]] == [
        ("seed-7", 7, 1e-3),
        ("seed-8", 8, 1e-3),
    ]
    alone = train(tmp_path / "alone", pretrained, glue_files, "mrpc", "--seed=8", *QUICK, BATCH)
    weights = [load_file(folder / "model.safetensors") for folder in (tmp_path / "alone", tmp_path / "all" / "seed-8")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert summary["runs"][1]["results"]["eval_loss"] == alone["eval_loss"]
    assert summary["runs"][0]["results"]["eval_loss"] != alone["eval_loss"]
    metrics = summary["settings"][0]["metrics"]
    scores = [r["results"]["eval_f1"] for r in summary["runs"]]
    assert metrics["eval_f1"]["mean"] == pytest.approx(np.mean(scores), abs=1e-12)
    assert metrics["eval_f1"]["n"] == 2
    assert summary["best"]["eval_f1"] == max(scores)
    out = capsys.readouterr().out
    assert "--- run 2 of 2: seed-8\n" in out
    assert "best on eval_f1: seed-" in out


@pytest.mark.slow
def test_finished_runs_are_not_repeated_and_broken_ones_go_on(tmp_path, pretrained, glue_files, counted, capsys):
    given = (tmp_path / "s", pretrained, glue_files, "rte", "--seeds=2", *QUICK)
    summary = run(*given)
    assert counted == ["seed-42", "seed-43"]
    (tmp_path / "s" / "seed-43" / "all_results.json").unlink()  # Without this file the run is not finished.
    kept = tmp_path / "s" / "seed-42" / "checkpoint-best-1"  # as if killed just before it was removed
    kept.mkdir()
    again = run(*given, "--logging_steps=1")
    assert counted[2:] == ["seed-43"]
    assert "seed-42: this run is finished" in capsys.readouterr().out and not kept.exists()
    assert again["settings"] == summary["settings"]
    lines = (tmp_path / "s" / "seed-43" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines if "eval" in line] == [1, 2]  # No record is there twice.
    more = run(*given[:4], "--seeds=3", *QUICK)
    assert counted[3:] == ["seed-44"]
    assert len(more["runs"]) == 3


def test_other_flags_or_data_in_the_same_folder_are_refused(tmp_path, pretrained, glue_files, counted):
    run(tmp_path / "s", pretrained, glue_files, "rte", "--seeds=1", *QUICK)
    given = (tmp_path / "s", pretrained, glue_files, "rte", "--seeds=2", "--max_steps=2")
    with pytest.raises(
        ValueError, match=r"seed-42 holds a finished run with other flags \(learning_rate 0.001 -> 0.002"
    ):
        run(*given, "--learning_rate=2e-3")
    files = tmp_path / "files"
    shutil.copytree(glue_files / "rte", files / "rte")
    run(tmp_path / "t", pretrained, files, "rte", "--seeds=1", *QUICK)
    with open(files / "rte" / "train.tsv", "a", encoding="utf-8") as file:
        file.write("24\ta\tb\tentailment\n")
    with pytest.raises(ValueError, match="its runs differ in training data, so that they are no series"):
        run(tmp_path / "t", pretrained, files, "rte", "--seeds=2", *QUICK)
    assert counted == ["seed-42", "seed-42", "seed-43"]


def test_flags_of_a_training_need_training_data():
    """Of AX, say, there is none: layers of a finished model would be left out, and its score be that of the rest."""
    args = GlueArguments(output_dir="out", model_name_or_path="m", task_name="ax", keep_layers="0", teacher="t")
    with pytest.raises(ValueError, match=r"--teacher, --keep_layers: no effect without training data"):
        metric_of(args, SimpleNamespace(splits={"test": []}))


def test_paired_comparison_with_the_control(tmp_path, pretrained, glue_files, counted, capsys):
    """The control takes the same steps here, so that no run is better or worse."""
    ours = run(tmp_path / "ours", pretrained, glue_files, "cola", "--seeds=2", *QUICK)
    more = ("--seeds=2", "--model_impl=transformers", "--compare_to", str(tmp_path / "ours"))
    summary = run(tmp_path / "control", pretrained, glue_files, "cola", *more, *QUICK)
    comparison = summary["comparison"]
    assert (comparison["with"], comparison["pairs"]) == (str(tmp_path / "ours"), 2)
    found = comparison["eval_matthews_correlation"]
    assert found["mean_difference"] == pytest.approx(0, abs=1e-12)
    assert (found["wins"], found["losses"], found["sign_test_p"], found["t_test_p"]) == (0, 0, 1.0, None)
    assert f"against {tmp_path / 'ours'}, 2 pairs of runs" in capsys.readouterr().out
    done = len(counted)
    others = {
        "seeds": {"runs": [run | {"seed": 100} for run in ours["runs"]]},
        "data": {"validation": [{"validation": {"examples": 1, "sha256": "other"}}]},
    }
    for name, change in others.items():
        (tmp_path / name).mkdir()
        write_summary(tmp_path / name, **(ours | change))
    control = (tmp_path / "control", pretrained, glue_files, "cola", "--seeds=2", "--model_impl=transformers", *QUICK)
    for name, message in (
        ("seeds", "no run with the same seed"),
        ("data", "evaluated on other data, or has no metric in common; the runs are finished"),
    ):
        with pytest.raises(ValueError, match=message):
            run(*control, "--compare_to", str(tmp_path / name))
    assert len(counted) == done


@pytest.mark.slow
def test_two_processes_do_the_runs_one_after_the_other(tmp_path, pretrained, glue_files):
    summaries = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        flags = [f"--output_dir={folder}", f"--model_name_or_path={pretrained}", "--task_name=mnli"]
        flags += [f"--data_dir={glue_files / 'mnli'}", "--max_seq_length=32", "--max_steps=4", "--seeds=2"]
        flags += [f"--per_device_train_batch_size={8 // processes}", "--load_best_model_at_end"]
        for _ in range(2):  # The second time, all runs are there already.
            done = torchrun("run_glue.py", flags, processes)
        assert "seed-43: this run is finished" in done.stdout
        assert done.stdout.count("best on eval_mnli_m_accuracy") == 1
        summaries[processes] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    losses = [[r["results"]["eval_mnli_m_loss"] for r in s["runs"]] for s in summaries.values()]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_a_single_run_does_not_go_into_the_folder_of_a_series(tmp_path):
    """The report would read the series instead."""
    args = GlueArguments(output_dir=str(tmp_path), config_name="tiny", tokenizer_name="x")
    done: list = []
    seeds.run_all(args, done.append)
    write_summary(tmp_path, runs=[{"folder": "seed-42"}])
    with pytest.raises(ValueError, match=r"holds a series of runs; give another folder"):
        seeds.run_all(args, done.append)
    assert done == [args]


def finished(folder: Path, results: dict, **facts) -> Path:
    """A folder with the record of a finished run."""
    folder.mkdir()
    flags = {"seed": int(folder.name[-1]), "learning_rate": 1e-5, "folds": None}
    data = {"task": "own", "splits": {"validation": {"examples": 2, "sha256": "y"}}}
    facts = {"format": 1, "script": "run_glue.py", "flags": flags, "data": data, "metric": "eval_loss"} | facts
    (folder / "run.json").write_text(json.dumps({"baselines": {"eval_loss": 2.0}} | facts))
    (folder / "all_results.json").write_text(json.dumps(results))
    return folder


def test_the_metric_of_a_class_is_found_where_a_finished_run_has_it(tmp_path):
    """Its results stay as they are in its folder."""
    by_class = {"eval_by_class": {"spam": {"f1": 0.75, "precision": 1.0, "recall": 0.6}}}
    folders = [
        finished(tmp_path / f"seed-{seed}", {"eval_loss": 1.0} | results, metric="eval_f1:spam")
        for seed, results in enumerate(({"eval_f1:spam": 0.5}, by_class))
    ]
    summary = seeds.summarise(folders)
    assert summary["best"]["seed"] == 1 and summary["best"]["eval_f1:spam"] == 0.75
    assert "eval_f1:spam" not in summary["runs"][1]["results"]


@pytest.mark.parametrize(
    ("fact", "named"),
    [
        ({"processes": 4}, "processes"),
        ({"mixed_precision": "bf16"}, "mixed_precision"),
        ({"initial_weights": {"model.safetensors": "a" * 64}}, "initial_weights"),
        ({"teacher_weights": {"model.safetensors": "a" * 64}}, "teacher weights"),
        ({"data": {"splits": {"validation": {"examples": 2, "sha256": "z"}}}}, "evaluation data"),
    ],
)
def test_runs_that_differ_in_more_than_their_seed_have_no_mean(tmp_path, fact, named):
    folders = [finished(tmp_path / "seed-1", {"eval_loss": 1.0}), finished(tmp_path / "seed-2", {"eval_loss": 3.0})]
    assert seeds.summarise(folders)["settings"][0]["metrics"]["eval_loss"]["mean"] == 2.0
    other = finished(tmp_path / "seed-3", {"eval_loss": 1.0}, **fact)
    with pytest.raises(ValueError, match=f"its runs differ in .*{named}"):
        seeds.summarise([*folders, other])
