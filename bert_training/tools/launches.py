"""The files that start a training on several machines: a config of Accelerate and, for Slurm, a batch script.

The chain of signals of the batch script, all of which ``tests/tools/test_launches.py`` executes:

1. Slurm sends SIGUSR1 to the batch shell ``NOTICE`` seconds before the time is up (``--signal=B:USR1@...``).
2. The shell sends it to srun, which passes it on to its task on every node.
3. That task is a shell as well, and signals the training processes, the children of ``accelerate launch``. Accelerate
   itself ignores SIGUSR1, because its default action would end it, and Slurm the node's processes with it.
4. The training finishes its step, writes a checkpoint and exits (``bert_training/engine/signals.py``).
5. The batch shell puts the job back into the queue (``scontrol requeue``). It starts again with
   ``--resume_from_checkpoint auto``.

A training that has not stopped ``PATIENCE`` seconds later, because it is still preparing its data for example, is ended
with SIGTERM and is put back as well.
"""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bert_training.files.atomic import is_occupied, make_folder, write_text
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.flags.scripts import path_of
from tokenization.errors import UserError

NOTICE = 300  # seconds before the end of its time at which a job is told to stop
PATIENCE = 240  # seconds after that
CONFIG, BATCH_SCRIPT = "accelerate.yaml", "train.sbatch"
PORT = 29500  # without Slurm, as torchrun's default

SBATCH = """\
#!/bin/bash
# Written by bert-repro plan. Submit it where --output_dir and all files are seen by every node: one corpus is written
# for all of them. Options that your cluster needs go on the command line: sbatch --partition P --account A {name}
#SBATCH --job-name=bert
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --time={time}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@{notice}

command -v accelerate > /dev/null || {{ echo "accelerate is not on the PATH; activate its environment" >&2; exit 2; }}
export MAIN_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MAIN_PORT=$((10000 + SLURM_JOB_ID % 20000))  # of its own for every job, below the ports that systems give away
export OMP_NUM_THREADS={threads}

on_node() {{
    launcher=
    trap 'heard=yes; [ -z "$launcher" ] || pkill -USR1 -P "$launcher"' USR1
    trap 'heard=yes; [ -z "$launcher" ] || kill -TERM "$launcher"' TERM  # which passes it on
    (
        trap '' USR1  # the signal is for the training processes only, which catch it
        exec accelerate launch --config_file {config} --machine_rank "$SLURM_NODEID" \\
            --main_process_ip "$MAIN_NODE" --main_process_port "$MAIN_PORT" \\
            {command}
    ) &
    launcher=$!
    # A signal ends wait before the process has ended.
    while heard=; wait "$launcher"; status=$?; [ -n "$heard" ]; do :; done
    exit "$status"
}}

stopping=
trap 'heard=yes; stopping=yes; kill -USR1 "$step"; {{ sleep {patience} && kill -TERM "$step"; }} & timer=$!' USR1
srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" bash -c "$(declare -f on_node); on_node" &
step=$!
while heard=; wait "$step"; status=$?; [ -n "$heard" ]; do :; done
[ -z "$stopping" ] || pkill -P "$timer"
if [ -n "$stopping" ] && [ "$status" -ne 0 ]; then
    echo "stopped before the end of the time (srun: $status); back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
    exit
fi
exit "$status"
"""


def training_command(flags: Sequence[str]) -> tuple[str, PretrainingArguments]:
    """The words that start the training, quoted for a shell, and its parsed flags.

    Args:
        flags: of run_pretraining.py, with its ``--output_dir``. ``--resume_from_checkpoint auto`` is added.

    Raises:
        ValueError: they name a checkpoint, to which every start would go back.
        SystemExit: run_pretraining.py does not take them; the message has been printed.
    """
    words = list(flags)
    args = parse_arguments(PretrainingArguments, words)
    if args.resume_from_checkpoint not in (None, "auto"):
        raise UserError(
            f"--resume_from_checkpoint {args.resume_from_checkpoint}: a job that is started again would go back to it; "
            "leave the flag out (the launch adds 'auto')"
        )
    if args.resume_from_checkpoint is None:
        words += ["--resume_from_checkpoint", "auto"]
    return shlex.join([path_of("run_pretraining.py"), *words]), args


def accelerate_config(nodes: int, gpus: int, mixed_precision: str | None) -> dict[str, Any]:
    """The content of a config file of Accelerate for ``nodes`` machines with ``gpus`` processes each.

    The rank of a machine and the address of the first one differ from launch to launch and are given to the launcher.
    """
    several = nodes * gpus > 1
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if several else "NO",
        "num_machines": nodes,
        "num_processes": nodes * gpus,
        "gpu_ids": "all",
        "rdzv_backend": "static",
        "main_training_function": "main",
        # The script chooses what auto means, and tells Accelerate.
        "mixed_precision": mixed_precision if mixed_precision in ("bf16", "fp16") else "no",
        "use_cpu": False,
        "debug": False,
    }


def slurm_time(hours: float) -> str:
    """Hours as Slurm reads them, such as 1-06:30:00; fractions of a minute are rounded up."""
    minutes = math.ceil(hours * 60 - 1e-9)
    days, minutes = divmod(minutes, 24 * 60)
    return (f"{days}-" if days else "") + f"{minutes // 60:02}:{minutes % 60:02}:00"


def batch_script(nodes: int, gpus: int, cpus_per_gpu: int, hours: float, command: str, config: str = CONFIG) -> str:
    """The batch script of Slurm.

    Args:
        nodes: machines.
        gpus: GPUs of each machine.
        cpus_per_gpu: cores for each process.
        hours: the time limit.
        command: the words that start the training (``training_command``).
        config: the path of the config of Accelerate.
    """
    values = {"nodes": nodes, "gpus": gpus, "cpus": gpus * cpus_per_gpu, "threads": cpus_per_gpu}
    return SBATCH.format(
        **values,
        time=slurm_time(hours),
        notice=NOTICE,
        patience=PATIENCE,
        command=command,
        config=shlex.quote(config),
        name=BATCH_SCRIPT,
    )


def commands_by_hand(nodes: int, command: str, config: str = CONFIG) -> str:
    """What to type on each machine without Slurm."""
    launch = f"accelerate launch --config_file {shlex.quote(config)}"
    if nodes == 1:
        return f"{launch} {command}\n"
    where = f"--main_process_ip FIRST_MACHINE --main_process_port {PORT}"
    lines = [f"{launch} --machine_rank {rank} {where} {command}" for rank in range(nodes)]
    return "".join(f"# on machine {rank} of {nodes}:\n{line}\n" for rank, line in enumerate(lines))


def print_launch(
    nodes: int, gpus: int, cpus_per_gpu: int, hours: float, flags: Sequence[str], slurm: bool, output_dir: str | None
) -> None:
    """Print the files, or write them into ``output_dir``.

    Raises:
        ValueError: a number is out of range, or one of the files exists.
    """
    for name, value in (("nodes", nodes), ("gpus", gpus), ("cpus_per_gpu", cpus_per_gpu)):
        if value < 1:
            raise UserError(f"--{name} is {value}; expected at least 1")
    if not hours * 3600 > 2 * NOTICE:
        raise UserError(
            f"--hours is {hours:g}; expected more than {2 * NOTICE // 60} minutes, because a job is told to stop "
            f"{NOTICE // 60} minutes before its end"
        )
    command, args = training_command(flags)
    config = yaml.safe_dump(accelerate_config(nodes, gpus, args.mixed_precision), sort_keys=False)
    path = str(Path(output_dir) / CONFIG) if output_dir else CONFIG
    files = {CONFIG: config}
    if slurm:
        files[BATCH_SCRIPT] = batch_script(nodes, gpus, cpus_per_gpu, hours, command, path)
    batch = nodes * gpus * args.per_device_train_batch_size * args.gradient_accumulation_steps
    sizes = "" if args.phases else f", {batch:,} sequences a step"
    summary = f"{nodes} x {gpus} processes{sizes}"
    if output_dir is None:
        for name, content in files.items():
            print(f"# --- {name} ---\n{content}")
    else:
        for name in files:
            if is_occupied(Path(output_dir, name)):
                raise UserError(f"{Path(output_dir, name)} exists and would be overwritten; give another --output_dir")
        make_folder(Path(output_dir))
        for name, content in files.items():
            write_text(Path(output_dir, name), content)
        summary += f"; written: {', '.join(str(Path(output_dir, name)) for name in files)}"
    print(f"# {summary}")
    if slurm:
        print(f"# start it with: sbatch {shlex.quote(str(Path(output_dir or '.', BATCH_SCRIPT)))}")
    else:
        print(commands_by_hand(nodes, command, path), end="")
