"""Series of runs: their statistics are those worked by hand, and run_glue.py makes them from end to end."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import run_glue
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks import seeds
from bert_training.tasks.classification.sources import load_data
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
    run_one = run_glue.run_one

    def counting(args, *rest):
        done.append(Path(args.output_dir).name)
        return run_one(args, *rest)

    monkeypatch.setattr(run_glue, "run_one", counting)
    return done


def run(folder: Path, model: Path, files: Path, task: str, *more: str) -> dict:
    flags = [f"--output_dir={folder}", f"--model_name_or_path={model}", f"--task_name={task}"]
    flags += [f"--data_dir={files / task}", "--max_seq_length=32", "--save_steps=0"]
    run_glue.main([*flags, *more])
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def refused(capsys, *flags: str) -> str:
    with pytest.raises(SystemExit):
        parse_arguments(GlueArguments, ["--output_dir=x", "--model_name_or_path=y", *flags])
    return capsys.readouterr().err


# --- The statistics --------------------------------------------------------------------------------------


def test_statistics_worked_by_hand():
    found = seeds.statistics([0.5, 0.7, 0.9, None, 0.4], constant=0.5)
    interval = found.pop("interval")
    expected = {"n": 5, "mean": 0.5, "median": 0.5, "max": 0.9, "degenerate": 0.6, "undefined": 1}
    expected["std"] = math.sqrt((0.04 + 0.16 + 0.25 + 0.01) / 4)  # The deviations are 0, 0.2, 0.4, -0.5 and -0.1.
    assert found == pytest.approx(expected, abs=1e-12)
    half = 2.7764451 * math.sqrt(0.46 / 4 / 5)  # The quantile of 97.5 % with 4 degrees of freedom is from a table.
    assert interval == pytest.approx([0.5 - half, 0.5 + half], abs=1e-7)
    one = seeds.statistics([0.8], constant=0.5)
    assert (one["n"], one["mean"], one["std"], one["interval"], one["degenerate"]) == (1, 0.8, None, None, 0.0)


def test_significance_tests_worked_by_hand():
    for (wins, losses), expected in {(5, 0): 2 / 32, (0, 5): 2 / 32, (3, 2): 1, (0, 0): 1, (7, 1): 18 / 256}.items():
        assert seeds.sign_test(wins, losses) == pytest.approx(expected, abs=1e-12)
    ours, theirs = (0.4, 0.7, 0.9), (0.3, 0.5, 0.6)  # The differences are 0.1, 0.2 and 0.3, so that t = sqrt(12).
    runs = [[{"seed": i, "results": {"m": v}} for i, v in enumerate(values)] for values in (ours, theirs)]
    found = seeds.compare(*runs, ["m"])["m"]
    # With two degrees of freedom, the distribution has a closed form, and its quantile is from a table.
    assert found["t_test_p"] == pytest.approx(1 - math.sqrt(12) / math.sqrt(2 + 12), abs=1e-12)
    half = 4.3026527 * 0.1 / math.sqrt(3)
    assert found["interval"] == pytest.approx([0.2 - half, 0.2 + half], abs=1e-7)


@pytest.mark.parametrize(("n", "quantile"), [(2, 12.706), (3, 4.303), (5, 2.776), (10, 2.262), (31, 2.042)])
def test_intervals_are_those_of_printed_tables(n, quantile):
    values = np.random.default_rng(n).normal(size=n)
    low, high = seeds.mean_interval(values)
    assert (high - low) / 2 * math.sqrt(n) / values.std(ddof=1) == pytest.approx(quantile, abs=5e-4)


def test_values_without_spread_have_no_test():
    assert seeds.mean_interval([0.1]) is None and seeds.t_test([0.1]) is None
    assert seeds.t_test([0.1, 0.1]) is None and seeds.mean_interval([0.5, 0.5]) == [0.5, 0.5]
    assert seeds.t_test([0.9 - 0.8, 0.8 - 0.7]) < 1e-10  # They differ by rounding, of which nobody is warned.


def test_intervals_hold_the_mean_as_often_as_they_say(n=5):
    """Of 2,000 samples, the observed share is within four standard deviations of 95 %."""
    samples = np.random.default_rng(n).normal(1.5, 2.0, size=(2000, n))
    hits = np.mean([low < 1.5 < high for low, high in map(seeds.mean_interval, samples)])
    assert abs(hits - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_runs_are_paired_by_seed_or_by_learning_rate_and_seed():
    def runs(*keys):
        return [{"seed": seed, "learning_rate": rate, "results": {"m": value}} for seed, rate, value in keys]

    ours = runs((1, 1e-3, 0.5), (2, 1e-3, 0.7), (3, 1e-3, 0.4), (9, 1e-3, 9.0))
    theirs = runs((3, 2e-3, 0.4), (1, 2e-3, 0.3), (2, 2e-3, 0.8))
    found = seeds.compare(ours, theirs, ["m"])
    assert found["pairs"] == 3
    assert found["m"]["mean_difference"] == pytest.approx(0.1 / 3, abs=1e-12)  # The differences are 0.2, -0.1 and 0.
    assert (found["m"]["wins"], found["m"]["losses"], found["m"]["sign_test_p"]) == (1, 1, 1.0)
    grid = runs((1, 1e-3, 0.1), (1, 2e-3, 0.2), (2, 1e-3, 0.3))
    assert seeds.compare(grid, ours, ["m"])["m"]["mean_difference"] == pytest.approx(-0.4, abs=1e-12)


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
    (tmp_path / "s" / ".lock").touch()
    again = run(*given, "--logging_steps=1")
    assert counted[2:] == ["seed-43"]
    assert "seed-42 is finished already" in capsys.readouterr().out and not kept.exists()
    assert not (tmp_path / "s" / ".lock").exists()
    assert again["settings"] == summary["settings"]
    lines = (tmp_path / "s" / "seed-43" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines if "eval" in line] == [1, 2]  # No record is there twice.
    more = run(*given[:4], "--seeds=3", *QUICK)
    assert counted[3:] == ["seed-44"]
    assert len(more["runs"]) == 3


def test_other_flags_or_data_in_the_same_folder_are_refused(tmp_path, pretrained, glue_files, counted):
    run(tmp_path / "s", pretrained, glue_files, "rte", "--seeds=1", *QUICK)
    given = (tmp_path / "s", pretrained, glue_files, "rte", "--seeds=2", "--max_steps=2")
    with pytest.raises(ValueError, match=r"seed-42 holds a run that differs in learning_rate 0.001 -> 0.002"):
        run(*given, "--learning_rate=2e-3")
    files = tmp_path / "files"
    shutil.copytree(glue_files / "rte", files / "rte")
    with pytest.raises(ValueError, match="differs in data_dir"):
        run(tmp_path / "s", pretrained, files, "rte", "--seeds=1", *QUICK)
    run(tmp_path / "t", pretrained, files, "rte", "--seeds=1", *QUICK)
    with open(files / "rte" / "train.tsv", "a", encoding="utf-8") as file:
        file.write("24\ta\tb\tentailment\n")
    with pytest.raises(ValueError, match="seed-42 holds a run that differs in the data; give another --output_dir"):
        run(tmp_path / "t", pretrained, files, "rte", "--seeds=2", *QUICK)
    assert counted == ["seed-42", "seed-42"]


def test_another_launch_or_other_weights_in_the_same_folder_are_refused(
    tmp_path, pretrained, glue_files, counted, monkeypatch
):
    model = tmp_path / "model"
    shutil.copytree(pretrained, model)
    given = (tmp_path / "s", model, glue_files, "rte", "--seeds=1", *QUICK)
    run(*given)
    run(*given)
    run(*given, "--mixed_precision=no")  # what the environment said of the first: the type is the same
    for name, value in (("WORLD_SIZE", "4"), ("ACCELERATE_MIXED_PRECISION", "bf16")):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"in (processes|mixed_precision);"):
            patch.setenv(name, value)
            run(*given)
    weights = load_file(model / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in weights.items()}, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="seed-42 holds a run that differs in initial_weights; give another"):
        run(*given)
    assert counted == ["seed-42"]


def test_features_are_made_once_for_all_runs(tmp_path, pretrained, glue_files, monkeypatch):
    calls = []
    features = run_glue.labelled_texts.features
    monkeypatch.setattr(run_glue.labelled_texts, "features", lambda *given: calls.append(1) or features(*given))
    run(tmp_path / "s", pretrained, glue_files, "rte", "--seeds=2", *QUICK)
    assert calls == [1]


def test_flags_of_a_training_need_training_data():
    """Of AX, say, there is none: layers of a finished model would be left out, and its score be that of the rest."""
    args = GlueArguments(output_dir="out", model_name_or_path="m", task_name="ax", keep_layers="0", teacher="t")
    with pytest.raises(ValueError, match=r"--teacher, --keep_layers: no effect without training data"):
        seeds.series_of(args, SimpleNamespace(splits={"test": []}))


def test_flags_that_do_not_fit_a_series_are_refused(capsys):
    assert "--compare_to needs --seeds or --folds" in refused(capsys, "--compare_to=x")
    assert "--seeds must be at least 1; got 0" in refused(capsys, "--seeds=0")
    assert "--seeds and --push_to_hub exclude each other" in refused(
        capsys, "--seeds=2", "--push_to_hub", "--hub_model_id=a/b"
    )
    assert "a series of runs resumes by itself" in refused(
        capsys, "--seeds=2", "--resume_from_checkpoint=x/checkpoint-1"
    )


def test_paired_comparison_with_the_control(tmp_path, pretrained, glue_files, counted, capsys):
    """The control takes the same steps here, so that no run is better or worse."""
    ours = run(tmp_path / "ours", pretrained, glue_files, "cola", "--seeds=3", *QUICK)
    more = ("--seeds=2", "--model_impl=transformers", "--compare_to", str(tmp_path / "ours"))
    summary = run(tmp_path / "control", pretrained, glue_files, "cola", *more, *QUICK)
    comparison = summary["comparison"]
    assert (comparison["with"], comparison["pairs"]) == (str(tmp_path / "ours"), 2)
    found = comparison["eval_matthews_correlation"]
    assert found["mean_difference"] == pytest.approx(0, abs=1e-12)
    assert (found["wins"], found["losses"], found["sign_test_p"], found["t_test_p"]) == (0, 0, 1.0, None)
    assert f"against {tmp_path / 'ours'}, 2 pairs of runs" in capsys.readouterr().out
    done = len(counted)
    rte = load_data(parse_arguments(GlueArguments, [
        "--output_dir=x", "--model_name_or_path=y", "--task_name=rte", f"--data_dir={glue_files / 'rte'}",
    ])).facts()["splits"]["validation"]  # fmt: skip
    assert set(ours["validation"]["validation"]) <= set(rte) | {"fingerprint"}
    for name, change, message in [
        ("nowhere", None, "summary.json: .*No such file"),
        ("rte", {"validation": {"validation": {key: rte.get(key) for key in ours["validation"]["validation"]}}},
         "it was evaluated on other data"),
        ("seeds", {"runs": [run | {"seed": 100} for run in ours["runs"]]},
         "same seed and learning rate"),
        ("metrics", {"baselines": {"eval_pearson": 0.0}}, "it has eval_pearson, these runs eval_matthews_correlation"),
    ]:  # fmt: skip
        if change:
            (tmp_path / name).mkdir()
            changed = {key: value for key, value in (ours | change).items() if key != "checksum"}
            write_summary(tmp_path / name, **changed)
        given = ("--seeds=2", "--compare_to", str(tmp_path / name))
        with pytest.raises(ValueError, match=message):
            run(tmp_path / "new", pretrained, glue_files, "cola", *given, *QUICK)
    assert len(counted) == done  # The mistakes were found before any run began.
    assert not (tmp_path / "new").exists()


def test_a_summary_with_a_flipped_digit_is_refused(tmp_path, pretrained, glue_files):
    run(tmp_path / "ours", pretrained, glue_files, "mrpc", "--seeds=1", *QUICK)
    path = tmp_path / "ours" / "summary.json"
    seeds.read_summary(tmp_path / "ours")
    whole = path.read_text()
    path.write_text(whole.replace('"seed": 42', '"seed": 43'))
    with pytest.raises(ValueError, match=r"summary\.json: damaged or edited .*delete it, and the command"):
        seeds.read_summary(tmp_path / "ours")
    path.unlink()
    run(tmp_path / "ours", pretrained, glue_files, "mrpc", "--seeds=1", *QUICK)
    assert path.read_text() == whole


def test_only_what_both_sides_measured_is_compared(tmp_path, pretrained, glue_files):
    ours = run(tmp_path / "ours", pretrained, glue_files, "mrpc", "--seeds=1", *QUICK)
    del ours["checksum"]
    for results in (ours["baselines"], ours["runs"][0]["results"]):
        del results["eval_f1"]  # A user's own data have no such score.
    write_summary(tmp_path / "ours", **ours)
    more = ("--seeds=1", "--compare_to", str(tmp_path / "ours"))
    summary = run(tmp_path / "new", pretrained, glue_files, "mrpc", *more, *QUICK)
    assert set(summary["comparison"]) == {"with", "pairs", "eval_accuracy"}


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
        assert "run 2 of 2: seed-43 is finished already" in done.stdout
        assert done.stdout.count("best on eval_mnli_m_accuracy") == 1
        summaries[processes] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    losses = [[r["results"]["eval_mnli_m_loss"] for r in s["runs"]] for s in summaries.values()]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_the_summary_of_a_series_with_other_runs_is_not_overwritten(tmp_path, monkeypatch):
    args = GlueArguments(output_dir=str(tmp_path), seeds=2, config_name="tiny", tokenizer_name="x")
    names = [Path(plan.output_dir).name for plan in seeds.planned_runs(args)]
    series = seeds.Series("x", {}, "eval_accuracy", {})
    monkeypatch.setattr(seeds, "results_of_finished", lambda *_: pytest.fail("the summary would be overwritten"))
    content = {"runs": [{"folder": name} for name in (*names, "seed-44")]}
    write_summary(tmp_path, **content)
    with pytest.raises(ValueError, match=r"holds a series to which seed-44 belongs.* give another folder"):
        seeds.run_series(args, series, lambda _: {})
    for text in (json.dumps({"runs": content["runs"][:1]}), "damaged"):  # A longer series includes the shorter one.
        (tmp_path / "summary.json").write_text(text)
        with pytest.raises(pytest.fail.Exception):
            seeds.run_series(args, series, lambda _: {})


def test_a_single_run_does_not_go_into_the_folder_of_a_series(tmp_path):
    """The report and the submission would read the series instead."""
    args = SimpleNamespace(output_dir=str(tmp_path), many_runs=False)
    series = seeds.Series("x", {}, "eval_accuracy", {})
    done: list = []
    seeds.run_all(args, series, done.append)
    write_summary(tmp_path, runs=[{"folder": "seed-42"}])
    with pytest.raises(ValueError, match=r"holds a series to which seed-42 belongs, .* or hide the new run"):
        seeds.run_all(args, series, done.append)
    assert done == [args]


def test_the_metric_of_a_class_is_found_where_a_finished_run_has_it():
    """Its results stay as they are in its folder."""
    runs = [
        {"folder": f"seed-{seed}", "seed": seed, "learning_rate": 1e-5, "results": {"eval_loss": 1.0} | results}
        for seed, results in enumerate(
            ({"eval_f1:spam": 0.5}, {"eval_by_class": {"spam": {"f1": 0.75, "precision": 1.0, "recall": 0.6}}})
        )
    ]
    facts = {"splits": {"validation": {"source": "x", "sha256": "y"}}}
    summary = seeds.summarise(runs, seeds.Series("own", facts, "eval_f1:spam", {"eval_loss": 2.0}))
    assert summary["best"]["seed"] == 1 and summary["best"]["eval_f1:spam"] == 0.75
    assert "eval_f1:spam" not in summary["runs"][1]["results"]


def test_runs_on_other_questions_of_the_hub_are_not_compared(tmp_path):
    """``content_sha256`` tells them apart; data of files has none."""
    args = GlueArguments(output_dir=str(tmp_path / "new"), seeds=1, model_name_or_path="m")
    plans = seeds.planned_runs(args)

    def compared(theirs):
        other = {"validation": {"validation": theirs}, "baselines": {"eval_f1": 0.0}}
        other |= {"runs": [{"seed": plan.seed, "learning_rate": plan.learning_rate} for plan in plans]}
        write_summary(tmp_path, **other)
        facts = {"splits": {"validation": {"examples": 2, "content_sha256": "a"}}}
        return seeds._read_other(str(tmp_path), plans, seeds.Series("x", facts, "eval_f1", {"eval_f1": 0.0}))

    same = {"examples": 2, "sha256": None, "fingerprint": None}
    assert compared(same | {"content_sha256": "a"})
    for other in (same, same | {"content_sha256": "b"}):
        with pytest.raises(ValueError, match="it was evaluated on other data"):
            compared(other)


def test_why_a_type_was_chosen_is_said_once(tmp_path):
    """A series that is started again keeps the reason of its first start."""
    assert seeds._earlier_choice(tmp_path) == {}
    write_summary(tmp_path, runs=[], precision_chosen={"why": "faster", "ratio": 2})
    assert seeds._earlier_choice(tmp_path) == {"precision_chosen": {"why": "faster", "ratio": 2}}
