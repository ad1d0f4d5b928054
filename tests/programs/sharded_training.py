"""Train a network that torch's ``fully_shard`` (FSDP2) shards over 2 processes.

tests/engine/test_sharding.py starts this program:

    torchrun --nproc_per_node 2 tests/programs/sharded_training.py FOLDER

It saves FOLDER/whole/checkpoint-2, goes on to step 4 and saves the model in FOLDER/whole. Then it resumes from that
checkpoint and does the same in FOLDER/resumed.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from accelerate import Accelerator

from bert_training.engine.run import Run
from bert_training.inputs.flags.shared import SharedArguments
from tests.helpers.tiny_training import train_and_save


def main(folder: str) -> None:
    accelerator = Accelerator(cpu=True)
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "seed": 0}
    for name, resumed in (("whole", None), ("resumed", f"{folder}/whole/checkpoint-2")):
        run = Run(SharedArguments(output_dir=f"{folder}/{name}", resume_from_checkpoint=resumed, **sizes), accelerator)
        run.output_dir.mkdir(parents=True, exist_ok=True)
        train_and_save(run, shard=True)
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # All results are written. An ordinary exit aborts about once in 20 times ("terminate called without an active
    # exception"), because FSDP2 on gloo leaves threads behind (torch 2.13).
    os._exit(0)
