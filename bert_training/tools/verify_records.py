"""The records of a finished folder against each other: all_results.json, metrics.jsonl, run.json, the model card."""

import ast
import difflib
import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_training.engine.versions import commit
from bert_training.files.records import nearly_equal, read_events
from bert_training.records.model_card import HUB_NAME, PICTURE, card_text, metadata
from bert_training.tasks.seeds import Series, summarise
from bert_training.tools.findings import (
    Finding,
    compare_values,
    differs,
    read_json,
    short_text,
    unknown,
    verified,
)

# The text of a Python string, which is the name that opens the model in the example of a card.
OPENED = re.compile(r"""(?:model=|from_pretrained\()('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""")
# Results that depend on the moment and on the machine, and that no other record repeats.
MEASURED = re.compile(r"train_runtime|train_.*_per_second|train_mfu|peak_tflops|peak_memory_gb")


def check_results(folder: Path, run: dict, results: dict) -> Iterator[Finding]:
    """all_results.json against metrics.jsonl and run.json: the last evaluation, or the best one if that was kept."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        yield unknown("all_results.json", "the folder has no metrics.jsonl to compare it with")
        return
    events = read_events(path)
    last = results["train_steps"]
    step = results.get("best_step", last)
    evaluations = [event for event in events if event["event"] == "eval" and event["step"] == step]
    evaluation = evaluations[-1] if evaluations else {}
    source = f"the evaluation of step {step} in metrics.jsonl"
    same, others = [], []
    for name, value in results.items():
        if name.startswith("eval_") and name in evaluation:
            if evaluation[name] == value:
                same.append(name)
            else:
                yield compare_values(name, value, evaluation[name], source)
        elif name == "train_loss":
            yield _train_loss(value, last, [event for event in events if event["event"] == "train"])
        elif name not in ("train_steps", "best_step"):
            others.append(name)
    if same:
        yield verified("results", f"{', '.join(same)} are those of {source}")
    yield from _steps(run, results, events)
    left = sorted(name for name in others if not MEASURED.fullmatch(name) and not name.startswith("test_"))
    for name in left:
        yield differs(name, f"no record of the run gives it: it is not in {source}")
    if times := [name for name in others if MEASURED.fullmatch(name)]:
        yield unknown(", ".join(times), "measured while the run lasted, and recorded only once")


def _train_loss(value: float, last: int, events: list[dict]) -> Finding:
    """The mean loss of the steps, if all of them are recorded; older versions took the mean of the recorded ones."""
    losses = {event["step"]: event["loss"] for event in events}
    mean = sum(losses.values()) / len(losses) if losses else math.nan
    if math.isclose(value, mean, rel_tol=1e-6):
        return verified("train_loss", f"{short_text(value)} is the mean of the losses in metrics.jsonl")
    if len(losses) == last:
        return compare_values("train_loss", value, mean, "the mean of the losses in metrics.jsonl")
    return unknown("train_loss", f"the mean of {last} steps, of which metrics.jsonl has {len(losses)}")


def _steps(run: dict, results: dict, events: list[dict]) -> Iterator[Finding]:
    """Whether the number of steps is that of the last events."""
    last, total = results["train_steps"], run.get("total_steps")
    reached = max((event["step"] for event in events if "step" in event), default=0)
    yield compare_values("train_steps", last, reached, "the last event of metrics.jsonl")
    if total is None or run["flags"].get("early_stopping_patience"):
        return
    yield compare_values("train_steps", last, total, "total_steps in run.json")


# --- the model card --------------------------------------------------------------------------------------------------


def check_card(folder: Path, run: dict, results: dict) -> Iterator[Finding]:
    """README.md against the text that is written from the records; what no record determines is read from the card."""
    path = folder / "README.md"
    if not path.is_file():
        yield unknown("README.md", "the folder has no model card")
        return
    card = path.read_text(encoding="utf-8")
    name = re.search(OPENED, card)
    opened = _python_text(name[1]) if name else ""
    expected = regenerate_card(folder, run, results, card, opened)
    known = {str(Path(run["flags"]["output_dir"])), run["flags"].get("hub_model_id")}
    if opened not in known:
        reason = f"its example opens {short_text(opened)}, which run.json does not name; it may be an upload's name"
        yield unknown("README.md", reason)
    yield from _lines(expected.splitlines(), card.splitlines(), run.get("commit", "unknown"))


def _python_text(source: str) -> str:
    """The value of the source of a Python string; another's card may have escapes that Python does not know."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return str(ast.literal_eval(source))
    except (ValueError, SyntaxError):
        return source[1:-1]


def regenerate_card(folder: Path, run: dict, results: dict, card: str, opened: str) -> str:
    """The card that the records give.

    Args:
        card: the present card, from which are taken its title, if run.json does not determine it, and whether the names
            in run.json were ones of the Hub, which this machine cannot know.
        opened: the name that opens the model in the card's example.
    """
    kind = run["script"].removeprefix("run_").removesuffix(".py")
    datasets, held_out = data_names(run)
    title = Path(run["flags"]["output_dir"]).name
    heading = re.search(r"^# (.+)$", card, re.MULTILINE)
    if title in ("", "..") and heading:
        title = heading[1]
    named = set(re.findall(r"^(?:base_model: |- )(\S+)$", card.partition("\n---\n")[0], re.MULTILINE))

    def on_hub(name: str | None) -> str | None:
        return name if name in named and HUB_NAME.fullmatch(name or "") else None

    data = metadata(kind, run, datasets, results, title, None, None, held_out, on_hub)
    text = card_text(folder, kind, run, datasets, results, title, opened, data)
    # Without matplotlib a run draws no curves, and its card shows none, although they may have been drawn since.
    return text if PICTURE in card else text.replace(PICTURE, "")


def data_names(run: dict) -> tuple[list[str], str | None]:
    """The name of the training data as the card has it, and of the held-out data if that has one of its own."""
    data, flags, script = run["data"], run["flags"], run["script"]
    if script == "run_pretraining.py":
        names = {split: [one["name"] for one in data if one.get("split") == split] for split in (None, "validation")}
        training = ", ".join(names[None])
        return [training], ", ".join(names["validation"]) or training
    if script == "run_glue.py":
        return [data["task"]], None
    if script == "run_squad.py":
        first = data["splits"].get("train") or data["splits"]["validation"]
        return [first.get("file") or first.get("dataset") or first["source"]], None
    if flags.get("dataset_name"):
        return [flags["dataset_name"]], None
    files = any(flags.get(f"{split}_file") for split in ("train", "validation", "test"))
    return ["custom" if files else "the documentation carried by this Python installation"], None


def _lines(expected: list[str], card: list[str], then: str) -> Iterator[Finding]:
    """The lines in which the card differs from the expected one.

    The words of a card are those of the commit that wrote it; under another commit only the figures of a line can be
    judged.
    """
    same_code = then == commit() and re.fullmatch(r"[0-9a-f]+", then)
    worded = wrong = 0
    steps = difflib.SequenceMatcher(None, expected, card, autojunk=False).get_opcodes()
    for kind, first, after, begin, end in steps:
        if kind == "equal":
            continue
        for number in range(begin, end):
            pattern = _without_figures(card[number])
            like = next((line for line in expected[first:after] if _without_figures(line) == pattern), None)
            if like is not None:
                wrong += 1
                reason = f"{short_text(card[number])}, but the records give {short_text(like)}"
                yield differs(f"README.md line {number + 1}", reason)
            elif same_code:
                wrong += 1
                yield differs(f"README.md line {number + 1}", f"{short_text(card[number])}: not what the records give")
            else:
                worded += 1
        missing = [line for line in expected[first:after] if line.strip()]
        if kind == "delete" and missing:
            if same_code:
                wrong += 1
                yield differs(f"README.md after line {begin}", f"{short_text(missing[0])} is missing")
            else:
                worded += 1
    if worded:
        reason = f"{worded} passages have other words than this version writes (commit {commit()}; the run: {then})"
        yield unknown("README.md", reason)
    elif not wrong:
        yield verified("README.md", f"its {len(card)} lines are those that the records give")


def _without_figures(line: str) -> str:
    return re.sub(r"\d[\d,.]*(?:e[-+]?\d+)?", "#", line)


# --- a series --------------------------------------------------------------------------------------------------------


def check_summary(folder: Path) -> Iterator[Finding]:
    """summary.json of a series, whose statistics are computed again from the results of its runs."""
    summary = read_json(folder / "summary.json")
    runs, facts, absent = [], None, []
    for one in summary["runs"]:
        place = folder / Path(one["folder"]).name
        if (place / "all_results.json").is_file():
            results, facts = read_json(place / "all_results.json"), read_json(place / "run.json")["data"]
            if results != one["results"]:
                yield differs(f"summary.json, {one['folder']}", "its results are not those of its all_results.json")
            runs.append(one | {"results": results})
        else:
            absent.append(one["folder"])
            runs.append(one)
    if absent:
        yield unknown("summary.json", f"the runs {', '.join(absent)} are not here; their results are taken from it")
    series = Series(summary["task"], facts or {"splits": {}}, summary["metric"], summary["baselines"])
    again: dict[str, Any] = summarise(runs, series)
    if facts is None:
        del again["validation"]  # the description of the data, which is in the runs
    wrong = [name for name in again if not nearly_equal(summary.get(name), again[name])]
    for name in wrong:
        yield differs(f"summary.json, {name}", "not what the results of the runs give")
    if not wrong:
        yield verified("summary.json", f"{', '.join(again)} are what the results of its {len(runs)} runs give")
    if "comparison" in summary:
        other = short_text(summary["comparison"].get("with"))
        yield unknown("summary.json, comparison", f"it needs the runs of {other}; verify that folder as well")
