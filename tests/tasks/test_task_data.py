"""The four fine-tuning tasks know the same of their data, under the same names."""

import dataclasses
import importlib
import io
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer, BertConfig

from bert_training.engine.checkpoint import Origin
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks.task_data import (
    files_or_hub,
    in_chunks,
    metric_of,
    own_files,
    record_origin,
    same_content_warnings,
    sample_limit,
    with_labels,
)
from tests.helpers import short_runs
from tokenization.bert_tokenizer import tokenizer_sha256

TASKS = {
    "run_glue": (GlueArguments, "bert_training.tasks.classification.sources"),
    "run_squad": (SquadArguments, "bert_training.tasks.squad.sources"),
    "run_ner": (NerArguments, "bert_training.tasks.ner.sources"),
    "run_swag": (SwagArguments, "bert_training.tasks.swag"),
}
OUTPUTS = {"run_glue": ("x", "y"), "run_squad": ("LABEL_0", "LABEL_1"), "run_swag": ("choice",)}


@pytest.fixture(params=TASKS)
def task(request, short_data):
    """The name of a script, its flags, and the data that they name."""
    arguments, module = TASKS[request.param]
    more = ("--max_train_samples", "4", "--max_eval_samples", "3")
    args = parse_arguments(arguments, short_runs.flags(request.param, short_data, "run", "model", *more))
    return request.param, args, importlib.import_module(module).load_data(args)


def test_the_facts_count_and_identify_the_examples_of_every_split(task):
    _, _, data = task
    assert {split: len(part) for split, part in data.splits.items()} == {"train": 4, "validation": 3}
    facts = data.facts()["splits"]
    assert {split: part["examples"] for split, part in facts.items()} == {"train": 4, "validation": 3}
    assert all(len(part["sha256"]) == 64 for part in facts.values())


def test_the_metric_that_decides_is_one_of_the_data(task):
    _, args, data = task
    names, default = data.metric_names()
    assert metric_of(args, data) == default and default in names
    assert default in data.baselines() and set(data.baselines()) <= set(names)
    assert data.summary()


def test_the_models_outputs_have_the_names_of_the_data(task):
    script, _, data = task
    config = BertConfig(id2label={0: "old"}, label2id={"old": 0}, problem_type="regression")
    found = with_labels(config, data.label_names)
    assert tuple(found.id2label.values()) == data.label_names
    assert [found.label2id[name] for name in data.label_names] == list(range(found.num_labels))
    assert data.label_names == OUTPUTS.get(script, data.label_names) and len(data.label_names) >= 1
    assert found.problem_type is None
    assert (config.id2label, config.problem_type) == ({0: "old"}, "regression")


def test_the_same_content_for_training_and_validation_is_said_in_one_sentence(task, tokenizer_folder, tmp_path):
    """Whatever its name and its folder are: the content counts."""
    script, args, data = task
    assert same_content_warnings(data) == [
        "warning: the splits train and validation have the same content, so the results on validation show what the "
        "model has memorised, and not how well it does on new data; give another file"
    ]
    said, recorded = [], {}
    tokenizer, weights = AutoTokenizer.from_pretrained(tokenizer_folder), {"model.safetensors": "00"}
    origin = record_origin(SimpleNamespace(say=said.append, add_facts=recorded.update), data, tokenizer, weights)
    assert said == [data.summary(), *same_content_warnings(data)]
    assert recorded.pop("baselines") == data.baselines()
    assert recorded == {
        "data": data.facts(),
        "tokenizer_sha256": tokenizer_sha256(tokenizer),
        "initial_weights": weights,
    }
    assert origin == Origin(**recorded)
    original, copy = Path(args.train_file), tmp_path / Path(args.train_file).name
    shutil.copy(original, copy)
    load = importlib.import_module(TASKS[script][1]).load_data
    assert len(same_content_warnings(load(dataclasses.replace(args, validation_file=str(copy))))) == 1
    with open(copy, "a", encoding="utf-8") as file:
        file.write({".csv": original.read_text().splitlines()[-1] + "\n", ".json": "\n", ".txt": "\n"}[copy.suffix])
    assert same_content_warnings(load(dataclasses.replace(args, validation_file=str(copy)))) == []


def test_files_are_those_that_the_flags_name():
    args = SwagArguments(output_dir="x", model_name_or_path="y", validation_file="v", test_file="t")
    assert own_files(args) == files_or_hub(args, "give files", "examples") == {"validation": "v", "test": "t"}
    args = SquadArguments(output_dir="x", model_name_or_path="y", train_file="a")
    with pytest.raises(ValueError, match="--train_file needs --validation_file, the questions to evaluate on"):
        files_or_hub(args, "give files", "questions")
    args = SquadArguments(output_dir="x", model_name_or_path="y", train_file="a", dataset_name="b")
    with pytest.raises(ValueError, match="give files, or --dataset_name, not both"):
        files_or_hub(args, "give files", "questions")


def test_limits_are_for_training_and_validation_examples_only():
    args = GlueArguments(output_dir="x", model_name_or_path="y", max_train_samples=5, max_eval_samples=3)
    splits = ("train", "validation", "validation_matched", "test", "test_matched")
    assert [sample_limit(args, split) for split in splits] == [5, 3, 3, None, None]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "rank", "seconds", "shown"),
    [(Terminal, "0", 2, True), (Terminal, "1", 2, False), (io.StringIO, "0", 2, False), (io.StringIO, "0", 40, True)],
)
def test_a_bar_is_shown_if_tokenising_takes_long(monkeypatch, stream, rank, seconds, shown):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setattr("sys.stderr", written := stream())
    assert list(in_chunks(25, 10)) == [slice(0, 10), slice(10, 20), slice(20, 30)]
    assert not written.getvalue()
    now = [time.time()]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    for _ in in_chunks(25, 10):
        now[0] += seconds
    assert ("tokenising:  40%" in written.getvalue()) is shown
    assert bool(written.getvalue()) is shown and "\n" not in written.getvalue()
