"""run_swag.py from its flags to its folder, on tiny networks."""

import csv

import numpy as np
import pytest
import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

import run_swag
from tests.helpers.records import events, read
from tests.helpers.script_checks import (
    code_of_the_card_runs,
    control_and_accumulation_have_the_same_losses,
    resumed_equals_uninterrupted,
)
from tests.helpers.small_networks import LEARNS_FAST, NO_DROPOUT, save_random_network, small_config

HEADER = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
HEADER += [*(f"ending{i}" for i in range(4)), "label"]
WORDS = ("red", "green", "blue", "old")

pytestmark = pytest.mark.usefixtures("no_pictures")  # The module's fixtures come first: `finished` draws.


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tokenizer_folder, vocab):
    """The folder of a pre-trained network of one layer without dropout, and its tokenizer. Its weights are random."""
    config = small_config(
        vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=64, **LEARNS_FAST, **NO_DROPOUT
    )
    return save_random_network(tmp_path_factory.mktemp("checkpoint"), tokenizer_folder, config)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files in which the right ending contains "winter". The texts contain commas and quotation marks."""
    folder = tmp_path_factory.mktemp("swag")
    for seed, (name, count) in enumerate({"train": 40, "val": 14, "test": 9}.items()):
        generator = np.random.default_rng(seed)
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(HEADER[:-1] if name == "test" else HEADER)
            for row in range(count):
                label = int(generator.integers(4))
                endings = [f"walked to the {word} house" for word in generator.permutation(WORDS)]
                endings[label] = f'crossed, in winter, the "{endings[label].split()[-1]}"'
                cells = [row, f"v{row}", row, "x", "the king walked .", "the king", "gold", *endings, label]
                writer.writerow(cells[:-1] if name == "test" else cells)
    return folder


def flags(checkpoint, files, output_dir, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(checkpoint), "--output_dir", str(output_dir), "--max_seq_length", "32"),
        *("--train_file", str(files / "train.csv"), "--validation_file", str(files / "val.csv"), "--max_steps", "4"),
        *("--per_device_train_batch_size", "8", "--save_steps", "0", "--logging_steps", "1", *more),
    ]


@pytest.fixture
def start(checkpoint, files):
    return lambda folder, *more: run_swag.main(flags(checkpoint, files, folder, *more))


def losses(folder) -> list[float]:
    return [event["loss"] for event in events(folder, "train")]


@pytest.fixture(scope="module")
def finished(checkpoint, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    more = ["--max_steps", "50", "--learning_rate", "3e-3", "--test_file", str(files / "test.csv")]
    run_swag.main(flags(checkpoint, files, folder, *more))
    return folder


def test_the_folder_serves_every_reader(finished, files):
    expected = {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "README.md"),
        *("run.json", "metrics.jsonl", "all_results.json", "validation_predictions.csv", "test_predictions.csv"),
        "training_curves.png",
    }
    assert expected <= {path.name for path in finished.iterdir()}
    assert read(finished, "tokenizer.json")["truncation"] is None
    assert read(finished, "run.json")["data"]["splits"]["train"]["examples"] == 40
    results = read(finished, "all_results.json")
    assert results["eval_accuracy"] == 1.0
    assert {"eval_accuracy", "eval_loss", "train_runtime", "train_samples_per_second", "train_steps"} == set(results)
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: multiple-choice" in card and "Nothing was measured on a test set" in card
    for split, name in (("validation", "val"), ("test", "test")):
        with open(finished / f"{split}_predictions.csv", encoding="utf-8") as file:
            found = list(csv.DictReader(file))
        with open(files / f"{name}.csv", encoding="utf-8") as file:
            source = list(csv.DictReader(file))
        right = [next(str(i) for i in range(4) if "winter" in row[f"ending{i}"]) for row in source]
        assert [row["prediction"] for row in found] == right


def test_plain_transformers_chooses_the_same(finished, files):
    """transformers' class opens the folder, and gets inputs that are made by hand."""
    model, tokenizer = (c.from_pretrained(finished) for c in (AutoModelForMultipleChoice, AutoTokenizer))
    assert type(model).__module__.startswith("transformers.")
    with open(files / "val.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with open(finished / "validation_predictions.csv", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    for row, told in list(zip(rows, found))[:5]:
        pairs = [(row["sent1"], f"{row['sent2']} {row[f'ending{i}']}") for i in range(4)]
        inputs = tokenizer([a for a, _ in pairs], [b for _, b in pairs], padding=True, return_tensors="pt")
        with torch.no_grad():
            shares = model(**{name: t[None] for name, t in inputs.items()}).logits.softmax(-1)[0].tolist()
        assert [float(told[f"probability{i}"]) for i in range(4)] == pytest.approx(shares, abs=2e-6)


def test_the_code_of_the_model_card_runs(finished, capsys, monkeypatch):
    code_of_the_card_runs(finished, monkeypatch)
    assert capsys.readouterr().out.strip() in (finished / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(start, tmp_path):
    resumed_equals_uninterrupted(start, tmp_path, ["validation_predictions.csv"])


@pytest.mark.slow
def test_the_control_has_the_same_losses(start, tmp_path):
    losses = control_and_accumulation_have_the_same_losses(start, tmp_path, rel=1e-5)
    assert losses[0] == pytest.approx(np.log(4), abs=0.2)
