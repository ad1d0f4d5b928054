"""Evaluate on 2 processes when the number of batches is odd.

tests/engine/test_dealt_evaluation.py starts this program:

    torchrun --nproc_per_node 2 tests/programs/dealt_evaluation.py FOLDER CASE

It writes FOLDER/result.json, which holds the results of the evaluation CASE for 1 batch and for 3.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from accelerate import Accelerator

from bert_training.engine.run import Run
from bert_training.inputs.flags.shared import SharedArguments
from tests.helpers.dealt_evaluations import BATCH, CASES


def main(folder: str, case: str) -> None:
    accelerator = Accelerator(cpu=True)
    run = Run(SharedArguments(output_dir=folder, per_device_eval_batch_size=BATCH), accelerator)
    found = CASES[case](run)
    if run.is_main:
        (run.output_dir / "result.json").write_text(json.dumps(found))
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
