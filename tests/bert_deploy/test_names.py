"""A model of texts with spans, from the flags of run_ner.py to the answers of everybody who reads texts with it."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import pipeline

import run_ner
from bert_deploy import ask, readings
from bert_deploy.folder import open_folder
from tests.helpers.records import read
from tests.helpers.small_networks import NO_DROPOUT, save_random_network, small_config
from tests.helpers.tagged_text import write

NAMES = {"LOC": ([["house"], ["river"]], [["old", "city"], ["old", "garden"]]),
         "PER": ([["king"], ["queen"]], [["new", "doctor"], ["new", "teacher"]])}  # fmt: skip

pytestmark = pytest.mark.usefixtures("no_pictures")


def texts_with_spans(seed: int, count: int) -> str:
    """Texts with names; one in five is longer than a row. Some names touch punctuation, in words of white space."""
    generator, rows = np.random.default_rng(seed), []
    for number in range(count):
        text, spans = "", []
        for _ in range(generator.integers(1, 4) + 8 * (number % 5 == 0)):
            text += " ".join(generator.choice(["the", "walked,", "to", "(winter)"], 2)) + " "
            kind = ("LOC", "PER")[generator.integers(2)]
            name = "-".join(NAMES[kind][generator.integers(2)][generator.integers(2)])
            spans.append([len(text), len(text) + len(name), kind])
            text += name + str(generator.choice([". ", ", ", " "]))
        rows.append(json.dumps({"text": text, "label": spans}))
    return "\n".join(rows) + "\n"


def test_texts_with_spans_from_the_flags_to_the_answers(tokenizer_folder, vocab, tmp_path, capsys):
    """Scores, files of spans, ``bert-repro ask``, the service and, for short texts, a pipeline tell the same."""
    paths = [write(tmp_path, texts_with_spans(seed, count), f"{seed}.jsonl") for seed, count in enumerate((80, 25))]
    run, again = tmp_path / "run", tmp_path / "again"
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 40}
    config = small_config(vocab_size=len(vocab), **sizes, **NO_DROPOUT)
    network = save_random_network(tmp_path / "network", tokenizer_folder, config)
    files = ["--train_file", paths[0], "--validation_file", paths[1]]
    more = ["--max_seq_length", "20", "--max_steps", "30", "--learning_rate", "5e-3", "--save_steps", "0"]
    run_ner.main(["--model_name_or_path", str(network), "--output_dir", str(run), *files, *more])
    written = (Path(paths[1]).read_text(), (run / "validation_spans.jsonl").read_text())
    gold, found = ([*map(json.loads, text.splitlines())] for text in written)
    places = [[(one["start"], one["end"], one["label"]) for one in row["spans"]] for row in found]
    right = sum(len({*map(tuple, true["label"])} & {*guess}) for true, guess in zip(gold, places, strict=True))
    results = read(run, "all_results.json")
    total = sum(len(row["label"]) for row in gold) + sum(map(len, places))
    assert results["eval_f1"] == pytest.approx(2 * right / total) and results["eval_f1"] > 0.3
    assert (
        read(run, "run.json")["words"]["everywhere"] == read(run, "config.json")["fine_tuning"]["words"]["everywhere"]
    )
    assert "as pipelines do" in (run / "README.md").read_text()

    texts = [row["text"] for row in gold]
    capsys.readouterr()
    ask.main(["--model", str(run), "--text", *texts])
    asked = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in asked] == texts
    assert [[(one["start"], one["end"], one["kind"]) for one in row["names"]] for row in asked] == places
    opened = open_folder(str(run))
    mark = pipeline("token-classification", model=str(run), device="cpu", aggregation_strategy="first")
    for text, expected in zip(texts, places):
        (served,) = readings.run(opened, [readings.names_in(opened, text)])
        assert [(name.start, name.end, name.kind) for name in served] == expected
        if len(opened.tokenizer(text)["input_ids"]) <= 20:
            assert [(one["start"], one["end"], one["entity_group"]) for one in mark(text)] == expected

    for name in ("validation_spans.jsonl", "validation_predictions.jsonl", "validation_predictions.txt"):
        argv = ["--model_name_or_path", str(run), "--validation_file", str(run / name)]
        breaking = [] if "spans" in name else ["--mixed_tags"]  # what is predicted may be I- after O
        run_ner.main([*argv, *breaking, "--output_dir", str(again / name)])
        assert read(again / name, "all_results.json")["eval_f1"] == 1.0
