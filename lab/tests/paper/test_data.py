"""lab/paper/data.py: which flags contradict each other, which data a scale takes, and that a table's files stay."""

import shutil
from pathlib import Path
from typing import get_type_hints

import pytest
from transformers import BertConfig

from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.tasks.squad.windows import check_lengths
from lab import run_paper
from lab.paper import data
from lab.paper.data import PaperArguments
from lab.paper.experiments import EXPERIMENTS
from lab.paper.scales import PAPERS_FINE_TUNING, SCALES, SMALL_FINE_TUNING
from lab.tests.helpers.paper_plans import command, plan_of
from tests.helpers.official_files import write_task


@pytest.fixture
def data_dir(tmp_path) -> Path:
    """A data folder with a text of two documents, MRPC and SST-2."""
    (tmp_path / "data/text").mkdir(parents=True)
    (tmp_path / "data/text/wiki.txt").write_text("a\nb\n\nc\nd\n")
    (tmp_path / "data/text/wiki_heldout.txt").write_text("e\nf\n")
    for task, folder in (("mrpc", "MRPC"), ("sst2", "SST-2")):
        write_task(tmp_path / "data/glue" / folder, task)
    return tmp_path / "data"


def test_the_small_scale_takes_what_is_there(data_dir):
    plan = plan_of("5", "small", data_dir=str(data_dir))
    assert list(plan.titles.values()) == ["MRPC", "SST-2", "held-out loss, nats"]
    words = command(plan, "pretrain-bert-seed-42")
    assert f"--train_file {data_dir}/text/wiki.txt --validation_file {data_dir}/text/wiki_heldout.txt" in words
    assert "--recipe fast --learning_rate 1e-3" in words
    # The recipe would calculate it from sizes/L2_H192_A3/config.json, which is read in the output folder only.
    assert "--initializer_range 0.04 " in words
    assert [column.key for column in plan_of("8", "small", data_dir=str(data_dir)).columns] == [
        *("sst2", "code", "code_features")
    ]


@pytest.mark.parametrize("settings", [SMALL_FINE_TUNING, PAPERS_FINE_TUNING], ids=["small", "paper"])
def test_the_windows_of_questions_have_possible_sizes(settings):
    # run_squad.py would refuse others, but only after the pre-training.
    args = SquadArguments(output_dir="out", model_name_or_path="model", **settings["run_squad.py"])
    check_lengths(args.max_seq_length, args.doc_stride, args.max_query_length)


def test_a_scale_without_its_data_is_refused_before_any_run(data_dir, tmp_path):
    flags = ["--output_dir", str(tmp_path / "out"), "--data_dir", str(data_dir)]
    with pytest.raises(ValueError, match="found no data of mnli, qnli, squad, which table 5 needs at the scale paper"):
        run_paper.main([*flags, "--table", "5", "--scale", "paper"])
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match=r"no text in .*nothing/text; expected text/ with documents"):
        run_paper.main(["--table", "7", "--scale", "small", *flags[:3], str(tmp_path / "nothing")])
    assert not (tmp_path / "out").exists()


def test_a_task_with_a_missing_file_is_refused_and_one_without_data_is_named(data_dir, capsys):
    plan_of("5", "small", data_dir=str(data_dir))
    assert f"left out, because --data_dir {data_dir} has no data of it: mnli, qnli, squad\n" in capsys.readouterr().out
    (data_dir / "glue/SST-2/dev.tsv").unlink()
    with pytest.raises(ValueError, match=r"expected the official dev\.tsv of SST-2"):
        plan_of("5", "small", data_dir=str(data_dir))


def test_the_checksums_are_those_of_the_tables(data_dir):
    folder = data_dir / "glue/MRPC"
    (folder / "MRPC").mkdir()
    (folder / "dev.tsv").rename(folder / "MRPC/dev.tsv")  # the official archive has such a folder
    (folder / "README").write_text("no table")
    found = data.checksums_of([{"data_dir": str(folder), "output_dir": "cells/x"}])
    assert f"{folder}/MRPC/dev.tsv" in found and f"{folder}/README" not in found


def test_a_changed_corpus_is_refused(tmp_path, monkeypatch, text_file):
    def write_files(folder, packages, joined_by_module):
        assert packages is False and joined_by_module  # A smoke run reads the standard library only.
        shutil.copy(text_file, folder / "corpus.txt")

    monkeypatch.setattr(data.documentation, "write_files", write_files)
    args = PaperArguments("5", str(tmp_path), smoke=True)
    arguments = (tmp_path, args, data.scale_of(args), data.find_text(args), plan_of("5", smoke=True))
    data.prepare(*arguments)
    config = BertConfig.from_pretrained(tmp_path / "sizes/L1_H32_A2")
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.0, 0.0)
    vocabulary = (tmp_path / "vocabulary/vocab.txt").read_text().splitlines()
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (len(vocabulary), 32, 128)
    assert vocabulary[config.pad_token_id] == "[PAD]"
    data.prepare(*arguments)
    with open(tmp_path / "data/corpus.txt", "a") as file:
        file.write("One more line.\n")
    with pytest.raises(ValueError, match=r"data was changed after the runs had begun \(corpus\.txt does not match"):
        data.prepare(*arguments)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--table", "5", "--seeds", "1"], "--seeds must be at least 2; got 1"),
        (["--table", "9"], "must be one of 5, 6, 7, 8, figure5; got '9'"),
        (["--table", "5", "--jobs", "0"], "--jobs must be at least 1"),
        (["--table", "5", "--scale", "small"], "--scale small needs --data_dir"),
        (["--table", "5", "--scale", "paper"], "--scale paper needs --data_dir"),
        (["--table", "5", "--data_dir", "d"], "--data_dir needs --scale small or --scale paper"),
        (["--table", "5", "--scale", "small", "--data_dir", "d", "--smoke"], "--smoke needs --scale builtin"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags, told, capsys):
    with pytest.raises(SystemExit) as stop:
        run_paper.main([*flags, "--output_dir", "out"])
    assert stop.value.code == 2 and told in capsys.readouterr().err.splitlines()[-1]


def test_the_flags_name_every_experiment_and_every_scale():
    types = get_type_hints(PaperArguments)
    assert types["table"].__args__ == tuple(EXPERIMENTS)
    assert types["scale"].__args__ == tuple(SCALES)
    for experiment in EXPERIMENTS.values():
        assert set(experiment.steps) == set(experiment.tasks) == set(SCALES)
