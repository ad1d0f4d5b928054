"""The flags of a planned run, and the words that they become on its command line."""

from collections.abc import Sequence

# The name of a flag without its dashes -> its value: True for a switch that is on.
Flags = dict[str, str | int | float | bool | Sequence[str]]
SMALL = 0.01  # numbers below this are written with an exponent, as in "2e-3"


def words_of(flags: Flags) -> list[str]:
    """The words of a command, in the order of the flags. A switch that is off is left out."""
    words = []
    for name, value in flags.items():
        if value is False:
            continue
        words.append(f"--{name}")
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, Sequence):
            words += value
        elif value is not True:
            words.append(number_in_words(value))
    return words


def files_in(flags: Flags) -> list[str]:
    """The files and folders that the flags name."""
    named: list[str] = []
    for name, value in flags.items():
        if name.endswith(("_file", "_dir")):
            named += [value] if isinstance(value, str) else value if isinstance(value, Sequence) else []
    return named


def number_in_words(value: float) -> str:
    """A number as one writes it by hand: "1200", "0.8", "2e-3"."""
    if isinstance(value, int):
        return str(value)
    text = f"{value:g}"
    if 0 < abs(value) < SMALL:
        mantissa, exponent = f"{value:e}".split("e")
        text = f"{float(mantissa):g}e{int(exponent)}"
    assert float(text) == value, f"{value!r} has more digits than {text}"
    return text
