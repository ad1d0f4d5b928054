"""bert_tools/inspect_run.py: findings, instances, the command, and the example of docs/pretrain.md."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
from transformers import BertTokenizer

from bert_tools.inspect_run import audit, instance_text, main
from bert_training.__main__ import main as command
from bert_training.inputs.flags.objectives import NEXT_SENTENCE
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.data import MixedInstances
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from bert_training.pretraining.segments import LabelBalance
from tests.helpers.repository import ROOT

WORDS = [f"word{number}" for number in range(50)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SETTINGS = {
    "objective": "mlm_nsp",
    "max_seq_length": 32,
    "short_seq_prob": 0.1,
    "mlm_probability": 0.15,
    "mask_replace_prob": 0.8,
    "random_replace_prob": 0.1,
    "whole_word_mask": False,
    "max_predictions_per_seq": None,
}


@pytest.fixture(scope="module")
def tokenizer():
    vocab = [*SPECIALS, *WORDS, "##s", ".", "!"]
    return BertTokenizer(vocab={word: number for number, word in enumerate(vocab)})


def documents(count, seed=0, sentences=8):
    rng = np.random.default_rng(seed)
    return [
        [" ".join(rng.choice(WORDS, rng.integers(4, 12))) + "." for _ in range(rng.integers(2, sentences))]
        for _ in range(count)
    ]


def findings(path, tokenizer, texts, **settings):
    corpus = build_corpus(texts, tokenizer, path)
    instances = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=1, **(SETTINGS | settings)))
    return {line.name: line for line in audit(instances, tokenizer)[0]}


@pytest.fixture
def run_folder(tmp_path, tokenizer):
    folder = tmp_path / "run"
    build_corpus(documents(80), tokenizer, folder / "corpus" / "train")
    tokenizer.save_pretrained(folder)
    flags = SETTINGS | {"seed": 7, "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}
    (folder / "run.json").write_text(
        json.dumps({"format": 1, "script": "run_pretraining.py", "processes": 2, "total_steps": 20, "flags": flags})
    )
    return folder


# --- Findings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm", "ltr", "mlm_sop"])
def test_clean_data_has_no_findings(tmp_path, tokenizer, objective):
    lines = findings(tmp_path / "c", tokenizer, documents(200, sentences=30), objective=objective)
    assert [line for line in lines.values() if not line.good] == []
    assert ("label balance" in lines) == (objective in ("mlm_nsp", "mlm_sop"))
    assert ("negatives" in lines, "documents" in lines) == (objective == "mlm_nsp", objective == "mlm_sop")
    assert ("mask mix" in lines) == (objective != "ltr")


def test_repetitions_and_unknown_text_are_found(tmp_path, tokenizer):
    texts = documents(300)
    texts += texts[:30]
    texts.append(["word1 word2s word3s word4s word5s word6s."] * 2000)
    lines = findings(tmp_path / "c", tokenizer, texts, objective="mlm")
    bad = {name for name, line in lines.items() if not line.good}
    assert bad == {"repeated documents", "repeated sentences"}
    assert lines["repeated documents"].text.startswith(f"{30 / 331:.2%}")
    assert float(lines["pieces per word"].text.split()[0]) > 1.3
    lines = findings(tmp_path / "d", tokenizer, [["ab cd. ef."] * 5, ["word1 gh."]] * 2, max_seq_length=64)
    bad = {name for name, line in lines.items() if not line.good}
    assert {"unknown", "fill", "repeated documents"} <= bad
    assert lines["unknown"].text == (
        "[UNK] is 57.1% of the tokens; fine below 1 %; take a tokenizer of this language, or learn a larger vocabulary"
    )


def test_mask_settings_are_measured(tmp_path, tokenizer):
    lines = findings(
        tmp_path / "c", tokenizer, documents(300), mlm_probability=0.3, mask_replace_prob=0.5, random_replace_prob=0.5
    )
    rate = float(lines["mask rate"].text.split("%")[0])
    assert rate == pytest.approx(30, abs=1) and lines["mask rate"].good and lines["mask mix"].good
    mix = re.findall(r"([\d.]+)% (?:\[MASK\]|random|unchanged)", lines["mask mix"].text)
    assert [float(share) for share in mix] == pytest.approx([50, 50, 0], abs=3)


def test_a_wrong_mask_mix_and_wrong_labels_are_found(tmp_path, tokenizer, monkeypatch):
    real = PretrainingInstances.batch

    def all_masked(self, start, stop):
        batch = real(self, start, stop)
        batch["input_ids"][batch["labels"] != -100] = self.rule.mask_token_id
        return batch

    monkeypatch.setattr(PretrainingInstances, "batch", all_masked)
    lines = findings(tmp_path / "c", tokenizer, documents(200))
    assert not lines["mask mix"].good and lines["mask rate"].good
    monkeypatch.setattr("bert_training.pretraining.segments.label_balance", lambda *arguments: LabelBalance(0.9, 1.0))
    lines = findings(tmp_path / "c", tokenizer, documents(200))
    assert not lines["label balance"].good


# --- The command ------------------------------------------------------------------------------------------


def test_the_command_prints_findings(run_folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [""])
    assert command(["inspect", str(run_folder)]) == 0
    printed = capsys.readouterr().out
    assert "ok    label balance" in printed and "length    28 -    32" in printed


def test_the_command_prints_the_instances_of_a_step(run_folder, capsys, tokenizer):
    main([str(run_folder), "--step", "5", "--rank", "1"])
    printed = capsys.readouterr().out
    positions = [int(number) for number in re.findall(r"position (\d+)", printed)]
    assert positions == [51, 52, 53, 57, 58, 59]
    main([str(run_folder), "--step", "5", "--limit", "2", "--seed", "8"])
    other = capsys.readouterr().out
    assert "(10 more; --limit shows them)" in other and other.split("\n")[1] != printed.split("\n")[1]


def test_the_shares_of_a_mixture_are_measured(run_folder, tokenizer, capsys, monkeypatch):
    """Of a run with two texts, from the positions that it reads."""
    for number, count in enumerate((4, 80)):
        build_corpus(documents(count, seed=number), tokenizer, run_folder / "corpus" / f"train-{number + 1}")
    shutil.rmtree(run_folder / "corpus" / "train")
    facts = json.loads((run_folder / "run.json").read_text()) | {"processes": 1, "total_steps": 8}
    facts["flags"] |= {"train_file": ["a/short.txt", "text.txt"], "phases": "16:0.5:5x2@3:2,32:0.5:5x2@0.4:0.6"}
    (run_folder / "run.json").write_text(json.dumps(facts))
    main([str(run_folder)])
    audited = capsys.readouterr().out
    assert "mixture of steps 1 to 4, each 10 instances of 16 tokens\nok    short.txt            asked 60.00%" in audited
    assert "asked 40.00%, seen 40.00%, 4 to 4 a step" in audited and "instances of 32 tokens of text.txt" in audited
    main([str(run_folder), "--step", "5", "--limit", "10"])
    shown = capsys.readouterr().out
    assert shown.count(" of short.txt\n") == 4 and shown.count(" of text.txt\n") == 6
    monkeypatch.setattr(MixedInstances, "places", lambda self, start, stop: (np.zeros(stop - start, int), None))
    main([str(run_folder)])
    assert "ok    short.txt " not in capsys.readouterr().out


def test_instances_and_findings_follow_the_phases(run_folder, capsys):
    facts = json.loads((run_folder / "run.json").read_text())
    facts["flags"] |= {"phases": "16:0.6:3x2,32:0.4:1x3", "max_seq_length": 32}
    (run_folder / "run.json").write_text(json.dumps(facts))
    for step, length, expected in ((12, 16, range(132, 144)), (13, 32, range(6)), (20, 32, range(42, 48))):
        main([str(run_folder), "--step", str(step)])
        printed = capsys.readouterr().out
        assert sorted(int(n) for n in re.findall(r"position (\d+)", printed)) == list(expected)
        assert set(re.findall(r"of length (\d+)", printed)) == {str(length)}
    main([str(run_folder)])
    printed = capsys.readouterr().out
    for length in (16, 32):
        assert f"instances of {length} tokens" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "nowhere"], "nowhere: expected the folder of a run, found no run.json there"),
        (["inspect", "RUN", "--step", "0"], "the run has optimiser steps 1 to 20"),
        (["inspect", "RUN", "--step", "21"], "the run has optimiser steps 1 to 20"),
        (["inspect", "RUN", "--step", "1", "--rank", "2"], "and 2 processes"),
        (["inspect", "OTHER"], "expected the --output_dir of run_pretraining.py, got one of run_glue.py"),
    ],
)
def test_mistakes_of_the_command_are_refused(run_folder, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(sys, "argv", [""])
    (tmp_path / "run.json").write_text('{"format": 1, "script": "run_glue.py", "flags": {}}')
    names = {"RUN": str(run_folder), "OTHER": str(tmp_path)}
    assert command([names.get(argument, argument) for argument in arguments]) == 2
    assert message in capsys.readouterr().err


# --- docs/pretrain.md --------------------------------------------------------------------------------


def documented(sentence):
    """The fenced block of the page after a paragraph that ends with these words."""
    page = (ROOT / "docs" / "pretrain.md").read_text(encoding="utf-8")
    return re.search(rf"{sentence}\n\n```text\n(.*?)\n```", page, re.DOTALL).group(1)


def example(text, folder):
    """The instances of the page, made from its text."""
    words = sorted(set(re.findall(r"[a-z]+", text.lower())))
    pieces = {piece for word in words for piece in ([word] if len(word) < 7 else [word[:4], "##" + word[4:]])}
    vocab = [*SPECIALS, ".", ",", *sorted(pieces)]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(vocab)})
    corpus = build_corpus([part.split("\n") for part in text.split("\n\n")], tokenizer, folder)
    instances = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=42, max_seq_length=32))
    batch = instances.batch(0, 4)
    rows = [{name: tensor[row] for name, tensor in batch.items()} for row in range(4)]
    chosen = [next(row for row in rows if row["next_sentence_label"] == label) for label in (0, 1)]
    return "\n\n".join(instance_text(tokenizer, row, NEXT_SENTENCE) for row in chosen)


def test_the_documented_example_is_what_the_code_makes(tmp_path):
    text, instances = documented("one sentence a line:"), documented("A test rebuilds them and compares.")
    assert example(text, tmp_path / "c") == instances
