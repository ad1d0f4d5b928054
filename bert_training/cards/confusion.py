"""Which classes a model takes for which others: ``confusion.json``, and its picture.

``confusion.json`` has for every split that was scored, and for every class, how many of its rows were taken for which
class; zeros are left out:

    {"validation": {"angry": {"angry": 41, "sad": 9}, "sad": {"sad": 30}}}

With up to ``MOST_CLASSES`` classes, ``confusion_validation.png`` shows it as a matrix.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from bert_training.cards.curves import new_figure, save_figure
from bert_training.files.atomic import write_json

COUNTS = "confusion.json"
MOST_CLASSES = 20  # in a picture; more counts cannot be read there
LONGEST_NAME = 24  # characters of a class in a picture
PAIRS = 10
Counts = Mapping[str, Mapping[str, int]]
"""Class -> the class that its rows were taken for -> the number of rows."""


def counts_of(matrix: np.ndarray, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """A matrix (C, C) of numbers of rows, with the names of its classes."""
    return {
        name: {names[number]: int(row[number]) for number in np.flatnonzero(row).tolist()}
        for name, row in zip(names, matrix)
    }


def most_confused(counts: Counts) -> list[tuple[int, str, str, int]]:
    """(rows, class, class that they were taken for, all rows of the first), for the PAIRS with the most rows."""
    pairs = [
        (count, name, other, sum(row.values()))
        for name, row in counts.items()
        for other, count in row.items()
        if other != name
    ]
    return sorted(pairs, key=lambda pair: -pair[0])[:PAIRS]


def picture_of(split: str) -> str:
    """The name of the picture of a split."""
    return f"confusion_{split}.png"


def write_confusion(folder: Path, by_split: Mapping[str, Counts]) -> None:
    """Write COUNTS, and if matplotlib is installed the picture of every split with few enough classes."""
    write_json(folder / COUNTS, by_split)
    for split, counts in by_split.items():
        if len(counts) <= MOST_CLASSES and importlib.util.find_spec("matplotlib"):
            draw_confusion(folder / picture_of(split), split, counts)


def draw_confusion(path: Path, split: str, counts: Counts) -> None:
    """Draw the matrix: rows are the true classes, a cell is as dark as its share of the row, and has the count."""
    matrix = np.array([[row.get(name, 0) for name in counts] for row in counts.values()])
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    names = [_drawable(name, number) for number, name in enumerate(counts)]
    side = 3 + 0.44 * len(counts)
    figure, (axis,) = new_figure(f"Rows of {split} by class", 1, (side + 0.5, side))
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(matrix):
        axis.text(
            column, row, count or "", ha="center", va="center", color="white" if shares[row, column] > 0.5 else "black"
        )
    axis.set_xticks(range(len(names)), names, rotation=90, parse_math=False)
    axis.set_yticks(range(len(names)), names, parse_math=False)
    axis.set(xlabel="predicted", ylabel="true")
    save_figure(figure, path)


def _drawable(name: str, number: int) -> str:
    """A name in one line of at most LONGEST_NAME characters; "class 7" if matplotlib's own font has not all of them."""
    from matplotlib.font_manager import findfont, get_font

    line, font = " ".join(name.split()), get_font(findfont("DejaVu Sans"))
    known = all(char.isprintable() and font.get_char_index(ord(char)) for char in line)
    return line[:LONGEST_NAME] if known else f"class {number}"
