"""Put several runs side by side in one table and one picture.

    python -m training report RUN_FOLDER... --output_dir report      # or: make report RUNS="a b" OUT=report

The table has one row for each fine-tuning task, and one column for each start: random weights, a pre-trained folder,
transformers' network. Runs that differ only in their seed share a cell: mean ± standard deviation (number of runs).
Runs that differ in another setting on which the result depends, such as the learning rate, have separate rows, which
name the difference. An undefined score, such as the correlation of constant predictions, is shown as undefined and
excluded from the mean. The folder of a series (--seeds, --paper) stands for all of its runs. Pre-training runs are
listed below, and the held-out loss of the first one is drawn beside the bars. The command writes report.md and, if
matplotlib is installed, report.png.
"""

import argparse
import importlib.util
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from training.records.curves import (
    BLUE,
    DPI,
    GREEN,
    GREY,
    INK,
    LIGHT_GREY,
    ORANGE,
    VERMILION,
    canvas,
    draw_losses,
    dress,
    read_events,
    series,
)
from training.tasks.classification.glue import title_of
from training.tools.run_settings import shape, start, told_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# script -> (title of its task, result key -> (name in the table, factor to per cent)). Only the first of the metrics
# that a task has is drawn.
FINE_TUNING = {
    "run_glue.py": (
        "classification",
        {
            "eval_matthews_correlation": ("Matthews correlation", 100),
            "eval_pearson": ("Pearson correlation", 100),
            "eval_spearmanr": ("Spearman correlation", 100),
            "eval_mnli_m_accuracy": ("accuracy, matched", 100),
            "eval_mnli_mm_accuracy": ("accuracy, mismatched", 100),
            "eval_accuracy": ("accuracy", 100),
            "eval_f1": ("F1", 100),
        },
    ),
    "run_squad.py": ("question answering", {"eval_exact_match": ("exact match", 1), "eval_f1": ("F1", 1)}),
    "run_ner.py": (
        "named entities",
        {"eval_f1": ("F1", 100), "eval_precision": ("precision", 100), "eval_recall": ("recall", 100)},
    ),
    "run_swag.py": ("multiple choice", {"eval_accuracy": ("accuracy", 100)}),
}
# The content of a cell: the score of each run in per cent, or None if it is undefined.
Scores = list[float | None]


@dataclass
class Finished:
    """A finished run.

    Attributes:
        folder: the folder that the user gave: that of the run or of its series.
        place: the run's own folder.
        task: the title of its task; None for pre-training.
        start: the weights that it started from, in words.
        facts, results: the contents of run.json and all_results.json.
    """

    folder: Path
    place: Path
    task: str | None
    start: str
    facts: dict
    results: dict


def read_runs(folder: str | Path) -> list[Finished]:
    """The run in a folder, or the runs of a series. Raises ValueError with the file if a run is not finished."""
    folder = Path(folder)
    if not (folder / "summary.json").is_file():
        return [read_run(folder)]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return [replace(read_run(folder / run["folder"]), folder=folder) for run in summary["runs"]]


def read_run(folder: Path) -> Finished:
    """The run in a folder. Raises ValueError with the file if it is not finished or of another script."""
    contents = []
    for name in ("run.json", "all_results.json"):
        try:
            contents.append(json.loads((folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise ValueError(f"{folder / name}: expected the records of a finished run ({error})") from error
    facts, results = contents
    flags, script = facts["flags"], facts["script"]
    if script not in {"run_pretraining.py", *FINE_TUNING}:
        known = ", ".join(["run_pretraining.py", *FINE_TUNING])
        raise ValueError(f"{folder / 'run.json'}: expected a run of {known}; got one of {script}")
    origin = flags.get("model_name_or_path")
    begun = f"from {Path(origin).name}" if origin else "random weights"
    if flags.get("model_impl") == "transformers":
        begun += ", transformers' network"
    task = None
    if script in FINE_TUNING:
        task = flags.get("task_name") or (facts["data"].get("task") if isinstance(facts.get("data"), dict) else None)
        form = "SQuAD 2.0 form" if flags.get("version_2_with_negative") else FINE_TUNING[script][0]
        task = title_of(task) if task else form
    return Finished(folder, folder, task, begun, facts, results)


def compared(runs: list[Finished]) -> list[Finished]:
    """The fine-tuning runs; where two have equal ``task`` or ``start`` but other settings, the difference is appended.

    Raises:
        ValueError: two runs have equal settings and seeds, so that a mean would count one result twice.
    """
    runs = [run for run in runs if run.task]
    starts = told_apart([run.start for run in runs], [start(run.facts) for run in runs])
    tasks = told_apart([run.task for run in runs if run.task], [shape(run.facts) for run in runs])
    runs = [replace(run, task=task, start=begun) for run, task, begun in zip(runs, tasks, starts)]
    seen: dict[tuple, Path] = {}
    for run in runs:
        seed = run.facts["flags"].get("seed")
        key = (run.task, run.start, seed)
        if key in seen:
            raise ValueError(
                f"{run.place} and {seen[key]} are runs with the same settings and the same seed ({seed}); expected "
                "each run once: leave one of them out"
            )
        seen[key] = run.place
    return runs


def cells(runs: list[Finished]) -> dict[tuple[str, str], dict[str, Scores]]:
    """The scores of the runs by (task, metric) and by start, in the order of ``runs``, which ``compared`` returned."""
    table: dict[tuple[str, str], dict[str, Scores]] = {}
    for run in runs:
        assert run.task is not None
        _, metrics = FINE_TUNING[run.facts["script"]]
        for key, (metric, factor) in metrics.items():
            if key in run.results:
                value = run.results[key]
                scores = table.setdefault((run.task, metric), {}).setdefault(run.start, [])
                scores.append(None if value is None else factor * value)
    return table


def shown(values: Scores | None, digits: int = 1) -> str:
    """The text of a cell: mean ± standard deviation (number of runs); "" without runs."""
    if not values:
        return ""
    known = [value for value in values if value is not None]
    if not known:
        return "undefined" if len(values) == 1 else f"undefined ({len(values)})"
    text = f"{statistics.mean(known):,.{digits}f}"
    if len(known) > 1:
        text += f" ± {statistics.stdev(known):,.{digits}f}"
    if len(values) > 1:
        text += f" ({len(known)})"
    return text if len(known) == len(values) else f"{text}, {len(values) - len(known)} undefined"


def starts_of(runs: list[Finished]) -> list[str]:
    """The starts of the fine-tuning runs: random weights first, and each control after the run that it controls."""
    return sorted({run.start for run in runs}, key=lambda begun: (not begun.startswith("random"), begun))


def tables(runs: list[Finished]) -> str:
    """The comparison and the list of its runs, in Markdown."""
    lines = []
    tuned = compared(runs)
    starts = starts_of(tuned)
    if starts:
        lines += [f"| task | metric, per cent | {' | '.join(starts)} |", f"|---|---|{'---:|' * len(starts)}"]
        for (task, metric), row in cells(tuned).items():
            lines.append(f"| {task} | {metric} | {' | '.join(shown(row.get(begun)) for begun in starts)} |")
        lines.append("")
    pretrained = [run for run in runs if run.task is None]
    if pretrained:
        lines += [
            "| pre-training | masked pieces: loss, nats | accuracy, % | next sentence: accuracy, % | steps | seconds |",
            "|---|---:|---:|---:|---:|---:|",
            *map(pretraining_row, pretrained),
            "",
        ]
    lines += ["| run | steps | seconds of training | commit | device |", "|---|---:|---:|---|---|"]
    alike: dict[tuple, Scores] = {}
    for run in runs:
        steps, seconds = run.results.get("train_steps", 0), run.results.get("train_runtime", 0)
        alike.setdefault((run.folder, steps, run.facts["commit"], run.facts["device"]), []).append(seconds)
    for (folder, steps, commit, device), seconds in alike.items():
        lines.append(f"| {folder} | {steps:,} | {shown(seconds, 0)} | {commit} | {device} |")
    return "\n".join(lines) + "\n"


def pretraining_row(run: Finished) -> str:
    """A row of the table of pre-training runs."""
    found = run.results
    nsp = f"{100 * found['eval_nsp_accuracy']:.1f}" if "eval_nsp_accuracy" in found else ""
    return (
        f"| {run.folder.name} | {found['eval_mlm_loss']:.3f} | {100 * found['eval_mlm_accuracy']:.1f} | {nsp} "
        f"| {found['train_steps']:,} | {found['train_runtime']:,.0f} |"
    )


def draw(runs: list[Finished], path: Path) -> None:
    """Draw a bar for every task and start and, beside them, the loss curve of the first pre-training run."""
    bars: dict[tuple[str, str], dict[str, Scores]] = {}
    tuned = compared(runs)
    for (task, metric), row in cells(tuned).items():
        if task not in {name for name, _ in bars}:
            bars[task, metric] = row
    pretrained = next((run for run in runs if run.task is None), None)
    figure, axes = canvas("What pre-training was worth" if pretrained else "Runs", bool(bars) + bool(pretrained))
    if pretrained:
        events = read_events(pretrained.folder / "metrics.jsonl")
        entropy = next((event["unigram_entropy"] for event in events if event.get("unigram_entropy")), None)
        train, held_out = series(events, "train", "mlm_loss"), series(events, "eval", "eval_mlm_loss")
        draw_losses(axes[0], train, held_out, entropy, "Pre-training: masked-piece loss, nats")
    if bars:
        names = {f"from {pretrained.folder.name}": "after this pre-training"} if pretrained else {}
        draw_bars(axes[-1], bars, {begun: names.get(begun, begun) for begun in starts_of(tuned)})
    figure.savefig(path, dpi=DPI)


def draw_bars(axis: "Axes", bars: dict[tuple[str, str], dict[str, Scores]], starts: dict[str, str]) -> None:
    """Draw horizontal bars of the mean scores, grouped by task; ``starts`` has the label of each start."""
    colours = dict(zip(starts, (LIGHT_GREY, BLUE, VERMILION, GREEN, ORANGE), strict=False))
    places, names, place = [], [], 0.0
    for (task, metric), row in bars.items():
        first = place
        for begun in (begun for begun in starts if begun in row):
            known = [value for value in row[begun] if value is not None]
            value = statistics.mean(known) if known else 0
            colour = colours.get(begun, GREY)
            axis.barh(place, value, height=0.8, color=colour)
            axis.annotate(
                f"{f'{value:.1f}' if known else 'undefined'}  {starts[begun]}",
                (max(value, 0), place),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=10,
                color=INK,
            )
            place += 1
        places.append((first + place - 1) / 2)
        names.append(f"{task}\n{metric}")
        place += 0.7
    dress(axis, "Fine-tuned: held-out score, per cent")
    axis.set_xlabel("")
    axis.grid(visible=False)
    axis.set_yticks(places, names)
    axis.invert_yaxis()
    axis.set_xlim(min(0, *axis.get_xlim()), 140)
    axis.set_xticks([0, 25, 50, 75, 100])


def main(argv: list[str] | None = None) -> None:
    """Write and print the report. Raises ValueError for a folder without a finished run."""
    parser = argparse.ArgumentParser(prog="python -m training report", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER", help="the folder of a finished run or of a series")
    parser.add_argument("--output_dir", default="report", help="the folder for report.md and report.png (report)")
    args = parser.parse_args(argv)
    runs = [run for folder in args.runs for run in read_runs(folder)]
    output = Path(args.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    text = tables(runs)
    (output / "report.md").write_text(text, encoding="utf-8")
    print(text)
    if importlib.util.find_spec("matplotlib"):
        draw(runs, output / "report.png")
        print(f"table and picture: {output / 'report.md'}, {output / 'report.png'}")
    else:
        print(f"table: {output / 'report.md'} (for the picture: pip install matplotlib)")
