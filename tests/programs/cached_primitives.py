"""Start a run, and print how many of a hundred oneDNN primitives have to be made again when they are called again.

    python tests/programs/cached_primitives.py OUTPUT_DIR MIXED_PRECISION

It needs a process in which oneDNN has not computed anything.
"""

import os
import sys
from pathlib import Path

import torch
from torch.backends import mkldnn

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.engine.launch import CACHE_CAPACITIES, start_run
from bert_training.inputs.flags.fine_tuning import GlueArguments


def main(output_dir: str, mixed_precision: str) -> None:
    for name in CACHE_CAPACITIES:  # whatever the user of the tests has set
        os.environ.pop(name, None)
    flags = {"output_dir": output_dir, "mixed_precision": mixed_precision, "model_name_or_path": "x"}
    start_run(GlueArguments(**flags))
    for rows in range(1, 101):
        torch.nn.functional.gelu(torch.ones(rows, 16))
    with mkldnn.verbose(mkldnn.VERBOSE_ON_CREATION):
        for rows in range(100, 0, -1):
            torch.nn.functional.gelu(torch.ones(rows, 16))


if __name__ == "__main__":
    main(*sys.argv[1:])
