"""A long pre-training with evaluation and saving needs as much memory and as many open files at its end as before."""

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from lab.tests.helpers.fault_campaign import faults
from tests.helpers.repository import ROOT

SECONDS = float(os.environ.get("BERT_REPRO_LONG_RUN_SECONDS", "60"))  # make faults: two hours
TOLERANCE = 0.02
FLAGS = (
    "--max_train_documents 1000 --vocab_size 2000 --config_name tiny --max_seq_length 64 --dataloader_num_workers 2 "
    "--per_device_train_batch_size 16 --max_steps 10000000 --learning_rate 1e-3 --logging_steps 20 --eval_steps 100 "
    "--max_eval_instances 64 --save_steps 100 --save_total_limit 2"
)


def own_memory(process: psutil.Process) -> int:
    """The bytes of memory that no file backs, such as the heap. What processes share is divided among them.

    Pages of a file, as of torch's libraries, are left out: how many of them count as the process's own depends on the
    other programs of the machine.
    """
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def measure(process: psutil.Process) -> tuple[int, int, int] | None:
    """The memory of the process, that of its children, and the open files of all; None if one of them has ended."""
    try:
        children = process.children(recursive=True)
        files = sum(one.num_fds() for one in [process, *children])
        return own_memory(process), sum(own_memory(child) for child in children), files
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def parts(values: list, number: int) -> list:
    """The medians of as many parts of the values as the number says."""
    edges = [len(values) * part // number for part in range(number + 1)]
    return [statistics.median(values[start:end]) for start, end in itertools.pairwise(edges)]


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
    main, children, files = zip(*samples)
    memory = [sum(both) for both in zip(main, children)]
    growth = parts(memory, 4)[3] / parts(memory, 4)[1] - 1
    speed = parts(speeds(folder), 4)
    record_property("minutes", round(SECONDS / 60))
    record_property("growth of memory, per cent", round(100 * growth, 2))
    for name, values in (("the process", main), ("its children", children)):
        record_property(f"MB of {name}, by twelfths of the time", [round(one / 1e6, 1) for one in parts(values, 12)])
    record_property("open files, by quarters", parts(files, 4))
    record_property("tokens per second, by quarters", [round(one) for one in speed])
    assert abs(growth) <= TOLERANCE, (main, children)
    assert parts(files, 4)[3] == parts(files, 4)[1]
