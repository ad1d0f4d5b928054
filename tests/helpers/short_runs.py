"""Runs of two optimiser steps of every script, on data of a few lines, to test rules that all scripts obey."""

import importlib
import json
from pathlib import Path

import pytest

from tests.helpers.tagged_text import CONLL

SCRIPTS = ("run_pretraining", "run_glue", "run_squad", "run_ner", "run_swag")
# For rules that all scripts obey: one that pre-trains and one that fine-tunes at once, the others with the slow tests.
AT_ONCE_AND_SLOWLY = [*SCRIPTS[:2], *(pytest.param(script, marks=pytest.mark.slow) for script in SCRIPTS[2:])]
TEXT = "the old house by the river .\nthe king walked .\n\nthe queen opened the letter .\nthe night was old .\n"


def write_data(folder: Path) -> None:
    """Write a file of data for each script."""
    questions = [
        {"id": f"q{i}", "question": "house ?", "answers": [{"text": "house", "answer_start": 8}]} for i in range(8)
    ]
    squad = {"data": [{"title": "t", "paragraphs": [{"context": "the old house by the river .", "qas": questions}]}]}
    (folder / "run_pretraining.txt").write_text("\n".join([TEXT] * 8))
    (folder / "run_glue.csv").write_text("text,label\n" + "the old house,x\nthe king walked,y\n" * 4)
    (folder / "run_squad.json").write_text(json.dumps(squad))
    (folder / "run_ner.txt").write_text(CONLL)
    endings = ",".join(f"ending{i}" for i in range(4))
    (folder / "run_swag.csv").write_text(f"sent1,sent2,{endings},label\n" + "the king,he,a,b,c,d,1\n" * 8)


def flags(script: str, data: Path, output_dir: Path, model: Path | str, *more: str) -> list[str]:
    """The flags of a run that begins with the weights of ``model``."""
    (file,) = data.glob(f"{script}.*")
    given = f"--output_dir {output_dir} --model_name_or_path {model} --train_file {file} --validation_file {file} "
    given += "--max_steps 2 --save_steps 0 --logging_steps 1 --per_device_train_batch_size 4 --max_seq_length 24"
    squad = ("--max_query_length", "8", "--doc_stride", "6") if script == "run_squad" else ()
    return [*given.split(), *squad, *more]


def start(script: str, arguments: list[str]) -> None:
    importlib.import_module(script).main(arguments)


def no_pictures(monkeypatch) -> None:
    """Do not draw the training curves, which takes half of the time of a short run."""
    for name in ("bert_training.pretraining.network", "bert_training.tasks.fine_tuning"):
        monkeypatch.setattr(importlib.import_module(name), "draw_curves", lambda folder: None)
