"""Measure how the threads of OpenMP should wait for each other: steps per second of the demo's pre-training.

    python lab/benchmarks/waiting_policy.py                       # on an otherwise idle machine
    python lab/benchmarks/waiting_policy.py --seconds 1 --repetitions 1 --settings default passive --output tried.json

torch's CPU wheels use GNU's OpenMP (libgomp). A thread that has finished its part spins for GOMP_SPINCOUNT turns
before it sleeps. The default is 300,000; OMP_WAIT_POLICY=passive sets it to 0 and active to some thousand millions. On
free cores a spinning thread reacts faster; beside another busy process it takes time that the other thread needs.

Each setting is measured with two threads, on the idle machine and beside one busy process, which this program starts
and ends. OpenMP reads the variables when it starts, so each measurement runs in its own process. The settings take
turns, so that other load on the machine affects all of them. The record is written to results/waiting_policy.json.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.networks.configuration import bert_config
from lab.benchmarks import idle
from lab.benchmarks.provenance import provenance
from lab.benchmarks.workloads import Setting, make_sides, pretraining_batch

RESULTS = Path(__file__).parents[1] / "records" / "waiting_policy.json"
THREADS = 2
SIZE, ROWS, LENGTH, VOCAB_SIZE = "tiny", 64, 64, 8192  # examples/demo.sh
# The name of a setting -> its environment variables.
SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "active": {"OMP_WAIT_POLICY": "active"},
}
for count in (0, 1_000, 10_000, 100_000, 1_000_000):
    SETTINGS[f"spin {count}"] = {"GOMP_SPINCOUNT": str(count)}
NEIGHBOURS = {"idle": 0, "beside one busy process": 1}  # the number of busy processes


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep this number of processes busy with computing while the block runs."""
    code = f"import os\nwhile os.getppid() == {os.getpid()}: sum(range(100_000))"  # it also ends if this process dies
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def steps_per_second(seconds: float) -> float:
    """Optimiser steps per second of this process, measured for this time after a few steps that are not counted."""
    torch.set_num_threads(THREADS)
    setting = Setting(torch.device("cpu"), torch.float32, vocab_size=VOCAB_SIZE)
    own, _ = make_sides("BertForPreTraining", bert_config(SIZE, VOCAB_SIZE), setting, True, sparse_prediction=True)
    generator = np.random.default_rng(0)
    batches = [pretraining_batch(generator, ROWS, LENGTH, VOCAB_SIZE) for _ in range(4)]
    train, _ = own.work(batches, True)
    train()
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        train()
        steps += len(batches)
    return steps / (time.perf_counter() - started)


def measure_in_process(variables: dict[str, str], seconds: float) -> float:
    """`steps_per_second` in a separate process with these variables and no others of OpenMP."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    command = [sys.executable, __file__, "--only_measure", "--seconds", str(seconds)]
    done = subprocess.run(command, env=kept | variables, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"the measurement failed: {done.stderr}")
    return float(done.stdout.split()[-1])


def environment(argv: list[str], seconds: float) -> dict:
    """The part of the record that describes the measurement.

    Args:
        seconds: the length of each measurement.
    """
    workload = f"pre-training {SIZE}, {ROWS} x {LENGTH}, {THREADS} threads"
    return provenance("lab/benchmarks/waiting_policy.py", argv) | {"seconds": seconds, "workload": workload}


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="the length of each measurement")
    parser.add_argument("--repetitions", type=int, default=5, help="measurements of each setting")
    parser.add_argument("--settings", choices=SETTINGS, nargs="+", default=[*SETTINGS], help="default: all of them")
    parser.add_argument("--only_measure", action="store_true", help="measure in this process and print the number")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the record to write")
    idle.add_flag(parser)
    args = parser.parse_args(argv)
    if args.seconds <= 0 or args.repetitions < 1:
        parser.error("expected --seconds above 0 and --repetitions of at least 1")
    if args.only_measure:
        print(steps_per_second(args.seconds))
        return
    record = environment(sys.argv[1:] if argv is None else argv, args.seconds) | idle.demand_idle_cores(args.busy)
    rates_beside = {neighbour: {name: [] for name in args.settings} for neighbour in NEIGHBOURS}
    for number in range(1, args.repetitions + 1):
        for neighbour, processes in NEIGHBOURS.items():
            for name in args.settings:
                with busy(processes):
                    rates_beside[neighbour][name].append(round(measure_in_process(SETTINGS[name], args.seconds), 3))
        record |= {"repetitions": number, "steps_per_second": {}}
        for neighbour, rates in rates_beside.items():
            record["steps_per_second"][neighbour] = {
                name: {"median": statistics.median(values), "range": [min(values), max(values)]}
                for name, values in rates.items()
            }
        write_json(args.output, record)  # after every round, so that an interruption loses only the unfinished one
    print(json.dumps(record["steps_per_second"], indent=1))


if __name__ == "__main__":
    main()
