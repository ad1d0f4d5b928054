"""The way into the project stays short: the scripts, and what they enter before the first optimiser step."""

import ast
import json
import subprocess
import sys

import pytest

from tests.helpers.repository import HOUSES, ROOT

SCRIPTS = sorted(path.name for path in ROOT.glob("run_*.py"))
OURS = ("modeling_bert_repro", "tokenization", *HOUSES)
# The most that a script may enter; lower these when it enters less.
ENTERED = {"run_pretraining": {"files": 43, "lines": 4452}, "run_glue": {"files": 45, "lines": 3798}}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_reads_from_top_to_bottom(script):
    tree = ast.parse((ROOT / script).read_text(encoding="utf-8"))
    (main,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    assert (main.end_lineno or 0) - main.lineno < 60


@pytest.mark.slow
@pytest.mark.parametrize("script", ENTERED)
def test_a_run_enters_few_files_before_its_first_step(script, tmp_path, text_file, pretrained, glue_files):
    flags = f"--output_dir {tmp_path / 'run'} --max_steps 2 --max_seq_length 32"
    if script == "run_glue":
        flags += f" --model_name_or_path {pretrained} --task_name mrpc --data_dir {glue_files / 'mrpc'}"
    else:
        flags += f" --train_file {text_file} --validation_split 0.2 --vocab_size 60 --config_name tiny"
    program = [sys.executable, "tests/programs/entrance.py", script, *flags.split()]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {what: count for what, count in ENTERED[script].items() if found[what] > count} == {}, found
    assert script != "run_pretraining" or found["listed"] >= 0.6, found
