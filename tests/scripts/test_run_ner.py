"""run_ner.py from its flags to its folder, on tiny networks."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForTokenClassification, pipeline

import run_ner
from bert_training.tasks.ner.metrics import span_scores
from tests.helpers.records import events, read, results_of_rows
from tests.helpers.script_checks import (
    code_of_the_card_runs,
    control_and_accumulation_have_the_same_losses,
    resumed_equals_uninterrupted,
)
from tests.helpers.small_networks import NO_DROPOUT, save_random_network, small_config
from tests.helpers.tagged_text import read_columns, write

# Every word has one tag only. There are names of one word and of two words.
NAMES = {"LOC": ([["house"], ["river"]], [["old", "city"], ["old", "garden"]]),
         "PER": ([["king"], ["queen"]], [["new", "doctor"], ["new", "teacher"]])}  # fmt: skip

pytestmark = pytest.mark.usefixtures("no_pictures")  # The module's fixtures come first: `finished` draws.


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tokenizer_folder, vocab):
    """A pre-trained network of four layers without dropout, and its tokenizer. Its weights are random."""
    sizes = {"num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 40}
    config = small_config(vocab_size=len(vocab), **sizes, **NO_DROPOUT)
    return save_random_network(tmp_path_factory.mktemp("checkpoint"), tokenizer_folder, config)


def conll(seed: int, documents: int) -> str:
    """Names among other words, with tags in the scheme IOB1, as in the official files."""
    generator = np.random.default_rng(seed)
    lines = []
    for _ in range(documents):
        lines += ["-DOCSTART- -X- -X- O", ""]
        for _ in range(generator.integers(1, 5)):
            for _ in range(generator.integers(1, 4)):
                lines += [f"{word} X X O" for word in generator.choice(["the", "walked", "to", "winter"], 2)]
                kind = ("LOC", "PER")[generator.integers(2)]
                name = NAMES[kind][generator.integers(2)][generator.integers(2)]
                lines += [*(f"{word} X X I-{kind}" for word in name), "and X X O"]
            lines.append("")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conll")
    for seed, (name, documents) in enumerate({"train": 24, "dev": 9, "test": 8}.items()):
        write(folder, conll(seed, documents), f"{name}.txt")
    untagged = "\n".join(line.split()[0] if line else "" for line in conll(2, 8).splitlines())
    write(folder, untagged, "untagged.txt")
    write(folder, "Ada B-PER\nslept\n", "columns.txt")
    write(folder, "Ada,B-PER\nslept,O\n", "comma.txt")
    return folder


def flags(checkpoint, files, output_dir, *more: str) -> list[str]:
    return [
        *("--model_name_or_path", str(checkpoint), "--output_dir", str(output_dir), "--max_seq_length", "20"),
        *("--train_file", str(files / "train.txt"), "--validation_file", str(files / "dev.txt"), "--max_steps", "4"),
        *("--per_device_train_batch_size", "8", "--save_steps", "0", "--logging_steps", "1", *more),
    ]


@pytest.fixture(scope="module")
def finished(checkpoint, files, tmp_path_factory):
    """A run that has learnt its words by heart."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    more = ["--max_steps", "90", "--learning_rate", "5e-3", "--per_device_train_batch_size", "16", "--eval_steps", "60"]
    run_ner.main(flags(checkpoint, files, folder, *more, "--test_file", str(files / "test.txt")))
    return folder


def test_the_folder_serves_every_reader(finished):
    expected = {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "README.md"),
        *("run.json", "metrics.jsonl", "all_results.json", "validation_predictions.txt", "test_predictions.txt"),
        "training_curves.png",
    }
    assert expected <= {path.name for path in finished.iterdir()}
    model = AutoModelForTokenClassification.from_pretrained(finished)
    assert type(model).__module__.startswith("transformers.")
    facts = read(finished, "run.json")["data"]
    assert facts["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert facts["splits"]["train"]["tag_scheme"] == "IOB1" and facts["splits"]["train"]["documents"] == 24
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: token-classification" in card and "| Recall |" in card
    assert "Nothing was measured on a test set" not in card


def test_it_learns_and_scores_what_it_writes(finished, files):
    results = read(finished, "all_results.json")
    assert results["eval_f1"] > 0.95 and results["test_f1"] > 0.9
    assert results["train_steps"] == 90 and results["train_samples_per_second"] > 0
    for split, name, prefix in (("validation", "dev", "eval"), ("test", "test", "test")):
        lines = (finished / f"{split}_predictions.txt").read_text(encoding="utf-8").split("\n\n")
        rows = [[line.split("\t") for line in sentence.splitlines()] for sentence in lines if sentence]
        source = read_columns(files / f"{name}.txt")
        assert [[row[0] for row in sentence] for sentence in rows] == [s.words for s in source.sentences]
        assert [[row[1] for row in sentence] for sentence in rows] == [s.tags for s in source.sentences]
        with open(finished / f"{split}_predictions.jsonl", encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        assert [record["tokens"] for record in records] == [s.words for s in source.sentences]
        assert [record["tags"] for record in records] == [[row[2] for row in sentence] for sentence in rows]
        for record in records:
            for tag, shares in zip(record["tags"], record["probabilities"], strict=True):
                assert max(shares, key=shares.get) == tag and sum(shares.values()) == pytest.approx(1, abs=1e-5)
        scores = span_scores(*([[row[column] for row in sentence] for sentence in rows] for column in (2, 1)))
        for key in ("precision", "recall", "f1", "accuracy"):
            assert results[f"{prefix}_{key}"] == scores[key]
        assert results[f"{prefix}_LOC_f1"] == scores["types"]["LOC"]["f1"]
    assert [event["step"] for event in events(finished, "eval")] == [60, 90]


def test_plain_tags_from_the_flags_to_the_card(checkpoint, files, tmp_path, capsys, monkeypatch):
    """Words are scored, plain sentences tagged, and the folder evaluated again with the same result."""
    words = [line.split(" ") for line in conll(5, 12).splitlines() if "DOCSTART" not in line]
    plain = "\n".join(" ".join((word[0], word[-1].replace("O", "other"))) if word != [""] else "" for word in words)
    path = write(tmp_path, plain.replace(" I-", " "), "plain.txt")
    raw = write(tmp_path, "the king walked, and the old city .\n", "new.txt")
    more = ["--train_file", path, "--validation_file", path, "--test_file", raw, "--max_steps", "2"]
    run_ner.main([*flags(checkpoint, files, tmp_path / "run", "--load_best_model_at_end"), *more])
    results = read(tmp_path / "run", "all_results.json")
    assert {"eval_accuracy", "eval_f1_macro", "eval_PER_f1", "eval_other_number"} <= results.keys()
    assert "eval_f1_macro" in results_of_rows(tmp_path / "run")
    assert not {"eval_f1", "eval_precision"} & results.keys()
    (span,) = (tmp_path / "run" / "test_spans.jsonl").read_text().splitlines()
    assert [one["text"] for one in json.loads(span)["spans"]] == "the king walked , and the old city .".split()
    assert "Tags: plain, one class for every word" in (tmp_path / "run" / "README.md").read_text()
    code_of_the_card_runs(tmp_path / "run", monkeypatch)
    assert "('London', '" in capsys.readouterr().out
    alone = ["--model_name_or_path", str(tmp_path / "run"), "--validation_file", path, "--output_dir"]
    run_ner.main([*alone, str(tmp_path / "again")])
    assert read(tmp_path / "again", "all_results.json")["eval_accuracy"] == results["eval_accuracy"]
    run_ner.main([*alone[:2], "--test_file", raw, "--output_dir", str(tmp_path / "tagged")])
    assert (tmp_path / "tagged" / "test_spans.jsonl").read_text() == f"{span}\n"


@pytest.mark.parametrize("name", ["dev.txt", "untagged.txt"])
def test_evaluation_alone_gives_the_same_tags(finished, files, tmp_path, name):
    split = {"dev.txt": "validation", "untagged.txt": "test"}[name]
    argv = ["--model_name_or_path", str(finished), "--output_dir", str(tmp_path / "run"), "--max_seq_length", "20"]
    run_ner.main([*argv, f"--{split}_file", str(files / name)])
    before, after = (folder / f"{split}_predictions.txt" for folder in (finished, tmp_path / "run"))
    last = [
        [line.split("\t")[-1] for line in path.read_text(encoding="utf-8").splitlines()] for path in (before, after)
    ]
    assert last[0] == last[1] and len(last[0]) > 20
    results = read(tmp_path / "run", "all_results.json")
    if split == "validation":
        assert results["eval_loss"] == pytest.approx(read(finished, "all_results.json")["eval_loss"], abs=1e-6)
    else:
        assert {"train_runtime", "train_samples_per_second", "train_steps"} == set(results)


FEATURES = ["--feature_based", "weighted_sum_all", "--lstm_size", "12", "--learning_rate", "1e-2"]


@pytest.mark.slow
def test_frozen_features_learn_while_bert_stays(checkpoint, files, tmp_path):
    folder = tmp_path / "run"
    more = ["--max_steps", "50", "--eval_steps", "50", "--mixed_precision", "bf16"]
    more += ["--lstm_size", "64", "--learning_rate", "3e-2", "--max_grad_norm", "0"]
    run_ner.main(flags(checkpoint, files, folder, *FEATURES, *more))
    results = read(folder, "all_results.json")
    assert results["eval_f1"] > 0.9
    before, after = load_file(checkpoint / "model.safetensors"), load_file(folder / "model.safetensors")
    kept = [name for name in after if name.startswith("bert.")]
    assert len(kept) > 60 and all(torch.equal(before[name], after[name]) for name in kept)
    assert after["weights"].abs().max() > 0
    # The folder can be evaluated alone, and opens in a pipeline with the code that was saved.
    argv = ["--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "again"), "--max_seq_length", "20"]
    run_ner.main([*argv, "--validation_file", str(files / "dev.txt"), "--mixed_precision", "bf16"])
    assert read(tmp_path / "again", "all_results.json")["eval_f1"] == results["eval_f1"]
    mark = pipeline("token-classification", model=str(folder), trust_remote_code=True, device="cpu")
    assert mark("to the river and")[0]["entity"] == "B-LOC"


BOTH = [pytest.param([], id="fine-tuned"), pytest.param(FEATURES, id="features", marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("more", BOTH)
def test_a_resumed_run_equals_an_uninterrupted_one(checkpoint, files, tmp_path, more):
    def start(folder, *rest):
        if "--resume_from_checkpoint=auto" in rest:
            with pytest.raises(ValueError, match="context document -> sentence"):
                run_ner.main(flags(checkpoint, files, folder, *more, *rest, "--context", "sentence"))
        run_ner.main(flags(checkpoint, files, folder, *more, *rest))

    resumed_equals_uninterrupted(start, tmp_path, ["validation_predictions.txt"])


@pytest.mark.parametrize("more", BOTH)
def test_the_control_has_the_same_losses(finished, checkpoint, files, tmp_path, more):
    """The two halves of a batch have different numbers of labels."""

    def start(folder, *rest):
        run_ner.main(flags(checkpoint if more else finished, files, folder, *more, *rest))

    assert len(set(control_and_accumulation_have_the_same_losses(start, tmp_path, rel=1e-4))) == 4


# --- Mistakes --------------------------------------------------------------------------------------------


def test_folds_judge_every_sentence_of_one_file(checkpoint, files, tmp_path):
    argv = [*flags(checkpoint, files, tmp_path / "run"), "--folds", "2"]
    place = argv.index("--validation_file")
    run_ner.main(argv[:place] + argv[place + 2 :])
    summary = read(tmp_path / "run", "summary.json")
    assert [one["fold"] for one in summary["runs"]] == [1, 2] and "eval_f1" in summary["runs"][0]["results"]
    judged = {}
    for fold in ("fold-1", "fold-2"):
        lines = (tmp_path / "run" / fold / "validation_predictions.jsonl").read_text(encoding="utf-8").splitlines()
        judged |= {record["place"]: record["tokens"] for record in map(json.loads, lines)}
    source = read_columns(files / "train.txt").sentences
    assert judged == {f"{files / 'train.txt'}:{sentence.line}": sentence.words for sentence in source}


def test_one_file_is_divided(checkpoint, files, tmp_path, capsys):
    """The part that is held out is found again on resume, and not in other runs."""
    argv = [word for word in flags(checkpoint, files, tmp_path / "run") if word not in ("--validation_file",)]
    argv.remove(str(files / "dev.txt"))
    argv += ["--validation_split", "0.25", "--test_file", str(files / "test.txt")]
    run_ner.main(argv)
    out = capsys.readouterr().out
    assert "sentences held out (asked for 0.25), whole documents" in out
    splits = read(tmp_path / "run", "run.json")["data"]["splits"]
    assert splits["train"]["documents"] + splits["validation"]["documents"] == 24
    assert splits["validation"]["examples"] / (splits["train"]["examples"] + splits["validation"]["examples"]) > 0.15
    run_ner.main([*argv[:3], str(tmp_path / "other"), *argv[4:], "--validation_split", "0"])
    assert "no validation data: nothing will say how good the model is" in capsys.readouterr().out
    assert not [name for name in read(tmp_path / "other", "all_results.json") if name.startswith("eval_")]
