"""run_pretraining.py from end to end, as a user starts it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining, BertConfig

import run_pretraining
from bert_training.pretraining import evaluation
from tests.helpers.pretraining_runs import pretrain
from tests.helpers.records import events
from tests.helpers.script_checks import fast_paths_are_on
from tests.helpers.torchrun import torchrun

pytestmark = pytest.mark.usefixtures("no_pictures")  # The module's fixtures come first: `finished` draws.


def without_speed(folder: Path, kind: str) -> list[dict]:
    """The numbers that two equal runs record equally."""
    others = {"event", "tokens_per_second", "seconds_per_step"}
    return [{name: value for name, value in e.items() if name not in others} for e in events(folder, kind)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, text_file, tokenizer_folder, network_shape) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run_pretraining.main(
        f"--output_dir {folder} --train_file {text_file} --validation_split 0.2 --tokenizer_name {tokenizer_folder} "
        f"--config_name {network_shape} --max_seq_length 32 --per_device_train_batch_size 16 --max_steps 40 "
        "--logging_steps 3 --eval_steps 20 --save_steps 20 --learning_rate 3e-3 --warmup_steps 4".split()
    )
    return folder


def test_the_folder_contains_what_docs_checkpoints_promises(finished):
    names = {path.name for path in finished.iterdir()}
    assert names >= {
        *"config.json model.safetensors tokenizer.json tokenizer_config.json vocab.txt README.md run.json".split(),
        *"metrics.jsonl all_results.json training_curves.png checkpoint-20 checkpoint-40".split(),
    }
    results = json.loads((finished / "all_results.json").read_text())
    assert set(results) >= {
        *"train_loss eval_loss eval_mlm_loss eval_mlm_accuracy eval_perplexity eval_nsp_accuracy train_runtime".split(),
        *"train_tokens_per_second train_samples_per_second train_steps".split(),
    }
    assert results["eval_perplexity"] == pytest.approx(np.exp(results["eval_mlm_loss"]), rel=1e-5)
    assert results["train_steps"] == 40
    run = json.loads((finished / "run.json").read_text())
    assert run["flags"]["max_seq_length"] == 32
    assert run["versions"]["torch"] == torch.__version__
    assert len(run["data"][0]["sha256"]) == 64


def test_the_loss_falls(finished):
    losses = [event["mlm_loss"] for event in events(finished, "train")]
    assert losses[-1] < losses[0] - 0.3
    assert events(finished, "corpus")[0]["unigram_entropy"] > 0


def test_one_run_has_two_phases_and_one_schedule(pretraining_flags, monkeypatch):
    """tests/engine/test_kill.py resumes runs in both phases."""
    evaluate, evaluated = evaluation.evaluate, []
    monkeypatch.setattr(
        evaluation,
        "evaluate",
        lambda run, model, held_out: (
            evaluated.append(held_out.settings.max_seq_length) or evaluate(run, model, held_out)
        ),
    )
    more = {"max_seq_length": None, "phases": "16:0.5:4x2,32:0.5:6", "max_steps": 8, "warmup_steps": 2}
    folder = pretrain(pretraining_flags("phases", **more))
    train = events(folder, "train")
    assert [event["max_seq_length"] for event in train] == [16] * 4 + [32] * 4
    assert [event["max_seq_length"] for event in events(folder, "eval")] == evaluated == [16, 32, 32]
    # One schedule covers both phases: the rate rises in 2 steps, and would be 0 after the last step.
    rates = [event["learning_rate"] / 1e-3 for event in train]
    assert rates == pytest.approx([0, 1 / 2, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert json.loads((folder / "run.json").read_text())["phases"] == "4 steps of 8 x 16, 4 steps of 6 x 32"
    (folder / "all_results.json").unlink()  # Without this file the run is not finished.
    with pytest.raises(ValueError, match=r"other settings \(batches 4 steps of 8 x 16, 4 steps of 6 x 32 ->"):
        pretrain(pretraining_flags("phases", resume_from_checkpoint="auto", **(more | {"phases": "16:0.5:4,32:0.5:6"})))


@pytest.mark.slow
def test_two_processes_do_what_one_does(pretraining_flags, tmp_path):
    """Each of the two processes has half of the batch. In float32 only the order of additions makes a difference."""
    more = pretraining_flags("pair", max_steps=3, per_device_train_batch_size=4)
    torchrun("run_pretraining.py", more)
    alone = pretrain(pretraining_flags("alone", max_steps=3))
    together = tmp_path / "pair"
    for one, two in zip(without_speed(alone, "train"), without_speed(together, "train"), strict=True):
        assert two == pytest.approx(one, rel=1e-4)
    for one, two in zip(without_speed(alone, "eval"), without_speed(together, "eval"), strict=True):
        assert two == pytest.approx(one, rel=1e-4)
    assert json.loads((together / "run.json").read_text())["processes"] == 2


@pytest.mark.parametrize(
    "objective", ["mlm_nsp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mlm", "ltr"))]
)
def test_the_fast_paths_are_on(pretraining_flags, tmp_path, fast_paths, objective):
    """Half of the positions are padding. Without pairs this means that short documents share one row."""

    def start(folder, *more):
        run_pretraining.main([*pretraining_flags(folder, short_seq_prob=1, objective=objective), *more])

    fast_paths_are_on(start, tmp_path, fast_paths)


@pytest.mark.parametrize("objective", ["mlm", "ltr"])
def test_objectives_without_pairs(pretraining_flags, objective):
    folder = pretrain(pretraining_flags(objective, objective=objective, max_steps=2))
    config = BertConfig.from_pretrained(folder)
    assert config.architectures == ["BertForMaskedLM"]
    assert config.is_decoder == (objective == "ltr")
    results = json.loads((folder / "all_results.json").read_text())
    assert results["eval_loss"] == results["eval_mlm_loss"]
    assert "eval_nsp_accuracy" not in results


@pytest.mark.parametrize(
    "text", [{}, pytest.param({"train_file": None, "max_train_documents": 40}, marks=pytest.mark.slow)]
)
def test_sentence_order(pretraining_flags, text):
    """Records, results and card name the order, not the next sentence. A resumed run has the same bits."""
    more = {"max_steps": 4, "save_steps": 2, "objective": "mlm_sop"} | text
    folder = pretrain(pretraining_flags("order", **more))
    results = json.loads((folder / "all_results.json").read_text())
    assert 0 <= results["eval_sop_accuracy"] <= 1
    assert results["eval_loss"] == pytest.approx(results["eval_mlm_loss"] + results["eval_sop_loss"])
    for event in events(folder, "train"):
        assert event["loss"] == pytest.approx(event["mlm_loss"] + event["sop_loss"], rel=1e-5)
    recorded = "".join((folder / name).read_text() for name in ("metrics.jsonl", "all_results.json", "README.md"))
    assert "nsp" not in recorded.replace("inspect", "") and "follows" not in recorded
    assert "whether two consecutive passages are in order or swapped" in recorded
    assert "| Sentence-order accuracy (chance 0.5) |" in recorded
    _, loading = AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert BertConfig.from_pretrained(folder).architectures == ["BertForPreTraining"] and not loading["missing_keys"]

    weights = (folder / "model.safetensors").read_bytes()
    (folder / "all_results.json").unlink()  # Without this file the run is not finished.
    shutil.rmtree(folder / "checkpoint-4")
    (folder / "model.safetensors").unlink()
    pretrain(pretraining_flags("order", **more, resume_from_checkpoint="auto"))
    assert (folder / "model.safetensors").read_bytes() == weights


@pytest.mark.slow
def test_data_sets_are_read_whole_or_as_a_stream(pretraining_flags, data_set, tmp_path):
    whole = pretrain(pretraining_flags("files", max_steps=2))
    for name, more in (("loaded", {}), ("streamed", {"streaming": "true"})):
        folder = pretrain(pretraining_flags(name, train_file=None, dataset_name=data_set, max_steps=2, **more))
        assert without_speed(folder, "train") == without_speed(whole, "train")
    (folder / "all_results.json").unlink()  # Without this file the run is not finished.
    more |= {"train_file": None, "dataset_name": data_set, "resume_from_checkpoint": "auto"}
    resumed = pretrain(pretraining_flags(name, max_steps=2, **more))
    assert without_speed(resumed, "train") == without_speed(whole, "train")
    # After a change of the data set, its old corpus is not used.
    (tmp_path / "loaded" / "all_results.json").unlink()
    rows = [json.dumps({"text": f"another one {number} .\nand more ."}) for number in range(40)]
    (data_set / "train.jsonl").write_text("\n".join(rows))
    more = {"train_file": None, "dataset_name": data_set, "max_steps": 2, "resume_from_checkpoint": "auto"}
    with pytest.raises(ValueError, match=r"made from other input \(it differs in: text\)"):
        pretrain(pretraining_flags("loaded", **more))
