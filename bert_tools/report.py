"""Put several runs side by side in one table and one picture.

    bert-repro report RUN_FOLDER... --output_dir report      # or: make report RUNS="a b" OUT=report

The table has one row for each fine-tuning task, and one column for each start: random weights, a pre-trained folder,
transformers' network. Runs that differ only in their seed share a cell: mean ± standard deviation (number of runs).
Runs that differ in another setting on which the result depends, such as the learning rate, have separate rows, which
name the difference. An undefined score, such as the correlation of constant predictions, counts as 0, as in the table
of a series, and the cell says how many there are. The folder of a series (--seeds) stands for all of its runs.
Metrics name their number of rows, and scores of test data are there where all runs have them. Each run is compared with
the first one that was scored on the same rows: the difference, its paired interval, and McNemar's test.
With --by_class, a further table has the F1 of every class of your own data, and of every type of names.
Pre-training runs are listed below, and the training and held-out loss of the first one are drawn next to the bars. The
command writes report.md and, if matplotlib is installed, report.png.
"""

import importlib.util
import json
import math
import re
import statistics
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bert_training.cards import curves
from bert_training.cards.markdown import plain
from bert_training.cards.metrics import METRICS, percent_factor
from bert_training.files.atomic import make_folder, write_text
from bert_training.files.hashing import is_plain_name
from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.inputs.flags.objectives import NEXT_SENTENCE, objective_of
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.inputs.reading import RESULTS, read_events
from bert_training.record import SUMMARY, Record, read_summary
from bert_training.tasks.classification.glue import positive_of, title_of
from bert_training.tasks.classification.scores import metric_prefix
from bert_training.tasks.run_settings import compared_settings, initial_settings, with_differences
from bert_training.tasks.scored_rows import WHOLE, Metric, compare_rows, metric_of, read_rows
from tokenization.errors import UserError

WRAPPED, LINE = 44, 0.19  # of the labels in the picture: the characters of a line, and its inches
TYPE_F1 = r"eval_.+_f1"  # the key of the F1 of a type of names, such as eval_LOC_f1
# The content of a cell: the score of each run in per cent, or None if it is undefined.
Scores = list[float | None]


@dataclass
class FinishedRun:
    """A finished run.

    Attributes:
        folder: the folder that the user gave: that of the run or of its series.
        place: the run's own folder.
        task: the title of its task; None for pre-training.
        start_label: the weights that it started from, in words.
        facts: the content of run.json.
        results: the content of all_results.json.
    """

    folder: Path
    place: Path
    task: str | None
    start_label: str
    facts: dict
    results: dict


def read_finished_runs(folder: str | Path) -> list[FinishedRun]:
    """The run in a folder, or the runs of a series. Raises ValueError with the file if a run is not finished."""
    folder = Path(folder)
    if not (folder / SUMMARY).is_file():
        return [read_finished_run(folder)]
    names = [run["folder"] for run in read_summary(folder)["runs"]]
    if wrong := [name for name in names if not is_plain_name(name)]:
        raise UserError(f"{folder / SUMMARY}: expected runs in folders beside it, got {str(wrong[0])[:80]!r}")
    return [replace(read_finished_run(folder / name), folder=folder) for name in names]


def read_finished_run(folder: Path) -> FinishedRun:
    """The run in a folder. Raises ValueError with the file if it is not finished or of another script."""
    run = Record.read(folder)
    if run.results is None:
        raise UserError(f"{folder}: expected a finished run, found no {RESULTS}")
    origin = run.flags.get("model_name_or_path")
    start_label = f"from {Path(origin).name}" if origin else "random weights"
    if run.flags.get("model_impl") == "transformers":
        start_label += ", transformers' network"
    task = None if SCRIPTS[run.script].pretrains else _task_of(run.facts)
    return FinishedRun(folder, folder, task, start_label, run.facts, run.results)


def _task_of(facts: dict) -> str:
    """The title of the task of a fine-tuning, from the content of its run.json."""
    if name := facts["flags"].get("task_name") or (facts.get("data") or {}).get("task"):
        return title_of(name)
    return "SQuAD 2.0 form" if facts["flags"].get("version_2_with_negative") else SCRIPTS[facts["script"]].title


def fine_tuning_runs(runs: list[FinishedRun]) -> list[FinishedRun]:
    """The fine-tuning runs, in order.

    If runs have the same ``task`` or ``start_label`` but different settings, the differences are appended to it.

    Raises:
        ValueError: two runs have equal settings and seeds, so that a mean would count one result twice.
    """
    runs = [run for run in runs if run.task]
    labels = with_differences([run.start_label for run in runs], [initial_settings(run.facts) for run in runs])
    tasks = with_differences([run.task for run in runs if run.task], [compared_settings(run.facts) for run in runs])
    runs = [replace(run, task=task, start_label=label) for run, task, label in zip(runs, tasks, labels)]
    seen: dict[tuple, Path] = {}
    for run in runs:
        seed = run.facts["flags"].get("seed")
        key = (run.task, run.start_label, seed, run.facts["flags"].get("folds"))
        if key in seen:
            raise UserError(f"{run.place} and {seen[key]} have the same settings and the same seed ({seed}); give one")
        seen[key] = run.place
    return runs


def cells(runs: list[FinishedRun], by_class: bool = False) -> dict[tuple[str, str], dict[str, Scores]]:
    """The scores by (task, metric) and by start, in the order of the runs.

    Args:
        runs: as ``fine_tuning_runs`` returned them.
        by_class: the F1 by (task, class) instead.
    """
    table: dict[tuple[str, str], dict[str, Scores]] = {}
    for run in runs:
        for name, value in f1_by_class(run) if by_class else scores_of(run, runs):
            table.setdefault((str(run.task), name), {}).setdefault(run.start_label, []).append(value)
    return table


def scores_of(run: FinishedRun, runs: list[FinishedRun]) -> Iterator[tuple[str, float | None]]:
    """The name and the value of each score of a run; those of test data if all such runs have them."""
    alike = [other for other in runs if other.facts["script"] == run.facts["script"]]
    task = [other for other in runs if other.task == run.task]
    for key in SCRIPTS[run.facts["script"]].metrics:
        for name, ending in ((key, ""), (key.replace("eval_", "test_", 1), ", test")):
            if name in run.results if not ending else all(name in other.results for other in alike):
                value, rows = run.results[name], rows_in(task, ending[2:] or "validation")
                score = None if value is None else percent_factor(run.results) * value
                yield METRICS[key].table_name + ending + rows, score


def f1_by_class(run: FinishedRun) -> Iterator[tuple[str, float | None]]:
    """The F1 on validation data of every class of a classification or type of names."""
    if isinstance(classes := run.results.get("eval_by_class"), dict):
        yield from ((name, 100 * one["f1"]) for name, one in classes.items())
    elif SCRIPTS[run.facts["script"]].arguments is NerArguments:
        types = (key for key in run.results if re.fullmatch(TYPE_F1, key))
        yield from ((key[len("eval_") : -len("_f1")], 100 * run.results[key]) for key in types)


def rows_in(runs: list[FinishedRun], split: str) -> str:
    """How many rows of a split the runs are scored on, for the name of a metric; "" if they do not say it."""
    all_splits = [(run.facts["data"] or {}).get("splits", {}) for run in runs]
    parts = [part for splits in all_splits for name, part in splits.items() if name.startswith(split)]
    counts = {part["examples"] for part in parts if "examples" in part}
    return f", {' to '.join(f'{count:,}' for count in sorted({min(counts), max(counts)}))} rows" if counts else ""


def differences(runs: list[FinishedRun]) -> list[str]:
    """The lines of the table that compares each run with the first one that is scored on the same rows.

    Runs that share a cell with others are left out: --compare_to compares series.
    """
    lines, firsts = list[str](), dict[str, tuple[FinishedRun, list[dict]]]()
    cells_of = [(run.task, run.start_label) for run in runs]
    for run in (run for run, cell in zip(runs, cells_of) if cells_of.count(cell) == 1):
        for split in (run.facts["data"] or {}).get("splits", {}):
            rows = read_rows(run.place, split)
            same = json.dumps([split, *((row.get("id"), row.get("true")) for row in rows)])
            first, theirs = firsts.setdefault(same, (run, rows))
            for key in SCRIPTS[run.facts["script"]].metrics if rows and first is not run else ():
                prefix, pair = metric_prefix(split), f"{plain(run.folder.name)} against {plain(first.folder.name)}"
                metric = key.removeprefix(prefix if prefix.startswith("eval_") else "eval_")
                ours, other = (given_by(one, some, prefix, metric) for one, some in ((run, rows), (first, theirs)))
                if ours and other:
                    cells = compare_rows(ours, other, len(rows), metric in WHOLE)
                    lines.append(f"| {pair} | {split}, {len(rows):,} rows | {METRICS[key].table_name} | {cells} |")
    heads = "| runs | data | metric | difference, points | 95 % interval | rows that one alone has right | p, McNemar |"
    return [heads, "|---|---|---|---:|---:|---:|---:|", *lines, ""] if lines else []


def given_by(run: FinishedRun, rows: list[dict], prefix: str, metric: str) -> Metric | None:
    """A metric of some of the rows; None unless all of them give the result that the run recorded."""
    recorded = run.results.get(prefix + metric)
    if recorded is None or not (found := metric_of(rows, metric, positive_of((run.facts["data"] or {}).get("task")))):
        return None
    again = found(np.arange(len(rows)))
    return found if math.isclose(again, percent_factor(run.results) * recorded, abs_tol=0.01) else None


def cell_text(values: Scores | None, digits: int = 1) -> str:
    """The text of a cell: mean ± standard deviation (number of runs); "" without runs."""
    if not values:
        return ""
    undefined = values.count(None)
    if undefined == len(values):
        return f"undefined ({undefined})".removesuffix(" (1)")
    numbers = [value or 0.0 for value in values]
    text = f"{statistics.mean(numbers):,.{digits}f}"
    if len(numbers) > 1:
        text += f" ± {statistics.stdev(numbers):,.{digits}f} ({len(numbers)})"
    return f"{text}, {undefined} undefined" if undefined else text


def start_labels_of(runs: list[FinishedRun]) -> list[str]:
    """The starts of the fine-tuning runs: random weights first, and each control after the run that it controls."""
    return sorted({run.start_label for run in runs}, key=lambda label: (not label.startswith("random"), label))


def tables(runs: list[FinishedRun], by_class: bool = False) -> str:
    """The comparison, the pre-training runs and the list of all runs, in Markdown.

    Args:
        by_class: whether there is a table with the F1 of every class.
    """
    lines = []
    if fine_tuning := fine_tuning_runs(runs):
        lines += [*_comparison(fine_tuning, cells(fine_tuning), "metric"), "", *differences(fine_tuning)]
    if by_class and (of_classes := cells(fine_tuning, by_class=True)):
        lines += [*_comparison(fine_tuning, of_classes, "F1 of the class"), ""]
    if pretraining := [run for run in runs if run.task is None]:
        heads = "masked pieces: loss, nats | accuracy, % | next sentence: accuracy, % | steps | seconds"
        lines += [
            f"| pre-training | {heads} |",
            "|---|---:|---:|---:|---:|---:|",
            *map(pretraining_row, pretraining),
            "",
        ]
    return "\n".join([*lines, *_list_of_runs(runs)]) + "\n"


def _comparison(
    fine_tuning: list[FinishedRun], table: dict[tuple[str, str], dict[str, Scores]], what: str
) -> list[str]:
    """The lines of the table with a row for each task and metric or class, and a column for each start."""
    labels = start_labels_of(fine_tuning)
    lines = [f"| task | {what}, per cent | {' | '.join(map(plain, labels))} |", f"|---|---|{'---:|' * len(labels)}"]
    for (task, name), scores in table.items():
        values = " | ".join(cell_text(scores.get(label)) for label in labels)
        lines.append(f"| {plain(task)} | {plain(name)} | {values} |")
    return lines


def _list_of_runs(runs: list[FinishedRun]) -> list[str]:
    """The lines of the table of all runs; the runs of a series that have equal entries share a row."""
    seconds_of: dict[tuple, list[float | None]] = {}
    for run in runs:
        entries = (run.folder, run.results.get("train_steps", 0), run.facts["commit"], run.facts["device"])
        seconds_of.setdefault(entries, []).append(run.results.get("train_runtime", 0))
    lines = ["| run | steps | seconds of training | commit | device |", "|---|---:|---:|---|---|"]
    for (folder, steps, commit, device), seconds in seconds_of.items():
        lines.append(f"| {plain(folder)} | {steps:,} | {cell_text(seconds, 0)} | {plain(commit)} | {plain(device)} |")
    return lines


def pretraining_row(run: FinishedRun) -> str:
    """A row of the table of pre-training runs."""
    results = run.results
    task = objective_of(run.facts["flags"]).pairs
    accuracy = results.get(f"eval_{task.name}_accuracy") if task else None
    pairs = f"{100 * accuracy:.1f}" if accuracy is not None else ""
    if task not in (None, NEXT_SENTENCE):
        pairs += f" ({task.title})"
    return (
        f"| {plain(run.folder.name)} | {results['eval_mlm_loss']:.3f} | {100 * results['eval_mlm_accuracy']:.1f} "
        f"| {pairs} | {results['train_steps']:,} | {results['train_runtime']:,.0f} |"
    )


def draw(runs: list[FinishedRun], path: Path) -> bool:
    """Draw a bar for every task and start and, beside them, the loss curve of the first pre-training run.

    Returns:
        whether there was something to draw; a run may have no scores.
    """
    tuned, first = fine_tuning_runs(runs), dict[str, list[tuple[str, Scores]]]()
    for (task, metric), scores in cells(tuned).items():  # only the first metric of a task is drawn
        labels = [label for label in start_labels_of(tuned) if label in scores]
        first.setdefault(task, [(f"{task}, {metric}: {label}", scores[label]) for label in labels])
    bars = [bar for of_task in first.values() for bar in of_task]
    pretrained = next((run for run in runs if run.task is None), None)
    if not bars and not pretrained:
        return False
    figure, axes = curves.new_figure("Runs", bool(bars) + bool(pretrained))
    if pretrained:
        events = read_events(pretrained.folder / "metrics.jsonl")
        train, held_out = curves.training_losses(events), curves.curve_of(events, "eval", "eval_mlm_loss")
        curves.draw_losses(
            axes[0], train, held_out, curves.unigram_entropy(events), "Pre-training: masked-piece loss, nats"
        )
    if bars:
        names, axis = [textwrap.fill(name, WRAPPED) for name, _ in bars], axes[-1]
        means = [statistics.mean(score or 0.0 for score in scores) for _, scores in bars]  # as in the table
        axis.bar_label(axis.barh(range(len(bars)), means), [cell_text(scores) for _, scores in bars], padding=4)
        curves.style_axis(axis, "Fine-tuned: held-out score, per cent", "")
        axis.set_yticks(range(len(bars)), names)
        axis.invert_yaxis()
        axis.set_xlim(min(0, *means, 0), 160)  # room for the numbers beside the bars
        axis.set_xticks(range(0, 101, 25))
        wide, high = figure.get_size_inches()
        figure.set_size_inches(wide + 3, max(high, 1 + LINE * sum(name.count("\n") + 2 for name in names)))
    curves.save_figure(figure, path)
    return True


def main(argv: list[str] | None = None) -> None:
    """Write and print the report. Raises ValueError for a folder without a finished run."""
    parser = command_parser("report", __doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER", help="the folder of a finished run or of a series")
    parser.add_argument("--output_dir", default="report", help="the folder for report.md and report.png (report)")
    parser.add_argument("--by_class", action="store_true", help="a second table with the F1 of every class or type")
    args = parser.parse_args(argv)
    runs = [run for folder in args.runs for run in read_finished_runs(folder)]
    output = Path(args.output_dir)
    make_folder(output)
    text = tables(runs, args.by_class)
    write_text(output / "report.md", text)
    print(text)
    if importlib.util.find_spec("matplotlib") and draw(runs, output / "report.png"):
        print(f"table and picture: {output / 'report.md'}, {output / 'report.png'}")
    else:
        print(f"table: {output / 'report.md'} (no picture: no run has scores, or matplotlib is not installed)")
