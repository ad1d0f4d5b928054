"""run_pretraining.py on folders and patterns, with --deduplicate: one process and two, verified and resumed."""

import json
import lzma
import os
from pathlib import Path

import pytest

import run_pretraining
from bert_training.inputs.flags.scripts import names_of_texts
from tests.helpers.torchrun import torchrun

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pictures")]


def texts(folder: Path) -> Path:
    words = "old new house river king letter music night".split()
    documents = [f"the {a} {b} .\nin the {b} of the {a} .\nthe menu ." for a in words for b in words]
    (folder / "AA").mkdir(parents=True)
    (folder / "b.txt").write_text("\n\n".join(documents[:40]))
    (folder / "AA" / "a.txt.xz").write_bytes(lzma.compress("\n\n".join(documents[20:]).encode()))
    return folder


def test_one_process_and_two_leave_the_same_out(tmp_path, pretrained, capsys):
    """The corpora are equal byte for byte, and what is left out is recorded."""
    data = texts(tmp_path / "data")
    flags = f"--train_file {data} --deduplicate both --tokenizer_name {pretrained} --config_name tiny --max_steps 2 "
    flags += "--max_seq_length 32 --validation_split 0.2 --per_device_train_batch_size "
    run_pretraining.main(f"{flags} 4 --output_dir {tmp_path / 'one'}".split())
    printed = capsys.readouterr().out
    assert "left out by --deduplicate both: 20 of 84 documents (23.81%)" in printed
    torchrun("run_pretraining.py", f"{flags} 2 --output_dir {tmp_path / 'two'}".split())
    for name in ("train", "validation"):
        one, two = (tmp_path / run / "corpus" / name / "shard-00000" for run in ("one", "two"))
        assert sorted(os.listdir(one)) == sorted(os.listdir(two))
        assert all((one / file).read_bytes() == (two / file).read_bytes() for file in os.listdir(one))
    facts = json.loads((tmp_path / "one" / "run.json").read_text())
    assert facts["deduplicated"] == json.loads((one / "shard.json").read_text())["notes"]["deduplicated"]
    assert [file["name"] for file in facts["data"]] == ["AA/a.txt.xz", "b.txt"]
    assert names_of_texts(facts) == ("data (2 files)", "data (2 files)")
    assert "data (2 files)" in (tmp_path / "one" / "README.md").read_text()
