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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bert_training.cards.curves import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LIGHT_GREY,
    ORANGE,
    VERMILION,
    curve_of,
    draw_losses,
    new_figure,
    save_figure,
    style_axis,
    training_losses,
)
from bert_training.cards.markdown import plain
from bert_training.cards.metrics import METRICS, held_out_files, percent_factor
from bert_training.files.atomic import make_folder, write_text
from bert_training.files.json_files import is_plain_name
from bert_training.files.records import RESULTS, read_events
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments
from bert_training.inputs.flags.objectives import NEXT_SENTENCE, objective_of
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.record import RUN, Record
from bert_training.tasks.classification.glue import positive_of, title_of
from bert_training.tasks.classification.scores import metric_prefix
from bert_training.tasks.scored_rows import WHOLE, Metric, compare_rows, metric_of, read_rows
from bert_training.tasks.seeds import read_summary
from bert_training.tools.run_settings import compared_settings, initial_settings, with_differences
from tokenization.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Of the labels in the picture: the characters of a line, those for which there is room, and the inches of a letter.
WRAPPED, USUAL, LETTER = 34, 18, (0.08, 0.18)
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
    if not (folder / "summary.json").is_file():
        return [read_finished_run(folder)]
    summary = read_summary(folder)
    names = [run.get("folder") if isinstance(run, dict) else run for run in _list_in(summary, "runs")]
    if wrong := [name for name in names if not is_plain_name(name)]:
        raise UserError(
            f"{folder / 'summary.json'}: expected runs in folders beside it, got {str(wrong[0])[:80]!r}; give the "
            "folders of the runs themselves"
        )
    return [replace(read_finished_run(folder / str(name)), folder=folder) for name in names]


def _list_in(record: dict, name: str) -> list:
    return record[name] if isinstance(record.get(name), list) else []


def read_finished_run(folder: Path) -> FinishedRun:
    """The run in a folder. Raises ValueError with the file if it is not finished or of another script."""
    run = Record.read(folder)
    if run.results is None:
        raise UserError(f"{folder}: expected a finished run, found no {RESULTS}")
    if run.script not in SCRIPTS:
        raise UserError(f"{folder / RUN}: expected a run of {', '.join(SCRIPTS)}; got one of {run.script[:60]!r}")
    origin = run.flags.get("model_name_or_path")
    start_label = f"from {Path(origin).name}" if origin else "random weights"
    if run.flags.get("model_impl") == "transformers":
        start_label += ", transformers' network"
    task = None if SCRIPTS[run.script].pretrains else _task_of(run.facts)
    return FinishedRun(folder, folder, task, start_label, run.facts, run.results)


def _task_of(facts: dict) -> str:
    """The title of the task of a fine-tuning, from the content of its run.json."""
    name = facts["flags"].get("task_name")
    if name is None and isinstance(facts.get("data"), dict):
        name = facts["data"].get("task")
    if name:
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
            raise UserError(
                f"{run.place} and {seen[key]} are runs with the same settings and the same seed ({seed}); expected "
                "each run once: leave one of them out"
            )
        seen[key] = run.place
    return runs


def cells(runs: list[FinishedRun]) -> dict[tuple[str, str], dict[str, Scores]]:
    """The scores by (task, metric) and by start, in the order of the runs.

    Args:
        runs: as ``fine_tuning_runs`` returned them.
    """
    table: dict[tuple[str, str], dict[str, Scores]] = {}
    for run in runs:
        assert run.task is not None
        alike = [other for other in runs if other.facts["script"] == run.facts["script"]]
        for key in SCRIPTS[run.facts["script"]].metrics:
            of_test = key.replace("eval_", "test_", 1)
            for name, ending in ((key, ""), (of_test, ", test")):
                if name in run.results if not ending else all(name in other.results for other in alike):
                    ending += rows_in([other for other in runs if other.task == run.task], ending[2:] or "validation")
                    scores = table.setdefault((run.task, METRICS[key].table_name + ending), {})
                    value, factor = run.results[name], percent_factor(run.results)
                    scores.setdefault(run.start_label, []).append(None if value is None else factor * value)
    return table


def splits_of(run: FinishedRun) -> dict[str, dict]:
    """What run.json says of the splits of a fine-tuning."""
    data = run.facts.get("data")
    return data.get("splits", {}) if isinstance(data, dict) else {}


def rows_in(runs: list[FinishedRun], split: str) -> str:
    """How many rows of a split the runs are scored on, for the name of a metric; "" if they do not say it."""
    parts = [part for run in runs for name, part in splits_of(run).items() if name.startswith(split)]
    counts = {part["examples"] for part in parts if "examples" in part}
    return f", {' to '.join(f'{count:,}' for count in sorted({min(counts), max(counts)}))} rows" if counts else ""


def differences(runs: list[FinishedRun]) -> list[str]:
    """The lines of the table that compares each run with the first one that is scored on the same rows.

    Runs that share a cell with others are left out: --compare_to compares series.
    """
    lines, firsts = list[str](), dict[str, tuple[FinishedRun, list[dict]]]()
    cells_of = [(run.task, run.start_label) for run in runs]
    for run in (run for run, cell in zip(runs, cells_of) if cells_of.count(cell) == 1):
        for split in splits_of(run):
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
        return "undefined" if undefined == 1 else f"undefined ({undefined})"
    numbers = [0.0 if value is None else value for value in values]
    text = f"{statistics.mean(numbers):,.{digits}f}"
    if len(numbers) > 1:
        text += f" ± {statistics.stdev(numbers):,.{digits}f} ({len(numbers)})"
    return f"{text}, {undefined} undefined" if undefined else text


def start_labels_of(runs: list[FinishedRun]) -> list[str]:
    """The starts of the fine-tuning runs: random weights first, and each control after the run that it controls."""
    labels = sorted({run.start_label for run in runs})
    random_weights = [label for label in labels if label.startswith("random")]
    return random_weights + [label for label in labels if label not in random_weights]


def f1_by_class(results: dict) -> dict[str, float]:
    """The F1 on validation data of every class of a classification or type of names, by its name; {} without any."""
    if isinstance(classes := results.get("eval_by_class"), dict):
        return {name: one["f1"] for name, one in classes.items()}
    return {key[len("eval_") : -len("_f1")]: value for key, value in results.items() if re.fullmatch(TYPE_F1, key)}


def class_cells(runs: list[FinishedRun]) -> dict[tuple[str, str], dict[str, Scores]]:
    """As ``cells``, the F1 in per cent by (task, class) and by start."""
    table: dict[tuple[str, str], dict[str, Scores]] = {}
    for run in runs:
        if SCRIPTS[run.facts["script"]].arguments in (GlueArguments, NerArguments):
            for name, value in f1_by_class(run.results).items():
                row = (str(run.task), name)
                table.setdefault(row, {}).setdefault(run.start_label, []).append(100 * value)
    return table


def tables(runs: list[FinishedRun], by_class: bool = False) -> str:
    """The comparison, the pre-training runs and the list of all runs, in Markdown.

    Args:
        by_class: whether there is a table with the F1 of every class.
    """
    lines = []
    fine_tuning = fine_tuning_runs(runs)
    if fine_tuning:
        lines += [*_comparison(fine_tuning, cells(fine_tuning), "metric"), "", *differences(fine_tuning)]
    if by_class and (of_classes := class_cells(fine_tuning)):
        lines += [*_comparison(fine_tuning, of_classes, "F1 of the class"), ""]
    pretraining = [run for run in runs if run.task is None]
    if pretraining:
        lines += [
            "| pre-training | masked pieces: loss, nats | accuracy, % | next sentence: accuracy, % | steps | seconds |",
            "|---|---:|---:|---:|---:|---:|",
            *[pretraining_row(run) for run in pretraining],
            "",
            *_words(pretraining),
        ]
    lines += _list_of_runs(runs)
    return "\n".join(lines) + "\n"


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


def _words(runs: list[FinishedRun]) -> list[str]:
    """The table of what can be compared between vocabularies: a row for each run and each of its held-out files."""
    rows = []
    for run in runs:
        for name in ["", *held_out_files(run.results)]:
            prefix = f"eval_{name}_" if name else "eval_"
            if (key := f"{prefix}nats_per_word") in run.results:
                nats, pieces = run.results[key], run.results[f"{prefix}pieces_per_word"]
                events = read_events(run.place / "metrics.jsonl")
                before = next((e[key] for e in events if e["event"] == "eval" and e["step"] == 0 and key in e), None)
                cells = ["" if before is None else f"{before:.3f}", f"{nats:.3f}", f"{pieces:.3f}"]
                cells.append(f"{100 * run.results[f'{prefix}unk_share']:.2f}")
                rows.append(f"| {plain(run.folder.name)} | {plain(name or 'all')} | {' | '.join(cells)} |")
    if not rows:
        return []
    heads = (
        "| pre-training | held-out text | nats a word before the first step | at the end | pieces a word | [UNK], % |"
    )
    return [heads, "|---|---|---:|---:|---:|---:|", *rows, ""]


def draw(runs: list[FinishedRun], path: Path) -> bool:
    """Draw a bar for every task and start and, beside them, the loss curve of the first pre-training run.

    Returns:
        whether there was something to draw; a run may have no scores.
    """
    bars: dict[tuple[str, str], dict[str, Scores]] = {}
    fine_tuning = fine_tuning_runs(runs)
    for (task, metric), scores in cells(fine_tuning).items():
        if task not in {drawn for drawn, _ in bars}:  # only the first metric of a task is drawn
            bars[task, metric] = scores
    pretrained = next((run for run in runs if run.task is None), None)
    if not bars and not pretrained:
        return False
    figure, axes = new_figure("What pre-training was worth" if pretrained else "Runs", bool(bars) + bool(pretrained))
    if pretrained:
        events = read_events(pretrained.folder / "metrics.jsonl")
        entropy = next((event["unigram_entropy"] for event in events if event.get("unigram_entropy")), None)
        train, held_out = training_losses(events), curve_of(events, "eval", "eval_mlm_loss")
        draw_losses(axes[0], train, held_out, entropy, "Pre-training: masked-piece loss, nats")
    if bars:
        names = {f"from {pretrained.folder.name}": "after this pre-training"} if pretrained else {}
        draw_bars(axes[-1], bars, {label: names.get(label, label) for label in start_labels_of(fine_tuning)})
        # Room for long labels, without which constrained_layout leaves nothing of the axes.
        lines = [label.get_text().split("\n") for label in axes[-1].get_yticklabels()]
        longest, most = max(len(line) for label in lines for line in label), max(map(len, lines))
        bars_high = sum(len(scores) + 0.7 for scores in bars.values())
        wide, high = figure.get_size_inches()
        wide += len(axes) * LETTER[0] * max(0, longest - USUAL)
        figure.set_size_inches(wide, max(high, 1.2 + LETTER[1] * (most + 1) * bars_high / 1.7))
    save_figure(figure, path)
    return True


def draw_bars(axis: "Axes", bars: dict[tuple[str, str], dict[str, Scores]], names: dict[str, str]) -> None:
    """Draw horizontal bars of the mean scores, grouped by task.

    Args:
        bars: (task, metric) -> label of a start -> the scores of its runs.
        names: label of a start -> its name in the picture.
    """
    colours = dict(zip(names, (LIGHT_GREY, BLUE, VERMILION, GREEN, ORANGE), strict=False))
    centres, rows, place = [], [], 0.0
    for (task, metric), scores in bars.items():
        first = place
        for label in (label for label in names if label in scores):
            known = [score for score in scores[label] if score is not None]
            mean = statistics.mean(score or 0.0 for score in scores[label])  # undefined counts as 0, as in the table
            axis.barh(place, mean, height=0.8, color=colours.get(label, GREY))
            undefined = len(scores[label]) - len(known)
            text = f"{mean:.1f}" + (f", {undefined} undefined" if undefined else "") if known else "undefined"
            axis.annotate(
                textwrap.fill(f"{text}  {names[label]}", WRAPPED),
                (max(mean, 0), place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=10,
                color=INK,
            )
            place += 1
        centres.append((first + place - 1) / 2)
        rows.append("\n".join([textwrap.fill(task, WRAPPED), *metric.split(", ", 1)]))
        place += 0.7
    style_axis(axis, "Fine-tuned: held-out score, per cent")
    axis.set_xlabel("")
    axis.grid(visible=False)
    axis.set_yticks(centres, rows)
    axis.invert_yaxis()
    lowest = min(0, *axis.get_xlim())
    axis.set_xlim(lowest, 140)  # room for the words beside the bars
    axis.spines["bottom"].set_bounds(lowest, 100)
    axis.set_xticks([0, 25, 50, 75, 100])


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
    if not importlib.util.find_spec("matplotlib"):
        print(f"table: {output / 'report.md'} (for the picture: pip install matplotlib)")
    elif draw(runs, output / "report.png"):
        print(f"table and picture: {output / 'report.md'}, {output / 'report.png'}")
    else:
        print(f"table: {output / 'report.md'} (no picture: no run has scores)")
