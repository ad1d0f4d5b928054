"""The table of benchmarks/step.py as a picture.

    python benchmarks/picture.py step_cpu.json speed.png

A bar is a median ratio to transformers' speed, its whiskers the smallest and the largest, the tick what was asked for.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

COLOURS = {"pretraining": "#2a6f97", "finetuning": "#52796f", "inference": "#9c6644", "smallest": "#8d99ae"}


def draw(record: dict, path: Path) -> None:
    """Write `path` (.png or .svg); peak memory, where less is better, is not a bar."""
    rows = [row for row in record["results"] if row["group"] in COLOURS]
    if not rows:
        raise ValueError("the record holds no ratio of speeds; run benchmarks/step.py first")
    labels = [f"{row['workload']} / {row['against']}" for row in rows]
    ratios = [row["ratio"] for row in rows]
    low, high = ([abs(row["ratio_range"][side] - row["ratio"]) for row in rows] for side in (0, 1))
    figure, axes = plt.subplots(figsize=(10, 0.32 * len(rows) + 1.4), layout="constrained")
    places = range(len(rows))
    bars = {"color": [COLOURS[row["group"]] for row in rows], "error_kw": {"elinewidth": 1, "ecolor": "#333333"}}
    axes.barh(places, ratios, xerr=(low, high), **bars)
    asked = [(place, row["ratio_asked_for"]) for place, row in zip(places, rows) if "ratio_asked_for" in row]
    axes.scatter([ratio for _, ratio in asked], [place for place, _ in asked], marker="|", s=160, color="black")
    axes.axvline(1, color="#bbbbbb", zorder=0)
    axes.set_yticks(places, labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("times transformers' speed in real tokens a second; tick: asked for")
    axes.set_title(f"{record['device']}, {record['threads']} threads, {record['dtype']}", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="what benchmarks/step.py wrote")
    parser.add_argument("picture", type=Path, help="where to: .png or .svg")
    args = parser.parse_args(argv)
    draw(json.loads(args.record.read_text(encoding="utf-8")), args.picture)


if __name__ == "__main__":
    main()
