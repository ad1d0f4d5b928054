"""lab/benchmarks/step.py: its batches, its count of operations, and a run at tiny sizes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bert_training.inputs.models import bert_config
from lab import tables
from lab.benchmarks import agreement, picture, step
from lab.benchmarks.workloads import (
    LENGTHS,
    Setting,
    Workload,
    count_flops,
    make_sides,
    padded_batch,
    pretraining_batch,
    stored_lengths,
    with_padding,
)

CPU = Setting(torch.device("cpu"), torch.float32, vocab_size=500)


def test_a_run_at_tiny_sizes_writes_the_record_and_a_picture(tmp_path, capsys):
    output = tmp_path / "step.json"
    groups = ["pretraining", "finetuning", "inference", "smallest"]
    step.main(["--tiny", "--repetitions", "2", "--dtype", "fp32", "--only", *groups, "--output", str(output)])
    record = json.loads(output.read_text())
    assert {row["group"] for row in record["results"]} == set(groups)
    assert {"torch", "transformers", "python"} <= set(record["versions"])
    assert record["commit"] and record["threads"] == torch.get_num_threads() and record["dtype"] == "float32"
    assert set(record["matrix_peak_gflops"]) == {"fp32", "bf16"}
    for row in record["results"]:
        low, high = row["ratio_range"]
        assert 0 < low <= row["ratio"] <= high and row["repetitions"] == 2
        assert row["ours_tokens_per_s"] > 0 and row["stock_tokens_per_s"] > 0
    against = [row["against"] for row in record["results"] if row["group"] == "finetuning"]
    assert against[:3] == ["stock, padded to 8", "stock, padded to the longest", "stock, rows of like length"]
    assert 0 < record["results"][0]["share_of_matrix_peak"] < 1
    printed = capsys.readouterr()
    assert printed.out.count(" / stock") == len(record["results"])
    assert "8 of 8, " in printed.err
    aims = {(row["workload"].split(",")[0], row["against"]): row.get("ratio_target") for row in record["results"]}
    assert [aims["fine-tuning mrpc train", one] for one in against[:3]] == [3.2, 1.35, 1.1]
    assert aims["inference squad dev", "stock, rows of like length"] == 1.1
    assert aims["inference squad dev", "stock, padded to 24"] is None
    picture.main([str(output), str(tmp_path / "images" / "speed.png")])
    assert (tmp_path / "images" / "speed.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("kind", "times"), [("cpu", 1), ("cuda", 2)])
def test_on_a_gpu_an_arm_works_once_before_it_is_timed(kind, times, monkeypatch):
    monkeypatch.setattr(step, "synchronise", lambda device: None)
    done = []
    arms = {name: lambda _, name=name: (lambda: done.append(name), 10) for name in ("ours", "stock")}
    rates = step.speeds(Workload("a", arms, {}, {}), 1, SimpleNamespace(type=kind))
    assert done == 2 * (["ours"] * times + ["stock"] * times) and [*map(len, rates.values())] == [1, 1]


def test_smoke_prints_a_report_and_goes_on_after_a_failure(tmp_path, capsys, monkeypatch):
    """One workload fails, as on a GPU that lacks a kernel; one way to compute gradients is wrong."""
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: None)
    rows_of, gradients = step.rows_of, agreement.gradients

    def some_rows(workload, *rest):
        if "one row" in workload.name:
            raise RuntimeError("no kernel image is available\n for execution on the device")
        return rows_of(workload, *rest)

    def wrong(side, batch):
        found = gradients(side, batch)
        return found * 1.01 if getattr(side.model.config, "unpad_inputs", None) is True else found

    monkeypatch.setattr(step, "rows_of", some_rows)
    monkeypatch.setattr(agreement, "gradients", wrong)
    output = tmp_path / "step.json"
    flags = "--tiny --smoke --dtype fp32 --repetitions 1 --only inference smallest --output"
    step.main([*flags.split(), str(output)])
    printed = capsys.readouterr().out
    assert "| inference on MRPC, BERT-Tiny, batches of 4 | padded to the longest |" in printed
    assert (
        printed.count("FAILED, smallest: RuntimeError: no kernel image is available for execution on the device") == 2
    )
    assert printed.count("| yes |") == 6 and printed.count("| ours, without padding | 1.0e-02 | NO |") == 2
    record = json.loads(output.read_text())
    assert {row["group"] for row in record["results"]} == {"inference"} and len(record["failures"]) == 2
    assert len(record["agreement"]) == 8


def test_rounding_explains_what_it_explains(monkeypatch):
    """In bfloat16 every way is as far from float32 as transformers' network, and that is far more than in float32."""
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: None)
    half = Setting(torch.device("cpu"), torch.bfloat16, vocab_size=500)
    for class_name in ("BertForSequenceClassification", "BertForPreTraining"):
        limits = {}
        for name, setting in (("fp32", CPU), ("bf16", half)):
            found = {row["way"]: row["difference"] for row in agreement.agreement(class_name, setting, tiny=True)}
            limits[name] = found.pop("transformers")
            assert max(found.values()) <= max(1e-5, 2 * limits[name])
        assert limits["fp32"] == 0 and 1e-3 < limits["bf16"] < 1e-1


def test_what_was_measured_before_an_interruption_is_kept(tmp_path, monkeypatch):
    output = tmp_path / "step.json"
    calls = []

    def speeds(*_):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {name: [2.0] for name in ("ours", "a", "b", "c")}

    monkeypatch.setattr(step, "speeds", speeds)
    with pytest.raises(KeyboardInterrupt):
        step.main(["--tiny", "--only", "finetuning", "--output", str(output)])
    assert [row["data"] for row in json.loads(output.read_text())["results"]] == ["mrpc train"] * 3 + ["sst2 train"] * 3


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("fine-tuning sst2 train, small, batch 32", "fine-tuning on SST-2, BERT-Small, batches of 32"),
        ("inference squad dev, small, batch 32", "inference on SQuAD, BERT-Small, batches of 32"),
        ("pre-training base, 16 x 128", "pre-training BERT-Base, 16 rows of 128 tokens"),
        ("one row of 16 tokens, mini, training", "one row of 16 tokens, BERT-Mini, training"),
    ],
)
def test_pages_and_pictures_name_workloads_in_words(workload, words):
    assert tables.workload_name(workload) == words


@pytest.mark.slow
def test_peak_memory_of_separate_processes(tmp_path):
    step.main(["--tiny", "--repetitions", "1", "--only", "memory", "--output", str(tmp_path / "m.json")])
    (row,) = json.loads((tmp_path / "m.json").read_text())["results"]
    assert 1e8 < row["ours_bytes"] < 1e10 and 1e8 < row["stock_bytes"] < 1e10


def test_counted_operations_are_those_of_the_matrix_products():
    """They are those of torch's counter with eager attention, whose products the counter sees."""
    config = bert_config("tiny", 500)
    own, _ = make_sides("BertForPreTraining", config, CPU, True, sparse_prediction=True)
    own.model.set_attn_implementation("eager")
    batch = pretraining_batch(np.random.default_rng(0), 3, 40, 500)
    with FlopCounterMode(display=False) as counter:
        own.model(**batch).loss.backward()
    expected = count_flops(config, [40] * 3, int((batch["labels"] != -100).sum()))
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.001)


def test_both_sides_have_equal_weights_and_losses():
    own, stock = make_sides("BertForPreTraining", bert_config("tiny", 500), CPU, True, sparse_prediction=True)
    batch = pretraining_batch(np.random.default_rng(0), 2, 16, 500)
    losses = [side.model.eval()(**batch).loss for side in (own, stock)]
    torch.testing.assert_close(losses[0], losses[1])
    assert own.model.config.sparse_prediction and not hasattr(stock.model.config, "sparse_prediction")


def test_batches_have_the_given_lengths_and_numbers_of_labels():
    batch = padded_batch(np.random.default_rng(0), np.array([2, 5]), 6, 500)
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
    assert ((batch["input_ids"] != 0) == batch["attention_mask"].bool()).all()
    full = pretraining_batch(np.random.default_rng(0), 4, 128, 500)
    assert (full["labels"] != -100).sum(1).tolist() == [19] * 4


def test_arms_of_a_repetition_do_the_same_work():
    """Our network, fixed padding and dynamic padding see the same rows. There are as many sorted rows as in three
    batches; in inference our network sees these, too.
    """
    workload = with_padding("mrpc train", "BertForSequenceClassification", "tiny", 4, CPU, True, shrink=4)
    tokens = [prepare(0)[1] for prepare in workload.arms.values()]
    assert tokens[0] == tokens[1] == tokens[2] < tokens[3]
    scoring = with_padding("mrpc train", "BertForSequenceClassification", "tiny", 4, CPU, False, shrink=4)
    assert [prepare(0)[1] for prepare in scoring.arms.values()] == [tokens[3], *tokens[1:]]
    assert len({workload.arms["ours"](repetition)[1] for repetition in range(5)}) > 1


def test_stored_lengths_are_those_of_the_data_sets():
    """The numbers of rows are the published ones, and the shares of real tokens are those of the record."""
    rows = {"mrpc train": 3668, "mrpc dev": 408, "sst2 train": 67349}
    stored = json.loads(LENGTHS.read_text())["lengths"]
    for name, row in stored.items():
        found, limit = stored_lengths(name)
        assert len(found) == rows.get(name, len(found)) and found.max() <= limit
        assert found.mean() / limit == pytest.approx(row["share_of_real_tokens"], abs=1e-4)
    assert len(stored_lengths("squad dev")[0]) > 10570
