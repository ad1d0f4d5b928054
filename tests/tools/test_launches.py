"""bert_training/tools/launches.py: a config of Accelerate, and a batch script that does what Slurm and signals ask."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env

from bert_training.engine.errors import report_errors
from bert_training.tools import budget, launches
from tests.helpers.repository import ROOT

TRAINING = ["--output_dir", "runs/a", "--max_steps", "5"]


def plan(*words: str) -> int:
    return report_errors(lambda: budget.main([*map(str, words)]))


# --- The config of Accelerate -----------------------------------------------------------------------------


def parsed_config(folder: Path, *flags: str) -> ClusterConfig:
    assert plan("--nodes", 4, "--gpus", 8, "--output_dir", folder, "--", *TRAINING, *flags) == 0
    return load_config_from_file(str(folder / "accelerate.yaml"))


def test_accelerate_reads_the_config(tmp_path):
    config = parsed_config(tmp_path / "a", "--mixed_precision", "bf16")
    assert isinstance(config, ClusterConfig)
    assert (config.num_machines, config.num_processes, config.mixed_precision) == (4, 32, "bf16")
    assert (config.distributed_type.value, config.use_cpu, config.dynamo_config) == ("MULTI_GPU", False, {})
    assert parsed_config(tmp_path / "b", "--mixed_precision", "auto").mixed_precision == "no"  # the script chooses


def test_the_launcher_gives_torchrun_the_right_numbers(tmp_path, monkeypatch):
    """With the words of the batch script, on the third of four machines."""
    parsed_config(tmp_path)
    words = f"--config_file {tmp_path}/accelerate.yaml --machine_rank 2 --main_process_ip n1 --main_process_port 12345"
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    args = launch_command_parser().parse_args([*words.split(), "run_pretraining.py"])
    args = _validate_launch_command(args)[0]
    prepare_multi_gpu_env(args)
    assert args.multi_gpu and (args.nproc_per_node, args.nnodes, args.node_rank) == ("8", "4", 2)
    assert (args.rdzv_backend, args.rdzv_endpoint) == ("static", "n1:12345")


def test_one_gpu_is_one_process():
    assert launches.accelerate_config(1, 1, None)["distributed_type"] == "NO"


def test_the_commands_for_machines_without_slurm(capsys):
    assert plan("--nodes", 2, "--gpus", 4, "--", *TRAINING) == 0
    text = capsys.readouterr().out
    lines = [shlex.split(line) for line in text.splitlines() if line.startswith("accelerate launch")]
    assert [line[line.index("--machine_rank") + 1] for line in lines] == ["0", "1"]
    assert all(line[-6:] == [*TRAINING, "--resume_from_checkpoint", "auto"] for line in lines)
    assert "2 x 4 processes, 256 sequences a step" in text and "sbatch" not in text


# --- The batch script -------------------------------------------------------------------------------------

# Slurm's srun starts its task on every node, here twice on this machine, and passes signals on to them: depending on
# how Slurm was set up, to the task or to all of its processes.
SRUN = """\
import os, signal, subprocess, sys, time
assert sys.argv[1:3] == ["--kill-on-bad-exit=1", "--cpus-per-task=16"], sys.argv
nodes = [subprocess.Popen(sys.argv[3:], env=os.environ | {"SLURM_NODEID": str(rank)}, start_new_session=True)
         for rank in range(2)]
def send(number, _):
    for node in nodes:
        if os.environ["SIGNALS"] == "to all":
            os.killpg(node.pid, number)
        else:
            node.send_signal(number)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, send)
sys.exit(max(node.wait() for node in nodes))
"""
# As Accelerate, it does not handle SIGUSR1, passes SIGTERM on, and starts two processes as its children; its own status
# is 1 if one fails.
ACCELERATE = """\
import os, signal, subprocess, sys
with open("launched." + os.environ["SLURM_NODEID"], "w") as file:
    print(*sys.argv[1:], os.environ["OMP_NUM_THREADS"], sep="\\n", file=file)
started = [subprocess.Popen([sys.executable, "worker.py", str(rank)]) for rank in range(2)]
signal.signal(signal.SIGTERM, lambda *_: [one.terminate() for one in started])
sys.exit(int(any([one.wait() for one in started])))
"""
WORKER = """\
import os, signal, sys, time
from pathlib import Path
name = os.environ["SLURM_NODEID"] + "-" + sys.argv[1]
def stop(number, _):
    Path("stopped." + name).write_text(str(number))
    sys.exit(75)
if os.environ["WORK"] != "deaf":
    signal.signal(signal.SIGUSR1, stop)
Path("working." + name).touch()
deadline = time.time() + (30 if os.environ["WORK"] in ("long", "deaf") else 0)
while time.time() < deadline:
    time.sleep(0.02)
sys.exit(int(os.environ["WORK"]))
"""
HOSTS = '#!/bin/bash\necho "scontrol $*" >> calls\n[ "$1" != show ] || printf "n1\\nn2\\n"\n'


@pytest.fixture
def cluster(tmp_path):
    """A folder with a batch script and a stand-in for each command of Slurm and for Accelerate."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, code in (("srun", SRUN), ("accelerate", ACCELERATE)):
        (programs / name).write_text(f"#!{sys.executable}\n{code}")
    (programs / "scontrol").write_text(HOSTS)
    for program in programs.iterdir():
        program.chmod(0o755)
    (tmp_path / "worker.py").write_text(WORKER)
    flags = [*TRAINING, "--train_file", "it's a file.txt", "$HOME.txt"]
    command = ["--nodes", "2", "--gpus", "2", "--hours", "30.5", "--slurm", "--output_dir", tmp_path / "launch"]
    assert plan(*command, "--", *flags) == 0
    variables = {"SLURM_JOB_ID": "4000017", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_CPUS_PER_TASK": "16"}
    environment = os.environ | variables | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def start(
        work: str, script: Path = tmp_path / "launch" / "train.sbatch", signals: str = "to the task"
    ) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            ["bash", script], cwd=tmp_path, env=environment | {"WORK": work, "SIGNALS": signals}, **pipes
        )

    return start


def await_files(folder: Path, pattern: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(folder.glob(pattern))) < count:
        assert time.monotonic() < deadline, pattern
        time.sleep(0.02)


def test_the_batch_script_is_bash_and_asks_slurm_for_what_is_needed(cluster, tmp_path):
    script = tmp_path / "launch" / "train.sbatch"
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""
    options = [line.split(None, 1)[1] for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    asked = "--nodes=2 --ntasks-per-node=1 --gpus-per-node=2 --cpus-per-task=16 --time=1-06:30:00 --requeue"
    assert {*asked.split(), "--signal=B:USR1@300", "--open-mode=append"} < {*options}


@pytest.mark.parametrize("status", [0, 1])
def test_a_training_that_ends_by_itself_is_not_put_back(cluster, tmp_path, status):
    """The status of the job is that of srun."""
    job = cluster(str(status))
    assert (job.communicate(timeout=60)[1], job.returncode) == (None, status)
    assert (tmp_path / "calls").read_text() == "scontrol show hostnames n[1-2]\n"
    for rank in "01":
        words = (tmp_path / f"launched.{rank}").read_text().splitlines()
        given = [
            words[words.index(name) + 1] for name in ("--machine_rank", "--main_process_ip", "--main_process_port")
        ]
        assert given == [rank, "n1", "10017"]
        assert words[1:3] == ["--config_file", str(tmp_path / "launch" / "accelerate.yaml")]
        flags = [*TRAINING, "--train_file", "it's a file.txt", "$HOME.txt", "--resume_from_checkpoint", "auto"]
        assert words[-1 - len(flags) :] == [*flags, "8"]  # The last one is the number of threads.
        assert Path(words[-2 - len(flags)]).name == "run_pretraining.py"


@pytest.mark.parametrize("signals", ["to the task", "to all"])
def test_sigusr1_reaches_the_training_processes_and_the_job_is_put_back(cluster, tmp_path, signals):
    job = cluster("long", signals=signals)
    await_files(tmp_path, "working.*", 4)
    job.send_signal(signal.SIGUSR1)  # Slurm's --signal=B: signals the batch shell alone.
    output, _ = job.communicate(timeout=60)
    assert sorted(path.name for path in tmp_path.glob("stopped.*")) == [f"stopped.{n}-{r}" for n in "01" for r in "01"]
    assert (tmp_path / "calls").read_text().splitlines()[1:] == ["scontrol requeue 4000017"], output
    # The status is that of the stand-in for srun: nearly always 1, and 255 once, for a reason that is not known.
    assert job.returncode == 0 and re.search(r"stopped before the end of the time \(srun: [1-9]\d*\)", output)


def test_a_training_that_does_not_hear_is_ended_in_time_and_put_back(cluster, tmp_path):
    script = tmp_path / "launch" / "train.sbatch"
    impatient = script.with_name("impatient")
    impatient.write_text(script.read_text().replace(f"sleep {launches.PATIENCE}", "sleep 0.3"))
    job = cluster("deaf", impatient)
    await_files(tmp_path, "working.*", 4)
    job.send_signal(signal.SIGUSR1)
    job.communicate(timeout=25)
    assert (tmp_path / "calls").read_text().splitlines()[1:] == ["scontrol requeue 4000017"]
    assert not list(tmp_path.glob("stopped.*"))


def test_a_training_that_has_just_finished_is_not_put_back(cluster, tmp_path):
    """The signal comes, but nothing was stopped: the last step was done."""
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER.replace("sys.exit(75)", "sys.exit(0)"))
    job = cluster("long")
    await_files(tmp_path, "working.*", 4)
    job.send_signal(signal.SIGUSR1)
    job.communicate(timeout=60)
    assert job.returncode == 0 and "requeue" not in (tmp_path / "calls").read_text()


@pytest.mark.slow
def test_a_real_training_stops_is_put_back_and_finishes(cluster, tmp_path, text_file, tokenizer_folder, network_shape):
    """Two real processes under torchrun in the place of accelerate, which starts only one on CPUs."""
    srun = tmp_path / "bin" / "srun"
    srun.write_text(srun.read_text().replace("range(2)", "range(1)"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    code = f"import os, sys\nos.chdir({str(ROOT)!r})\nwords = sys.argv[sys.argv.index('--main_process_port') + 2:]\n"
    (tmp_path / "bin" / "accelerate").write_text(
        f"#!{sys.executable}\n{code}os.environ['ACCELERATE_USE_CPU'] = 'true'\n"
        f"os.execv({torchrun[0]!r}, {torchrun} + words)\n"
    )
    flags = (
        f"--output_dir {tmp_path / 'run'} --train_file {text_file} --validation_split 0.2 --max_seq_length 32 "
        f"--tokenizer_name {tokenizer_folder} --config_name {network_shape} --max_steps 400 --logging_steps 1 "
        "--save_steps 0 --eval_steps 0"
    ).split()
    command = ["--nodes", 1, "--gpus", 2, "--cpus_per_gpu", 1, "--slurm", "--output_dir", tmp_path / "real"]
    assert plan(*command, "--", *flags) == 0
    script = tmp_path / "real" / "train.sbatch"
    job = cluster("", script)
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 200
    while not metrics.exists() or '"step": 3,' not in metrics.read_text():
        assert time.monotonic() < deadline and job.poll() is None, job.communicate()
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)
    output, _ = job.communicate(timeout=120)
    assert "requeue 4000017" in (tmp_path / "calls").read_text() and "stopped after step" in output, output
    assert len(list((tmp_path / "run").glob("checkpoint-*"))) == 1
    again = cluster("", script)
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0 and "resuming from" in output and (tmp_path / "run" / "all_results.json").exists()


# --- What is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nodes", 4], "a launch needs --nodes and --gpus, such as --nodes 4 --gpus 8"),
        (["--slurm"], "a launch needs --nodes and --gpus"),
        (["--nodes", 0, "--gpus", 8, "--", *TRAINING], "--nodes is 0; expected at least 1"),
        (["--nodes", 4, "--gpus", -1, "--", *TRAINING], "--gpus is -1; expected at least 1"),
        (["--nodes", 4, "--gpus", 8, "--cpus_per_gpu", 0, "--", *TRAINING], "--cpus_per_gpu is 0; expected at least 1"),
        (["--nodes", 4, "--gpus", 8, "--hours", 0.1, "--", *TRAINING], "--hours is 0.1; expected more than 10 minutes"),
        (["--nodes", 4, "--gpus", 8], "a launch needs the flags of run_pretraining.py, after -- or in a file of"),
        (["--nodes", 4, "--gpus", 8, "--", "--max_step", 5, "--output_dir", "a"], "did you mean --max_steps?"),
        (["--nodes", 4, "--gpus", 8, "--", "--max_steps", 5], "--output_dir"),
        (
            ["--nodes", 4, "--gpus", 8, "--", *TRAINING, "--resume_from_checkpoint", "runs/a/checkpoint-5"],
            "--resume_from_checkpoint runs/a/checkpoint-5: a job that is started again would go back to it",
        ),
        (["--nodes", 4, "--gpus", 8, "--words", 5, "--", *TRAINING], "--words has nothing to do with the files of a"),
        (["--nodes", 4, "--gpus", 8, "--phases", "128:1", "--", *TRAINING], "give it after --, to the training"),
        ([], "give --hours, the time for a training; --nodes and --gpus, for a launch; or --words"),
    ],
)
def test_wrong_launches_are_refused_in_one_line(words, message, capsys):
    try:
        assert plan(*words) == 2
    except SystemExit as ended:  # by the parser of the script
        assert ended.code == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "train.sbatch").write_text("mine")
    assert plan("--nodes", 1, "--gpus", 2, "--slurm", "--output_dir", tmp_path, "--", *TRAINING) == 2
    assert "train.sbatch exists and would be overwritten" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train.sbatch"]
    assert (tmp_path / "train.sbatch").read_text() == "mine"


def test_flags_from_a_file_are_passed_on(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("max_steps: 7\noutput_dir: runs/b\nper_device_train_batch_size: 3\n")
    assert plan("--nodes", 1, "--gpus", 2, "--slurm", "--config", tmp_path / "run.yaml") == 0
    text = capsys.readouterr().out
    assert f"--config {tmp_path / 'run.yaml'} --resume_from_checkpoint auto" in text and "6 sequences a step" in text
    (tmp_path / "run.yaml").write_text("max_stepz: 7\noutput_dir: runs/b\n")
    with pytest.raises(SystemExit):
        plan("--nodes", 1, "--gpus", 2, "--config", tmp_path / "run.yaml")
    assert "run.yaml:1: max_stepz is no flag of this command" in capsys.readouterr().err


def test_hours_as_slurm_reads_them():
    assert [launches.slurm_time(hours) for hours in (0.25, 24, 23.999, 30.5, 0.751)] == [
        "00:15:00",
        "1-00:00:00",
        "1-00:00:00",
        "1-06:30:00",
        "00:46:00",
    ]
