"""Recompute what a finished output folder claims, and say for every claim whether it holds.

    bert-repro verify runs/mrpc
    bert-repro verify downloaded --data glue/MRPC    # the scores as well
    bert-repro verify runs/seeds                     # a series, or any folder with runs below it
    bert-repro verify exported/mails                 # whether the files are those that were scored

Each line begins with a verdict: "verified", "differs", or "cannot be checked here", which gives the reason. Checked are
the hashes of all files (hashes.json), the tokenizer, the number of parameters, the labels, the code that the folder
holds or names, the data, the results against metrics.jsonl and run.json, the model card against the text that the
records give, and the scores, by an evaluation of the weights. It needs the data: the files that run.json names or, in
their place, files of the same name in --data. docs/checkpoints.md says what each check proves.

The exit status is 0 if nothing differs, also if something cannot be checked; 1 if something differs; and 2 if there is
nothing to verify: the folder holds no run, or the run is not finished.

No file of the folder is changed, and no code of it is executed: classes come from this package, weights are read as
safetensors, nothing is unpickled, and the Hub is not asked. Links out of the folder are not followed. Of other files,
only the data is read: to compare its hash and, if that is the one in run.json, to evaluate the weights.
"""

import ast
import difflib
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_training.cards.classes import link_to
from bert_training.cards.confusion import COUNTS
from bert_training.cards.model_card import PICTURE, Card, card_text
from bert_training.engine.versions import commit
from bert_training.files.hashing import HASHES
from bert_training.files.json_files import is_plain_name, read_json
from bert_training.files.publishing import without_folders
from bert_training.files.records import nearly_equal, read_events
from bert_training.files.small_files import read_small_text
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.tasks.seeds import Series, summarise
from bert_training.tools import verify_files, verify_scores
from bert_training.tools.exported import check_export, is_export
from bert_training.tools.findings import (
    DIFFERS,
    MALFORMED,
    Finding,
    compare_values,
    differs,
    print_findings,
    run_check,
    short_text,
    unknown,
    verified,
)
from bert_training.tools.verify_classes import check_confusion
from tokenization.errors import UserError

# The text of a Python string, which is the name that opens the model in the example of a card.
OPENED = re.compile(
    r"""(?:^model_name = |model=|from_pretrained\()('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""", re.MULTILINE
)
MOST_LINES = 5_000  # of a card, which has about 200; the comparison takes the product of two numbers of lines
# Results that depend on the moment and on the machine, and that no other record repeats.
MEASURED = re.compile(r"train_runtime|train_.*_per_second|train_mfu|peak_tflops|peak_memory_gb")


def main(argv: list[str] | None = None) -> None:
    """Print the findings; exits with status 1 if one of them is a difference. ValueError if nothing can be verified."""
    parser = command_parser("verify", __doc__)
    parser.add_argument("folder", help="output folder of a finished run or of a series, or a folder with runs below it")
    parser.add_argument("--data", nargs="+", default=[], help="files of the run's data, or folders that have them")
    parser.add_argument(
        "--skip_evaluation", action="store_true", help="do not evaluate the weights, which may take long"
    )
    parser.add_argument("--brief", action="store_true", help="print only the lines that differ, and the counts")
    args = parser.parse_args(argv)
    folder, given = Path(args.folder), verify_scores.files_in(args.data)
    parts = [(part, findings(part, given, not args.skip_evaluation)) for part in runs_and_series_in(folder)]
    counts = print_findings(parts, args.brief)
    print(f"{folder}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts[DIFFERS]:
        sys.exit(1)


def runs_and_series_in(folder: Path) -> list[Path]:
    """The runs and series in a folder: itself, or those below it.

    Raises:
        ValueError: there is none, or the folder is that of a run which is not finished.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: expected the output folder of a finished run, found no folder")
    if is_run(folder):
        if not (folder / "all_results.json").is_file():
            raise UserError(
                f"{folder}: expected a finished run, found no all_results.json; continue the run with "
                "--resume_from_checkpoint auto, or copy the folder again"
            )
        return [folder]
    below = (path for path in sorted(folder.rglob("*")) if path.is_dir() and not path.is_symlink())
    folders = [path for path in below if is_run_or_series(path)]
    folders = [folder, *folders] if is_run_or_series(folder) else folders
    if not folders:
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:9]) or "nothing"
        raise UserError(
            f"{folder}: expected the output folder of a finished run (with run.json), or one with runs below it; it "
            f"holds {held}"
        )
    return folders


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or what is left of one."""
    return any((folder / name).is_file() for name in ("run.json", HASHES))


def is_run_or_series(folder: Path) -> bool:
    """Whether a folder holds a run, a series, or an export."""
    return is_run(folder) or is_export(folder) or (folder / "summary.json").is_file()


def findings(folder: Path, given: list[Path], evaluate: bool = True) -> Iterator[Finding]:
    """What a check of the folder of a run or a series finds, in the order of the claims.

    Args:
        given: files that may be the data of the run.
        evaluate: whether to evaluate the weights.
    """
    if unreadable := list(verify_files.unreadable(folder)):
        yield from unreadable
        yield unknown("everything else", "nothing is read in a folder with such files")
        return
    if is_export(folder):
        yield from run_check("export.json", lambda: check_export(folder))
        return
    if not is_run(folder):
        yield from run_check("summary.json", lambda: check_summary(folder))
        return
    yield from run_check(HASHES, lambda: verify_files.check_files(folder))
    records = []
    for name in ("run.json", "all_results.json"):
        if not (folder / name).is_file():
            missing = differs if name == "run.json" else unknown
            yield missing(name, "missing, so nothing else can be checked; is the run finished?")
            return
        try:
            records.append(read_json(folder / name))
            if not isinstance(records[-1], dict):
                raise UserError("expected a JSON object")
        except MALFORMED as error:
            yield differs(name, f"cannot be read ({short_text(str(error))}), so nothing else can be checked")
            return
    run, results = records
    if str(run.get("script")) not in SCRIPTS:
        yield differs("run.json", f"expected a run of {', '.join(SCRIPTS)}; got {short_text(run.get('script'))}")
        return
    yield from run_check("run.json", lambda: verify_files.check_model(folder, run))
    yield from run_check("code files", lambda: verify_files.check_code(folder, run))
    yield from run_check("all_results.json", lambda: check_results(folder, run, results))
    yield from run_check(COUNTS, lambda: check_confusion(folder, results))
    yield from run_check("README.md", lambda: check_card(folder, run, results))
    yield from verify_scores.check_scores(folder, run, results, given, evaluate)


# --- the results -----------------------------------------------------------------------------------------------------


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
    evaluation = dict(evaluations[-1]) if evaluations else {}
    for event in events:
        if event["event"] == "probe" and event["step"] == step:
            evaluation |= event
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
    if total is None:
        return
    yield compare_values("train_steps", last, total, "total_steps in run.json")


# --- the model card --------------------------------------------------------------------------------------------------


def check_card(folder: Path, run: dict, results: dict) -> Iterator[Finding]:
    """README.md against the text that is written from the records; what no record determines is read from the card."""
    path = folder / "README.md"
    if not path.is_file():
        yield unknown("README.md", "the folder has no model card")
        return
    card = read_small_text(path)
    name = re.search(OPENED, card)
    opened = _python_text(name[1]) if name else ""
    expected = regenerate_card(folder, run, results, card, opened)
    place = Path(run["flags"]["output_dir"])
    named = {f"./{without_folders(name)}" for name in (place.name, folder.resolve().name)}
    known = {str(place), *named, run["flags"].get("hub_model_id")}
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
            in an older run.json were ones of the Hub, which this machine cannot know.
        opened: the name that opens the model in the card's example.
    """
    data, held_out = SCRIPTS[run["script"]].data_names(run)
    title = Path(run["flags"]["output_dir"]).name
    heading = re.search(r"^# (.+)$", card, re.MULTILINE)
    if heading and (title in ("", "..") or heading[1] == without_folders(folder.resolve().name)):
        title = heading[1]
    text = card_text(Card(folder, run, [data], results, title, opened, held_out, card))
    # Without matplotlib a run draws nothing, and its card shows no pictures, although they may have been drawn since.
    pictures = [PICTURE, *map(link_to, ("validation", "test"))]
    for picture in (picture for picture in pictures if picture not in card):
        text = text.replace(picture, "")
    return text


def _lines(expected: list[str], card: list[str], then: str) -> Iterator[Finding]:
    """The lines in which the card differs from the expected one.

    The words of a card are those of the commit that wrote it; under another commit only the figures of a line can be
    judged.
    """
    if max(len(card), len(expected)) > MOST_LINES:
        yield differs("README.md", f"{len(card):,} lines; no card has more than {MOST_LINES:,}")
        return
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


def _series(summary: Mapping[str, Any], facts: Sequence[dict[str, Any]], folds: int) -> Series:
    """What the runs had in common, or, of folds, each of them; without ``facts`` nothing is known of the data."""
    task, metric, baselines = summary["task"], summary["metric"], summary["baselines"]
    facts = facts or [{"splits": {}}] * max(1, folds)
    own = summary.get("fold_baselines") or [baselines] * folds
    each = [Series(task, one, metric, constant) for one, constant in zip(facts, own, strict=False)] if folds else []
    return Series(task, facts[-1], metric, baselines, tuple(each))


def check_summary(folder: Path) -> Iterator[Finding]:
    """summary.json of a series, whose statistics are computed again from the results of its runs."""
    summary = read_json(folder / "summary.json")
    runs, facts, absent = [], list[dict[str, Any]](), []
    for one in summary["runs"]:
        place = folder / Path(one["folder"]).name
        inside = is_plain_name(place.name) and place.is_dir() and not place.is_symlink()
        if inside and (place / "all_results.json").is_file() and not any(verify_files.unreadable(place)):
            results = read_json(place / "all_results.json")
            facts.append(read_json(place / "run.json")["data"])
            if results != one["results"]:
                yield differs(f"summary.json, {one['folder']}", "its results are not those of its all_results.json")
            runs.append(one | {"results": results})
        else:
            absent.append(one["folder"])
            runs.append(one)
    if absent:
        yield unknown("summary.json", f"the runs {', '.join(absent)} are not here; their results are taken from it")
    folds = any("fold" in run for run in runs)
    complete = len(facts) == len(runs) if folds else bool(facts)
    again: dict[str, Any] = summarise(runs, _series(summary, facts if complete else [], len(runs) if folds else 0))
    if not complete:
        del again["validation"]  # the description of the data, which is in the runs
    if folds and "fold_baselines" not in summary:  # older versions did not record what this share is measured by
        for one in (*again["settings"], *summary["settings"]):
            for figures in one["metrics"].values():
                figures.pop("degenerate", None)
        del again["fold_baselines"]
    wrong = [name for name in again if not nearly_equal(summary.get(name), again[name])]
    for name in wrong:
        yield differs(f"summary.json, {name}", "not what the results of the runs give")
    if not wrong:
        yield verified("summary.json", f"{', '.join(again)} are what the results of its {len(runs)} runs give")
    if "comparison" in summary:
        other = short_text(summary["comparison"].get("with"))
        yield unknown("summary.json, comparison", f"it needs the runs of {other}; verify that folder as well")
