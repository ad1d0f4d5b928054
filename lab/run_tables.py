"""Tables of the runs whose records are in lab/records/runs, for lab/tables.py."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_tools import report
from bert_training.inputs.flags.phases import Phase, phases_of, with_steps
from lab.benchmarks.markdown import markdown

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "lab" / "records" / "runs"
# Flags of recorded runs that the scripts no longer have, and that do not tell these runs apart.
WITHOUT_EFFECT = ("unpad_inputs", "fast_dropout", "early_stopping_patience")
NETWORKS = {"our network": "", "transformers' network": "-control"}
# Two series with the same seeds, our network's and that of transformers' network: the words for the task and its
# metric, the two folders, and the metric's name in their summaries.
PAIRS = (
    ("STS-B, Pearson correlation", "minilm-stsb", "minilm-stsb-control", "eval_pearson"),
    ("MRPC, F1", "minilm-mrpc", "pairs-minilm-mrpc-control", "eval_f1"),
    ("SST-2, accuracy", "minilm-sst2", "pairs-minilm-sst2-control", "eval_accuracy"),
    ("CoLA, Matthews correlation", "minilm-cola", "minilm-cola-control", "eval_matthews_correlation"),
    (
        "CoLA, lengths not grouped",
        "pairs-minilm-cola",
        "pairs-minilm-cola-control",
        "eval_matthews_correlation",
    ),
)
# A series from pre-trained weights, the one from random weights, the metric, and what brings it to per cent.
STARTS = (
    ("STS-B, Pearson correlation", "fast-stsb", "eval_pearson", 100),
    ("STS-B, Pearson correlation", "fast-stsb-5000", "eval_pearson", 100),
    ("SST-2, accuracy", "fast-sst2", "eval_accuracy", 100),
    ("SST-2, accuracy", "fast-sst2-5000", "eval_accuracy", 100),
    ("CoLA, Matthews correlation", "fast-cola", "eval_matthews_correlation", 100),
    ("CoLA, Matthews correlation", "fast-cola-5000", "eval_matthews_correlation", 100),
    ("MRPC, accuracy", "fast-mrpc-5000", "eval_accuracy", 100),
    ("SQuAD, exact match", "fast-squad-5000", "eval_exact_match", 1),
    ("SQuAD, F1", "fast-squad-5000", "eval_f1", 1),
)


def read(*parts: str) -> Any:
    """A JSON file below lab/records/runs."""
    return json.loads(RUNS.joinpath(*parts).read_text(encoding="utf-8"))


def scores_of(series: str, metric: str) -> dict[str, Any]:
    """The mean, interval and number of runs of a metric in the summary of a series."""
    return dict(read(series, "summary.json")["settings"][0]["metrics"][metric])


def origin(names: list[str]) -> str:
    """The sentence below a table: when, at which commits and on what the runs in these folders were made."""
    files = sorted(
        file for name in names for pattern in ("run.json", "*/run.json") for file in (RUNS / name).glob(pattern)
    )
    facts = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return sentence(
        "Runs of",
        [fact["started"] for fact in facts],
        [fact["commit"] for fact in facts],
        [fact["device"] for fact in facts],
        "lab/records/runs/",
    )


def sentence(begin: str, dates: list[str], commits: list[str], devices: list[str], record: str) -> str:
    """The sentence below a table: dates, commits in their order, devices, and where the record is."""
    days = sorted({date[:10] for date in dates})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    in_order = dict.fromkeys(re.sub(r"^(\w{7})\w*", r"\1", commit) for _, commit in sorted(zip(dates, commits)))
    processors = dict.fromkeys(device.removeprefix("cpu, ").partition(",")[0] for device in devices if device)
    where = f" on {' and '.join(processors)}" if processors else ""
    return f"*{begin} {when}{where}, commit{'s' if len(in_order) > 1 else ''} {', '.join(in_order)}: `{record}`*\n"


def pieces_until(step: int, phases: Sequence[Phase]) -> int:
    """The pieces, with padding, that the steps up to this one have read, by one process."""
    return sum(
        max(0, min(step, phase.stop) - phase.start) * phase.size * phase.accumulation * phase.length for phase in phases
    )


def held_out(steps_of: dict[str, tuple[int, ...]]) -> str:
    """The scores of pre-training runs at some steps, and the pieces read until then, including padding.

    Raises:
        ValueError: a run was not evaluated at a step.
    """
    rows = []
    for name, steps in steps_of.items():
        facts = read(name, "run.json")
        phases = with_steps(phases_of(facts["flags"]), facts["total_steps"])
        lines = (RUNS / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        events = {event["step"]: event for event in map(json.loads, lines) if event["event"] == "eval"}
        for step in steps:
            if step not in events:
                raise ValueError(f"{name}: expected an evaluation at step {step}; there are those at {list(events)}")
            scores = events[step]
            shares = [f"{100 * scores[f'eval_{kind}_accuracy']:.1f}" for kind in ("mlm", "nsp")]
            row = [name, f"{step:,}", f"{pieces_until(step, phases) / 1e6:.1f}", f"{scores['eval_mlm_loss']:.3f}"]
            rows.append(row + shares)
        frequencies = next(map(json.loads, (line for line in lines if '"unigram_entropy"' in line)))["unigram_entropy"]
    rows.append(["*the frequencies of the pieces alone*", "", "", f"{frequencies:.3f}", "", "50.0"])
    heads = ("masked pieces: loss, nats", "accuracy, %", "next sentence: accuracy, %")
    return markdown(("run", "step", "pieces read, million", *heads), rows) + "\n" + origin(list(steps_of))


def parts() -> str:
    """What the runs that differ in one part of pre-training cost, and what two of them are worth on STS-B."""
    rows, names = [], ("base", "mlm", "wwm", "phases", "long")
    for name in names:
        results = read(f"tiny-{name}", "all_results.json")
        pairs = f"{100 * results['eval_nsp_accuracy']:.1f}" if "eval_nsp_accuracy" in results else ""
        series = RUNS / f"tiny-stsb-{name}"
        scores = scores_of(series.name, "eval_pearson") if series.is_dir() else None
        stsb = f"{100 * scores['mean']:.1f} ± {100 * scores['std']:.1f} ({scores['n']})" if scores else ""
        rows.append([name, f"{results['train_runtime']:.0f}", pairs, stsb])
    heads = ("run", "seconds of one core", "next sentence: accuracy, %", "STS-B, Pearson correlation, %")
    return markdown(heads, rows) + "\n" + origin([f"tiny-{name}" for name in names])


def compared(*patterns: str, with_times: bool = False) -> str:
    """The scores that `bert-repro report` prints for the runs whose folders match, and on request their times."""
    folders = sorted(folder for pattern in patterns for folder in RUNS.glob(pattern))
    runs = [run for folder in folders for run in report.read_finished_runs(folder)]
    for run in runs:
        run.folder = run.folder.relative_to(ROOT)
        for name in WITHOUT_EFFECT:
            run.facts["flags"].pop(name, None)
    scores, *others = report.tables(runs).split("\n\n")
    shown = [scores.strip(), *(others[-1:] if with_times else [])]
    return "\n\n".join(part.strip() for part in shown) + "\n\n" + origin([folder.name for folder in folders])


def control() -> str:
    """Our network beside transformers' from the same weights: means, and the differences of pairs of equal seeds."""
    rows = []
    for title, ours, theirs, metric in PAIRS:
        means = [f"{100 * scores_of(series, metric)['mean']:.1f}" for series in (ours, theirs)]
        comparison = read(theirs, "summary.json")["comparison"]
        found = comparison[metric]
        low, high = (f"{100 * end:+.1f}" for end in found["interval"])
        difference = f"{100 * found['mean_difference']:+.1f}"
        rows.append(
            [title, str(comparison["pairs"]), *means, difference, f"{low} to {high}", f"{found['t_test_p']:.2f}"]
        )
    heads = ("task, metric", "pairs", *NETWORKS, "difference", "95 % interval", "p")
    folders = [series for _, *both, _ in PAIRS for series in both]
    return markdown(heads, rows) + "\n" + origin(folders)


def intervals() -> str:
    """The 95 % intervals of the series from the networks of the fast recipe, beside those from random weights."""
    rows, folders = [], []
    for title, series, metric, factor in STARTS:
        scratch = series.removesuffix("-5000") + "-scratch"
        ends = [[f"{factor * end:.1f}" for end in scores_of(name, metric)["interval"]] for name in (series, scratch)]
        start = f"`mini-fast{'-5000' if series.endswith('-5000') else ''}`"
        rows.append([title, start, *(" to ".join(pair) for pair in ends)])
        folders += [series, scratch]
    heads = ("task, metric, per cent", "start", "95 % interval", "random weights, 95 % interval")
    return markdown(heads, rows, 2) + "\n" + origin(folders)


def paper(name: str) -> str:
    """The verdicts and the picture of the recorded report of one of the paper's tables, and a link to all of it."""
    place = f"records/runs/paper/{name}"
    paragraphs = (RUNS / "paper" / name / "report.md").read_text(encoding="utf-8").split("\n\n")
    (verdicts,) = (paragraph for paragraph in paragraphs if paragraph.startswith("| | claim |"))
    pictures = [paragraph for paragraph in paragraphs if paragraph.endswith("](report.png)")]
    record = read("paper", name, "record.json")
    made = record["report_made_with"]
    commits = [run["commit"] for run in record["runs_made_with"]] or [made["commit"]]
    shown = [verdicts, *(picture.replace("](", f"](../{place}/") for picture in pictures)]
    shown.append(f"[The whole report: scores, differences with their intervals, and contrasts](../{place}/report.md)")
    recorded = ([made["date"]] * len(commits), commits, [made["processor"]], f"lab/{place}/record.json")
    return "\n\n".join([*shown, sentence("Recorded", *recorded)])
