"""bert-repro corpus and the block for datatrove: whoever makes the shards, their bytes are the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert_tools.corpus import main
from bert_training.pretraining import build_corpus
from bert_training.pretraining.corpus import Corpus, is_finished, shard_folders
from tests.helpers.repository import ROOT
from tests.helpers.texts_of_all_kinds import tokenizer_of_letters, write_all
from tokenization.bert_tokenizer import build_tokenizer

SLICE_BYTES = 1500


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """A folder with files, their tokenizer, and the corpus that one process makes of them."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "text").mkdir()
    write_all(folder / "text")
    tokenizer = tokenizer_of_letters()
    vocab = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    build_tokenizer(vocab).save_pretrained(folder / "tokenizer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_corpus.build_corpus, "__kwdefaults__", _small_slices())
        main([*flags(folder), "--output_dir", str(folder / "whole")])
    return folder


def _small_slices() -> dict:
    return build_corpus.build_corpus.__kwdefaults__ | {"slice_bytes": SLICE_BYTES}


def flags(folder: Path) -> list[str]:
    files = sorted(map(str, (folder / "text").iterdir()))
    return ["--train_file", *files, "--tokenizer_name", str(folder / "tokenizer"), "--num_workers", "1"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_makes_a_corpus_and_finds_it_again(text, tmp_path, capsys):
    for _ in range(2):
        main([*flags(text), "--output_dir", str(tmp_path / "c")])
        assert "162 documents, 940 sentences, 8,704 tokens in" in capsys.readouterr().out
    assert len(Corpus.open(text / "whole").facts) > 10


PROGRAM = """
import sys
from datatrove.executor import LocalPipelineExecutor
from functools import partial
from bert_tools import datatrove_blocks
from bert_tools.datatrove_blocks import CorpusShards

datatrove_blocks.plan_corpus = partial(datatrove_blocks.plan_corpus, slice_bytes=SLICE)

def run(folder, target, logs, tasks, workers):
    block = CorpusShards([f"{folder}/text"], f"{folder}/tokenizer", target)
    LocalPipelineExecutor([block], tasks=tasks, workers=workers, logging_dir=logs).run()

if __name__ == "__main__":
    run(*sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5]))
"""


def run_tasks(text: Path, target: Path, tasks: int, workers: int) -> subprocess.Popen:
    """Start datatrove's local executor in a process group of its own."""
    program = target.with_name("program.py")
    program.write_text(PROGRAM.replace("SLICE", str(SLICE_BYTES)))
    command = [sys.executable, program, text, target, target.with_name("logs"), tasks, workers]
    return subprocess.Popen(
        list(map(str, command)),
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "workers"), [(3, 2)])
def test_tasks_of_datatrove_make_the_same_bytes(text, tmp_path, tasks, workers):
    pytest.importorskip("datatrove")
    started = run_tasks(text, tmp_path / "c", tasks, workers)
    printed = started.communicate()[1]
    assert started.returncode == 0, printed
    assert contents(tmp_path / "c") == contents(text / "whole")


@pytest.mark.slow
def test_tasks_that_are_killed_are_started_again_and_keep_their_shards(text, tmp_path):
    pytest.importorskip("datatrove")
    started = run_tasks(text, tmp_path / "c", 3, 2)
    while len(shard_folders(tmp_path / "c")) < 3 and started.poll() is None:
        time.sleep(0.001)
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    assert not is_finished(tmp_path / "c")
    before = {path.name: path.stat().st_ino for path in shard_folders(tmp_path / "c")}
    again = run_tasks(text, tmp_path / "c", 3, 2)
    printed = again.communicate()[1]
    assert again.returncode == 0, printed
    after = {path.name: path.stat().st_ino for path in shard_folders(tmp_path / "c")}
    assert before and before == {name: after[name] for name in before}
    assert contents(tmp_path / "c") == contents(text / "whole")
