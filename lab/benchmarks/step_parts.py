"""Where the time of our step goes, in float32 and in bfloat16: torch's profiler over the workloads of step.py.

    python lab/benchmarks/step_parts.py
    python lab/benchmarks/step_parts.py --tiny     # does everything run?

Each operator's own time is added to one part, by its name. The record is lab/records/step_parts.json, in shares of the
step; tables.py writes the table of the page. A profiled step is slower than another one, so these are proportions.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks import idle
from lab.benchmarks.provenance import ROOT, provenance
from lab.benchmarks.step import CLASSIFY, DTYPES, SPAN
from lab.benchmarks.workloads import VOCAB_SIZE, Setting, Workload, pretraining, with_padding

RECORD = ROOT / "lab" / "records" / "step_parts.json"
# The first part with a name that begins an operator's name without its namespace.
PARTS = {
    "matrix products": ("mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "mkldnn_linear", "_linear_pointwise"),
    "attention": ("_scaled_dot_product", "scaled_dot_product", "_softmax"),
    "LayerNorm": ("native_layer_norm", "layer_norm"),
    "GELU": ("gelu",),
    "dropout": ("bernoulli", "random_", "native_dropout", "rand", "geometric"),
    "loss": ("_log_softmax", "nll_loss", "cross_entropy", "logsumexp", "exp_", "amax", "sub", "mse_loss"),
    "embeddings": ("embedding", "index", "_index_put", "gather", "scatter", "masked"),
    "AdamW": ("_fused_adamw", "_foreach"),
    "copies and casts": ("copy_", "_to_copy", "to", "clone", "cat", "contiguous", "split"),
    "sums and products of elements": ("add", "mul", "div", "sum", "bitwise", "__", "where", "lt", "ge"),
    "clearing memory": ("zero_", "fill_", "zeros", "ones", "empty", "new_"),
}
REST = "all else"
WARM_UP = 2


def part_of(operator: str) -> str:
    """The part that an operator of the profile belongs to: ``aten::addmm`` is a matrix product."""
    name = operator.rpartition("::")[2]
    return next((part for part, names in PARTS.items() if name.startswith(names)), REST)


def shares(workload: Workload, repetitions: int) -> dict[str, float]:
    """The shares of the parts in the steps of the first arm, ours."""
    arm = next(iter(workload.arms.values()))
    for repetition in range(WARM_UP):
        arm(repetition)[0]()
    works = [arm(WARM_UP + repetition)[0] for repetition in range(repetitions)]
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for work in works:
            work()
    times = dict.fromkeys((*PARTS, REST), 0.0)
    for event in profiled.key_averages():
        times[part_of(event.key)] += event.self_cpu_time_total
    return {part: round(time / sum(times.values()), 4) for part, time in times.items()}


def makers(setting: Setting, tiny: bool) -> list[Callable[[], Workload]]:
    """Functions that make the workloads: only one network is in memory at a time."""
    shapes = [("tiny", 2, 16)] if tiny else [("base", 8, 128), ("small", 32, 128), ("mini", 32, 128)]
    size, shrink = ("tiny", 16) if tiny else ("small", 1)
    tasks = (("mrpc train", CLASSIFY, 4 if tiny else 32), ("squad train", SPAN, 4 if tiny else 12))
    tuned = [partial(with_padding, data, name, size, rows, setting, True, shrink) for data, name, rows in tasks]
    return [*(partial(pretraining, *shape, setting) for shape in shapes), *tuned]


def main(argv: list[str] | None = None) -> None:
    """The command."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3, help="profiled repetitions of each workload (3)")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, and no record")
    idle.add_flag(parser)
    args = parser.parse_args(argv)
    found = idle.demand_idle_cores(args.busy or args.tiny)
    record = provenance("lab/benchmarks/step_parts.py", argv) | found | {"threads": torch.get_num_threads()}
    rows = []
    for name, dtype in DTYPES.items():
        setting = Setting(torch.device("cpu"), dtype, vocab_size=500 if args.tiny else VOCAB_SIZE)
        for make in makers(setting, args.tiny):
            workload = make()
            row: dict[str, Any] = {"workload": workload.name, "dtype": name}
            row["shares"] = shares(workload, args.repetitions)
            print(row, flush=True)
            rows.append(row)
            del workload
    if not args.tiny:
        write_json(RECORD, record | {"results": rows})


if __name__ == "__main__":
    main()
