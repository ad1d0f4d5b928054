"""Killed runs of version 0.1.0 are finished by today's code with the same numbers, if dropout draws the same masks.

tests/data/old_runs.tar.xz holds a text and two tables, the output folders of `run_pretraining.py` and `run_glue.py`
that were killed after five of eight steps (the newest checkpoint is of step 3), and below ``after`` what the same
commands gave when nothing stopped them. On the machine that made them, the numbers are equal in every bit; other
processors round in another way.
"""

import importlib
import json
import tarfile
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModel

from modeling_bert_repro import fast_path

OLD_RUNS = Path(__file__).parents[1] / "data" / "old_runs.tar.xz"
LEARNT = ("loss", "mlm_loss", "nsp_loss", "grad_norm", "learning_rate", "epoch", "step")


@pytest.fixture(scope="module")
def old(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(OLD_RUNS) as archive:
        archive.extractall(folder, filter="data")
    return folder / "old_runs"


def events(file: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        {name: value for name, value in line.items() if name in LEARNT or name.startswith("eval_")} for line in lines
    ]


@pytest.mark.parametrize("script", ["pretraining", "glue"])
def test_a_run_of_older_code_is_resumed_with_the_same_numbers(script, old, monkeypatch):
    monkeypatch.chdir(old)  # the folders name their files relative to this one
    # Today, one draw serves several lengths, so masks of attention without padding are others. This is what 0.1.0 did.
    monkeypatch.setattr(fast_path, "attend_runs", None)
    after = old / "after" / script
    flags = (after / "flags").read_text(encoding="utf-8").split()
    main = importlib.import_module(f"run_{script}").main
    main(["--output_dir", script, *flags, "--resume_from_checkpoint", "auto"])
    resumed, expected = (events(folder / "metrics.jsonl") for folder in (old / script, after))
    assert [event.get("step") for event in resumed] == [event.get("step") for event in expected]
    for event, wanted in zip(resumed, expected):
        # A result that is new since then is in the events that follow the checkpoint.
        assert {name: event[name] for name in wanted} == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    weights, wanted = (load_file(folder / "model.safetensors") for folder in (old / script, after))
    assert weights.keys() == wanted.keys()
    for name, tensor in weights.items():
        assert_close(tensor, wanted[name], rtol=1e-4, atol=1e-4)


def test_a_folder_of_older_code_opens_with_the_code_in_it(old):
    """``trust_remote_code`` runs the files in the folder, and not the installed package."""
    model = AutoModel.from_pretrained(old / "pretraining" / "checkpoint-3", trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules"), type(model)
