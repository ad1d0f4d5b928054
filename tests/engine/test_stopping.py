"""After SIGTERM or SIGINT the step is finished and a checkpoint is written, and the resumed run is bit-equal."""

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from bert_training.engine.batches import Features, step_batches
from bert_training.engine.checkpoint import UNKNOWN, TrainingState, resume
from bert_training.engine.loop import training_steps
from bert_training.files import processes as signals
from bert_training.files.atomic import damage
from bert_training.files.processes import STOPPED, StopSignals
from modeling_bert_repro import BertForSequenceClassification
from tests.helpers.repository import ROOT


def source() -> Features:
    rows = [[2, 5 + i % 40, 3] for i in range(24)]
    return Features({"input_ids": rows, "token_type_ids": [[0, 0, 0]] * 24, "labels": [i % 2 for i in range(24)]}, 0)


def prepared(config, total=5):
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return TrainingState(model, optimizer, LambdaLR(optimizer, lambda step: 1.0), total, UNKNOWN)


def train(run, config, total=5, then=lambda index: None):
    state = prepared(config, total)
    done = resume(run, state)
    batches = step_batches(source(), run, done, total)
    for step in training_steps(run, state, batches, max_grad_norm=1.0, start_step=done):
        run.log(event="train", step=step.index, loss=step.loss)
        then(step.index)
    return state.model.state_dict()


@pytest.mark.parametrize(("number", "workers"), list(zip(signals.SIGNALS, itertools.cycle([0, 2]))))
def test_a_signal_finishes_the_step_and_saves(make_run, small_config, tmp_path, number, workers):
    whole = train(make_run(output_dir=str(tmp_path / "whole")), small_config)
    flags = {"output_dir": str(tmp_path / "cut"), "dataloader_num_workers": workers}

    def at_step_2(index):
        if index == 2:
            os.kill(os.getpid(), number)

    run = make_run(**flags)
    with pytest.raises(SystemExit) as exit_status:
        train(run, small_config, then=at_step_2)
    assert exit_status.value.code == STOPPED == os.EX_TEMPFAIL
    # The signal came between two steps. The processes agree on it at the end of the next one.
    assert [path.name for path in run.output_dir.glob("checkpoint-*")] == ["checkpoint-3"]
    assert damage(run.output_dir / "checkpoint-3") is None
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and signal.getsignal(number) != StopSignals._note
    resumed = train(make_run(**flags, resume_from_checkpoint="auto"), small_config)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    records = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "cut")]
    assert records[0] == records[1]


def test_the_totals_include_the_steps_before_the_stop(make_run, small_config, tmp_path):
    whole, stopped, resumed = (prepared(small_config, total=5) for _ in range(3))

    def steps(state, name, **more):
        run = make_run(output_dir=str(tmp_path / name), **more)
        done = resume(run, state)
        return training_steps(run, state, step_batches(source(), run, done, 5), max_grad_norm=1.0, start_step=done)

    losses = [step.loss for step in steps(whole, "whole")]
    with pytest.raises(SystemExit):
        for step in steps(stopped, "cut"):
            os.kill(os.getpid(), signal.SIGTERM) if step.index == 1 else None
    assert 0 < stopped.totals.loss == sum(losses[:2])
    list(steps(resumed, "cut", resume_from_checkpoint="auto"))
    assert resumed.totals.loss == whole.totals.loss == sum(losses)
    assert resumed.totals.steps == whole.totals.steps == 5 and stopped.totals.steps == 2
    assert resumed.totals.seconds > stopped.totals.seconds > 0


def test_if_one_process_is_asked_to_stop_all_stop(make_run, small_config, monkeypatch):
    """The request of the other process arrives together with the sums of the losses."""
    run = make_run()
    reduce = run.accelerator.reduce

    def with_another_process(values, how):
        total = reduce(values, how)
        if values.is_floating_point():
            total[-1] += 1.0
        return total

    monkeypatch.setattr(run.accelerator, "reduce", with_another_process)
    with pytest.raises(SystemExit):
        train(run, small_config)
    assert (run.output_dir / "checkpoint-1").is_dir()


SECOND = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from bert_training.files import processes as signals

def status_after_two(number, same, pauses):
    child = os.fork()
    if not child:
        signals.SAME_SIGNAL_SECONDS = same
        with signals.StopSignals() as stop:
            for pause in pauses:
                os.kill(os.getpid(), number)
                time.sleep(pause)
        os._exit(0 if stop.asked else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

for name in {names}:
    number = getattr(signal, name)
    print(number + status_after_two(number, 0.05, [0.1, 60]), status_after_two(number, 10, [0.1, 0]))
"""


def test_a_second_signal_stops_at_once():
    """A signal that follows at once does not count as a second one, because under torchrun one Ctrl-C arrives twice."""
    assert signals.SAME_SIGNAL_SECONDS == 1.0
    names = ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"]
    script = SECOND.format(root=str(ROOT), names=names)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=50,  # less than 60
    )
    # Each process ends by the second signal, or goes on to its end; none prints anything.
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 0\n" * len(names), "")


WORKER = """
import os, sys, time
sys.path.insert(0, {root!r})
from bert_training.files.processes import only_parent_ends_me
pid = os.fork()
if pid == 0:
    only_parent_ends_me()
    os.write(1, b"ready\\n")
    time.sleep(30)
    os._exit(1)
os.write(1, b"%d\\n" % pid)  # one write each, because both processes write to one pipe
sys.stdin.readline()
os.kill(pid, 15)
print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="this system does not say who sent a signal")
def test_a_batch_worker_ends_by_its_parents_signal_only():
    """Signals of Slurm and Ctrl-C reach the worker too, but the step that is being finished still needs it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    parent = subprocess.Popen([sys.executable, "-c", WORKER.format(root=str(ROOT))], **pipes)
    lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()} - {"ready"}
    worker = int(lines.pop())
    for number in signals.SIGNALS:
        os.kill(worker, number)
    time.sleep(0.2)
    os.kill(worker, 0)  # This raises an error if the worker has ended.
    answer, _ = parent.communicate("end it\n", timeout=10)
    assert answer == "0\n"
