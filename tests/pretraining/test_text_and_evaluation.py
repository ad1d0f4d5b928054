"""The parts of run_pretraining.py: its text and its corpora, its evaluation, and that flags arrive where they act."""

import functools
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer, BertConfig

import run_pretraining
from modeling_bert_repro import BertForPreTraining
from training.flags.parsing import parse_arguments
from training.flags.pretraining import PretrainingArguments
from training.pretraining import phased_batches
from training.pretraining.build_corpus import build_corpus
from training.pretraining.corpora import build_corpora
from training.pretraining.evaluation import evaluate
from training.pretraining.instances import InstanceSettings, PretrainingInstances
from training.pretraining.text import Text


def test_flags_reach_the_instances(monkeypatch):
    made = []
    monkeypatch.setattr(
        phased_batches, "PretrainingInstances", lambda corpus, tokenizer, settings: made.append(settings)
    )
    flags = {"objective": "mlm", "short_seq_prob": 0.3, "mlm_probability": 0.2, "mask_replace_prob": 0.5}
    flags |= {"random_replace_prob": 0.4, "whole_word_mask": True, "max_predictions_per_seq": 7}
    given = [part for name, value in flags.items() for part in (f"--{name}", str(value))]
    args = parse_arguments(
        PretrainingArguments, ["--output_dir", "x", "--seed", "9", "--phases", "16:0.5,32:0.5", *given]
    )
    for held_out in (False, True):
        phased_batches.instances_by_length(args, None, None, held_out)
    # The held-out instances do not depend on the seed of the run.
    assert made == [
        InstanceSettings(**flags, max_seq_length=length, seed=seed, fixed=fixed)
        for seed, fixed in ((9, False), (0, True))
        for length in (16, 32)
    ]


def test_flags_reach_the_library_of_data_sets(monkeypatch):
    asked, rows = [], [{"text": "one .\n \ntwo ."}, {"text": ""}, {"text": "three ."}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **more: asked.append((names, more)) or rows)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *names: SimpleNamespace(hash="/".join(names)))
    flags = "--output_dir x --dataset_name wiki --dataset_config_name en --streaming --max_train_documents 2"
    text = Text(parse_arguments(PretrainingArguments, flags.split()))
    assert list(text.documents()) == [["one .", "two ."], []]
    assert asked == [(("wiki", "en"), {"split": "train", "streaming": True})]
    other = Text(parse_arguments(PretrainingArguments, flags.replace("2", "3").split()))
    assert text.fingerprint != other.fingerprint and "wiki/en" in text.fingerprint


@pytest.mark.parametrize("of_its_own", [False, True])
def test_held_out_text_is_a_share_of_the_documents_or_a_file(pretrained, tmp_path, of_its_own):
    """Either the content of a document decides whether it is held out, or all of a given file is held out."""
    documents = [f"the old house {a}{b} .\na new river ." for a in "abcdefgh" for b in "abcde"]
    (tmp_path / "a.txt").write_text("\n\n".join(documents * 2))
    (tmp_path / "b.txt").write_text("music in the night .\nthe king .\n\na letter .\n")
    flags = f"--output_dir {tmp_path / 'run'} --train_file {tmp_path / 'a.txt'} --tokenizer_name {pretrained}"
    flags += f" --validation_file {tmp_path / 'b.txt'}" if of_its_own else ""
    args = parse_arguments(PretrainingArguments, flags.split())
    args.validation_split = 0.3
    run = SimpleNamespace(args=args, output_dir=tmp_path / "run", rank=0, world_size=1, main_first=lambda work: work())
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    train, held_out = build_corpora(run, Text(args), tokenizer)
    if of_its_own:
        assert (train.num_documents, held_out.num_documents) == (80, 2)
        assert tokenizer.decode(held_out.tokens[: held_out.sentences[1]]) == "music in the night."
        return
    assert train.num_documents + held_out.num_documents == 80 and 8 < held_out.num_documents < 40
    texts = [
        {c.tokens[c.sentences[a] : c.sentences[b]].tobytes() for a, b in zip(c.documents[:-1], c.documents[1:])}
        for c in (train, held_out)
    ]
    assert not texts[0] & texts[1]  # Copies of a document are on the same side.


@pytest.mark.parametrize("static", [False, True])
def test_static_shapes_never_change(pretrained, text_file, tmp_path, monkeypatch, static):
    """With --static_shapes, every module sees one shape only, although half of the instances are short."""
    build, shapes = run_pretraining.build_model, {}

    def note(name, module, inputs):
        if module.training:
            shapes.setdefault(name, set()).add(tuple(t.shape for t in inputs if isinstance(t, torch.Tensor)))

    def hooked(*arguments):
        model = build(*arguments)
        for name, module in model.named_modules():
            module.register_forward_pre_hook(functools.partial(note, name))
        return model

    monkeypatch.setattr(run_pretraining, "build_model", hooked)
    monkeypatch.setattr(run_pretraining, "draw_curves", lambda folder: None)
    flags = f"--output_dir {tmp_path / 'run'} --train_file {text_file} --model_name_or_path {pretrained} --max_steps 3 "
    flags += "--per_device_train_batch_size 8 --max_seq_length 48 --short_seq_prob 0.5 --validation_split 0.2 "
    run_pretraining.main([*flags.split(), *(["--static_shapes"] if static else [])])
    assert (max(map(len, shapes.values())) == 1) == static


def test_evaluation_equals_that_of_transformers_in_one_batch(pretrained, text_file, make_run, tmp_path):
    """An evaluation in batches of 5, of a network with dropout, equals one batch of all instances."""
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    corpus = build_corpus([text_file], tokenizer, tmp_path / "corpus")
    held_out = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=0, fixed=True, max_seq_length=32))
    config = BertConfig.from_pretrained(pretrained, hidden_dropout_prob=0.5)
    run = make_run(per_device_eval_batch_size=5)
    run.args.max_eval_instances = 1000
    model = BertForPreTraining.from_pretrained(pretrained, config=config).train()
    model.config.sparse_prediction = True
    found = evaluate(run, model, held_out)
    batch = held_out.batch(0, held_out.epoch_size(0))
    labels, nsp = batch.pop("labels"), batch.pop("next_sentence_label")
    with torch.no_grad():
        outputs = AutoModelForPreTraining.from_pretrained(pretrained).eval()(**batch)
    expected = {}
    for name, logits, wanted in (
        ("mlm", outputs.prediction_logits[labels != -100], labels[labels != -100]),
        ("nsp", outputs.seq_relationship_logits, nsp),
    ):
        expected[f"eval_{name}_loss"] = float(torch.nn.functional.cross_entropy(logits, wanted))
        expected[f"eval_{name}_accuracy"] = float((logits.argmax(-1) == wanted).double().mean())
    expected["eval_loss"] = expected["eval_mlm_loss"] + expected["eval_nsp_loss"]
    expected["eval_perplexity"] = np.exp(expected["eval_mlm_loss"])
    assert found == pytest.approx(expected, rel=1e-5)
    run.args.max_eval_instances = 7
    assert evaluate(run, model, held_out)["eval_mlm_loss"] != found["eval_mlm_loss"]


ONE, TWO = "The old house .", "The old house . A new river ."


@pytest.mark.parametrize(
    ("documents", "flags", "got"),
    [
        ([TWO], "", "got 1 for the training text (its longest has 2 sentences) and 0 for the held-out text"),
        ([f"The old house {n} ." for n in range(300)], "", "(its longest has 1 sentences)"),
        (
            [f"{TWO} {n}" for n in range(9)],
            "",
            "and 0 for the held-out text (its longest has 0 sentences)",
        ),
        ([TWO, ""], "--validation_file V", "got 1 for the training text"),
        ([ONE, ONE, ONE], "--validation_file V", "got 3 for the training text (its longest has 1 sentences). Add"),
        ([f"{TWO} {n}" for n in range(300)], "--max_train_documents 9", "got 9 for the training text"),
        ([ONE], "--objective mlm", "got 1 for the training text (its longest has 1 sentences) and 0 for the held-out"),
    ],
)
def test_too_little_text_is_refused_before_a_vocabulary_is_learnt(tmp_path, monkeypatch, documents, flags, got):
    monkeypatch.setattr(run_pretraining, "load_or_learn_tokenizer", lambda *_: pytest.fail("learnt a vocabulary"))
    (tmp_path / "a.txt").write_text("\n\n".join(documents) + "\n")
    (tmp_path / "b.txt").write_text(f"{TWO}\n\n{TWO}\n")
    flags = f"--output_dir {tmp_path / 'run'} --train_file {tmp_path / 'a.txt'} {flags}"
    with pytest.raises(ValueError) as caught:
        run_pretraining.main(flags.replace("V", str(tmp_path / "b.txt")).split())
    assert str(caught.value).startswith("a.txt: --objective mlm") and got in str(caught.value), caught.value
    assert ("--validation_split" in str(caught.value)) == ("V" not in flags)


@pytest.mark.parametrize("flags", ["", "--validation_file b.txt", "--objective ltr"])
def test_the_check_of_the_text_reads_no_more_than_it_needs(tmp_path, monkeypatch, flags):
    """A file may be huge and a stream endless, so the check stops early. Here the last document is damaged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"".join(b"%s %d\n\n" % (TWO.encode(), n) for n in range(20_000)) + b"\xff\n")
    (tmp_path / "b.txt").write_text(f"{TWO}\n\n{TWO}\n")
    text = Text(parse_arguments(PretrainingArguments, f"--output_dir x --train_file a.txt {flags}".split()))
    text.check()
    with pytest.raises(ValueError, match="expected UTF-8 text"):
        list(text.documents())
