"""The finished folders that the tests of this folder give to other packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from modeling_bert_repro import BertForSequenceClassification
from tests.helpers.bert_pairs import randomise
from tests.helpers.ecosystem import demand
from tests.helpers.repository import ROOT


@pytest.fixture(scope="session")
def finished(tmp_path_factory, text_file, tokenizer_folder, pretrained_config) -> Path:
    """The output folder of ``run_pretraining.py`` after a few steps: two narrow layers without dropout."""
    folder = tmp_path_factory.mktemp("ecosystem")
    pretrained_config.save_pretrained(folder / "shape")
    flags = (
        f"--output_dir {folder / 'finished'} --train_file {text_file} --validation_split 0.2 --max_steps 10 "
        f"--tokenizer_name {tokenizer_folder} --config_name {folder / 'shape'} --max_seq_length 32 "
        "--per_device_train_batch_size 16 --learning_rate 3e-3 --warmup_steps 2 --save_steps 0"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "run_pretraining.py", *flags.split()]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "finished"


@pytest.fixture(scope="session")
def classifier(tmp_path_factory, finished) -> Path:
    """A folder with a classifier of three classes, whose weights are large, so that texts have different scores."""
    folder = tmp_path_factory.mktemp("ecosystem") / "classifier"
    torch.manual_seed(0)
    randomise(BertForSequenceClassification.from_pretrained(finished, num_labels=3)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(finished).save_pretrained(folder)
    return folder


@pytest.fixture
def tokenizer(finished) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(finished)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    demand(report)
    return report
