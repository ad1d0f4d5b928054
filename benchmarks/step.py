"""Steps of this project's classes side by side with transformers', in one process, alternating.

    python benchmarks/step.py                              # all of it, under 15 minutes on 2 cores
    python benchmarks/step.py --only pretraining smallest
    python benchmarks/step.py --device cuda                # adds Large, length 512 and torch.compile

Every repetition times every arm once, in turn; a ratio is that of the two speeds in one repetition. The table shows
medians and the smallest and largest ratio. Speeds are real tokens a second: padding counts as nothing.
--dtype auto takes the type with the faster matrix products on this machine; both networks use it. Written to
results/step_<device>.json: the table with versions, commit, device, threads and the command.
"""

import argparse
import gc
import json
import multiprocessing
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.workloads import VOCAB_SIZE, Setting, Workload, peak_memory, pretraining, smallest, with_padding

GROUPS = ("pretraining", "finetuning", "inference", "smallest", "memory")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SPAN = "BertForQuestionAnswering"
CLASSIFY = "BertForSequenceClassification"


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def matrix_peak(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Operations a second of a square matrix product, the best of 10."""
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        synchronise(device)
        start = time.perf_counter()
        left @ right
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def workloads(group: str, setting: Setting, tiny: bool) -> Iterator[Workload]:
    """The table of a group, one workload at a time: the networks of the last are gone when the next are made."""
    cuda = setting.device.type == "cuda"
    shrink, few = (16, 4) if tiny else (1, 32)
    size = "tiny" if tiny else "base" if cuda else "small"
    if group == "pretraining":
        sizes = [("base", 4, 128), ("small", 8, 128), ("mini", 16, 128)]
        if cuda:
            sizes = [("base", 256, 128), ("base", 64, 512), ("large", 128, 128), ("large", 32, 512)]
        for name, rows, length in [("tiny", 2, 16)] if tiny else sizes:
            yield pretraining(name, rows, length, setting)
            if cuda:
                yield pretraining(name, rows, length, replace(setting, compile=True))
    elif group == "finetuning":
        yield with_padding("mrpc train", CLASSIFY, size, few, setting, True, shrink)
        yield with_padding("sst2 train", CLASSIFY, size, few, setting, True, shrink)
        yield with_padding("squad train", SPAN, size, min(few, 12), setting, True, shrink)
    elif group == "inference":
        yield with_padding("mrpc dev", CLASSIFY, size, few, setting, False, shrink)
        yield with_padding("squad dev", SPAN, size, few, setting, False, shrink)
    elif group == "smallest":
        for name in ["tiny"] if tiny else ["mini", "base"]:
            for length in (16, 128):
                yield smallest(name, length, setting, training=False)
                if name != "base" or cuda:
                    yield smallest(name, length, setting, training=True)


def speeds(workload: Workload, repetitions: int, device: torch.device) -> dict[str, list[float]]:
    """Real tokens a second of every arm in every repetition, after one that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in workload.arms}
    for repetition in range(-1, repetitions):
        for name, prepare in workload.arms.items():
            work, tokens = prepare(repetition)
            synchronise(device)
            start = time.perf_counter()
            work()
            synchronise(device)
            if repetition >= 0:
                found[name].append(tokens / (time.perf_counter() - start))
    return found


def rows_of(workload: Workload, found: dict[str, list[float]], peak: float) -> list[dict[str, Any]]:
    """One row for each arm of transformers'."""
    own, *others = found
    rows = []
    for other in others:
        ratios = [mine / theirs for mine, theirs in zip(found[own], found[other])]
        row = {
            "workload": workload.name,
            "against": other,
            "ours_tokens_per_s": round(statistics.median(found[own]), 1),
            "stock_tokens_per_s": round(statistics.median(found[other]), 1),
            "ratio": round(statistics.median(ratios), 3),
            "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
            "repetitions": len(ratios),
            **workload.facts,
        }
        if workload.flops:
            tokens = workload.facts["rows"] * workload.facts["length"]
            row["share_of_matrix_peak"] = round(workload.flops * row["ours_tokens_per_s"] / tokens / peak, 3)
        rows.append(row)
    return rows


def memory_row(setting: Setting, tiny: bool, rows: int) -> dict[str, Any]:
    """Peak memory of a pre-training step, each network in a process of its own."""
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
    }


def show(row: dict[str, Any]) -> str:
    """A line of the table; speeds in tokens a second, memory in MB."""
    name = f"{row['workload']} / {row['against']}"
    if "ours_bytes" in row:
        ours, stock, spread = row["ours_bytes"] / 1e6, row["stock_bytes"] / 1e6, ""
    else:
        ours, stock = row["ours_tokens_per_s"], row["stock_tokens_per_s"]
        spread = "{:.2f} - {:.2f}".format(*row["ratio_range"])
    peak = f"{row['share_of_matrix_peak']:.0%}" if "share_of_matrix_peak" in row else ""
    return f"{name:<78} {ours:>11,.0f} {stock:>11,.0f} {row['ratio']:>6.2f} {spread:>13} {peak:>5}"


def environment(args: argparse.Namespace, setting: Setting, peaks: dict[str, float]) -> dict[str, Any]:
    folder = Path(__file__).parent
    git = partial(subprocess.run, cwd=folder, capture_output=True, text=True)
    changed = git(["git", "status", "--porcelain", "-uno"]).stdout.strip()
    device = torch.cuda.get_device_name() if setting.device.type == "cuda" else processor()
    return {
        "command": shlex.join(["python", "benchmarks/step.py", *args.argv]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip() + ("-dirty" if changed else ""),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "device": device,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_at_start": [round(load, 2) for load in os.getloadavg()],
        "fast_dropout": setting.fast_dropout,
        "dtype": str(setting.dtype).removeprefix("torch."),
        "matrix_peak_gflops": {name: round(peak / 1e9, 1) for name, peak in peaks.items()},
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("auto", *DTYPES), default="auto")
    parser.add_argument("--only", choices=GROUPS, nargs="+", default=GROUPS)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory_rows", type=int, help="sequences of 512 tokens; default: 8, on CUDA 32")
    parser.add_argument("--fast_dropout", action="store_true", help="ours with config.fast_dropout (CPU only)")
    parser.add_argument("--tiny", action="store_true", help="toy networks and lengths: does everything run?")
    parser.add_argument("--output", type=Path, help="default: results/step_<device>.json")
    args = parser.parse_args(argv)
    args.argv = sys.argv[1:] if argv is None else argv
    if args.repetitions < 1:
        parser.error(f"expected --repetitions of at least 1, got {args.repetitions}")
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    device = torch.device(args.device)
    matrix = 128 if args.tiny else 8192 if args.device == "cuda" else 2048
    peaks = {name: matrix_peak(device, dtype, matrix) for name, dtype in DTYPES.items()}
    name = max(peaks, key=peaks.get) if args.dtype == "auto" else args.dtype
    vocab_size = 500 if args.tiny else VOCAB_SIZE
    setting = Setting(device, DTYPES[name], vocab_size=vocab_size, fast_dropout=args.fast_dropout)
    record = environment(args, setting, peaks) | {"results": []}
    print(f"{record['device']}, {record['threads']} threads, {record['dtype']}, GFLOP/s {record['matrix_peak_gflops']}")
    heads = ("workload / against", "ours", "stock", "ratio", "range", "peak")
    print("{:<78} {:>11} {:>11} {:>6} {:>13} {:>5}".format(*heads), flush=True)
    for group in args.only:
        rows = []
        if group == "memory":
            rows = [memory_row(setting, args.tiny, args.memory_rows or (32 if args.device == "cuda" else 8))]
            print(show(rows[0]), flush=True)
        for workload in workloads(group, setting, args.tiny):
            found = rows_of(workload, speeds(workload, args.repetitions, device), peaks[name])
            print("\n".join(map(show, found)), flush=True)
            rows += found
            del workload
            gc.collect()
        record["results"] += [{"group": group, **row} for row in rows]
    output = args.output or Path(__file__).parent / "results" / f"step_{args.device}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
