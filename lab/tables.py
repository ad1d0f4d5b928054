"""Write the tables of the pages anew from the records of lab/records/ and lab/records/runs/.

    python lab/tables.py

A page shows a table between <!-- table: NAME --> and <!-- end -->, where NAME is a key of TABLES, or paper/FOLDER for
the verdicts on a recorded table of the paper. Below each table stands when, at which commit and on which processor it
was measured. To show a new record, write a function that makes a table of it, name it in RECORDS, and put the two
comments into a page. A record whose program has answered its question and is gone holds its table under the key
"table"; the program stands at the commit of the record.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

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


def faults(record: dict) -> str:
    """The table of faults.json."""
    rows = []
    for row, found in record.items():
        outcomes = [f"{count:,} {outcome}" for outcome, count in sorted(found["outcomes"].items(), key=lambda o: -o[1])]
        outcomes += [f"{name}: {value}" for name, value in found["measured"].items()]
        rows.append([row, "; ".join(outcomes).replace("|", r"\|"), f"{found['faults']:,}"])
    return markdown(("fault", "what became of them", "number"), rows, 2)


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
    """The table of service.json: the ways to start the service beside the pipeline, medians over the turns."""
    rows = [["a loop over `pipeline()`", "", "1.00", "", f"{record['pipeline_per_s']:.1f}", "", "", "", ""]]
    for row in record["results"]:
        ratios = [f"{row['ratio']:.2f}", "{:.2f} to {:.2f}".format(*row["ratio_range"])]
        times = [f"{row['p50_ms']:.0f}", f"{row['p99_ms']:.0f}"]
        share = [f"{100 * row['client_share_of_a_core']:.0f}", f"{row['other_answers']:,} of {row['answers']:,}"]
        flags = f"`{row['flags']}`" if row["flags"] else ""
        rows.append([row["way"], flags, *ratios, f"{row['requests_per_s']:.1f}", *times, *share])
    clients = record["clients"]
    heads = (f"{clients} clients", "flags", "ratio", "range", "requests a second", "p50, ms", "p99, ms")
    return markdown((*heads, "client, % of a core", "other answers"), rows, 2)


def inference(record: dict) -> str:
    """The tables of inference.json: the ways to ask, and what they import."""
    rows = []
    for row in record["results"]:
        same = f"{row['same_class']:,} of {row['compared']:,}"
        ratios = [f"{row['ratio']:.2f}", "{:.2f} to {:.2f}".format(*row["ratio_range"])]
        ratios += [f"{row['ratio_to_batches']:.2f}", "{:.2f} to {:.2f}".format(*row["ratio_to_batches_range"])]
        speed = f"{row['texts_per_s']:.1f}"
        rows.append([row["way"], f"{row['texts']:,}", speed, *ratios, f"{row['largest_difference']:.0e}", same])
    sides = ("ratio", "range", "to batches of 32", "range")
    heads = ("way", "texts at once", "texts a second", *sides, "largest difference", "same class")
    first = [[row["what"], f"{row['seconds']:.2f}", f"{row['modules']:,}"] for row in record["imports"]]
    return markdown(heads, rows) + "\n" + markdown(("import", "seconds", "modules"), first)


def names(record: dict) -> str:
    """The table of names.json: F1 of both sides over the seeds, mean and range, and Welch's t test."""
    from scipy.stats import ttest_ind

    rows = []
    for data, row in record.items():
        sides = [[100 * score for score in row["f1"][side]] for side in ("ours", "transformers")]
        shown = [f"{statistics.mean(one):.1f} ({min(one):.1f} to {max(one):.1f})" for one in sides]
        counts = [f"{row['examples'][split]:,}" for split in ("train", "validation")]
        difference = statistics.mean(sides[0]) - statistics.mean(sides[1])
        p = ttest_ind(*sides, equal_var=False).pvalue
        rows.append([data, *counts, str(len(sides[0])), *shown, f"{difference:+.1f}", f"{p:.2f}"])
    heads = ("data", "to train on", "to score", "seeds", "run_ner.py, F1", "Trainer, F1", "difference", "p")
    return markdown(heads, rows)


RECORDS: dict[str, Callable[[dict], str]] = {
    "step_cpu": steps,
    "step_cpu_xeon": pretraining_steps,
    "step_cpu_bf16": pretraining_steps,
    "step_cpu_avx512_bf16": steps,
    "step_cuda": pretraining_steps,
    "compatibility": compatibility,
    "speedrun": speedrun,
    "whole_runs": whole_runs,
    "whole_runs_cuda": whole_runs,
    "faults": faults,
    "corpus_scale": corpus_scale,
    "corpus_speed": corpus_speed,
    "service": service,
    "inference": inference,
    "names": names,
}
PAPER = ("table5", "table5_small", "table6", "table7", "table8", "table8_small", "figure5")
OF_RUNS = "run_tables"  # a record of the tables that were made of the runs in lab/records/runs/


def read(name: str) -> Any:
    """A record of lab/records/."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def of_record(name: str) -> str:
    """The table of a record, and below it where it was measured: the record as a whole, or each of its parts."""
    record = read(name)
    parts = [part for part in (record, *record.values()) if isinstance(part, dict) and "date" in part]
    facts = ([part.get(key, "") for part in parts] for key in ("date", "commit", "device"))
    table = "\n".join([*record["table"], ""]) if "table" in record else RECORDS[name](record)
    gone = ", where its program stands" if "table" in record else ""
    return table + "\n" + sentence("Measured", *facts, f"lab/records/{name}.json", gone)


def of_runs(name: str) -> str:
    """A table of recorded runs, with the line below it."""
    return "\n".join([*read(OF_RUNS)[name]["table"], ""])


def paper(name: str) -> str:
    """The verdicts and the picture of the recorded report of one of the paper's tables, and a link to all of it."""
    place = f"records/runs/paper/{name}"
    folder = FOLDER / "runs" / "paper" / name
    paragraphs = (folder / "report.md").read_text(encoding="utf-8").split("\n\n")
    (verdicts,) = (paragraph for paragraph in paragraphs if paragraph.startswith("| | claim |"))
    pictures = [paragraph for paragraph in paragraphs if paragraph.endswith("](report.png)")]
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    made = record["report_made_with"]
    commits = [run["commit"] for run in record["runs_made_with"]] or [made["commit"]]
    shown = [verdicts, *(picture.replace("](", f"](../{place}/") for picture in pictures)]
    shown.append(f"[The whole report: scores, differences with their intervals, and contrasts](../{place}/report.md)")
    recorded = ([made["date"]] * len(commits), commits, [made["processor"]], f"lab/{place}/record.json")
    return "\n\n".join([*shown, sentence("Recorded", *recorded)])


def sentence(
    begin: str, dates: list[str], commits: list[str], devices: list[str], record: str, of_commits: str = ""
) -> str:
    """The sentence below a table: dates, commits in their order, devices, and where the record is."""
    days = sorted({date[:10] for date in dates})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    in_order = dict.fromkeys(re.sub(r"^(\w{7})\w*", r"\1", commit) for _, commit in sorted(zip(dates, commits)))
    processors = dict.fromkeys(device.removeprefix("cpu, ").partition(",")[0] for device in devices if device)
    where = f" on {' and '.join(processors)}" if processors else ""
    named = f"commit{'s' if len(in_order) > 1 else ''} {', '.join(in_order)}{of_commits}"
    return f"*{begin} {when}{where}, {named}: `{record}`*\n"


TABLES: dict[str, Callable[[], str]] = {
    **{name: partial(of_record, name) for name in RECORDS},
    **{path.stem: partial(of_record, path.stem) for path in FOLDER.glob("*.json") if "table" in read(path.stem)},
    **{name: partial(of_runs, name) for name in read(OF_RUNS)},
    **{f"paper/{name}": partial(paper, name) for name in PAPER},
    "speed": speed,
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
