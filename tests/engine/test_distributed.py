"""Processes, nodes and launchers: what the user asks for is done or refused, never ignored."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType
from safetensors.torch import load_file

import run_pretraining
from bert_training.engine.checkpoint import UNKNOWN, TrainingState, resume
from bert_training.engine.launch import PROCESS_COUNTS, check_launch
from tests.helpers.repository import ROOT

TORCHRUN = ("-m", "torch.distributed.run")


def start(*command, **environment) -> subprocess.Popen:
    variables = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | environment
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, command)], cwd=ROOT, env=variables, **pipes)


@pytest.fixture
def flags(tmp_path, text_file, tokenizer_folder, network_shape):
    def make(name: str, *more: str) -> list[str]:
        common = (
            f"--output_dir {tmp_path / name} --train_file {text_file} --validation_split 0.2 --max_seq_length 32 "
            f"--tokenizer_name {tokenizer_folder} --config_name {network_shape} --max_steps 6 --logging_steps 1 "
            "--save_steps 4 --learning_rate 1e-3"
        )
        return [*common.split(), *more]

    return make


def losses(folder: Path) -> list[float]:
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [event[name] for event in events if event["event"] == "train" for name in ("loss", "grad_norm")]


@pytest.mark.slow
def test_two_nodes_do_what_one_process_does(flags, tmp_path):
    """Two launchers run on this machine with one process each. Then one process goes on from their checkpoint."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = ("--nnodes", 2, "--nproc_per_node", 1, "--master_addr", "127.0.0.1", "--master_port", port)
    script = ("run_pretraining.py", *flags("nodes", "--per_device_train_batch_size", "4"))
    nodes = [start(*TORCHRUN, *address, "--node_rank", rank, *script) for rank in range(2)]
    outputs = [node.communicate(timeout=300) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    run_pretraining.main(flags("alone", "--per_device_train_batch_size", "8"))
    alone, together = tmp_path / "alone", tmp_path / "nodes"
    assert losses(together) == pytest.approx(losses(alone), rel=1e-4)
    facts = json.loads((together / "run.json").read_text())
    assert facts["processes"] == 2
    whole = load_file(together / "model.safetensors")
    checkpoint = str(together / "checkpoint-4")
    (together / "all_results.json").unlink()  # Without this file the run is not finished.
    more = ("--per_device_train_batch_size", "8", "--resume_from_checkpoint", checkpoint)
    run_pretraining.main(flags("nodes", *more))
    for name, tensor in load_file(together / "model.safetensors").items():
        torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-5)
    assert losses(together) == pytest.approx(losses(alone), rel=1e-4)


def launched(**more) -> SimpleNamespace:
    """The state that Accelerate derives from the launch, by default of one process on a CPU."""
    found = {"num_processes": 1, "distributed_type": DistributedType.NO}
    return SimpleNamespace(**found | {"gradient_accumulation_steps": 1, "device": torch.device("cpu")} | more)


SIMPLE = {"ACCELERATE_MIXED_PRECISION": "no", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
REFUSED = [
    ({"WORLD_SIZE": "2"}, {}, "2 processes were asked for"),
    ({"SLURM_STEP_NUM_TASKS": "4"}, {}, "4 processes were asked for"),
    (SIMPLE, {}, "several processes were asked for"),
    ({}, {"distributed_type": DistributedType.FSDP}, "FSDP, DeepSpeed and Megatron-LM are not supported"),
    ({"ACCELERATE_USE_FSDP": "true"}, {}, "FSDP, DeepSpeed and Megatron-LM are not supported"),
    ({}, {"gradient_accumulation_steps": 4}, "give --gradient_accumulation_steps to the script"),
]
ACCEPTED = [
    ({}, {}),
    ({"ACCELERATE_MIXED_PRECISION": "no"}, {}),  # `accelerate launch` with one process sets this.
    ({"WORLD_SIZE": "8", "SLURM_STEP_NUM_TASKS": "2", **SIMPLE}, {"num_processes": 8}),  # srun started two torchruns.
]


@pytest.fixture
def surroundings(monkeypatch):
    for name in (*PROCESS_COUNTS, *SIMPLE):
        monkeypatch.delenv(name, raising=False)
    return lambda variables: [monkeypatch.setenv(*item) for item in variables.items()]


@pytest.mark.parametrize(("variables", "found", "message"), REFUSED)
def test_what_would_be_ignored_is_refused(surroundings, variables, found, message):
    surroundings(variables)
    with pytest.raises(ValueError, match=message):
        check_launch(launched(**found))


@pytest.mark.parametrize(("variables", "found"), ACCEPTED)
def test_what_is_done_is_not_refused(surroundings, variables, found):
    surroundings(variables)
    check_launch(launched(**found))


def test_a_script_checks_how_it_was_launched(flags, surroundings):
    surroundings({"SLURM_STEP_NUM_TASKS": "4"})
    with pytest.raises(ValueError, match="4 processes were asked for"):
        run_pretraining.main(flags("refused"))


def test_processes_that_see_different_checkpoints_stop(make_run, small_config, monkeypatch):
    """If --output_dir is on a disk of each machine's own, only the machine of the main process has the checkpoint."""
    model = torch.nn.Linear(2, 2)
    run = make_run(resume_from_checkpoint="auto")
    monkeypatch.setattr("bert_training.engine.checkpoint.gather_object", lambda names: [*names, "checkpoint-7"])
    with pytest.raises(ValueError, match=r"different checkpoints .None, checkpoint-7.; --output_dir must be on a file"):
        resume(run, TrainingState(model, None, None, 5, UNKNOWN))
