"""Measure what torch.compile gains or loses in our pre-training step on a CPU, and what it costs once.

    python lab/benchmarks/compiled.py                              # some minutes
    python lab/benchmarks/compiled.py --sizes tiny --rows 2 --length 16 --vocab_size 500 --output tried.json

Inductor fuses the small operations of a step, but draws random numbers for dropout slowly. Without dropout none are
drawn, so that this step shows the most that fused kernels with numbers from elsewhere could gain. Each step runs on one
thread, and processor time is counted instead of wall-clock time, so that other programs on the machine matter little.
The ways take turns; transformers' network is beside them. The record is written to results/compiled.json.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.networks.configuration import bert_config
from lab.benchmarks.provenance import provenance
from lab.benchmarks.workloads import VOCAB_SIZE, Setting, Side, make_sides, pretraining_batch
from lab.tables import compiled

RESULTS = Path(__file__).parents[1] / "records" / "compiled.json"
WAYS = ("ours", "compiled", "transformers")


def processor_seconds(work: Callable[[], None]) -> float:
    """The processor time that a call takes; the compiler's own processes are not counted."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(size: str, dropout: float, args: argparse.Namespace) -> dict[str, Any]:
    """A row of the table: seconds of a step by ``WAYS``, and of the first two compiled steps together."""
    config = bert_config(size, args.vocab_size, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    setting = Setting(torch.device("cpu"), torch.float32, vocab_size=args.vocab_size)
    own, stock = make_sides("BertForPreTraining", config, setting, True, sparse_prediction=True)
    compiled_setting = replace(setting, compile=True)
    other, _ = make_sides("BertForPreTraining", config, compiled_setting, True, sparse_prediction=True)
    sides = dict(zip(WAYS, (own, other, stock)))
    generator = np.random.default_rng(0)

    def step(side: Side) -> float:
        batch = pretraining_batch(generator, args.rows, args.length, args.vocab_size)
        return processor_seconds(side.work([batch], training=True)[0])

    first = step(other) + step(other)  # another number of labelled positions may be compiled anew
    for side in (own, stock):
        step(side)
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(args.repetitions):
        for way, side in sides.items():
            found[way].append(step(side))
    return {
        "size": size,
        "rows": args.rows,
        "length": args.length,
        "dropout": dropout,
        "seconds": {way: round(statistics.median(values), 4) for way, values in found.items()},
        "range": {way: [round(min(values), 4), round(max(values), 4)] for way, values in found.items()},
        "first_two_steps": round(first, 1),
    }


def main(argv: list[str] | None = None) -> None:
    """The command."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "mini", "small"], help="networks (tiny mini small)")
    parser.add_argument("--rows", type=int, default=32, help="sequences of a step (32)")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence (128)")
    parser.add_argument("--vocab_size", type=int, default=VOCAB_SIZE, help=f"word pieces ({VOCAB_SIZE:,})")
    parser.add_argument("--repetitions", type=int, default=7, help="steps of each way (7)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="default: results/compiled.json")
    args = parser.parse_args(argv)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    record = provenance("lab/benchmarks/compiled.py", argv) | {"threads": 1, "results": []}
    for size in args.sizes:
        for dropout in (0.1, 0.0):
            record["results"].append(measure(size, dropout, args))
            args.output.parent.mkdir(parents=True, exist_ok=True)
            write_json(args.output, record)
    torch.set_num_threads(threads)
    print(compiled(record), end="")


if __name__ == "__main__":
    main()
