"""Which classes a model takes for which others: the file of the counts, its pictures, and the pairs most confused.

``confusion.json`` has for every split that was scored, and for every class, how many of its rows were taken for which
class; zeros are left out:

    {"validation": {"angry": {"angry": 41, "sad": 9}, "sad": {"sad": 30}}}

With up to ``MOST_CLASSES`` classes, ``confusion_validation.png`` shows it as a matrix.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_training.cards.curves import GREY, INK, TITLE, save_figure
from bert_training.files.atomic import write_json
from bert_training.inputs.records import read_record

if TYPE_CHECKING:  # a run does without matplotlib
    from matplotlib.figure import Figure

COUNTS = "confusion.json"
MOST_CLASSES = 20  # in a picture; more counts cannot be read there
LONGEST_NAME = 24  # characters of a class in a picture
PAIRS = 10
Counts = Mapping[str, Mapping[str, int]]
"""Class -> the class that its rows were taken for -> the number of rows."""


class Confused(NamedTuple):
    """Rows of one class that were taken for another, and the number of all rows of the first."""

    name: str
    taken_for: str
    wrong: int
    rows: int


def counts_of(matrix: np.ndarray, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """A matrix (C, C) of numbers of rows, with the names of its classes."""
    return {
        name: {names[number]: int(row[number]) for number in np.flatnonzero(row).tolist()}
        for name, row in zip(names, matrix)
    }


def matrix_of(counts: Counts) -> np.ndarray:
    """The matrix (C, C) of the counts, in the order of the classes."""
    return np.array([[row.get(name, 0) for name in counts] for row in counts.values()])


def most_confused(counts: Counts, most: int = PAIRS) -> list[Confused]:
    """The pairs of classes with the most rows of the first that were taken for the second, in that order."""
    pairs = [
        Confused(name, other, count, sum(row.values()))
        for name, row in counts.items()
        for other, count in row.items()
        if other != name
    ]
    return sorted(pairs, key=lambda pair: -pair.wrong)[:most]


def picture_of(split: str) -> str:
    """The name of the picture of a split."""
    return f"confusion_{split}.png"


def write_confusion(folder: Path, by_split: Mapping[str, Counts]) -> None:
    """Write COUNTS, and if matplotlib is installed the picture of every split with few enough classes."""
    write_json(folder / COUNTS, by_split)
    for split, counts in by_split.items():
        if len(counts) <= MOST_CLASSES and importlib.util.find_spec("matplotlib"):
            draw_confusion(folder / picture_of(split), split, counts)


def read_confusion(folder: Path) -> dict[str, dict[str, dict[str, int]]]:
    """The content of COUNTS; {} if the folder has no such file.

    Raises:
        ValueError: it is damaged.
    """
    return read_record(folder / COUNTS, "copy the folder again") if (folder / COUNTS).is_file() else {}


def draw_confusion(path: Path, split: str, counts: Counts) -> None:
    """Draw the matrix: rows are the true classes, a cell is as dark as its share of the row, and has the count."""
    save_figure(confusion_figure(split, counts), path)


def confusion_figure(split: str, counts: Counts) -> "Figure":
    """The picture that ``draw_confusion`` writes."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    matrix, size = matrix_of(counts), len(counts)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    names = [_drawable(name, number) for number, name in enumerate(counts)]
    cells, longest = max(0.44 * size, 1.5), max(map(len, names))
    width, height = 2.0 + cells + 0.085 * longest, 1.2 + cells + (0.06 * longest if size > 2 else 0)
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    figure.suptitle(f"Rows of {split} by class", **TITLE)
    axis = figure.subplots()
    # One hue from white to dark: its lightness falls steadily, so that it reads in grey as well.
    image = axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            dark = shares[row, column] > 0.5
            text = f"{count:,}" if count < 10_000 else f"{count / 1000:,.0f}k"
            axis.text(column, row, text, ha="center", va="center", fontsize=9, color="white" if dark else INK)
    slanted: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if size > 2 else {}
    axis.set_xticks(range(size), names, parse_math=False, **slanted)
    axis.set_yticks(range(size), names, parse_math=False)
    axis.set_xlabel("predicted", color=GREY)
    axis.set_ylabel("true", color=GREY)
    axis.tick_params(colors=INK, length=0)
    axis.set_xticks(np.arange(size + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(size + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="#E4E4E4", linewidth=0.8)
    axis.tick_params(which="minor", length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
    bar = figure.colorbar(image, ax=axis, shrink=0.8, format=lambda share, _: f"{100 * share:.0f} %")
    bar.set_label("share of the true class", color=GREY)
    bar.ax.tick_params(colors=GREY, length=3)
    bar.outline.set_visible(False)
    return figure


def _drawable(name: str, number: int) -> str:
    """A name in one line of at most LONGEST_NAME characters; "class 7" if matplotlib's own font has not all of them."""
    from matplotlib.font_manager import findfont, get_font

    line = " ".join(name.split())
    font = get_font(findfont("DejaVu Sans"))
    if not all(char.isprintable() and font.get_char_index(ord(char)) for char in line):
        return f"class {number}"
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"
