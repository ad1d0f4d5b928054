"""Draw the table of lab/benchmarks/step.py, or the cold start of lab/benchmarks/whole_runs.py.

    python lab/benchmarks/picture.py lab/records/step_cpu.json docs/images/speed.png
    python lab/benchmarks/picture.py lab/records/whole_runs.json docs/images/cold_start.png

Of step.py, a bar is the median ratio to transformers' speed; its whisker reaches from the smallest to the largest
ratio. The words beside it say how the batches of transformers' BERT were padded. The picture leaves out the smallest
cases, in which both are equally fast, and peak memory, of which less is better.

Of whole_runs.py, a bar is the seconds from typing the command to the end of the first optimiser step, in its parts.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.cards.curves import BLUE, DPI, GREY, INK, LIGHT_GREY, SKY, TITLE, WIDTH, style_axis
from lab.tables import workload_name

GROUPS = ("pretraining", "finetuning", "inference")
COLOURS = {"padded to the longest": SKY, "rows of like length": LIGHT_GREY}  # blue for the others
NAMES = {"stock": "", "stock, padded to the longest": "padded to the longest row"}
PARTS = (BLUE, SKY, GREY, LIGHT_GREY)


def draw(record: dict, path: Path) -> None:
    """Write `path` (.png or .svg). Raises ValueError for a record with neither ratios of speeds nor a cold start."""
    if "cold start" in record:
        return draw_cold_start(record["cold start"], path)
    rows = [row for row in record.get("results", []) if row["group"] in GROUPS]
    if not rows:
        raise ValueError(
            "the record has neither ratios of speeds nor a cold start; run lab/benchmarks/step.py, "
            'or lab/benchmarks/whole_runs.py --only "cold start", first'
        )
    figure = Figure(figsize=(WIDTH, 0.34 * len(rows) + 1.8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    axes = figure.subplots()
    places, place, last = {}, 0.0, None
    for row in rows:
        place += 0.8 * (last is not None and row["workload"] != last)
        low, high = (abs(limit - row["ratio"]) for limit in row["ratio_range"])
        colour = next((c for ending, c in COLOURS.items() if row["against"].endswith(ending)), BLUE)
        whisker = {"xerr": [[low], [high]], "error_kw": {"elinewidth": 1.2, "ecolor": INK}}
        axes.barh(place, row["ratio"], height=0.8, color=colour, **whisker)
        peer = NAMES.get(row["against"], workload_name(row["against"].removeprefix("stock, ")))
        axes.annotate(
            f"{row['ratio']:.2f}  {peer}",
            (row["ratio"] + high, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=INK,
        )
        places.setdefault(row["workload"], []).append(place)
        place, last = place + 1, row["workload"]
    machine = f"{record['device']}, {record['threads']} threads, {record['dtype']}, torch {record['versions']['torch']}"
    style_axis(
        axes,
        f"{machine}\nBeside each bar: the median, and how the batches of transformers' BERT are padded\n"
        "Thin lines: the smallest and the largest ratio; dashed line: equally fast",
        below="speed in real tokens a second, divided by the speed of transformers' BERT",
    )
    figure.suptitle("How many times as fast as transformers' BERT", **TITLE)
    axes.grid(visible=False)
    axes.axvline(1, color=INK, linewidth=0.9, linestyle="--")
    names = [workload_name(workload).replace(", ", "\n", 1) for workload in places]
    axes.set_yticks([sum(where) / len(where) for where in places.values()], names, color=GREY)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(row["ratio_range"][1] for row in rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)


def draw_cold_start(row: dict, path: Path) -> None:
    """Write `path`: the parts of a cold start as bars, ours above Trainer's.

    Beside a bar is the median of the whole. The parts have medians of their own, whose sum may differ from it.
    """
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    sides = {"ours": "ours", "stock": "transformers'\nTrainer"}
    for place, side in enumerate(sides):
        start = 0.0
        for (part, seconds), colour in zip(row["parts"][side].items(), PARTS):
            axes.barh(place, seconds, left=start, color=colour, label=None if place else part)
            start += seconds
        whole = statistics.median(row[f"{side}_seconds"])
        axes.annotate(f"{whole:.1f} s in all", (start, place), xytext=(6, 0), textcoords="offset points", va="center")
    machine = f"{row['device']}, {row['threads']} threads, BERT-{row['size'].capitalize()}"
    below = "seconds since the command was typed; each part and the whole: the median of several starts"
    style_axis(axes, f"{machine}, torch {row['versions']['torch']}", below=below)
    figure.suptitle("From typing the command to the end of the first step", **TITLE)
    figure.legend(loc="outside lower center", ncols=len(PARTS), frameon=False)
    axes.grid(visible=False)
    axes.set_yticks(range(len(sides)), sides.values(), color=GREY)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="a record of lab/benchmarks/step.py or whole_runs.py")
    parser.add_argument("picture", type=Path, help="the file to write, .png or .svg")
    args = parser.parse_args(argv)
    draw(json.loads(args.record.read_text(encoding="utf-8")), args.picture)


if __name__ == "__main__":
    main()
