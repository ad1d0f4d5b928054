"""A single run, or a series of runs with statistics: ``--seeds N``, ``--folds N``, ``--compare_to DIR``.

Each run of a series has its own sub-folder, as if it had been started alone. The command may be stopped and started
again: finished runs are read instead of repeated, and an unfinished one continues from its checkpoint.
``summary.json`` in the output folder contains every run, the statistics over the seeds of each learning rate, the best
run on the development set, and the comparison.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy  # scipy.stats is loaded when it is first used, which takes half a second
import torch
from transformers.utils import is_torch_xla_available

from bert_training.engine.best import deciding_metric, goodness
from bert_training.engine.launch import settled_precision
from bert_training.engine.output_folder import changed_flags, is_main_process, lock_output_dir, remove_rest
from bert_training.engine.precision import CHOSEN
from bert_training.files.atomic import json_text, write_json
from bert_training.files.harmless_output import say
from bert_training.files.hashing import digest
from bert_training.inputs.flags.fine_tuning import FineTuningArguments
from bert_training.inputs.records import read_record
from bert_training.networks.initial_weights import weights_sha256
from bert_training.record import Record, is_finished
from bert_training.tasks.classification.scores import with_chosen
from bert_training.tasks.task_data import TaskData
from tokenization.errors import UserError

CHECKSUM = "checksum"  # key of summary.json: the SHA-256 of everything else in it
LEVEL = 0.95  # of confidence intervals
INTERVAL = "95 % confidence interval of the mean (Student's t)"

Args = TypeVar("Args", bound=FineTuningArguments)


@dataclass(frozen=True)
class Series:
    """What the runs of a series have in common; a single run is a series of one.

    Attributes:
        name: the name of the task or of the data.
        facts: the description of the data, as in run.json; "splits" has an entry for each split.
        metric: the key of the results by which the best run is chosen.
        baselines: for each key of the results that is in the table, the score of a model with constant predictions; of
            folds, their mean.
        folds: what the runs on each fold have; empty if all runs have the same data.
    """

    name: str
    facts: dict
    metric: str
    baselines: dict[str, float]
    folds: tuple["Series", ...] = ()

    def of(self, number: int | None) -> "Series":
        """What the runs on the fold of this number, from 1, have in common."""
        return self.folds[number - 1] if self.folds and number else self


def series_of(args: FineTuningArguments, *data: TaskData) -> Series:
    """The series of the runs that the flags ask for on this data, or on that of each fold.

    Raises:
        ValueError: as in ``deciding_metric``; or a flag of the training is given without training data.
    """
    first = data[0]
    idle = [name for name in ("teacher", "keep_layers", "class_weights") if getattr(args, name, None)]
    if idle and "train" not in first.splits:
        raise UserError(f"--{', --'.join(idle)}: no effect without training data; leave out")
    metric = deciding_metric(args, *first.metric_names(), "train" in first.splits)
    each = [Series(first.name, one.facts(), metric, one.baselines()) for one in data]
    if len(each) == 1:
        return each[0]
    baselines = {name: float(np.mean([one.baselines[name] for one in each])) for name in each[0].baselines}
    return Series(first.name, each[0].facts, metric, baselines, tuple(each))


def run_all(args: Args, series: Series, run_one: Callable[[Args], dict]) -> None:
    """Do the run, or the series of runs, that the flags describe.

    Args:
        run_one: does one run with the flags that it is given, and returns the results.

    Raises:
        ValueError: as ``run_series`` does; or a single run would go into the folder of a series.
    """
    if args.many_runs:
        run_series(args, series, run_one)
    else:
        _check_summary(Path(args.output_dir), [args])
        run_one(args)


def run_series(args: Args, series: Series, run_one: Callable[[Args], dict]) -> dict:
    """Do the runs that are not finished yet; write, print and return the summary.

    Raises:
        ValueError: a sub-folder holds a run with other settings (see ``results_of_finished``); another process is at
            work in the folder; or the runs of --compare_to are not comparable.
    """
    folder, plans = Path(args.output_dir), planned_runs(args)
    chosen: dict[str, Any] = {}
    if settled := settled_precision(args, [plan.output_dir for plan in plans]):  # the same for all runs
        say(settled.said())
        plans = planned_runs(dataclasses.replace(args, mixed_precision=settled.precision))
        chosen = _earlier_choice(folder) or settled.facts()
    weights = {
        fact: weights_sha256(name) if (name := getattr(args, flag, None)) else None
        for fact, flag in (("initial_weights", "model_name_or_path"), ("teacher_weights", "teacher"))
    }
    other = _read_other(args.compare_to, plans, series) if args.compare_to else None
    _check_summary(folder, plans)
    if is_main_process() and not all(is_finished(plan.output_dir) for plan in plans):
        lock_output_dir(folder)
    earlier = [results_of_finished(plan, series.of(_fold(plan)), weights) for plan in plans]
    runs = []
    for number, (plan, results) in enumerate(zip(plans, earlier), 1):
        name = Path(plan.output_dir).name
        say(f"--- run {number} of {len(plans)}: {name}{' is finished already' if results else ''}")
        if results is not None and is_main_process():
            remove_rest(Path(plan.output_dir))
        if results is None:
            torch.compiler.reset()  # otherwise torch.compile gives up after several networks of the same class
            results = run_one(plan)
        fold = {"fold": _fold(plan)} if series.folds else {}
        one = {"folder": name, "seed": plan.seed, "learning_rate": plan.learning_rate} | fold
        runs.append(one | {"results": results})
    summary = summarise(runs, series) | chosen
    if other:
        shared = [name for name in summary["baselines"] if name in other["baselines"]]
        summary["comparison"] = {"with": args.compare_to} | compare(runs, other["runs"], shared)
    if is_main_process():
        target, content = folder / "summary.json", summary | {CHECKSUM: digest(summary)}
        if not target.is_file() or target.read_bytes() != json_text(content).encode():
            write_json(target, content)
        say(table(summary))
        remove_rest(folder)
    return summary


def _check_summary(folder: Path, plans: Sequence[FineTuningArguments]) -> None:
    """Refuse to overwrite, or to hide a run beneath, the summary of a series with other runs."""
    if not (folder / "summary.json").is_file():
        return
    try:
        runs = [str(run["folder"]) for run in read_summary(folder)["runs"]]
    except (ValueError, KeyError, TypeError):
        return  # it is damaged, and is made again from the records of the runs
    if lost := sorted({*runs} - {Path(plan.output_dir).name for plan in plans}):
        raise UserError(
            f"--output_dir {folder} holds a series to which {lost[0]} belongs, whose summary would be overwritten, or "
            "hide the new run; give another folder, or flags that include all of its runs"
        )


def _earlier_choice(folder: Path) -> dict[str, Any]:
    """What the summary of the series says about the choice of its type: it was made once; {} if it says nothing."""
    try:
        summary = read_summary(folder)
    except (ValueError, OSError):
        return {}
    return {CHOSEN: summary[CHOSEN]} if CHOSEN in summary else {}


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


def _fold(plan: FineTuningArguments) -> int | None:
    return getattr(plan, "fold", None)


def results_of_finished(plan: FineTuningArguments, series: Series, weights: dict[str, dict | None]) -> dict | None:
    """The results of a finished run; None if it was not started, or is continued from its checkpoint.

    Args:
        weights: the hashes of the weights that it began with, and of its teacher's, with the keys of run.json.

    Raises:
        ValueError: the folder holds a run with other flags, processes, precision or weights, or on other data.
    """
    folder = Path(plan.output_dir)
    if not is_finished(folder):
        return None
    run = Record.read(folder)
    # The type that the run had is compared below: its flag may have been left to the machine or to a launcher.
    changed = [one for one in changed_flags(run.flags, plan) if not one.startswith("mixed_precision ")]
    precision = plan.mixed_precision or os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    circumstances: dict[str, Any] = {"mixed_precision": precision, **weights}
    if not is_torch_xla_available():  # the number of XLA processes is in no environment variable
        circumstances["processes"] = int(os.environ.get("WORLD_SIZE", 1))
    changed += [name for name, value in circumstances.items() if run.facts.get(name) != value]
    if not changed and run.facts.get("data") != json.loads(json.dumps(series.facts)):
        changed = ["the data"]
    if changed:
        raise UserError(f"{folder} holds a run that differs in {', '.join(changed)}; give another --output_dir")
    return run.results


# --- statistics ------------------------------------------------------------------------------------------


def summarise(runs: list[dict], series: Series) -> dict:
    """The content of ``summary.json`` without the comparison."""
    constant, metric = series.baselines, series.metric
    constants = {name: [series.of(run.get("fold")).baselines[name] for run in runs] for name in constant}
    by_rate = []
    for rate in dict.fromkeys(run["learning_rate"] for run in runs):
        group = [number for number, run in enumerate(runs) if run["learning_rate"] == rate]
        values = {name: [runs[number]["results"][name] for number in group] for name in constant}
        metrics = {name: statistics(values[name], [constants[name][number] for number in group]) for name in constant}
        by_rate.append({"learning_rate": rate, "metrics": metrics})
    # A run that another metric has decided lacks the key of a class.
    chosen = [with_chosen(run["results"], metric)[metric] for run in runs]
    number = max(range(len(runs)), key=lambda number: goodness(metric, chosen[number]))
    best = {name: runs[number][name] for name in ("folder", "seed", "learning_rate")} | {metric: chosen[number]}
    facts = {"task": series.name, "metric": metric, "validation": _validation(series), "baselines": constant}
    if series.folds:
        facts["fold_baselines"] = [one.baselines for one in series.folds]
    return facts | {"settings": by_rate, "best": best, "runs": runs}


def statistics(values: list[float | None], constant: float | Sequence[float]) -> dict:
    """Statistics of one metric over runs that differ in the seed, or in the fold, only.

    Args:
        values: one per run; None (the correlation of constant predictions) counts as 0.
        constant: the score of constant predictions, or that of each run. A run that is not better is degenerate.

    Returns:
        n (the number of runs), mean, std (of a sample: divided by n - 1), median, max, interval (the 95 % confidence
        interval of the mean, Student's t), degenerate (the share of degenerate runs), undefined (the number of None
        values). std and interval are None for a single run.
    """
    known = np.array([0.0 if value is None else value for value in values])
    return {
        "n": len(known),
        "mean": float(known.mean()),
        "std": float(known.std(ddof=1)) if len(known) > 1 else None,
        "median": float(np.median(known)),
        "max": float(known.max()),
        "interval": mean_interval(known),
        "degenerate": float(np.mean(known <= np.asarray(constant) + 1e-9)),
        "undefined": sum(value is None for value in values),
    }


def compare(ours: list[dict], theirs: list[dict], metrics: list[str]) -> dict:
    """Paired differences, ours minus theirs, of runs with equal seeds and, if a seed has several runs, learning rates.

    Returns:
        pairs (the number of pairs), and for every metric: mean_difference, interval (its 95 % confidence interval,
        Student's t), wins, losses, sign_test_p (exact, two-sided, without ties), t_test_p (paired; None if all
        differences are equal).
    """
    pairs = [(run["results"], other["results"]) for run, other in _pairs(ours, theirs)]
    compared: dict = {"pairs": len(pairs)}
    for name in metrics:
        differences = np.array([(run[name] or 0.0) - (other[name] or 0.0) for run, other in pairs])
        wins, losses = int(np.sum(differences > 0)), int(np.sum(differences < 0))
        compared[name] = {
            "mean_difference": float(differences.mean()),
            "interval": mean_interval(differences),
            "wins": wins,
            "losses": losses,
            "sign_test_p": sign_test(wins, losses),
            "t_test_p": t_test(differences),
        }
    return compared


def sign_test(wins: int, losses: int) -> float:
    """The two-sided p-value of the exact binomial test that wins and losses are equally likely."""
    return float(scipy.stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def mean_interval(values: Sequence[float] | np.ndarray, level: float = LEVEL) -> list[float] | None:
    """The confidence interval of the mean of independent values (Student's t); None for fewer than two values.

    With three to ten values, the intervals of the normal distribution and of the percentile bootstrap are far too
    narrow.
    """
    if len(values) < 2:
        return None
    half = scipy.stats.sem(values) * scipy.stats.t.ppf((1 + level) / 2, len(values) - 1)
    return [float(np.mean(values) - half), float(np.mean(values) + half)]


def t_test(values: Sequence[float] | np.ndarray) -> float | None:
    """The two-sided p-value of the test that the mean is 0; None for fewer than two values or if all are equal."""
    if len(values) < 2 or np.ptp(values) == 0:
        return None
    # scipy.stats.ttest_1samp computes the same, but warns of values that differ by rounding only.
    return float(2 * scipy.stats.t.sf(abs(np.mean(values)) / scipy.stats.sem(values), len(values) - 1))


def _pairs(ours: list[dict], theirs: list[dict]) -> list[tuple[dict, dict]]:
    unique = all(len({run["seed"] for run in runs}) == len(runs) for runs in (ours, theirs))
    keys: tuple[str, ...] = ("seed",) if unique else ("learning_rate", "seed")
    if all("fold" in run for run in (*ours, *theirs)):
        keys = ("fold",)
    partners = {tuple(run[key] for key in keys): run for run in theirs}
    return [(run, partners[key]) for run in ours if (key := tuple(run[name] for name in keys)) in partners]


def _read_other(folder: str, plans: Sequence[FineTuningArguments], series: Series) -> dict:
    other = read_summary(Path(folder))
    runs: list[dict] = [{"seed": plan.seed, "learning_rate": plan.learning_rate} for plan in plans]
    if series.folds:
        runs = [run | {"fold": _fold(plan)} for run, plan in zip(runs, plans)]
    ours, theirs = ({*baselines} for baselines in (series.baselines, other["baselines"]))
    problems = {
        "it was evaluated on other data": other["validation"] != _validation(series),
        f"it has {', '.join(theirs)}, these runs {', '.join(ours)}, and no metric in common": not ours & theirs,
        "it has no run with the same seed and learning rate, or fold": not _pairs(runs, other["runs"]),
    }
    if told := [problem for problem, there in problems.items() if there]:
        raise UserError(f"--compare_to {folder}: {'; '.join(told)}; give a series that can be compared")
    return other


def _validation(series: Series) -> dict:
    """What identifies the examples that the runs are evaluated on."""
    if series.folds:
        return {f"fold {number}": _validation(one) for number, one in enumerate(series.folds, 1)}
    identified = {}
    for split, facts in series.facts["splits"].items():
        if split.startswith("validation"):
            identified[split] = {name: facts.get(name) for name in ("examples", "sha256", "fingerprint")}
            identified[split] |= {name: facts[name] for name in ("content_sha256",) if name in facts}
    return identified


def read_summary(folder: Path) -> dict[str, Any]:
    """The content of ``summary.json`` in the folder of a series.

    Raises:
        ValueError: it is damaged.
    """
    path, remedy = folder / "summary.json", "delete it, and the command of the series writes it again"
    summary = read_record(path, remedy, needs=("runs",))
    if summary.pop(CHECKSUM, None) not in (None, digest(summary)):
        raise UserError(f"{path}: damaged or edited (its checksum is that of another content); {remedy}")
    return summary


# --- the table -------------------------------------------------------------------------------------------


def table(summary: dict) -> str:
    """The summary as a text table, with one line per metric and learning rate."""
    rows = [["learning rate", "metric", "n", "mean", "std", "median", "max", INTERVAL, "degenerate"]]
    for one_rate in summary["settings"]:
        for name, values in one_rate["metrics"].items():
            numbers = (values["mean"], values["std"], values["median"], values["max"])
            row = [f"{one_rate['learning_rate']:g}", name, str(values["n"]), *map(_number, numbers)]
            rows.append([*row, _interval(values["interval"]), f"{values['degenerate']:.0%}"])
    best, metric = summary["best"], summary["metric"]
    lines = [*_aligned(rows), *_undefined(summary)]
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


def _undefined(summary: dict) -> list[str]:
    """A line for each metric that is undefined in some runs; the table counts these as 0."""
    counts: dict[str, int] = {}
    for one_rate in summary["settings"]:
        for name, values in one_rate["metrics"].items():
            counts[name] = counts.get(name, 0) + values["undefined"]
    return [
        f"{name} is undefined for {count} of {len(summary['runs'])} runs, whose predictions are constant; counted as 0"
        for name, count in counts.items()
        if count
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _interval(bounds: list[float] | None, sign: str = "") -> str:
    return "-" if bounds is None else " to ".join(f"{bound:{sign}.4f}" for bound in bounds)
