"""Write the tables of the pages anew from the records of lab/records/ and lab/records/runs/.

    python lab/tables.py

A page shows a table between <!-- table: NAME --> and <!-- end -->, where NAME is a key of TABLES, or paper/FOLDER for
the verdicts on a recorded table of the paper. Below each table stands when, at which commit and on which processor it
was measured. To show a new record, write a function that makes a table of it, name it in TABLES, and put the two
comments into a page.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bert_training.inputs.flags.recipes import scaled_rate
from lab import run_tables
from lab.benchmarks.markdown import markdown

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "lab" / "records"

# What the records of lab/benchmarks/step.py call a workload or a kind of padding, and how the pages say it; applied in
# this order.
WORDS = (
    (r"\b(tiny|mini|small|medium|base|large)\b", lambda match: f"BERT-{match[1].capitalize()}"),
    (r" (?:mrpc|sst2|squad) (?:train|dev)\b", lambda match: f" on {TASKS[match[0].split()[0]]}"),
    (r"\bbatch (\d+)", r"batches of \1"),
    (r"(\d+) x (\d+)", r"\1 rows of \2 tokens"),
    (r"\brows of like length", "rows of similar length"),
)
IN_WORDS = {"cola": "CoLA, Matthews correlation", "mrpc": "MRPC, F1", "novels": "which novel, accuracy"}
IN_WORDS_OF_STUDENTS = {"mrpc": "MRPC, F1", "sst2": "SST-2, accuracy", "stsb": "STS-B, Spearman"}
TASKS = {"mrpc": "MRPC", "sst2": "SST-2", "stsb": "STS-B", "squad": "SQuAD"}


def workload_name(workload: str) -> str:
    """The name of a workload or of a kind of padding in words: "fine-tuning on MRPC, BERT-Small, batches of 32"."""
    for pattern, words in WORDS:
        workload = re.sub(pattern, words, workload)
    return workload


def steps(record: dict) -> str:
    """The table of step_<device>.json."""
    rows = []
    for row in record["results"]:
        memory = "ours_bytes" in row
        against = workload_name(row["against"].removeprefix("stock").removeprefix(", ")) or "as it is"
        spread = "" if memory else "{:.2f} to {:.2f}".format(*row["ratio_range"])
        ratio = f"{row['ratio']:.2f}" + (" of the bytes" if memory else "")
        share = f"{row['share_of_matrix_peak']:.0%}".replace("%", " %") if "share_of_matrix_peak" in row else ""
        rows.append([workload_name(row["workload"]), against, ratio, spread, str(row.get("ratio_target", "")), share])
    head = ("workload", "against transformers' BERT", "times as fast", "range", "aim", "share of the matrix peak")
    return markdown(head, rows, 2)


TEXTS = {"wiki_heldout.txt": "held-out Wikipedia", "books_heldout.txt": "held-out novels"}
OWNERS = {"google": "Google's"}


def step_parts(record: dict) -> str:
    """The table of step_parts.json, in per cent: a row for each workload and type, the largest part first."""
    results = record["results"]
    parts = sorted(results[0]["shares"], key=lambda part: -sum(row["shares"][part] for row in results))
    rows = [
        [workload_name(row["workload"]), row["dtype"], *(f"{100 * row['shares'][part]:.0f}" for part in parts)]
        for row in results
    ]
    return markdown(("step, shares in %", "type", *parts), rows, 2)


def vocabulary(record: dict) -> str:
    """The table of vocabulary_coverage.json."""
    rows = []
    for row in record["results"]:
        shares = [f"{100 * row[key]:.{digits}f}" for key, digits in (("whole_share", 2), ("unknown_share", 4))]
        names = [TEXTS.get(row["text"], row["text"]), OWNERS.get(row["vocab"], row["vocab"])]
        rows.append([*names, f"{row['words']:,}", f"{row['pieces_per_word']:.4f}", *shares])
    return markdown(("text", "vocabulary", "words", "pieces per word", "words kept whole, %", "[UNK], %"), rows, 2)


def comparison(record: dict) -> str:
    """The table of pretraining_comparison.json."""
    rows = [[name, *(f"{loss:.3f}" for loss in run["masked_loss"].values())] for name, run in record["runs"].items()]
    rows.append(
        ["*the frequencies of the pieces alone*", *[f"{record['unigram_entropy']:.3f}"] * len(record["predictions"])]
    )
    return markdown(("run", *record["predictions"]), rows)


def onnx(record: dict) -> str:
    """The table of onnx_int8.json."""
    names = {"torch": "torch", "model": "ONNX", "model_int8": "ONNX, 8-bit"}
    rows = []
    for key, name in names.items():
        row = record[key]
        size = f"{row['bytes']:,}" if "bytes" in row else ""
        rows.append([name, f"{100 * row['accuracy']:.2f}", f"{row['cpu_seconds']:.2f}", size])
    return markdown(("", "accuracy, %", "CPU seconds", "bytes"), rows)


def data(record: dict) -> str:
    """The table of pretraining_data.json."""
    build, large = record["builder"], record["memory"]
    plan, batches = record["plan"]["mlm_nsp_128"], record["batches"]["million_tokens_per_s_and_core"]
    speed = build["build_corpus"]["tokens_per_s"] / 1e6
    peak, plan_large = large["peak_rss_mb"], large["plan"]["wall_s"]
    text = build["text"]
    rows = [
        ("the text: documents", f"{text['documents']:,}"),
        ("the text: million sentences", f"{text['sentences'] / 1e6:.2f}"),
        ("the text: million tokens", f"{text['tokens'] / 1e6:.1f}"),
        ("building the corpus, from .xz to disk: seconds", f"{build['build_corpus']['wall_s']:.1f}"),
        ("building the corpus: million tokens a second", f"{speed:.2f}"),
        (
            "building the corpus: per cent of the speed of the tokenizers library alone",
            f"{100 * build['ratio_wall']:.0f}",
        ),
        ("a corpus ten times as large: million tokens", f"{large['text']['tokens'] / 1e6:.1f}"),
        ("a corpus ten times as large: seconds to build it", f"{large['build']['wall_s']:.0f}"),
        ("a corpus ten times as large: peak memory in MB", str(peak["after_build"])),
        ("peak memory after the imports alone, MB", str(peak["before"])),
        (
            "plan and order of an epoch at length 128: CPU seconds for a million sentences",
            str(plan["plan_cpu_s_per_million"]),
        ),
        ("plan and order of an epoch at length 128: MB for a million sentences", str(plan["plan_mb_per_million"])),
        ("a corpus ten times as large: seconds to plan an epoch", f"{plan_large:.1f}"),
        *((f"ready batches, {what}: million tokens a second and core", str(batches[key])) for what, key in BATCHES),
    ]
    return markdown(("what", "measured"), rows)


BATCHES = (
    ("length 128", "mlm_nsp_128"),
    ("whole words masked", "mlm_nsp_whole_word_128"),
    ("`mlm`", "mlm_128"),
    ("`ltr`", "ltr_128"),
    ("transformers' DataCollatorForLanguageModeling, which masks only", "transformers_collator_masks_only_128"),
)


def real_tokens(record: dict) -> str:
    """The table of lengths.json."""
    rows = []
    for name, row in record["lengths"].items():
        rows.append([name, str(row["padded_to"]), f"{100 * row['share_of_real_tokens']:.1f}"])
    return markdown(("data", "padded to", "real tokens, %"), rows)


WAYS = {"our class": "our class", "plain transformers": "plain", "trust_remote_code": "trusted"}


def compatibility(record: dict) -> str:
    """The table of compatibility.json."""
    rows = []
    for row in record["results"]:
        parts = ["works" if row["works"] else f"does not work: {row['reason']}"]
        if row["works"] and row["ways"]:
            parts[0] += f" ({', '.join(WAYS[way] for way in row['ways'])})"
        for name, value in row["measured"].items():
            parts.append(f"{name} {value:.1e}" if "difference" in name and value else f"{name} {value:.2g}")
        rows.append([row["package"], row["version"], row["tried"].replace("|", r"\|"), "; ".join(parts)])
    for row in record["not_installed"]:
        reason = f"cannot be installed here: it requires {'; '.join(row['requires'])}"
        rows.append([row["package"], row["version"], "installation", reason])
    return markdown(("package", "version", "what was tried", "result"), rows, 4)


def speedrun(records: dict) -> str:
    """The ledger of speedrun.json, newest first, and the contestants of the newest record that has several."""
    if not records:
        return "No record has been measured yet.\n"
    rows = []
    for record in sorted(records.values(), key=lambda record: record["date"], reverse=True):
        own = [run for run in record["runs"] if run["contestant"] == "fast"]
        if len(own) < 3 or not all(run["reached"] for run in own):
            continue
        rules = record["rules"]
        race = (
            f"{rules['config_name']}, {', '.join(rules['text'])}, {rules['pieces']:,} pieces, {rules['target']:g} nats"
        )
        text = [record["date"][:10], record["what"].replace("|", r"\|"), race, record["commit"]]
        rows.append(
            [*text, str(len(own)), *(times_of(record, name) for name in ("fast", "paper", "transformers-tuned"))]
        )
    heads = (
        "date",
        "what is new",
        "race",
        "commit",
        "seeds",
        "fast, seconds",
        "paper, seconds",
        "transformers-tuned, seconds",
    )
    several = [date for date, record in records.items() if len(record["rules"]["contestants"]) > 1]
    newest = records[max(several or records)]
    ledger = markdown(heads, rows, 4) if rows else "No record counts yet: three seeds must be under the target.\n"
    return f"{ledger}\n{speedrun_contestants(newest)}"


def speedrun_contestants(record: dict) -> str:
    """The table of the contestants of one record of speedrun.json."""
    rows = []
    for name in dict.fromkeys(run["contestant"] for run in record["runs"]):
        runs = [run for run in record["runs"] if run["contestant"] == name]
        losses = [run["loss"] for run in runs]
        reached = f"{sum(run['reached'] for run in runs)} of {len(runs)}"
        rows.append([name, reached, times_of(record, name), f"{min(losses):.3f} to {max(losses):.3f}"])
    return markdown(("contestant", "seeds under the target", "seconds to the target", "loss reached, nats"), rows)


def times_of(record: dict, contestant: str) -> str:
    """The median and the range of the seconds of a contestant; the limits if a run did not reach the target."""
    runs = [run for run in record["runs"] if run["contestant"] == contestant]
    if not runs:
        return "not measured"
    if not all(run["reached"] for run in runs):
        return f"not reached within {record['rules']['seconds']:g} s and {record['rules']['steps']:,} steps"
    seconds = [run["seconds"] for run in runs]
    return f"{statistics.median(seconds):.0f} ({min(seconds):.0f} to {max(seconds):.0f})"


def fixed_time(records: dict) -> str:
    """The ledger of fixed_time.json, newest first. Each p is against the entry before it in the same race."""
    last: dict[str, dict] = {}
    rows = []
    for record in sorted(records.values(), key=lambda record: record["date"]):
        rules, runs = record["rules"], record["runs"]
        race = f"{rules['config_name']}, {', '.join(rules['text'])}, {rules['seconds']:g} s"
        before = last.get(race)
        losses, nsp, tasks = ([run[name] for run in runs] for name in ("loss", "nsp_accuracy", "tasks_mean"))
        p_loss = p_value(losses, before and [run["loss"] for run in before["runs"]])
        p_tasks = p_value(before and [run["tasks_mean"] for run in before["runs"]], tasks)
        figures = [f"{statistics.mean(losses):.3f}", p_loss, f"{100 * statistics.mean(nsp):.1f}"]
        of_tasks = {task: statistics.mean(run["tasks"][task]["mean"] for run in runs) for task in runs[0]["tasks"]}
        scores = [f"{in_per_cent(task, value):.1f}" for task, value in of_tasks.items()]
        what = [record["date"][:10], record["what"].replace("|", r"\|"), race, f"{rules['steps']:,}", str(len(runs))]
        rows.append([*what, *figures, *scores, f"{statistics.mean(tasks):.1f}", p_tasks])
        last[race] = record
    heads = ("date", "what is new", "race", "steps", "seeds", "held-out loss, nats", "p", "next sentence, %")
    heads = (*heads, "pair, %", "kind, %", "questions, F1", "mean of the tasks", "p")
    return markdown(heads, rows[::-1], 3)


def in_per_cent(task: str, score: float) -> float:
    """A score of one of the three built-in tasks; the F1 of questions is in per cent already."""
    return score if task == "questions" else 100 * score


def p_value(smaller: list[float] | None, larger: list[float] | None) -> str:
    """Of Welch's t-test that the first mean is smaller; nothing to compare, or one value: no test."""
    if not smaller or not larger or min(len(smaller), len(larger)) < 2:
        return ""
    p = scipy.stats.ttest_ind(smaller, larger, equal_var=False, alternative="less").pvalue
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"  # so that 0.0097 does not look like the limit of 0.01


def whole_runs(record: dict) -> str:
    """The table of whole_runs.json."""
    rows = []
    for name, row in record.items():
        seconds = [f"{statistics.median(row[f'{side}_seconds']):.1f}" for side in ("ours", "stock")]
        ratios = [f"{row['ratio']:.2f}", "{:.2f} to {:.2f}".format(*row["ratio_range"]), str(row["ratio_target"])]
        rows.append([name, *seconds, *ratios, str(row["ours_mb"]), str(row["stock_mb"])])
    heads = ("run", "ours, seconds", "Trainer, seconds", "times as fast", "range", "aim", "ours, MB", "Trainer, MB")
    table = markdown(heads, rows)
    for name, row in record.items():
        if "parts" in row:
            names = {"ours": "ours", "stock": "Trainer"}
            parts = [[names[side], *(f"{value:.2f}" for value in row["parts"][side].values())] for side in names]
            table += "\n" + markdown((f"{name}, seconds", *row["parts"]["ours"]), parts)
    return table


def faults(record: dict) -> str:
    """The table of faults.json."""
    rows = []
    for row, found in record.items():
        outcomes = [f"{count:,} {outcome}" for outcome, count in sorted(found["outcomes"].items(), key=lambda o: -o[1])]
        outcomes += [f"{name}: {value}" for name, value in found["measured"].items()]
        rows.append([row, "; ".join(outcomes).replace("|", r"\|"), f"{found['faults']:,}"])
    return markdown(("fault", "what became of them", "number"), rows, 2)


def squad(record: dict) -> str:
    """The table of squad.json."""
    train, dev = record["train"], record["dev"]
    peak = train["peak_rss_mb"]["after"]
    rows = [
        (f"cutting the training file into {train['windows']:,} windows, at most {peak} MB of memory", train["build"]),
        ("reading these windows from the cache", train["cache"]["read_with_fingerprint"]),
        (f"searching the spans of the {dev['questions']:,} development questions, with `offsets`", dev["offsets"]),
        ("the same with `google`", dev["google"]),
    ]
    return markdown(("step, for SQuAD 1.1", "CPU seconds"), [(what, f"{spent['cpu_s']:.1f}") for what, spent in rows])


def whole_demo(record: dict) -> str:
    """The table of whole_demo.json."""
    sides = ("ours", "stock")
    rows = [
        ["the whole demo, seconds", *(f"{record[f'{side}_seconds']:,.0f}" for side in sides), f"{record['ratio']:.2f}"]
    ]
    for part, ratio in record["part_ratios"].items():
        rows.append([f"{part}, seconds", *(f"{record['parts'][side][part]:,.0f}" for side in sides), f"{ratio:.2f}"])
    rows.append(["memory of the largest process, MB", *(f"{record[f'{side}_mb']:,}" for side in sides), ""])
    return markdown(("", "ours", "around Trainer", "times as fast"), rows)


def domain(record: dict) -> str:
    """The table of domain.json."""
    own = ("eval_held_out_nats_per_word", "eval_held_out_pieces_per_word")
    ends = ("eval_nats_per_word", own[0])
    variants = record["variants"]
    general = next(key for key in variants["continued"] if key.endswith("_nats_per_word") and key not in ends)
    tasks = list(variants["continued"]["tasks"])
    rows = []
    for name, row in variants.items():
        scores = [around(row["tasks"][task]) if task in row["tasks"] else "" for task in tasks]
        rows.append([name, *(f"{row[key]:.2f}" for key in (*own, general)), *scores])
    return markdown(("the model", "nats a word", "pieces a word", "nats a word, general text", *tasks), rows)


def around(score: dict) -> str:
    """A mean in per cent with its 95 % confidence interval; the F1 of SQuAD is in per cent already."""
    factor = 1 if score["mean"] > 1 else 100
    low, high = (factor * end for end in score["interval"])
    return f"{factor * score['mean']:.1f} ({low:.1f} to {high:.1f})"


def controls(record: dict) -> str:
    """The table of controls.json."""
    rows = []
    for row in record.values():
        difference, p = "", ""
        if compared := row.get("compared"):
            low, high = (100 * end for end in compared["interval"])
            difference = f"{100 * compared['mean_difference']:+.1f} ({low:+.1f} to {high:+.1f})"
            p = f"{compared['t_test_p']:.2f}"
        rows.append([IN_WORDS.get(row["task"], row["task"]), row["control"], str(row["n"]), around(row), difference, p])
    return markdown(("task", "control", "seeds", "score, per cent", "difference, seed by seed", "p"), rows, 2)


RATE_TASKS = {"sst2": "SST-2, accuracy", "intents": "20 intents, macro F1", "names": "WNUT 2017, F1"}
RULES = {f"exponent {power:g}": partial(lambda power, width: 5e-5 * (768 / width) ** power, power)
         for power in (0, 1, 1.5, 2)} | {"the default": partial(scaled_rate, 5e-5)}  # fmt: skip


def fine_tuning_rate(record: dict) -> str:
    """The tables of fine_tuning_rate.json: mean scores by rate, and what rules lose against the best rate."""
    rows, losses = [], []
    rates = sorted({float(rate) for row in record.values() for rate in row["scores"]})
    for row in sorted(record.values(), key=lambda row: (row["task"], row["rows"], row["width"])):
        seeds = min(map(len, row["scores"].values()))  # of an unfinished row, those that all rates have
        means = {float(rate): 100 * statistics.mean(scores[:seeds]) for rate, scores in row["scores"].items()}
        name = [f"{RATE_TASKS[row['task']]}, {row['rows']:,} rows", str(row["width"])]
        rows.append([*name, str(seeds), *(f"{means[rate]:.1f}" if rate in means else "" for rate in rates)])
        losses.append([*name])
        known = sorted(means)
        for rule in RULES.values():
            rate = rule(row["width"])
            loss = max(means.values()) - np.interp(np.log(rate), np.log(known), [means[one] for one in known])
            measured = "over " * (rate < known[0]) + f"{loss:.1f}"
            losses[-1].append(measured if rate < 1.2 * known[-1] else "")
    heads = [f"{rate:g}".replace("e-0", "e-") for rate in rates]
    table = markdown(("task", "width", "seeds", *heads), rows)
    return table + "\n" + markdown(("points below the best rate", "width", *RULES), losses)


METRICS = {
    "eval_loss": "loss, nats",
    "eval_mlm_loss": "loss of masked words, nats",
    "eval_nsp_accuracy": "accuracy of next sentences, %",
    "eval_accuracy": "accuracy, %",
    "eval_f1": "F1, %",
    "eval_exact_match": "exact match, %",
    "eval_pearson": "Pearson's r x 100",
    "eval_spearmanr": "Spearman's rho x 100",
}


def two_types(record: dict) -> str:
    """The table of two_types.json."""
    rows = []
    for task, row in record.items():
        for metric, found in row["metrics"].items():
            full, half = (found["types"][of_type] for of_type in ("no", "bf16"))
            is_loss = metric.endswith("loss")
            factor, places = 1 if is_loss or task == "squad" else 100, 4 if is_loss else 2  # of SQuAD: per cent already
            mean, low, high = (
                factor * end for end in (found["compared"]["mean_difference"], *found["compared"]["interval"])
            )
            between = f"{mean:+.{places}f} ({low:+.{places}f} to {high:+.{places}f})"
            numbers = [f"{factor * number:.{places}f}" for number in (full["mean"], half["mean"], full["std"])]
            rows.append([TASKS.get(task, task), METRICS[metric], str(full["n"]), *numbers, between])
    heads = ("what", "", "seeds", "float32", "bfloat16", "deviation over seeds", "difference, seed by seed")
    return markdown(heads, rows, 2)


def students(record: dict) -> str:
    """The table of students.json."""
    rows = []
    for row in record.values():
        for name, model in row["models"].items():
            low, high = (100 * end for end in model["share_interval"])
            student = name != "teacher"
            share = f"{100 * model['share']:.1f} ({low:.1f} to {high:.1f})" if student else ""
            times = [f"{row['speed'][what]['ratio']:.2f}" if student else "" for what in ("steps", "forward passes")]
            title = IN_WORDS_OF_STUDENTS[row["task"]]
            rows.append([title, name, str(len(model["scores"])), around(model), share, *times])
    head = (
        "task",
        "model",
        "seeds",
        "score, per cent",
        "of the teacher's, %",
        "steps a second",
        "read a second",
    )
    return markdown(head, rows, 2)


def deduplication(record: dict) -> str:
    """The table of deduplication.json: means over the seeds."""
    rows = []
    for name, runs in record["variants"].items():
        means = (statistics.mean(run[key] for run in runs) for key in ("eval_mlm_loss", "eval_nats_per_word"))
        accuracy = 100 * statistics.mean(run["eval_mlm_accuracy"] for run in runs)
        tokens = f"{runs[0]['corpus']['tokens'] / 1e6:.1f}"
        rows.append([name, tokens, str(len(runs)), *(f"{mean:.3f}" for mean in means), f"{accuracy:.1f}"])
    head = ("text", "million tokens", "seeds", "masked LM, nats", "nats a word", "accuracy, per cent")
    return markdown(head, rows)


EXPORTED = {
    "none": "ONNX, float32",
    "dynamic": "ONNX, 8 bits, dynamic",
    "static": "ONNX, 8 bits, static",
    "openvino, none": "OpenVINO, float32",
    "openvino, static": "OpenVINO, 8 bits, static",
}


def exported(record: dict) -> str:
    """The table of exported.json."""
    rows = []
    for row in record["results"]:
        before = row["systems"]["torch"]
        (score,) = before["scores"].values()
        for kind, name in EXPORTED.items():
            if (facts := row["systems"].get(kind)) is None:
                continue
            (after,) = facts["scores"].values()
            left = len(facts.get("in_float", []))
            rows.append(
                [
                    f"{row['task']}, {row['metric'].removeprefix('eval_')}",
                    name + (f", {left} layer{'s' * (left > 1)} in float32" if left else ""),
                    f"{before['ms_batch'] / facts['ms_batch']:.2f}",
                    f"{before['ms_one'] / facts['ms_one']:.2f}",
                    f"{score:.2f}",
                    f"{after:.2f}",
                    f"{100 * after / score:.2f}",
                    f"{facts['bytes'] / before['bytes']:.2f}",
                ]
            )
    head = ("model", "file", "times torch, 32 texts", "one text", "torch's score", "score", "kept, %", "of the bytes")
    return markdown(head, rows, 2)


def beginnings(record: dict) -> str:
    """The table of beginnings.json."""
    steps = ("0", "25", "50", "100", "200")
    rows = []
    for name, row in record.items():
        losses = [[run[step] for run in row["runs"] if step in run] for step in steps]
        means = [f"{statistics.mean(some):.2f}" if some else "" for some in losses]
        rows.append([*name.split(", ", 1), str(len(row["runs"])), *means])
    return markdown(("what", "begins", "seeds", "at first", *(f"step {step}" for step in steps[1:])), rows, 2)


def pretraining_steps(record: dict) -> str:
    """The table of ``steps`` with the steps of pre-training alone."""
    return steps(
        record | {"results": [row for row in record["results"] if row["group"] in ("pretraining", "compiled")]}
    )


def speed() -> str:
    """The table of README.md: a few of the figures of four records."""
    step, runs, demo, races = map(read, ("step_cpu", "whole_runs", "whole_demo", "speedrun"))
    ratios = {(row["workload"], row["against"]): row["ratio"] for row in step["results"]}
    mini = [record for record in races.values() if record["rules"]["config_name"] == "mini"]
    race = max(mini, key=lambda record: record["date"])
    seconds = statistics.median(run["seconds"] for run in race["runs"] if run["contestant"] == "fast")
    base, squad = "pre-training base, 16 x 128", "fine-tuning squad train, small, batch 12"
    whole = "a whole run of BERT-Mini on 10,000 questions of SQuAD, compared with Trainer"
    longest, alike = ratios[squad, "stock, padded to the longest"], ratios[squad, "stock, rows of like length"]
    rows = [
        ("a step of pre-training BERT-Base, compared with transformers' network", ratios[base, "stock"], step),
        ("a step of BERT-Small on SQuAD, compared with batches padded to their longest row", longest, step),
        ("a step of BERT-Small on SQuAD, compared with batches of rows of similar length", alike, step),
        (f"{whole}, both in float32", runs["squad, float32"]["ratio"], runs["squad, float32"]),
        (f"{whole}, both with their defaults: ours in bfloat16", runs["squad"]["ratio"], runs["squad"]),
        ("`make demo`, compared with the same runs with Trainer", demo["ratio"], demo),
    ]
    shown = [[what, f"{ratio:.2f} times as fast", *place(record)] for what, ratio, record in rows]
    what = (
        f"`--recipe fast`: until BERT-Mini reaches {race['rules']['target']:g} nats on held-out text, from new weights"
    )
    shown.append([what, f"{seconds / 60:.0f} minutes", *place(race)])
    return markdown(("what", "result", "date", "commit", "processor"), shown, 5)


def place(record: dict) -> tuple[str, str, str]:
    """Date, commit and processor of a record."""
    return record["date"][:10], record["commit"], record["device"]


def epoch_plan(record: dict) -> str:
    """The table of epoch_plan.json."""
    rows = []
    for row in record["results"]:
        counts = f"{row['tokens']:,}", f"{row['instances']:,}"
        took = f"{row['seconds']:.0f}", f"{row['cpu_seconds']:.0f}", f"{row['bytes'] / 1e9:.2f}"
        rows.append([f"`{row['objective']}`", *counts, *took])
    aims = record["targets"]
    head = ("objective", "tokens", "instances", f"seconds (aim: under {aims['seconds']})", "of one core")
    return markdown([*head, f"peak memory, GB (aim: under {aims['bytes'] / 1e9:g})"], rows)


def corpus_speed(record: dict) -> str:
    """The table of corpus_speed.json."""
    rows = [(what, f"{seconds:.1f}") for what, seconds in record["seconds"].items()]
    table = markdown((f"{record['text']['words']:,} words", "seconds, median"), rows)
    ratios = [(what, f"{ratio:.2f}") for what, ratio in record["ratios"].items()]
    table += "\n" + markdown(("ratio", "times as fast"), ratios)
    if memory := record.get("memory"):
        size, peak = f"{memory['document_bytes'] / 1e6:,.0f} MB", f"{memory['peak_bytes'] / 1e6:,.0f}"
        head = ("one document of", "peak memory of the main process, MB (aim: under 600)")
        table += "\n" + markdown(head, [(size, peak)])
    return table


def corpus_scale(record: dict) -> str:
    """The table of corpus_scale.json."""
    rows = []
    for row in sorted(record["results"], key=lambda row: row["part"]):
        disk = f"{row['disk'] / row['predicted_disk']:.2f}" if "disk" in row else ""
        time = "" if row["part"] == "epoch" else f"{row['seconds'] / row['predicted_seconds']:.2f}"
        memory = f"{row['bytes'] / 1e6:,.0f}"
        rows.append([row["part"], f"{row['words']:,}", f"{row['seconds']:.1f}", time, memory, disk])
    head = ("part", "words", "seconds", "/ predicted", "peak memory, MB", "disk / predicted")
    return markdown(head, rows)


def service(record: dict) -> str:
    """The tables of service.json: the speed, and what became of many requests."""
    return "\n".join(
        table(record[name]) for name, table in (("speed", service_speed), ("soak", service_soak)) if name in record
    )


def service_speed(part: dict) -> str:
    """The ways to start the service beside the pipeline, medians over the turns."""
    rows = [["a loop over `pipeline()`", "", "1.00", "", f"{part['pipeline_per_s']:.1f}", "", "", "", ""]]
    for row in part["results"]:
        ratios = [f"{row['ratio']:.2f}", "{:.2f} to {:.2f}".format(*row["ratio_range"])]
        times = [f"{row['p50_ms']:.0f}", f"{row['p99_ms']:.0f}"]
        share = [f"{100 * row['client_share_of_a_core']:.0f}", f"{row['other_answers']:,} of {row['answers']:,}"]
        flags = f"`{row['flags']}`" if row["flags"] else ""
        rows.append([row["way"], flags, *ratios, f"{row['requests_per_s']:.1f}", *times, *share])
    clients = part["clients"]
    heads = (f"{clients} clients", "flags", "ratio", "range", "requests a second", "p50, ms", "p99, ms")
    return markdown((*heads, "client, % of a core", "other answers"), rows, 2)


def service_soak(part: dict) -> str:
    """What became of many requests; in older records, to two workers of which one was killed."""
    memory = part["megabytes"]
    to, of = ("two workers", " of the workers") if "killed" in part else ("a service", "")
    killed = [("a worker was killed (SIGKILL) and replaced", "yes" if part["killed"] else "no")] if of else []
    rows = [
        (f"requests, to {to} with a tiny network", f"{part['requests']:,}"),
        ("wrong answers", f"{part['wrong']:,}"),
        *killed,
        ("sent again, because the connection broke", f"{part['sent_again']:,}"),
        ("the longest that an answer took, seconds", f"{part['longest_ms'] / 1000:.1f}"),
        (f"memory{of} before, and after each third, MB", ", ".join(f"{one:.0f}" for one in memory)),
        ("the most memory, MB", f"{part['peak_megabytes']:.0f}"),
        ("from SIGTERM to the end, seconds", f"{part['stop_seconds']:.1f}"),
    ]
    return markdown(("what", "measured"), rows)


def inference(record: dict) -> str:
    """The tables of inference.json: the ways to ask, and what they import."""
    rows = []
    for row in record["results"]:
        same = f"{row['same_class']:,} of {row['compared']:,}"
        ratios = [f"{row['ratio']:.2f}", "{:.2f} to {:.2f}".format(*row["ratio_range"])]
        speed = f"{row['texts_per_s']:.1f}"
        rows.append([row["way"], f"{row['texts']:,}", speed, *ratios, f"{row['largest_difference']:.0e}", same])
    heads = ("way", "texts at once", "texts a second", "ratio", "range", "largest difference", "same class")
    first = [[row["what"], f"{row['seconds']:.2f}", f"{row['modules']:,}"] for row in record["imports"]]
    return markdown(heads, rows) + "\n" + markdown(("import", "seconds", "modules"), first)


RECORDS: dict[str, Callable[[dict], str]] = {
    "step_cpu": steps,
    "step_cpu_xeon": pretraining_steps,
    "step_cpu_bf16": pretraining_steps,
    "step_cuda": pretraining_steps,
    "step_parts": step_parts,
    "vocabulary_coverage": vocabulary,
    "pretraining_comparison": comparison,
    "onnx_int8": onnx,
    "pretraining_data": data,
    "lengths": real_tokens,
    "compatibility": compatibility,
    "speedrun": speedrun,
    "fixed_time": fixed_time,
    "whole_runs": whole_runs,
    "whole_runs_cuda": whole_runs,
    "whole_demo": whole_demo,
    "faults": faults,
    "squad": squad,
    "controls": controls,
    "fine_tuning_rate": fine_tuning_rate,
    "two_types": two_types,
    "beginnings": beginnings,
    "exported": exported,
    "domain": domain,
    "epoch_plan": epoch_plan,
    "corpus_scale": corpus_scale,
    "corpus_speed": corpus_speed,
    "students": students,
    "deduplication": deduplication,
    "service": service,
    "inference": inference,
}
MINI = {
    "mini-wiki-books": (250, 1000, 2000, 3000),
    "mini-14000": (1000, 2000, 4000, 6000, 8000, 10000, 12000, 14000),
    "mini-fast": (2100, 2400),
    "mini-fast-5000": (4500, 5000),
}
OWN_WEIGHTS = (
    "mini-wiki-books",
    "mini-14000",
    "*-random",
    "*-pretrained",
    "*-mini-14000",
    "mrpc-control",
    "stsb-control",
)
PAPER = ("table5", "table5_small", "table6", "table7", "table8", "table8_small", "figure5")


def read(name: str) -> Any:
    """A record of lab/records/."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def of_record(name: str) -> str:
    """The table of a record, and below it where it was measured: the record as a whole, or each of its parts."""
    record = read(name)
    parts = [part for part in (record, *record.values()) if isinstance(part, dict) and "date" in part]
    facts = ([part.get(key, "") for part in parts] for key in ("date", "commit", "device"))
    return RECORDS[name](record) + "\n" + run_tables.sentence("Measured", *facts, f"lab/records/{name}.json")


TABLES: dict[str, Callable[[], str]] = {
    # A table of which the record has not been made yet is on no page.
    **{name: partial(of_record, name) for name in RECORDS if (FOLDER / f"{name}.json").is_file()},
    **{f"paper/{name}": partial(run_tables.paper, name) for name in PAPER},
    "speed": speed,
    "mini": partial(run_tables.held_out, MINI),
    "parts of pre-training": run_tables.parts,
    "own weights": partial(run_tables.compared, *OWN_WEIGHTS),
    "fast recipe": partial(run_tables.compared, "fast-*"),
    "fast recipe, intervals": run_tables.intervals,
    "minilm": partial(run_tables.compared, "minilm-*", "ungrouped-minilm-cola", with_times=True),
    "control": run_tables.control,
}


def pages() -> list[Path]:
    """The pages that may show tables."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("lab/notes/*.md"))]


def rewritten(text: str) -> str:
    """A page with its tables made anew.

    Raises:
        ValueError: a table has an unknown name, or no end.
    """

    def made(match: re.Match[str]) -> str:
        if match[2] not in TABLES or "<!-- table:" in match[3]:
            raise ValueError(
                f"expected <!-- table: NAME -->, where NAME is one of {', '.join(TABLES)}, and then <!-- end -->; got "
                f"{match[1].strip()}"
            )
        return match[1] + TABLES[match[2]]() + match[4]

    text, count = re.subn(r"(<!-- table: (.*?) -->\n)(.*?)(<!-- end -->)", made, text, flags=re.DOTALL)
    if count != text.count("<!-- table:"):
        raise ValueError("expected <!-- end --> after every table; the last one has none")
    return text


def write_pages() -> None:
    """Make the tables of all pages anew, and name the pages that changed."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        try:
            new = rewritten(text)
        except ValueError as error:
            raise ValueError(f"{page.relative_to(ROOT)}: {error}") from None
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: its tables are new")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write_pages()
