"""bert_deploy/ask.py: windows, thresholds and the command, on networks with known answers."""

import json
import re

import pytest
import torch
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    TextClassificationPipeline,
)

from bert_deploy import ask
from bert_deploy.ask import answers, read_contexts, verdicts
from bert_training.engine.errors import report_errors
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.networks import number_types
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.threshold import store_threshold, stored_threshold
from bert_training.tasks.stored_flags import DEFAULTS, store_flags, stored_settings
from tests.helpers.evaluated_answers import evaluated
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


def test_long_contexts_are_read_in_windows_and_batches_do_not_matter(tokenizer):
    questions = [Question(str(i), "who ?", CONTEXT[i:]) for i in range(4)]
    model = network(tokenizer)
    whole = evaluated(model, tokenizer, questions, batch_size=100)
    single = evaluated(model, tokenizer, questions, batch_size=1)
    assert whole.predictions == single.predictions and whole.null_odds == {}
    for id_, entries in whole.nbest.items():
        assert len(entries) == 7
        for entry, again in zip(entries, single.nbest[id_]):
            assert entry["probability"] == pytest.approx(again["probability"], rel=1e-4)
            assert CONTEXT[int(id_) :][entry["start"] : entry["end"]] == entry["text"]
            assert len(tokenizer.tokenize(entry["text"])) <= 4


def test_the_threshold_is_the_stored_one_unless_another_is_given(tokenizer):
    question = Question("q", "who ?", CONTEXT)
    model = network(tokenizer, null=30.0)
    assert evaluated(model, tokenizer, [question]).predictions["q"]
    whole = evaluated(model, tokenizer, [question], threshold=0.0)
    assert whole.predictions == {"q": ""}
    (record,) = answers(model, tokenizer, [("who ?", CONTEXT)], 0.0)
    assert record["answer"] == "" and (record["start"], record["end"]) == (0, 0) and record["score"] > 0.9
    odds = whole.null_odds["q"]
    for stored, answered in ((odds + 1, True), (odds - 1, False)):
        model.config.null_score_diff_threshold = stored
        prediction = evaluated(model, tokenizer, [question]).predictions["q"]
        assert bool(prediction) == answered
        # It describes the answer, even if another entry has a higher score.
        (record,) = answers(model, tokenizer, [("who ?", CONTEXT)], None)
        assert record["answer"] == prediction == CONTEXT[record["start"] : record["end"]]
        assert (record["score"] < 0.1) == answered
        assert not evaluated(model, tokenizer, [question], threshold=0.0).predictions["q"]


def test_lengths_in_a_config_that_leave_no_room_are_refused(tokenizer):
    model = network(tokenizer)
    model.config.question_answering["max_query_length"] = 21
    with pytest.raises(ValueError, match=r"--max_query_length 21 .* leave no room for the context"):
        evaluated(model, tokenizer, [Question("q", "who ?", CONTEXT)])


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
    assert unknown.startswith("warning: the texts: [UNK] is ") and "(Devanagari: में becomes म)" in accents


def test_a_question_that_is_cut_is_warned_of(tokenizer, caplog):
    model = network(tokenizer)
    model.config.question_answering = {"max_query_length": 3}
    assert len([*answers(model, tokenizer, [("the house", CONTEXT), ("the old red house", CONTEXT)], None)]) == 2
    assert "a question of 4 tokens is cut after 3 of them" in caplog.text


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
    ("cls", "message"),
    [
        (BertForMaskedLM, r"4 are missing or have another shape, such as bert\.pooler\..*Give a checkpoint that holds"),
        (BertForQuestionAnswering, r"weights of a BertForSequenceClassification, .*it is a BertForQuestionAnswering"),
    ],
)
def test_texts_need_a_head_for_texts(tokenizer, tmp_path, cls, message):
    cls(small_config(vocab_size=len(tokenizer), num_hidden_layers=1)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        ask.main(["--model", str(tmp_path), "--text", "the old house"])


def test_classes_are_those_of_transformers_pipeline_at_the_stored_temperature(tokenizer):
    torch.manual_seed(0)
    config = small_config(vocab_size=len(tokenizer), num_hidden_layers=1, initializer_range=0.5, num_labels=3)
    config.fine_tuning = {"temperature": 2.0, "texts_per_example": 1}
    model = BertForSequenceClassification(config).eval()
    texts = ["the old house", "a small garden by the river"]
    plain = TextClassificationPipeline(model=model, tokenizer=tokenizer, device="cpu")
    for record, scores in zip(verdicts(model, tokenizer, texts), plain(texts, top_k=None, function_to_apply="none")):
        shares = torch.tensor([one["score"] for one in scores]).div(2).softmax(0).tolist()
        assert record["probabilities"] == pytest.approx(
            {one["label"]: share for one, share in zip(scores, shares)}, abs=2e-6
        )
        assert record["label"] == scores[0]["label"]
    with pytest.raises(ValueError, match="--second_text is for models of pairs"):
        next(verdicts(model, tokenizer, texts, "the river"))


def test_what_the_network_returns_is_not_for_the_config_to_say(tokenizer, tmp_path, capsys):
    network(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", return_dict=False, output_attentions=True)
    ask.main(["--model", str(tmp_path), "--question", "who ?", "--context", CONTEXT])
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--context_file", "none.txt"], "none.txt"),
        (["--model", "NOT_TUNED", "--context", "x"], r"not_tuned: .*2 are missing .*, such as qa_outputs\.bias"),
        (
            ["--model", "nothing/here", "--context", "x"],
            "nothing/here: there is no such folder, and as a name",
        ),
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
