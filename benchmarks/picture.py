"""Draw the table of benchmarks/step.py.

    python benchmarks/picture.py step_cpu.json speed.png

A bar is the median ratio to transformers' speed; its whisker reaches from the smallest to the largest ratio. The
picture leaves out the smallest cases, in which both are equally fast, and peak memory, of which less is better.
"""

import argparse
import json
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

GROUPS = ("pretraining", "finetuning", "inference")
COLOURS = {"padded to the longest": "#56A0D3", "rows of like length": "#B5B5B5"}  # blue for the others
NAMES = {"stock": "stock", "stock, padded to the longest": "padded to the longest row of a random batch"}


def draw(record: dict, path: Path) -> None:
    """Write `path` (.png or .svg). Raises ValueError for a record without any ratio of speeds."""
    rows = [row for row in record["results"] if row["group"] in GROUPS]
    if not rows:
        raise ValueError("the record holds no ratio of speeds; run benchmarks/step.py first")
    figure = Figure(figsize=(9.2, 0.36 * len(rows) + 1.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    places, place, last = {}, 0.0, None
    for row in rows:
        place += 0.6 * (last is not None and row["workload"] != last)
        low, high = (abs(limit - row["ratio"]) for limit in row["ratio_range"])
        colour = next((c for ending, c in COLOURS.items() if row["against"].endswith(ending)), "#0072B2")
        whisker = {"xerr": [[low], [high]], "error_kw": {"elinewidth": 1, "ecolor": "#333333"}}
        axes.barh(place, row["ratio"], height=0.8, color=colour, **whisker)
        peer = NAMES.get(row["against"], row["against"].removeprefix("stock, "))
        axes.annotate(
            f"{row['ratio']:.2f}  {peer}",
            (row["ratio"] + high, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color="#333333",
        )
        places.setdefault(row["workload"], []).append(place)
        place, last = place + 1, row["workload"]
    axes.axvline(1, color="#333333", linewidth=0.8, linestyle="--")
    axes.set_yticks([sum(where) / len(where) for where in places.values()], list(places))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.45 * max(row["ratio_range"][1] for row in rows))
    axes.set_xlabel("times the speed of transformers' BERT, in real tokens a second", color="#555555")
    machine = f"{record['device']}, {record['threads']} threads, {record['dtype']}"
    axes.set_title(f"{machine}, torch {record['versions']['torch']}", fontsize=9.5, loc="left", color="#555555")
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="a record of benchmarks/step.py")
    parser.add_argument("picture", type=Path, help="the file to write, .png or .svg")
    args = parser.parse_args(argv)
    draw(json.loads(args.record.read_text(encoding="utf-8")), args.picture)


if __name__ == "__main__":
    main()
