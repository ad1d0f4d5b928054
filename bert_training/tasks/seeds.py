"""A single run, or a series of runs with statistics: ``--seeds N``, ``--folds N``, ``--compare_to DIR``.

Each run of a series has its own sub-folder, as if it had been started alone. The command may be stopped and started
again: a finished run is left as it is, and an unfinished one continues from its checkpoint. What the series says is
read from the records of its runs: ``summary.json`` in the output folder contains every run, the statistics, the best
run on the development set, and the comparison.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from accelerate.utils import release_memory

from bert_training.engine.launch import settled_precision
from bert_training.engine.run import (
    check_output_dir,
    is_main_process,
    lock_output_dir,
    remove_rest,
    unlock_output_dir,
)
from bert_training.files.atomic import json_text, write_text
from bert_training.files.processes import say
from bert_training.inputs.flags.fine_tuning import FineTuningArguments
from bert_training.record import SUMMARY, Record, is_finished, read_summary
from bert_training.tasks.classification.scores import with_chosen
from bert_training.tasks.fine_tuning import goodness
from bert_training.tasks.run_settings import compared_settings, differing, initial_settings
from bert_training.tasks.statistics import compare, pairs_of, statistics
from tokenization.errors import UserError

INTERVAL = "95 % confidence interval of the mean (Student's t)"

Args = TypeVar("Args", bound=FineTuningArguments)


def run_all(args: Args, run_alone: Callable[[Args], None]) -> None:
    """Do the run, or the series of runs, that the flags describe.

    Args:
        run_alone: does one run with the flags that it is given; or nothing, if that is finished.

    Raises:
        UserError: as ``run_series`` does; or a single run would go into the folder of a series.
    """
    if args.many_runs:
        run_series(args, run_alone)
        return
    if Path(args.output_dir, SUMMARY).exists():  # reports would read the series instead of the run
        raise UserError(f"--output_dir {args.output_dir} holds a series of runs; give another folder")
    run_alone(args)


def run_series(args: Args, run_alone: Callable[[Args], None]) -> None:
    """Do the runs that are not finished yet; write and print the summary.

    Raises:
        UserError: a sub-folder holds a run with other flags; the runs differ in more than their seed or fold; another
            process is at work in the folder; or the runs of --compare_to are not comparable.
    """
    check_output_dir(args)
    folder, plans = Path(args.output_dir), planned_runs(args)
    other = _read_other(args, plans) if args.compare_to else None
    if settled := settled_precision(args, [plan.output_dir for plan in plans]):  # the same for all runs
        say(settled.said())
        plans = planned_runs(dataclasses.replace(args, mixed_precision=settled.precision))
    if is_main_process() and not all(is_finished(plan.output_dir) for plan in plans):
        lock_output_dir(folder)
    for number, plan in enumerate(plans, 1):
        say(f"--- run {number} of {len(plans)}: {Path(plan.output_dir).name}")
        torch.compiler.reset()  # otherwise torch.compile gives up after several networks of the same class
        run_alone(plan)
        release_memory()  # of this run, before the next
    if is_main_process():
        summary = summarise([Path(plan.output_dir) for plan in plans], args.metric_for_best_model)
        if other:
            summary["comparison"] = _comparison(args, summary, other)
        path, text = folder / SUMMARY, json_text(summary)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # a finished series keeps its files
            write_text(path, text)
        say(table(summary))
        remove_rest(folder)
        unlock_output_dir(folder)


def planned_runs(args: Args) -> list[Args]:
    """The flags of every run, in order."""
    # The best run of a series is chosen when all are done; a single run chooses only among its evaluations.
    chosen = args.metric_for_best_model if args.load_best_model_at_end else None
    alone: dict[str, Any] = {"resume_from_checkpoint": "auto", "compare_to": None, "metric_for_best_model": chosen}
    if folds := getattr(args, "num_folds", 0):
        ones: dict[str, dict[str, Any]] = {f"fold-{fold}": {"folds": f"{fold}/{folds}"} for fold in range(1, folds + 1)}
    else:
        numbers = range(args.seed, args.seed + (args.seeds or 1))
        ones = {f"seed-{seed}": {"seed": seed, "seeds": None} for seed in numbers}
    folder = Path(args.output_dir)
    return [dataclasses.replace(args, output_dir=str(folder / name), **alone, **one) for name, one in ones.items()]


def summarise(folders: list[Path], asked: str | None = None) -> dict:
    """The content of ``summary.json`` without the comparison, from the records of the runs.

    Args:
        asked: the metric by which the best run is chosen, if it is not that of the runs.

    Raises:
        UserError: the runs differ in more than their seed or fold, or have no such metric.
    """
    records = [Record.read(folder) for folder in folders]
    settings = [compared_settings(record.facts) | initial_settings(record.facts) for record in records]
    if changed := differing(settings):
        raise UserError(
            f"{folders[0].parent}: its runs differ in {', '.join(changed)}, so that they are no series; give "
            "another --output_dir"
        )
    first, runs = records[0].facts, []
    for folder, record in zip(folders, records):
        fold = str(record.flags.get("folds") or "").partition("/")[0]
        one = {"folder": folder.name, "seed": record.flags["seed"], "learning_rate": record.flags["learning_rate"]}
        runs.append(one | ({"fold": int(fold)} if fold else {}) | {"results": record.results})
    constants = {name: [record.facts["baselines"][name] for record in records] for name in first["baselines"]}
    metrics = {name: statistics([run["results"][name] for run in runs], constants[name]) for name in constants}
    metric = f"eval_{asked.removeprefix('eval_')}" if asked else first["metric"]
    # A run that another metric has decided lacks the key of a class.
    scores = [with_chosen(run["results"], metric).get(metric) for run in runs]
    if scores == [None] * len(runs) and metric not in first["baselines"]:
        raise UserError(f"--metric_for_best_model {asked}: the runs have no such result; give another")
    number = max(range(len(runs)), key=lambda number: goodness(metric, scores[number]))
    return {
        "task": first["data"].get("task"),
        "metric": metric,
        "validation": [_validation(record.facts) for record in records],
        "baselines": {name: float(np.mean(values)) for name, values in constants.items()},
        "settings": [{"learning_rate": runs[0]["learning_rate"], "metrics": metrics}],
        "best": {name: runs[number][name] for name in ("folder", "seed", "learning_rate")} | {metric: scores[number]},
        "runs": runs,
    }


def _validation(facts: dict) -> dict:
    """What identifies the examples that a run is evaluated on."""
    names = ("examples", "sha256", "fingerprint", "content_sha256")
    splits = {name: part for name, part in facts["data"]["splits"].items() if name.startswith("validation")}
    return {split: {name: part.get(name) for name in names} for split, part in splits.items()}


def _read_other(args: Args, plans: list[Args]) -> dict:
    """The summary of --compare_to, of which at least one run has a partner among the plans."""
    other = read_summary(Path(args.compare_to or ""))
    folds = [getattr(plan, "fold", None) for plan in plans]
    ours = [{"seed": plan.seed} | ({"fold": fold} if fold else {}) for plan, fold in zip(plans, folds)]
    if not pairs_of(ours, other["runs"]):
        raise UserError(
            f"--compare_to {args.compare_to}: it has no run with the same seed, or fold; give another series"
        )
    return other


def _comparison(args: FineTuningArguments, summary: dict, other: dict) -> dict:
    """The paired differences from the other series, in the metrics that both have measured."""
    shared = [name for name in summary["baselines"] if name in other["baselines"]]
    if not shared or not any(one in other["validation"] for one in summary["validation"]):
        raise UserError(
            f"--compare_to {args.compare_to}: it was evaluated on other data, or has no metric in common; the runs are "
            "finished: give a series that can be compared, or leave the flag out"
        )
    return {"with": args.compare_to} | compare(summary["runs"], other["runs"], shared)


# --- the table -------------------------------------------------------------------------------------------


def table(summary: dict) -> str:
    """The summary as a text table, with one line per metric."""
    rows = [["learning rate", "metric", "n", "mean", "std", "median", "max", INTERVAL, "degenerate"]]
    undefined = []
    for one_rate in summary["settings"]:
        for name, values in one_rate["metrics"].items():
            numbers = (values["mean"], values["std"], values["median"], values["max"])
            row = [f"{one_rate['learning_rate']:g}", name, str(values["n"]), *map(_number, numbers)]
            rows.append([*row, _interval(values["interval"]), f"{values['degenerate']:.0%}"])
            if count := values["undefined"]:
                runs = f"{count} of {values['n']} runs, whose predictions are constant"
                undefined.append(f"{name} is undefined for {runs}; counted as 0")
    best, metric = summary["best"], summary["metric"]
    lines = [*_aligned(rows), *undefined]
    if not any("fold" in run for run in summary["runs"]):  # the best of the folds is that with the easiest rows
        lines.append(f"best on {metric}: {best['folder']}, {_number(best[metric])}")
    if "comparison" in summary:
        compared = dict(summary["comparison"])
        lines += ["", f"against {compared.pop('with')}, {compared.pop('pairs')} pairs of runs"]
        rows = [["metric", "mean difference", INTERVAL, "better", "worse", "p (sign test)", "p (paired t)"]]
        for name, values in compared.items():
            row = [name, f"{values['mean_difference']:+.4f}", _interval(values["interval"], "+"), str(values["wins"])]
            rows.append([*row, str(values["losses"]), _number(values["sign_test_p"]), _number(values["t_test_p"])])
        lines += _aligned(rows)
    return "\n".join(lines)


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _interval(bounds: list[float] | None, sign: str = "") -> str:
    return "-" if bounds is None else " to ".join(f"{bound:{sign}.4f}" for bound in bounds)
