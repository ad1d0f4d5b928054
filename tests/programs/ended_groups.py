"""End many process groups of gloo, each while a thread of its own frees the last collective operation.

Without ``keep_process_group`` one of them soon never ends: the network is the last to let go of its group.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.engine import launch


def main() -> None:
    for _ in range(1000):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        launch.keep_process_group()
        network = DistributedDataParallel(torch.nn.Linear(2, 2))
        with torch.device("cpu"):  # the operation refers to a Python object: freeing it takes Python's lock
            dist.barrier()
        dist.destroy_process_group()
        del network
        launch._GROUPS.clear()


if __name__ == "__main__":
    main()
