"""A long pre-training with evaluation and saving needs as much memory and as many open files at its end as before."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.helpers.fault_campaign import faults
from tests.helpers.repository import ROOT

SECONDS = float(os.environ.get("BERT_REPRO_LONG_RUN_SECONDS", "60"))  # make faults: two hours
TOLERANCE = 0.02
FLAGS = (
    "--max_train_documents 1000 --vocab_size 2000 --config_name tiny --max_seq_length 64 --dataloader_num_workers 2 "
    "--per_device_train_batch_size 16 --max_steps 10000000 --learning_rate 1e-3 --logging_steps 20 --eval_steps 100 "
    "--max_eval_instances 64 --save_steps 100 --save_total_limit 2 --peak_tflops 1"
)


def measure(process: psutil.Process) -> tuple[int, int] | None:
    """The bytes of memory that only this process and its children use, and their open files; None if one has ended."""
    try:
        members = [process, *process.children(recursive=True)]
        return sum(one.memory_full_info().uss for one in members), sum(one.num_fds() for one in members)
    except psutil.NoSuchProcess:
        return None


def quarter(values: list, number: int) -> float:
    """The median of a quarter of the values; the quarters are numbered from 0."""
    return statistics.median(values[len(values) * number // 4 : len(values) * (number + 1) // 4])


def speeds(folder: Path) -> list[float]:
    """The tokens per second of every record of training."""
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [event["tokens_per_second"] for event in events if event["event"] == "train"]


@faults("a long run", 1, in_ci=False)
def test_memory_and_open_files_stay_as_they_are(seed, tmp_path, record_property):
    folder = tmp_path / "run"
    command = [sys.executable, str(ROOT / "run_pretraining.py"), *FLAGS.split(), "--seed", str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with open(tmp_path / "out.txt", "w") as out:
        process = subprocess.Popen([*command, "--output_dir", folder], stdout=out, stderr=out, env=environment)
        samples = []
        while not list(folder.glob("checkpoint-*")):  # From here on everything has happened once.
            assert process.poll() is None, (tmp_path / "out.txt").read_text()
            time.sleep(0.1)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            sample = measure(psutil.Process(process.pid))
            assert process.poll() is None, (tmp_path / "out.txt").read_text()
            samples += [sample] if sample else []
            time.sleep(min(5.0, SECONDS / 60))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75, (tmp_path / "out.txt").read_text()
    memory, files = ([sample[place] for sample in samples] for place in (0, 1))
    growth = quarter(memory, 3) / quarter(memory, 1) - 1
    speed = quarter(speeds(folder), 3) / quarter(speeds(folder), 1)
    record_property("minutes", round(SECONDS / 60))
    record_property("growth of memory, per cent", round(100 * growth, 2))
    record_property(
        "open files in the second and the last quarter", f"{quarter(files, 1):.0f} and {quarter(files, 3):.0f}"
    )
    record_property("speed of the last quarter as a share of the second's", round(speed, 3))
    assert abs(growth) <= TOLERANCE
    assert quarter(files, 3) == quarter(files, 1)
