"""Compare the figures on the pages of the documentation with the records that they are tied to.

A figure is a number in the text or in a table, outside code, links and comments, that
- has a decimal point, an exponent or commas between its thousands,
- stands before a per-cent sign, "per cent", "percent", "times", or a unit of time, memory, amount or score (``UNITS``),
- or is the whole content of a table's cell, alone or with other figures ("24.8 ± 1.7 (5)", "1.77 to 1.94").
A sign before the number belongs to the figure. Versions ("torch 2.13", "SQuAD 1.1") and references to a part of a
text ("section 3.1", "Table 7") are not figures.

After every paragraph, list item, table or heading that contains figures stands a comment. It has one entry for each
figure, in the order of the figures, separated by semicolons:

    <!-- figures: mini-14000#eval_mlm_loss; percent(mini-14000#eval_nsp_accuracy); =30,522 (size of the vocabulary) -->

- ``FILE#PATH`` is a value in a record below lab/records/, lab/records/runs/, bert_training/ or the project's root. If
FILE
  is a folder, the record is its all_results.json. If FILE contains ``*``, the entry is the list of the values of all
  files or folders that match. The steps of a PATH are ``.name``, ``["any name"]``, ``[3]`` and
  ``[name=value,name=value]``. The last one selects the only object of a list that has these values; a comma in a value
  is written ``\\,``.
- ``FUNCTION(ENTRY, ...)`` calls one of ``FUNCTIONS``. Inside it, a plain number is an entry too.
- ``=30,522 (what it is)`` is a constant that was not measured here: a setting, or a published number with its source.
``<!-- constants: 30,522; 0.1 -->`` is short for a comment that contains only constants.

The value, rounded to as many decimals as the figure has and with commas between its thousands, must be equal to the
text of the figure. The text between ``<!-- python COMMAND -->`` and ``<!-- end -->`` is the output of that command,
and is compared as a whole. So is the text between ``<!-- copy of REPORT -->`` and ``<!-- end -->``, where REPORT is the
path of the recorded report of one of the paper's tables (``copy_of``).

`bert-repro verify docs` and `tests/project/test_figures.py` compare the pages. Both need a checkout: the pages,
their records and the benchmarks, which are imported when a page asks for them, are not installed.
"""

import importlib
import json
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from bert_training.tools import report
from lab.paper.report import RULE

ROOT = Path(__file__).parents[2]
RECORDS = ("lab/records", "lab/records/runs", "training", ".")
UNITS = r"(?:%|per\s?cent\b|times\b|ms\b|s\b|seconds?\b|minutes?\b|hours?\b|[kKMG]B\b|[kMG]\b|GFLOP|nats\b|points?\b)"
NUMBER = r"(?:(?<![\w.,])[-+−])?(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])(?!\.\d)"
VERSIONS = (
    r"\b(?:torch|PyTorch|transformers|Python|python|tokenizers|datasets|accelerate|numpy|CUDA|onnxruntime|Apache)"
    r"[ -]\d+(?:\.\d+)+(?:(?:,\s|\s(?:to|and|or)\s)\d+(?:\.\d+)+)*|\bSQuAD\s(?:1\.1(?:\sand\s2\.0)?|2\.0)(?!\d)"
)
PLACES = r"\b(?:[Ss]ections?|[Aa]ppendix|[Tt]ables?|[Ff]igures?|[Ee]quations?)\s[A-Z]?\.?\d+(?:\.\d+)*(?:,\s\d+\.\d+)*"
CELL = re.compile(rf"(?:{NUMBER}|[\s%/()±]|\bto\b)+")


@dataclass
class Figure:
    """A number on a page: its text, and its place in characters from the beginning of the page."""

    text: str
    start: int
    end: int


@dataclass
class Block:
    """A paragraph, list item, table or heading, with the figures in it and the entries of the comments after it."""

    line: int
    section: int
    figures: list[Figure] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)


def pages() -> list[Path]:
    """The pages of the documentation, in order."""
    return sorted(
        path
        for pattern in ("*.md", ".github/**/*.md", "docs/**/*.md")
        for path in ROOT.glob(pattern)
        if ROOT / "lab/records/runs" not in path.parents  # There are only model cards, which the runs wrote.
    )


# --- What stands on a page -------------------------------------------------------------------------------------------


def mask_code(text: str) -> str:
    """The page at its full length, with fillers for what is not prose.

    ``\x02`` replaces the characters of code, links, versions and references, ``\x01`` those of comments.
    """

    def blank(filler: str) -> Callable[[re.Match[str]], str]:
        return lambda match: re.sub(r"[^\n]", filler, match[0])

    text = re.sub(r"^```.*?^```", blank("\x02"), text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ {4}(?:python|torchrun|accelerate)\b.*$", blank("\x02"), text, flags=re.MULTILINE)
    text = re.sub(r"<!--.*?-->", blank("\x01"), text, flags=re.DOTALL)
    for pattern in (r"`[^`]+`", r"\]\([^)]*\)", r"https?://\S+", VERSIONS, PLACES):
        text = re.sub(pattern, blank("\x02"), text)
    return text


def figures_in(line: str, start: int, head: bool = False) -> list[Figure]:
    """The figures of a masked line that begins at ``start``; with ``head``, it is the head of a table."""
    table, figures = line.startswith("|"), []
    for match in re.finditer(NUMBER, line):
        left, right = line.rfind("|", 0, match.start()) + 1, line.find("|", match.end())
        alone = table and not head and CELL.fullmatch(line[left : len(line) if right < 0 else right])
        marked = re.search(r"[.,]\d|\de", match[0]) or re.match(rf"\s?{UNITS}", line[match.end() :])
        if alone or marked:
            figures.append(Figure(match[0], start + match.start(), start + match.end()))
    return figures


def blocks_of(text: str) -> list[Block]:
    """All blocks of a page, in their order. A comment belongs to the last block that begins before it."""
    blocks, current, section, place = [Block(0, 0)], None, 0, 0
    lines = mask_code(text).split("\n")
    for number, line in enumerate(lines, 1):
        bare = line.replace("\x01", "").strip()
        heading = line.startswith("#")
        section += heading
        table = bare.startswith("|")
        begins = heading or re.match(r"\s*(?:[-*]|\d+\.)\s", line) or (table != (current == "table") and bare)
        if bare and (begins or current is None):
            blocks.append(Block(number, section))
        if bare:
            following = lines[number] if number < len(lines) else ""
            head = table and bool(re.match(r"\|[-:| ]+\|$", following))
            blocks[-1].figures += figures_in(line, place, head)
            current = None if heading else "table" if table else "text"
        elif "\x01" not in line:
            current = None
        for match in re.finditer("\x01+", line):
            if text.startswith("<!--", place + match.start()):
                blocks[-1].entries += entries_of(text[place + match.start() :])
        place += len(line) + 1
    return blocks


def entries_of(text: str) -> list[str]:
    """The entries of the comment at the beginning of ``text``, if it is a comment about figures."""
    match = re.match(r"<!--\s*(figures|constants):(.*?)-->", text, re.DOTALL)
    if not match:
        return []
    entries = [" ".join(entry.split()) for entry in match[2].split(";")]
    return [f"={entry}" if match[1] == "constants" else entry for entry in entries if entry]


# --- What an entry says ----------------------------------------------------------------------------------------------


def as_list(value: Any) -> list[float]:
    """A list of values; a single value becomes a list."""
    return value if isinstance(value, list) else [value]


FUNCTIONS: dict[str, Callable[..., float]] = {
    "percent": lambda value: 100 * value,
    "ratio": lambda above, below: above / below,
    "difference": lambda one, other: one - other,
    "product": lambda one, other: one * other,
    "mean": lambda values: statistics.fmean(as_list(values)),
    "std": lambda values: statistics.stdev(as_list(values)),  # of a sample, with n - 1
    "smallest": lambda *values: min(number for value in values for number in as_list(value)),
    "largest": lambda *values: max(number for value in values for number in as_list(value)),
    "total": lambda values: sum(as_list(values)),
    "rounded": lambda value, unit: unit * round(value / unit),  # for "about 300"
    "minutes": lambda seconds: seconds / 60,
    "millions": lambda value: value / 1e6,
    "billions": lambda value: value / 1e9,
}


def split_at_commas(text: str) -> list[str]:
    """Split the text at the commas that are outside all brackets."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            pieces.append("")
        else:
            pieces[-1] += character
    return [part.strip() for part in pieces]


def value_of(entry: str) -> float | list[float]:
    """The value of an entry. Raises ValueError, with the reason, if no record has it."""
    if re.fullmatch(r"-?\d+(?:\.\d+)?", entry):
        return float(entry)
    call = re.fullmatch(r"(\w+)\((.*)\)", entry)
    if call and call[1] in FUNCTIONS:
        return FUNCTIONS[call[1]](*map(value_of, split_at_commas(call[2])))
    name, sign, path = entry.partition("#")
    if not sign:
        raise ValueError(f"{entry}: expected FILE#PATH, =CONSTANT or one of {', '.join(FUNCTIONS)}")
    values = [number_at(record, path) for record in read_records(name)]
    return values if "*" in name else values[0]


@cache
def read_records(name: str) -> list[Any]:
    """The records with a name, which may contain ``*``, in the first of RECORDS that has some."""
    for folder in RECORDS:
        files = [path / "all_results.json" if path.is_dir() else path for path in sorted((ROOT / folder).glob(name))]
        files = [path for path in files if path.is_file()]
        if files:
            return [read_record(path) for path in files]
    raise ValueError(f"{name}: no such record below {', '.join(RECORDS)}")


def read_record(path: Path) -> Any:
    """The content of a record: of a .jsonl file, the list of its lines."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


STEP = re.compile(r"""\.?(?P<name>[\w-]+)|\["(?P<quoted>[^"]+)"\]|\[(?P<index>-?\d+)\]|\[(?P<fields>[^\]]+)\]""")


def number_at(record: Any, path: str) -> float:
    """The number at a PATH of a record; ValueError if there is none."""
    value, place = record, 0
    while place < len(path):
        step = STEP.match(path, place)
        if not step:
            raise ValueError(f"{path}: cannot be read from its character {place + 1} on")
        try:
            if step["index"]:
                value = value[int(step["index"])]
            elif step["fields"]:
                wanted = dict(part.split("=", 1) for part in split_at_commas(step["fields"].replace("\\,", "\0")))
                wanted = {key: text.replace("\0", ",") for key, text in wanted.items()}
                (value,) = [one for one in value if all(str(one.get(key)) == text for key, text in wanted.items())]
            else:
                value = value[step["name"] or step["quoted"]]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValueError(f"{path}: the record has no single {step[0]}") from None
        place = step.end()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{path}: expected a number, got {str(value)[:40]}")
    return value


def single_value(value: float | list[float]) -> float:
    """The value of an entry that stands for one figure; ValueError for a list."""
    if isinstance(value, list):
        raise ValueError(f"expected one number, got {len(value)}")
    return value


def format_like(value: float, like: str) -> str:
    """The value in the form of the figure ``like``."""
    mantissa, exponent, _ = like.lstrip("+-−").partition("e")
    decimals = len(mantissa.partition(".")[2])
    sign = "+" if like.startswith("+") else ""
    if exponent:
        return re.sub(r"e([-+])0*", lambda match: f"e{match[1].strip('+')}", f"{value:{sign}.{decimals}e}")
    return f"{value:{sign},.{decimals}f}".replace("-", "−" if like.startswith("−") else "-")


# --- The mistakes of a page ------------------------------------------------------------------------------------------


def generated_in(text: str) -> list[tuple[int, int, str, str]]:
    """Start, end, command and content of every part of the page that a command printed, or that is a copy."""
    pattern = r"<!-- ((?:bert-repro report|python lab/benchmarks/tables\.py|copy of) .*?) -->\n(.*?)<!-- end -->"
    return [(m.start(2), m.end(2), m[1], m[2]) for m in re.finditer(pattern, text, re.DOTALL)]


@cache
def output_of(command: str) -> str:
    """What the command prints, or what the copy is one of."""
    if command.startswith("copy of "):
        return copy_of(ROOT / command.removeprefix("copy of "))
    program, words = command.removeprefix("python ").removeprefix("-m bert_training ").split(" ", 1)
    if program != "report":
        return str(_benchmarks("tables").output(words.split()))
    folders = sorted(folder for word in words.split() for folder in ROOT.glob(word))
    if not folders:
        raise ValueError(f"{words}: no such run")
    runs = [run for folder in folders for run in report.read_finished_runs(folder)]
    for run in runs:
        run.folder = run.folder.relative_to(ROOT)
    return report.tables(runs)


def copy_of(report_page: Path) -> str:
    """What a page of docs/ shows of the recorded report of one of the paper's tables.

    These are all paragraphs but the first two, which the page's own words replace, and the rule of the verdicts.
    Headings become bold text, and links lead to the folder of the record.
    """
    if not report_page.is_file():
        raise ValueError(f"{report_page}: no such recorded report")
    folder = report_page.parent.relative_to(ROOT / "docs")
    _, _, *paragraphs = report_page.read_text(encoding="utf-8").strip().split("\n\n")
    shown = []
    for paragraph in paragraphs:
        if paragraph == RULE:
            continue
        if paragraph.startswith("## "):
            paragraph = f"**{paragraph.removeprefix('## ')}**"
        shown.append(paragraph.replace("](report.png)", f"]({folder.as_posix()}/report.png)"))
    return "\n\n".join(shown) + "\n"


def mistakes(text: str) -> list[str]:
    """What is wrong with the figures of a page, with one line for each mistake."""
    lines, generated = [], generated_in(text)
    for start, _, command, content in generated:
        if content != output_of(command):
            line = text.count("\n", 0, start) + 1
            lines.append(f"line {line}: this is not what `{command}` gives today:\n{output_of(command)}")
    for block in blocks_of(text):
        figures = [one for one in block.figures if not any(start <= one.start < end for start, end, *_ in generated)]
        texts = [figure.text for figure in figures]
        if len(texts) != len(block.entries):
            lines.append(
                f"line {block.line}: expected one entry for each of the {len(texts)} figures {texts}, "
                f"got {len(block.entries)}: {block.entries}"
            )
            continue
        for figure, entry in zip(texts, block.entries):
            try:
                expected = (
                    constant(entry) if entry.startswith("=") else format_like(single_value(value_of(entry)), figure)
                )
            except (ValueError, TypeError, ZeroDivisionError) as error:
                expected = f"an error ({error})"
            if figure != expected:
                lines.append(f"line {block.line}: the page says {figure}, but {entry} gives {expected}")
    return lines


def constant(entry: str) -> str:
    """The text of a constant, without what it is."""
    return re.sub(r"\s*\(.*\)$", "", entry[1:]).strip()


def _benchmarks(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError:
        raise ValueError(f"lab/benchmarks/{name}.py is needed: start the command in the root of a checkout") from None


def all_figures(text: str) -> list[Figure]:
    """Every figure of a page: those of records, constants, and those that a command printed."""
    return [figure for block in blocks_of(text) for figure in block.figures]
