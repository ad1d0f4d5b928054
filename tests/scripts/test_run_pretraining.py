"""run_pretraining.py from end to end, as a user starts it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForPreTraining, BertConfig

import run_pretraining
from bert_training.pretraining import evaluation
from bert_training.pretraining import tokenizer as tokenizer_module
from modeling_bert_repro import BertForMaskedLM, BertForPreTraining
from tests.helpers.fault_runs import run
from tests.helpers.pretraining_runs import pretrain
from tests.helpers.records import events
from tests.helpers.script_checks import fast_paths_are_on

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
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
        "README.md",
        "run.json",
        "metrics.jsonl",
        "all_results.json",
        "training_curves.png",
        "checkpoint-20",
        "checkpoint-40",
    }
    results = json.loads((finished / "all_results.json").read_text())
    assert set(results) >= {
        "train_loss",
        "eval_loss",
        "eval_mlm_loss",
        "eval_mlm_accuracy",
        "eval_perplexity",
        "eval_nsp_accuracy",
        "train_tokens_per_second",
        "train_samples_per_second",
        "train_runtime",
        "train_steps",
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


def test_the_speed_is_recorded(finished):
    results = json.loads((finished / "all_results.json").read_text())
    assert set(events(finished, "train")[-1]) >= {"tokens_per_second", "seconds_per_step", "grad_norm", "learning_rate"}
    assert results["train_tokens_per_second"] > results["train_samples_per_second"] > 0


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


def test_the_training_loss_is_the_mean_over_all_steps(pretraining_flags):
    """It does not depend on how often a record is written."""
    often, once = (pretrain(pretraining_flags(str(number), eval_steps=0, logging_steps=number)) for number in (1, 100))
    losses = [event["loss"] for event in events(often, "train")]
    assert len(losses) == 6 and len(events(once, "train")) == 2
    for folder in (often, once):
        results = json.loads((folder / "all_results.json").read_text())
        assert results["train_loss"] == pytest.approx(np.mean(losses)) and results["train_runtime"] > 0


def test_two_processes_do_what_one_does(pretraining_flags, tmp_path):
    """Each of the two processes has half of the batch. In float32 only the order of additions makes a difference."""
    more = pretraining_flags("pair", max_steps=3, per_device_train_batch_size=4)
    ended = run("run_pretraining", more, tmp_path, ranks=2)
    assert ended.statuses == [0, 0], ended.printed
    alone = pretrain(pretraining_flags("alone", max_steps=3))
    together = tmp_path / "pair"
    for one, two in zip(without_speed(alone, "train"), without_speed(together, "train"), strict=True):
        assert two == pytest.approx(one, rel=1e-4)
    for one, two in zip(without_speed(alone, "eval"), without_speed(together, "eval"), strict=True):
        assert two == pytest.approx(one, rel=1e-4)
    assert json.loads((together / "run.json").read_text())["processes"] == 2


def test_the_control_takes_the_same_steps(pretraining_flags, finished):
    """transformers' network, which begins with our weights, has the same loss at every step."""
    more = {"config_name": None, "model_name_or_path": finished, "gradient_accumulation_steps": 2, "max_steps": 4}
    ours = pretrain(pretraining_flags("ours", **more))
    theirs = pretrain(pretraining_flags("theirs", model_impl="transformers", **more))
    for a, b in zip(without_speed(ours, "train"), without_speed(theirs, "train"), strict=True):
        assert b == pytest.approx(a, rel=1e-4)
    # The loss shows that the weights are not new.
    assert events(ours, "train")[0]["mlm_loss"] < events(finished, "train")[0]["mlm_loss"] - 0.3
    assert "auto_map" not in (theirs / "config.json").read_text()  # Its code would not be in the folder.
    assert AutoModel.from_pretrained(theirs).config.hidden_size == 32


@pytest.mark.parametrize(
    "objective", ["mlm_nsp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mlm", "ltr"))]
)
def test_the_fast_paths_are_on(pretraining_flags, tmp_path, fast_paths, objective):
    """Half of the positions are padding. Without pairs this means that short documents share one row."""

    def start(folder, *more):
        run_pretraining.main([*pretraining_flags(folder, short_seq_prob=1, objective=objective), *more])

    fast_paths_are_on(start, tmp_path, fast_paths)


def test_flags_reach_vocabulary_network_and_optimizer(pretraining_flags, monkeypatch):
    class Reached(Exception):
        pass

    def learn(lines, size, output_dir, do_lower_case, count):
        raise Reached(size, do_lower_case, len(list(lines)) > 100)

    def made(model, *settings):
        raise Reached(settings)

    monkeypatch.setattr(tokenizer_module, "train_wordpiece", learn)
    with pytest.raises(Reached) as settings:
        pretrain(pretraining_flags("run", tokenizer_name=None, vocab_size=99, do_lower_case="false"))
    assert settings.value.args == (99, False, True)
    compiled = []
    monkeypatch.setattr(BertForPreTraining, "compile", lambda self: compiled.append(self))
    monkeypatch.setattr(run_pretraining, "create_optimizer", made)
    more = {"weight_decay": 0.5, "torch_compile": "true"}
    with pytest.raises(Reached) as settings:
        pretrain(pretraining_flags("run", **more))
    assert settings.value.args[0] == (1e-3, 0.5) and len(compiled) == 1


def test_a_checkpoint_of_other_settings_or_data_is_refused(pretraining_flags, tmp_path, text_file):
    (
        pretrain(pretraining_flags("run", max_steps=2)) / "all_results.json"
    ).unlink()  # Without this file the run is not finished.
    with pytest.raises(ValueError, match=r"other settings \(mlm_probability 0.15 -> 0.3\)"):
        pretrain(pretraining_flags("run", max_steps=2, resume_from_checkpoint="auto", mlm_probability=0.3))
    other = tmp_path / "other.txt"
    other.write_text(text_file.read_text() + "\none more .\nand another .\n")
    with pytest.raises(ValueError, match="made from other input"):
        pretrain(pretraining_flags("run", max_steps=2, resume_from_checkpoint="auto", train_file=other))


@pytest.mark.parametrize("objective", ["mlm", "ltr"])
def test_objectives_without_pairs(pretraining_flags, objective):
    folder = pretrain(pretraining_flags(objective, objective=objective, max_steps=2))
    config = BertConfig.from_pretrained(folder)
    assert config.architectures == [BertForMaskedLM.__name__]
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
