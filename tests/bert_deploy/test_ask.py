"""bert_deploy/ask.py: windows, thresholds and the command, on networks with known answers."""

import json
import re

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from bert_deploy import ask
from bert_deploy.ask import answers, read_contexts
from bert_training.engine.errors import report_errors
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.networks import number_types
from bert_training.tasks.squad.questions import read_squad
from bert_training.tasks.squad.threshold import store_threshold, stored_threshold
from bert_training.tasks.stored_flags import DEFAULTS, store_flags, stored_settings
from tests.helpers.model_folders import edit_json
from tests.helpers.small_networks import small_config

CONTEXT = "the old doctor opened a small red house by the river . " * 3


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def network(tokenizer, null: float = 0.0) -> BertForQuestionAnswering:
    """A network with random weights. ``null`` is added to the start logits of [CLS]."""
    torch.manual_seed(0)
    config = small_config(vocab_size=len(tokenizer), num_hidden_layers=1, initializer_range=0.5)
    config.question_answering = {
        "max_seq_length": 24, "doc_stride": 5, "max_query_length": 6, "max_answer_length": 4, "n_best_size": 7,
    }  # fmt: skip
    model = BertForQuestionAnswering(config).eval()
    if null:
        forward = model.forward

        def lifted(**batch):
            outputs = forward(**batch)
            outputs.start_logits[:, 0] += null
            return outputs

        model.forward = lifted
    return model


def test_long_contexts_are_read_in_windows(tokenizer):
    pairs = [("who ?", CONTEXT[i:]) for i in range(4)]
    model = network(tokenizer)
    whole = [*answers(model, tokenizer, pairs, None)]
    for pair, found in zip(pairs, whole):
        (single,) = answers(model, tokenizer, [pair], None)
        assert found == single | {"score": pytest.approx(single["score"], rel=1e-4)}
        assert pair[1][found["start"] : found["end"]] == found["answer"] != ""
        assert len(tokenizer.tokenize(found["answer"])) <= 4


def test_the_threshold_is_the_stored_one_unless_another_is_given(tokenizer):
    model, asked = network(tokenizer, null=30.0), [("who ?", CONTEXT)]
    (record,) = answers(model, tokenizer, asked, None)
    assert record["answer"]
    (record,) = answers(model, tokenizer, asked, 0.0)
    assert record["answer"] == "" and (record["start"], record["end"]) == (0, 0) and record["score"] > 0.9
    for stored, answered in ((1000.0, True), (-1000.0, False)):
        model.config.null_score_diff_threshold = stored
        (record,) = answers(model, tokenizer, asked, None)
        assert bool(record["answer"]) == answered and record["answer"] == CONTEXT[record["start"] : record["end"]]
        assert (record["score"] < 0.1) == answered  # it describes the answer, even if another entry has a higher score
        assert not next(answers(model, tokenizer, asked, 0.0))["answer"]


@pytest.mark.parametrize("stored", [None, 0.5])
def test_a_finished_folder_gives_the_answers_that_were_scored(finished_runs, run_data, stored):
    """At the threshold that the run found, and at one that some of the odds exceed."""
    folder = finished_runs["run_squad"]
    odds, spans = (json.loads((folder / f"{name}.json").read_text()) for name in ("null_odds", "span_predictions"))
    model, tokenizer = ask.load(str(folder))
    if stored:
        model.config.null_score_diff_threshold = sorted(odds.values())[len(odds) // 2] + 1e-4
    threshold = model.config.null_score_diff_threshold
    questions = read_squad(run_data / "run_squad.json", True)
    # For a question whose odds are the threshold itself, rounding decides.
    sure = [one for one in questions if abs(odds[one.id] - threshold) > 1e-5]
    found = answers(model, tokenizer, [(one.text, one.context) for one in sure], None)
    expected = ["" if odds[one.id] > threshold else spans[one.id] for one in sure]
    assert [one["answer"] for one in found] == expected and len(sure) > 3


def test_settings_are_stored_and_read(tmp_path):
    config = BertConfig(max_position_embeddings=64)
    assert stored_settings(BertConfig()) == DEFAULTS
    small = stored_settings(config)
    assert (small["max_seq_length"], small["max_query_length"], small["doc_stride"]) == (64, 16, 22)
    args = SquadArguments(output_dir="x", config_name="mini", tokenizer_name="y", max_seq_length=50, n_best_size=3)
    config.null_score_diff_threshold = 3.0
    store_flags(config, args)
    store_threshold(config, False, {"eval_null_score_diff_threshold": 1.5})
    assert not hasattr(config, "null_score_diff_threshold") and stored_threshold(config) is None
    store_threshold(config, True, {"eval_null_score_diff_threshold": 1.5})
    config.save_pretrained(tmp_path)
    config = BertConfig.from_pretrained(tmp_path)
    assert config.null_score_diff_threshold == stored_threshold(config) == 1.5
    assert stored_settings(config) == DEFAULTS | {"max_seq_length": 50, "n_best_size": 3}


def test_no_answer_from_a_context_without_text(tokenizer):
    (record,) = answers(network(tokenizer), tokenizer, [("who ?", "\u200b")], None)
    assert record == {"question": "who ?", "answer": "", "score": 0.0, "start": 0, "end": 0}


def test_contexts_are_read_from_a_file(tmp_path):
    path = tmp_path / "contexts.txt"
    path.write_bytes("\ufeffone\nline\n\n\n  \ntwo  \n \t\nthree\n".encode())
    assert read_contexts(path) == ["one\nline", "two  ", "three"]
    path.write_bytes(b"one\r\n\r\ntwo\r\n")
    assert read_contexts(path) == ["one", "two"]
    path.write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"contexts\.txt:1: expected UTF-8 text, got byte 0xe9 at column 4"):
        read_contexts(path)


def test_the_command_prints_one_record_for_each_question_and_context(tokenizer, tmp_path, capsys):
    network(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    contexts = [CONTEXT.strip(), "a small garden"]
    (tmp_path / "contexts.txt").write_text("\n\n".join(contexts))
    argv = ["--model", str(tmp_path / "model"), "--question", "who ?", "what ?"]
    ask.main([*argv, "--context_file", str(tmp_path / "contexts.txt")])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["question"] for line in lines] == ["who ?", "who ?", "what ?", "what ?"]
    for line, context in zip(lines, contexts * 2):
        assert context[line["start"] : line["end"]] == line["answer"] != ""
    ask.main([*argv, "--context", contexts[1]])
    alone = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # A score may differ in its last digit, because the windows have other companions in their batch.
    assert alone == [line | {"score": pytest.approx(line["score"], abs=2e-6)} for line in lines[1::2]]
    ask.main([*argv, "--context", "a small में ขขข garden"])
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    unknown, accents = [line for line in captured.err.splitlines() if line.startswith("warning: ")]
    assert "% of the characters are in [UNK]" in unknown and "(Devanagari: में becomes म)" in accents


def test_an_answer_says_how_much_of_its_question_was_not_read(tokenizer):
    model = network(tokenizer)
    model.config.question_answering = {"max_query_length": 3}
    found = answers(model, tokenizer, [("the house", CONTEXT), ("the old red house", CONTEXT)], None)
    assert [one.get("tokens_not_read") for one in found] == [None, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attn_implementation": "somebody/kernel"}, "attn_implementation eager or sdpa"),
        ({"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.C", "AutoModelForQuestionAnswering": "theirs.M"}},
         "expected a BERT with model_type bert"),
    ],
)  # fmt: skip
def test_the_config_of_a_stranger_is_checked_before_it_is_used(tokenizer, tmp_path, monkeypatch, fields, message):
    network(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", **fields)
    monkeypatch.setattr(ask, "load_network", None)
    with pytest.raises(ValueError, match=rf"{tmp_path}.*: .*({message})"):
        ask.main(["--model", str(tmp_path), "--question", "who ?", "--context", CONTEXT])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--context_file", "none.txt"], "none.txt"),
        (["--model", "NOT_TUNED", "--context", "x"], r"not_tuned: .*2 are missing .*, such as qa_outputs\.bias"),
        (["--model", "no/such/folder", "--context", "x"], "no/such/folder: expected a folder, or a name on the Hub"),
    ],
)
def test_mistakes_are_told_in_one_line(tokenizer, tmp_path, monkeypatch, capsys, more, message):
    network(tokenizer).bert.save_pretrained(tmp_path / "not_tuned")
    tokenizer.save_pretrained(tmp_path / "not_tuned")
    more = [str(tmp_path / "not_tuned") if word == "NOT_TUNED" else word for word in more]
    argv = ["ask", "--model", str(tmp_path / "not_tuned"), "--question", "who ?", *more]
    monkeypatch.setattr("sys.argv", argv)
    assert report_errors(ask.main) == 2
    assert re.search(message, capsys.readouterr().err.splitlines()[-1])


def test_bfloat16_is_asked_for_and_rounds_the_network(tokenizer, tmp_path, capsys, monkeypatch):
    model = network(tokenizer)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, scores = [], []
    load = ask.load
    monkeypatch.setattr(ask, "load", lambda *given, **more: loaded.append(load(*given, **more)) or loaded[-1])
    monkeypatch.setattr(number_types, "has_bfloat16", lambda: False)
    for flags in ([], ["--dtype", "bfloat16"]):
        ask.main(["--model", str(tmp_path), "--question", "who ?", "--context", CONTEXT, *flags])
        captured = capsys.readouterr()
        scores.append(json.loads(captured.out)["score"])
        assert ("no bfloat16 in hardware" in captured.err) == bool(flags)
    assert [opened.dtype for opened, _ in loaded] == [torch.float32, torch.bfloat16]
    assert scores[0] != scores[1] and scores[1] == pytest.approx(scores[0], abs=0.05)
