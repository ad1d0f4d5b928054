"""Runs of run_pretraining.py with a recipe: what is computed, saved, printed and recorded."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForPreTraining, AutoTokenizer, BertConfig

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.counted_weights import log_shares
from bert_training.pretraining.network import build_pretraining_network
from modeling_bert_repro import BertForPreTraining
from tests.helpers.pretraining_runs import pretrain
from tests.helpers.records import events, read

pytestmark = pytest.mark.usefixtures("no_pictures")
BY_RECIPE = {
    "max_seq_length": None,
    "learning_rate": None,
    "warmup_steps": None,
    "recipe": "fast",
    "per_device_train_batch_size": 8,
}


@pytest.fixture
def shape_of_128(tmp_path, vocab):
    """A config.json of one layer with 128 units and BERT's dropout and initial weights."""
    config = BertConfig(
        vocab_size=len(vocab), hidden_size=128, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    config.save_pretrained(tmp_path / "shape")
    return tmp_path / "shape"


def test_a_run_says_and_records_what_the_recipe_chose(pretraining_flags, shape_of_128, capsys):
    folder = pretrain(pretraining_flags(**BY_RECIPE, config_name=shape_of_128, max_steps=5))
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if line.startswith("recipe fast: ")]
    assert "dropout 0.0, warmup_steps 0.1, phases 32:0.4,64:0.4,128:0.2, learning_rate 0.002" in line
    assert line.endswith("initializer_range 0.049; given instead: per_device_train_batch_size 8")
    run = read(folder, "run.json")
    assert run["recipe"]["name"] == run["flags"]["recipe"] == "fast"
    assert run["recipe"]["chosen"] == {
        "dropout": 0.0,
        "per_device_train_batch_size": 64,
        "warmup_steps": 0.1,
        "phases": "32:0.4,64:0.4,128:0.2",
        "learning_rate": 0.002,
        "initial_weights": "counted",
        "initializer_range": 0.049,
    }
    assert run["flags"]["per_device_train_batch_size"] == 8 and run["flags"]["dropout"] == 0.0
    assert [event["max_seq_length"] for event in events(folder, "train")] == [32, 32, 64, 64, 128]
    assert "initial weights from counts of the training text, with embeddings of" in printed
    card = (folder / "README.md").read_text()
    assert "| `recipe` | fast |" in card and "| `dropout` | 0.0 |" in card and "| `initializer_range` | 0.049 |" in card


@pytest.mark.parametrize(
    ("objective", "model_impl"),
    [("ltr", "repro"), *(pytest.param("mlm_nsp", impl, marks=pytest.mark.slow) for impl in ("repro", "transformers"))],
)
def test_a_run_begins_with_counted_weights(pretraining_flags, shape_of_128, objective, model_impl):
    """The rate of the first step is 0, so the weights that are saved after it are those of the start."""
    origin = {
        "config_name": shape_of_128,
        "objective": objective,
        "model_impl": model_impl,
        "max_steps": 1,
        "warmup_steps": 1,
    }
    saved = {}
    for weights in ("random", "counted"):
        folder = pretrain(pretraining_flags(**origin, initial_weights=weights))
        saved[weights] = load_file(folder / "model.safetensors")
        shutil.move(folder, folder.with_name(weights))
    corpus = Corpus.open(
        folder.with_name("counted") / "corpus" / "train", AutoTokenizer.from_pretrained(folder.with_name("counted"))
    )
    expected = log_shares(corpus, with_unknown=objective == "ltr").float()
    assert torch.equal(saved["counted"]["cls.predictions.bias"], expected)
    assert not saved["random"]["cls.predictions.bias"].any()
    heads = "bert.encoder.layer.0.attention.self.query.weight"
    assert float(saved["counted"][heads].norm()) > 1.5 * float(saved["random"][heads].norm())


def test_saved_configs_keep_the_dropout_of_fine_tuning_and_say_the_initial_range(pretraining_flags, shape_of_128):
    folder = pretrain(pretraining_flags(**BY_RECIPE, config_name=shape_of_128, max_steps=3, save_steps=2))
    for saved in (folder, folder / "checkpoint-2"):
        config = json.loads((saved / "config.json").read_text())
        assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
        assert config["initializer_range"] == 0.049
    network = AutoModelForPreTraining.from_pretrained(folder)
    assert {module.p for module in network.modules() if isinstance(module, torch.nn.Dropout)} == {0.1}


@pytest.mark.parametrize("model_impl", ["repro", "transformers"])
@pytest.mark.parametrize("start", ["new", "a checkpoint"])
def test_a_network_trains_without_dropout_from_any_start(
    pretraining_flags, shape_of_128, make_run, tokenizer_folder, start, model_impl, tmp_path
):
    """Two passes over a batch in training mode are equal; with the config's 0.1 they would differ."""
    config = BertConfig.from_pretrained(shape_of_128)
    BertForPreTraining(config).save_pretrained(tmp_path / "model")
    origin = (
        {"config_name": shape_of_128}
        if start == "new"
        else {"config_name": None} | {"model_name_or_path": tmp_path / "model"}
    )
    run, batch = make_run(), {"input_ids": torch.arange(5, 25).reshape(1, 20)}
    differ = {}
    for recipe in ("paper", "fast"):
        flags = pretraining_flags(**BY_RECIPE | {"recipe": recipe}, **origin, model_impl=model_impl)
        run.args = parse_arguments(PretrainingArguments, flags)
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
        network, _ = build_pretraining_network(run, BertForPreTraining, tokenizer)
        assert network.config.hidden_dropout_prob == 0.1
        first, second = (network.train()(**batch).prediction_logits for _ in range(2))
        differ[recipe] = not torch.equal(first, second)
    assert differ == {"paper": True, "fast": False}
