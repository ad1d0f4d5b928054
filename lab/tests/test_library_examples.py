"""The examples for other people's libraries run on a small network; each is skipped without its library."""

import json
import os
import random
import re
import runpy
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from bert_training.pretraining.corpus import Corpus
from tests.helpers.ecosystem import deprecations, needed
from tests.helpers.repository import ROOT
from tests.helpers.small_networks import save_random_network, small_config

pytestmark = [*deprecations, pytest.mark.filterwarnings("ignore:'pin_memory' argument")]
TEXTS = ["the old house", "a king walked", "the queen opened the letter", "the night was old"]


@pytest.fixture
def folder(tmp_path, tokenizer_folder, vocab):
    return save_random_network(
        tmp_path / "model", tokenizer_folder, small_config(vocab_size=len(vocab), max_position_embeddings=64)
    )


def run_example(name: str, *arguments: object, monkeypatch, capsys) -> str:
    assert len((ROOT / "examples" / name).read_text().splitlines()) < 40
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return capsys.readouterr().out


def test_embeddings_of_sentences_are_trained_and_open_again(folder, tmp_path, monkeypatch, capsys):
    sentence_transformers = needed("sentence_transformers")
    pairs = tmp_path / "pairs.csv"
    rows = [f"{one},{other}" for one, other in zip(TEXTS, [*TEXTS[1:], TEXTS[0]])]
    pairs.write_text("\n".join(["anchor,positive", *rows]))
    before = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    told = run_example(
        "sentence_embeddings.py", folder, pairs, tmp_path / "new", 3, monkeypatch=monkeypatch, capsys=capsys
    )
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "new"), trust_remote_code=True, device="cpu")
    after = model.encode(TEXTS)
    assert abs(after - before).max() > 1e-5
    similarity = float(model.similarity(after[0], after[1]))
    assert float(re.search(r"similarity of the first pair (\S+)", told)[1]) == pytest.approx(similarity, abs=2e-3)


@pytest.mark.filterwarnings("default")
def test_classes_are_learned_from_few_examples(folder, tmp_path, monkeypatch, capsys):
    """Classes that the test table lacks change no number, and "NA" and 007 are texts."""
    needed("sentence_transformers")
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("text,label\n" + "the old house,NA\nthe king walked,7\nthe queen opened,x\n" * 6)
    test.write_text("text,label\nthe king walked,7\nthe queen opened,x\n")
    told = run_example("few_examples.py", folder, train, test, 2, monkeypatch=monkeypatch, capsys=capsys)
    assert "accuracy 1.0000" in told


def test_optuna_finds_the_best_of_its_trials(folder, tmp_path, monkeypatch, capsys):
    needed("optuna")
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "the old house,x\nthe king walked,y\n" * 8)
    flags = {
        "model_name_or_path": folder,
        "train_file": table,
        "validation_file": table,
        "save_steps": 0,
        "max_seq_length": 16,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    search = [2, *words, "--output_dir", tmp_path / "search"]
    told = run_example("search_flags.py", *search, monkeypatch=monkeypatch, capsys=capsys)
    assert {path.name for path in (tmp_path / "search").iterdir()} == {"trial-0", "trial-1"}
    assert re.search(r"best eval_accuracy [\d.]+ in .*trial-[01]: \{'learning_rate'", told)


def test_an_adapter_of_peft_is_saved_and_opens_again(folder, tmp_path, monkeypatch, capsys):
    needed("peft")
    table = tmp_path / "texts.csv"
    table.write_text("text,label\n" + "\n".join(f"{text},{number % 2}" for number, text in enumerate(TEXTS)))
    told = run_example("lora.py", folder, table, tmp_path / "adapter", 120, monkeypatch=monkeypatch, capsys=capsys)
    assert told.strip().endswith("4 of 4 texts right")
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {
        one.name for one in (tmp_path / "adapter").iterdir()
    }
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()
    weights = (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size
    assert weights < (folder / "model.safetensors").stat().st_size


def test_a_text_is_cleaned_by_datatrove_and_encoded_in_tasks(tokenizer_folder, tmp_path):
    """Equal documents, nearly equal ones and one of low quality are removed; a second start does nothing again."""
    needed("datatrove")
    example = ROOT / "examples" / "datatrove_corpus.py"
    assert len(example.read_text().splitlines()) < 60
    words = "the old house and a king walked that have with music night river letter queen was be to of".split()
    rng = random.Random(0)
    documents = [" ".join(rng.choice(words) for _ in range(90)) + "." for _ in range(12)]
    (tmp_path / "text").mkdir()
    for number in range(3):
        rows = [*documents[number * 4 : number * 4 + 6], documents[number * 4] + " one more", "too short"]
        (tmp_path / "text" / f"{number}.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    command = [sys.executable, example, tmp_path / "text", tokenizer_folder, tmp_path / "out"]
    found = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for start in range(2):
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": found}, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert (b"as all 4 tasks have already been completed" in done.stderr) == (start == 1)
    assert len(list((tmp_path / "out" / "logs" / "corpus" / "completions").iterdir())) == 4
    assert Corpus.open(tmp_path / "out" / "corpus", AutoTokenizer.from_pretrained(tokenizer_folder)).num_documents == 12
