"""Print recorded results as the Markdown tables that the pages contain.

    python lab/tables.py step_cpu.json                           # a record of lab/records/
    python lab/tables.py lab/records/runs/mini-14000:1000,14000         # held-out scores of a pre-training run, by step

Each record makes its own table; several runs share a table. tests/project/test_figures.py compares the text of a page
between <!-- python lab/tables.py NAME --> and <!-- end --> with the output of this command.
"""

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "lab" / "records"


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]], text_columns: int = 1) -> str:
    """A Markdown table; the first ``text_columns`` contain text, the others numbers, which are aligned right."""
    head = list(head)
    alignment = ["---"] * text_columns + ["---:"] * (len(head) - text_columns)
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(alignment)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "".join(f"{line}\n" for line in lines)


# What the records of lab/benchmarks/step.py call a workload or a kind of padding, and how the pages say it; applied in
# this order.
WORDS = (
    (r"\b(tiny|mini|small|medium|base|large)\b", lambda match: f"BERT-{match[1].capitalize()}"),
    (r" (?:mrpc|sst2|squad) (?:train|dev)\b", lambda match: f" on {TASKS[match[0].split()[0]]}"),
    (r"\bbatch (\d+)", r"batches of \1"),
    (r"(\d+) x (\d+)", r"\1 rows of \2 tokens"),
    (r"\brows of like length", "rows of similar length"),
)
TASKS = {"mrpc": "MRPC", "sst2": "SST-2", "squad": "SQuAD"}


def in_words(workload: str) -> str:
    """The name of a workload or of a kind of padding in words: "fine-tuning on MRPC, BERT-Small, batches of 32"."""
    for pattern, words in WORDS:
        workload = re.sub(pattern, words, workload)
    return workload


def steps(record: dict) -> str:
    """The table of step_<device>.json."""
    rows = []
    for row in record["results"]:
        memory = "ours_bytes" in row
        against = in_words(row["against"].removeprefix("stock").removeprefix(", ")) or "as it is"
        spread = "" if memory else "{:.2f} to {:.2f}".format(*row["ratio_range"])
        ratio = f"{row['ratio']:.2f}" + (" of the bytes" if memory else "")
        share = f"{row['share_of_matrix_peak']:.0%}".replace("%", " %") if "share_of_matrix_peak" in row else ""
        rows.append([in_words(row["workload"]), against, ratio, spread, str(row.get("ratio_target", "")), share])
    head = ("workload", "against transformers' BERT", "times as fast", "range", "aim", "share of the matrix peak")
    return markdown(head, rows, 2)


TEXTS = {"wiki_heldout.txt": "held-out Wikipedia", "books_heldout.txt": "held-out novels"}
OWNERS = {"google": "Google's"}


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
    rows = [
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


def compiled(record: dict) -> str:
    """The table of compiled.json."""
    rows = []
    for row in record["results"]:
        seconds = row["seconds"]
        rows.append(
            [
                in_words(f"{row['size']}, {row['rows']} x {row['length']}"),
                f"{row['dropout']:g}",
                *(f"{seconds[way]:.3f}" for way in ("ours", "compiled", "transformers")),
                f"{seconds['ours'] / seconds['compiled']:.2f}",
                f"{row['first_two_steps']:.0f}",
            ]
        )
    heads = ("network and batch", "dropout", "ours, seconds", "compiled", "transformers'", "gain by compiling, times")
    return markdown((*heads, "first two compiled steps, seconds"), rows)


def faults(record: dict) -> str:
    """The table of faults.json."""
    rows = []
    for row, found in record.items():
        outcomes = [f"{count:,} {outcome}" for outcome, count in sorted(found["outcomes"].items(), key=lambda o: -o[1])]
        outcomes += [f"{name}: {value}" for name, value in found["measured"].items()]
        rows.append([row, "; ".join(outcomes).replace("|", r"\|"), f"{found['faults']:,}"])
    return markdown(("fault", "what became of them", "number"), rows, 2)


TABLES: dict[str, Callable[[dict], str]] = {
    "step_cpu.json": steps,
    "step_cpu_bf16.json": steps,
    "step_cuda.json": steps,
    "vocabulary_coverage.json": vocabulary,
    "pretraining_comparison.json": comparison,
    "onnx_int8.json": onnx,
    "pretraining_data.json": data,
    "lengths.json": real_tokens,
    "compatibility.json": compatibility,
    "speedrun.json": speedrun,
    "whole_runs.json": whole_runs,
    "compiled.json": compiled,
    "faults.json": faults,
}


def held_out(runs: list[str]) -> str:
    """For each run FOLDER:STEP,STEP the scores at these steps and the pieces read until then, including padding.

    Raises:
        ValueError: the run was not evaluated at a step.
    """
    rows = []
    for run in runs:
        folder, _, wanted = run.partition(":")
        flags = json.loads((ROOT / folder / "run.json").read_text(encoding="utf-8"))["flags"]
        size = flags["per_device_train_batch_size"] * flags["gradient_accumulation_steps"] * flags["max_seq_length"]
        lines = (ROOT / folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        events = {event["step"]: event for event in map(json.loads, lines) if event["event"] == "eval"}
        for step in map(int, wanted.split(",")):
            if step not in events:
                raise ValueError(f"{folder}: expected an evaluation at step {step}; there are those at {list(events)}")
            scores = events[step]
            shares = [f"{100 * scores[f'eval_{kind}_accuracy']:.1f}" for kind in ("mlm", "nsp")]
            row = [Path(folder).name, f"{step:,}", f"{step * size / 1e6:.1f}", f"{scores['eval_mlm_loss']:.3f}"]
            rows.append(row + shares)
    heads = ("masked pieces: loss, nats", "accuracy, %", "next sentence: accuracy, %")
    return markdown(("run", "step", "pieces read, million", *heads), rows)


def output(words: list[str]) -> str:
    """What the command prints for these arguments. Raises ValueError for an unknown record or run."""
    if all(":" in word for word in words):
        return held_out(words)
    unknown = [word for word in words if word not in TABLES]
    if unknown:
        raise ValueError(f"expected {', '.join(TABLES)} or FOLDER:STEP,STEP of a run; got {', '.join(unknown)}")
    return "\n".join(TABLES[word](json.loads((RESULTS / word).read_text(encoding="utf-8"))) for word in words)


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "records", nargs="+", metavar="RECORD", help=f"{', '.join(TABLES)}, or FOLDER:STEP,STEP of a run"
    )
    args = parser.parse_args(argv)
    try:
        print(output(args.records), end="")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
