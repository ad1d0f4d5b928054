"""bert_training/engine/launch.py: the start of a run."""

import resource
import subprocess
import sys

import pytest
import torch

from bert_training.engine.launch import open_many_files, start_run
from bert_training.inputs.flags.fine_tuning import GlueArguments
from tests.helpers.repository import ROOT


def test_cudnn_is_kept_from_attention(tmp_path, monkeypatch):
    """A setting of torch that exists without a GPU, too."""
    given = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", given.append)
    shared = {"output_dir": str(tmp_path / "run"), "config_name": "tiny", "tokenizer_name": str(tmp_path)}
    start_run(GlueArguments(task_name="mrpc", data_dir=str(tmp_path), mixed_precision="no", **shared))
    assert given == [False]


@pytest.mark.slow
def test_a_process_ends_although_gloo_still_frees_an_operation():
    command = [sys.executable, "tests/programs/ended_groups.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_run_in_fp16_does_not_go_on_without_a_gpu(tmp_path):
    """Accelerate would compute in float32 and the records would say fp16."""
    (tmp_path / "run.json").write_text('{"format": 1, "script": "x", "flags": {}, "mixed_precision": "fp16"}')
    args = GlueArguments(
        output_dir=str(tmp_path),
        model_name_or_path="x",
        task_name="rte",
        resume_from_checkpoint="auto",
        mixed_precision="auto",
    )
    with pytest.raises(ValueError, match="fp16 needs a GPU"):
        start_run(args)


@pytest.mark.parametrize(
    ("limits", "workers", "raised"),
    [
        ((1024, 4096), 4, None),
        ((1024, 4096), 100, (64 + 100 * 32, 4096)),
        ((1024, 4096), 1000, (4096, 4096)),  # as far as the system allows
        ((10, resource.RLIM_INFINITY), 0, (64, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 10**6, None),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_needed(monkeypatch, limits, workers, raised):
    """Without room for one, a process of torch that prepares batches waits for ever."""
    made = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: made.append(pair))
    open_many_files(workers)
    assert made == [raised] * (raised is not None)
