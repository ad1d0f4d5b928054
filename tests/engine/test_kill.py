"""A run that was killed and resumed ends with the same bits as a run that was never stopped.

lab/tests/faults/test_kills.py kills more of them, at more places.
"""

import os
import random
import signal
import sys
import traceback
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import run_pretraining
from bert_training.engine import checkpoint, launch, loop, run
from bert_training.pretraining.data import training_instances
from bert_training.pretraining.instances import PretrainingInstances
from bert_training.pretraining.text import open_training_corpora
from bert_training.record import Record
from tests.helpers.same_runs import check_same
from tests.helpers.small_networks import small_config

STEPS, FIRST_PHASE = 11, 7
ENGINE = {module.__file__ for module in (checkpoint, launch, loop, run)}


@pytest.fixture
def flags(tmp_path, text_file, tokenizer_folder, vocab) -> list[str]:
    """Flags for dropout, accumulation and two phases, of which each is longer than an epoch of its length."""
    config = small_config(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=1, hidden_dropout_prob=0.2)
    config.save_pretrained(tmp_path / "shape")
    return (
        f"--train_file {text_file} --max_train_documents 16 --validation_split 0.3 --tokenizer_name {tokenizer_folder} "
        f"--config_name {tmp_path / 'shape'} --max_steps {STEPS} --learning_rate 1e-2 --logging_steps 1 --eval_steps 4 "
        "--save_steps 3 --save_total_limit 1 --phases 16:0.65:4x2,32:0.35:4x2"
    ).split()


def in_a_fork(flags: list[str], counted: Path, fatal: int | None = None) -> int:
    """The exit status of a run that counts the lines of ENGINE, and is killed at one of them."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    passed = 0

    def lines(frame, event, argument):
        nonlocal passed
        passed += event == "line"
        if passed == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return lines

    try:
        sys.settrace(lambda frame, event, argument: lines if frame.f_code.co_filename in ENGINE else None)
        run_pretraining.main(flags)
        sys.settrace(None)
        counted.write_text(str(passed))
        os._exit(0)
    except BaseException:
        sys.settrace(None)
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


@pytest.mark.skipif(torch.version.cuda is not None, reason="a fork cannot have the threads of torch for CUDA")
def test_killed_anywhere_and_resumed_is_bit_equal(flags, tmp_path, no_pictures):
    whole, killed = tmp_path / "whole", [*flags, "--output_dir", str(tmp_path / "killed")]
    assert in_a_fork([*flags, "--output_dir", str(whole)], tmp_path / "lines") == 0
    given, tokenizer = Record.read(whole).facts["flags"], AutoTokenizer.from_pretrained(whole)
    train = training_instances(given, open_training_corpora(whole, given, tokenizer), tokenizer)
    for length, steps in ((16, FIRST_PHASE), (32, STEPS - FIRST_PHASE)):
        assert train[length][0].epoch_size(0) < 8 * steps, "expected more than one epoch"
    lines = int((tmp_path / "lines").read_text())
    fatal = random.Random(0).randint(lines // 2, lines)
    assert in_a_fork(killed, tmp_path / "unused", fatal) == -signal.SIGKILL
    run_pretraining.main([*killed, "--resume_from_checkpoint", "auto"])
    check_same(whole, tmp_path / "killed")


@pytest.mark.slow
def test_a_resumed_run_asks_for_the_data_of_its_steps_only(flags, tmp_path, monkeypatch):
    """No data is read again: the first positions that are asked for are those of the next step."""
    flags += ["--output_dir", str(tmp_path / "run")]
    run_pretraining.main([*flags, "--save_total_limit", "0"])
    asked = []
    batch = PretrainingInstances.batch

    def noted(self, start, stop):
        if not self.settings.fixed:
            asked.append((self.settings.max_seq_length, start, stop))
        return batch(self, start, stop)

    monkeypatch.setattr(PretrainingInstances, "batch", noted)
    for step, first in ((6, (16, 48, 52)), (9, (32, 16, 20))):
        asked.clear()
        (tmp_path / "run" / "all_results.json").unlink()  # Without this file the run is not finished.
        run_pretraining.main([*flags, "--resume_from_checkpoint", str(tmp_path / "run" / f"checkpoint-{step}")])
        assert asked[0] == first
        assert len(asked) == 2 * (STEPS - step)
