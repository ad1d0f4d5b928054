"""Compare the speed of this project's classes with transformers' in one process, in alternation.

    python lab/benchmarks/step.py                              # everything, under 15 minutes on 2 cores
    python lab/benchmarks/step.py --only pretraining smallest
    python lab/benchmarks/step.py --device cuda                # adds Large, length 512 and torch.compile
    python lab/benchmarks/step.py --device cuda --smoke        # five minutes; a table in Markdown, to report a GPU

Every repetition times every arm once, in turn; a ratio compares two speeds of the same repetition. On a GPU, every arm
does its work once before it is timed, because the first arm to see a new shape reserves the memory for all. The table
shows medians, the smallest and the largest ratio, and the target. Speeds are real tokens per second: padding does not
count. --dtype auto selects the type with the faster matrix products on this machine, for both networks. After each
workload, lab/records/step_<device>.json is written: the table with versions, commit, device, threads and the command.
lab/benchmarks/picture.py draws it. --smoke makes a part of the workloads, compares the gradients of every way to
compute a step with transformers' in float32, and writes a file only with --output.
"""

import argparse
import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.engine.launch import keep_cudnn_from_attention
from bert_training.files.atomic import write_json
from lab.benchmarks import idle
from lab.benchmarks.agreement import agreement
from lab.benchmarks.provenance import provenance
from lab.benchmarks.workloads import (
    MEMORY_TARGET,
    PEAK_TARGETS,
    VOCAB_SIZE,
    Setting,
    Workload,
    peak_memory,
    pretraining,
    smallest,
    with_padding,
)
from lab.tables import markdown, steps

GROUPS = ("pretraining", "finetuning", "inference", "smallest", "memory", "compiled")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SPAN = "BertForQuestionAnswering"
CLASSIFY = "BertForSequenceClassification"


def synchronise(device: torch.device) -> None:
    """Wait for the work of a CUDA device, so that the clock measures it."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def matrix_peak(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Operations per second of a product of two matrices with ``size`` rows and columns, the best of 10."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        synchronise(device)
        start = time.perf_counter()
        left @ right
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def workloads(group: str, setting: Setting, tiny: bool, smoke: bool = False) -> list[Callable[[], Workload]]:
    """Functions that make the workloads of a group; so the networks of only one workload are in memory at a time."""
    cuda = setting.device.type == "cuda"
    shrink, few = (16, 4) if tiny else (1, 32)
    size = "tiny" if tiny else "base" if cuda else "small"
    if group == "compiled" and not cuda:
        return []
    if group in ("pretraining", "compiled"):
        sizes = [("base", 16, 128), ("small", 32, 128), ("mini", 32, 128)]
        if cuda:
            sizes = [("base", 256, 128), ("base", 64, 512), ("large", 128, 128), ("large", 32, 512)]
        if smoke:
            sizes = [("base", 32, 128)] if cuda else [("mini", 32, 128)]
        shapes = [("tiny", 2, 16)] if tiny else sizes
        setting = replace(setting, compile=group == "compiled")
        return [partial(pretraining, *shape, setting) for shape in shapes]
    if group == "finetuning":
        tasks = [("mrpc train", CLASSIFY, few), ("sst2 train", CLASSIFY, few), ("squad train", SPAN, min(few, 12))]
        tasks = tasks[: 1 if smoke else None]
        return [partial(with_padding, data, name, size, rows, setting, True, shrink) for data, name, rows in tasks]
    if group == "inference":
        tasks = [("mrpc dev", CLASSIFY), ("squad dev", SPAN)][: 1 if smoke else None]
        return [partial(with_padding, data, name, size, few, setting, False, shrink) for data, name in tasks]
    cases = [
        (name, length, training) for name in ("mini", "base") for length in (16, 128) for training in (False, True)
    ]
    if tiny:
        cases = [("tiny", 16, False), ("tiny", 16, True)]
    return [
        partial(smallest, name, length, setting, training)
        for name, length, training in cases
        if cuda or not (name == "base" and training)
    ]


def speeds(workload: Workload, repetitions: int, device: torch.device) -> dict[str, list[float]]:
    """Real tokens per second of every arm in every repetition; one repetition before these is not counted."""
    rates: dict[str, list[float]] = {name: [] for name in workload.arms}
    for repetition in range(-1, repetitions):
        for name, prepare in workload.arms.items():
            work, tokens = prepare(repetition)
            if device.type == "cuda":
                work()
            synchronise(device)
            start = time.perf_counter()
            work()
            synchronise(device)
            if repetition >= 0:
                rates[name].append(tokens / (time.perf_counter() - start))
    return rates


def rows_of(workload: Workload, rates: dict[str, list[float]], peak: float, device: str) -> list[dict[str, Any]]:
    """One row of the table for each of transformers' arms.

    Args:
        rates: the speeds of each arm, as ``speeds`` returned them.
        peak: operations per second of matrix products.
        device: "cpu" or "cuda".
    """
    own, *others = rates
    rows = []
    for other in others:
        ratios = [mine / theirs for mine, theirs in zip(rates[own], rates[other])]
        row = {
            "workload": workload.name,
            "against": other,
            "ours_tokens_per_s": round(statistics.median(rates[own]), 1),
            "stock_tokens_per_s": round(statistics.median(rates[other]), 1),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
            "repetitions": len(ratios),
            **workload.facts,
        }
        if other in workload.targets:
            row["ratio_target"] = workload.targets[other]
        if workload.flops:
            tokens, size = workload.facts["rows"] * workload.facts["length"], workload.facts["size"]
            row["share_of_matrix_peak"] = round(workload.flops * row["ours_tokens_per_s"] / tokens / peak, 3)
            if (device, size) in PEAK_TARGETS:
                row["share_target"] = PEAK_TARGETS[device, size]
        rows.append(row)
    return rows


def memory_row(setting: Setting, tiny: bool, rows: int) -> dict[str, Any]:
    """The row of the table for the peak memory of a pre-training step; each network runs in its own process.

    Args:
        rows: sequences of 512 tokens.
    """
    size, rows, length = ("tiny", 2, 16) if tiny else ("base", rows, 512)
    peaks = []
    for which in range(2):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            peaks.append(pool.submit(peak_memory, which, size, rows, length, setting).result())
    return {
        "workload": f"peak memory, pre-training {size}, {rows} x {length}",
        "against": "stock",
        "ours_bytes": peaks[0],
        "stock_bytes": peaks[1],
        "ratio": round(peaks[0] / peaks[1], 3),
        "ratio_target": MEMORY_TARGET,
        "rows": rows,
        "length": length,
        "size": size,
    }


LINE = "{:<72} {:>9} {:>9} {:>6} {:>13} {:>6} {:>4} {:>9}"
HEADS = ("workload / against", "ours", "stock", "ratio", "range", "aim", "", "of peak")


def show(row: dict[str, Any]) -> str:
    """A line of the table, with speeds in tokens per second and memory in MB."""
    name = f"{row['workload']} / {row['against']}"
    memory = "ours_bytes" in row
    if memory:
        ours, stock, spread = row["ours_bytes"] / 1e6, row["stock_bytes"] / 1e6, ""
    else:
        ours, stock = row["ours_tokens_per_s"], row["stock_tokens_per_s"]
        spread = "{:.2f} - {:.2f}".format(*row["ratio_range"])
    aim, met = row.get("ratio_target", ""), ""
    if aim:
        met = "yes" if (row["ratio"] <= aim if memory else row["ratio"] >= aim) else "no"
    peak = f"{row['share_of_matrix_peak']:.0%}" if "share_of_matrix_peak" in row else ""
    peak += f" / {row['share_target']:.0%}" if "share_target" in row else ""
    return LINE.format(name, f"{ours:,.0f}", f"{stock:,.0f}", f"{row['ratio']:.2f}", spread, aim, met, peak)


def environment(args: argparse.Namespace, setting: Setting, peaks: dict[str, float]) -> dict[str, Any]:
    """The part of the record that describes the measurement."""
    facts = provenance("lab/benchmarks/step.py", args.argv, setting.device.type)
    return facts | {
        "threads": torch.get_num_threads(),
        "fast_dropout": setting.fast_dropout,
        "dtype": str(setting.dtype).removeprefix("torch."),
        "matrix_peak_gflops": {name: round(peak / 1e9, 1) for name, peak in peaks.items()},
    }


def failure(what: str, error: Exception) -> str:
    """One line for the report: a GPU that nobody has tried may lack a kernel, a compiler or memory."""
    return f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def compared(record: dict[str, Any], setting: Setting, tiny: bool, output: Path | None) -> dict[str, Any]:
    """The record with what ``agreement`` found for a classifier and for pre-training."""
    found = []
    for class_name in (CLASSIFY, "BertForPreTraining"):
        try:
            found += agreement(class_name, setting, tiny)
        except Exception as error:
            record.setdefault("failures", []).append(failure(f"gradients of {class_name}", error))
    record["agreement"] = found
    if output:
        write_json(output, record)
    return record


def report(record: dict[str, Any]) -> str:
    """What --smoke prints: Markdown for an issue of the project."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    peaks = ", ".join(f"{peak:,.0f} GFLOP/s in {name}" for name, peak in record["matrix_peak_gflops"].items())
    facts = f"{record['device']}; {record['dtype']}; matrix products: {peaks}; {versions}; commit {record['commit']}"
    rows = [
        [row["network"], row["way"], f"{row['difference']:.1e}", "yes" if row["as_expected"] else "NO"]
        for row in record["agreement"]
    ]
    head = ("network", "computed by", "difference from float32", "explained by rounding")
    parts = [
        "\nPlease open an issue with all that follows.\n",
        f"`{record['command']}`\n\n{facts}\n",
        steps(record),
        f"Gradients, beside those of transformers' network in float32:\n\n{markdown(head, rows, 2)}",
    ]
    parts += [f"FAILED, {one}\n" for one in record.get("failures", [])]
    return "\n".join(parts)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The arguments of the command; ``argv`` itself is kept for the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the networks run (cpu)")
    parser.add_argument("--dtype", choices=("auto", *DTYPES), default="auto", help="the type of both networks (auto)")
    parser.add_argument("--only", choices=GROUPS, nargs="+", default=GROUPS, help="groups of workloads; default: all")
    parser.add_argument("--repetitions", type=int, default=5, help="measurements of each workload (5)")
    parser.add_argument("--memory_rows", type=int, help="sequences of 512 tokens; default: 8, on CUDA 32")
    parser.add_argument(
        "--torch_dropout", action="store_true", help="use torch's dropout and attention in our classes on CPUs too"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="use tiny networks and lengths, to test that everything runs"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="a part of the workloads, and a table in Markdown to report"
    )
    parser.add_argument(
        "--output", type=Path, help="default: lab/records/step_<device>.json; with --smoke and --tiny none"
    )
    idle.add_flag(parser)
    args = parser.parse_args(argv)
    args.argv = sys.argv[1:] if argv is None else argv
    if args.repetitions < 1:
        parser.error(f"expected --repetitions of at least 1, got {args.repetitions}")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            f"--device cuda: torch {torch.__version__} sees no CUDA device; see https://pytorch.org/get-started"
        )
    return args


def main(argv: list[str] | None = None) -> None:
    """The command."""
    args = parse(argv)
    found = idle.demand_idle_cores(args.busy or args.tiny or args.smoke)
    started = time.perf_counter()
    device = torch.device(args.device)
    keep_cudnn_from_attention()  # for both networks: its plans for new shapes would be what is measured
    matrix = 128 if args.tiny else 8192 if args.device == "cuda" else 2048
    peaks = {name: matrix_peak(device, dtype, matrix) for name, dtype in DTYPES.items()}
    name = max(peaks, key=peaks.get) if args.dtype == "auto" else args.dtype
    vocab_size = 500 if args.tiny else VOCAB_SIZE
    setting = Setting(device, DTYPES[name], vocab_size=vocab_size, fast_dropout=not args.torch_dropout)
    record = environment(args, setting, peaks) | found | {"results": []}
    kept = None if args.smoke or args.tiny else Path(__file__).parents[1] / "records" / f"step_{args.device}.json"
    output = args.output or kept
    print(f"{record['device']}, {record['threads']} threads, {record['dtype']}, GFLOP/s {record['matrix_peak_gflops']}")
    print(LINE.format(*HEADS), flush=True)
    memory_rows = args.memory_rows or (32 if args.device == "cuda" and not args.smoke else 8)
    makers = {group: workloads(group, setting, args.tiny, args.smoke) for group in args.only if group != "memory"}
    work = [(group, make) for group, makes in makers.items() for make in makes]
    work += [("memory", partial(memory_row, setting, args.tiny, memory_rows))] * ("memory" in args.only)
    for number, (group, make) in enumerate(work, 1):
        print(f"{number} of {len(work)}, {time.perf_counter() - started:.0f} s: {group}", file=sys.stderr, flush=True)
        try:
            if group == "memory":
                rows = [make()]
            else:
                workload = make()
                rows = rows_of(workload, speeds(workload, args.repetitions, device), peaks[name], args.device)
                del workload
        except Exception as error:
            if not args.smoke:
                raise
            record.setdefault("failures", []).append(failure(group, error))
            continue
        gc.collect()
        print("\n".join(map(show, rows)), flush=True)
        record["results"] += [{"group": group, **row} for row in rows]
        record["seconds"] = round(time.perf_counter() - started, 1)
        if output:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_json(output, record)  # after every row: a run that is cut off leaves what it had
    if args.smoke:
        print(report(compared(record, setting, args.tiny, output)), end="")


if __name__ == "__main__":
    main()
