"""run_squad.py from its flags to its folder, on tiny networks."""

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, BertConfig

import modeling_bert_repro
import run_squad
from modeling_bert_repro.qa_pipeline import QuestionAnsweringPipeline
from tests.helpers.records import events, read
from tests.helpers.repository import ROOT
from tests.helpers.squad_examples import squad_content
from training.__main__ import main as run_command
from training.builtin_data import documentation
from training.engine.errors import report_errors
from training.flags.fine_tuning import SquadArguments
from training.flags.parsing import parse_arguments
from training.tasks import fine_tuning
from training.tasks.squad import window_cache
from training.tasks.squad.metrics import score
from training.tasks.squad.questions import parse_squad, read_squad
from training.tools import ask

pytestmark = pytest.mark.usefixtures("no_pictures")  # The module's fixtures come first: `finished` draws.
LENGTHS = ["--max_seq_length", "24", "--max_query_length", "8", "--doc_stride", "6"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tokenizer_folder):
    """The folder of a pre-trained network of one layer, with random weights, and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)
    modeling_bert_repro.BertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("squad")
    for name, content in {
        "train": squad_content(30),
        "dev": squad_content(12),
        "train2": squad_content(30, True),
        "dev2": squad_content(13, True),
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def flags(checkpoint, files, output_dir, *more: str, negative: bool = False) -> list[str]:
    two = "2" if negative else ""
    return [
        *("--model_name_or_path", str(checkpoint), "--output_dir", str(output_dir), *LENGTHS),
        *("--train_file", str(files / f"train{two}.json"), "--validation_file", str(files / f"dev{two}.json")),
        *("--max_steps", "4", "--per_device_train_batch_size", "8", "--save_steps", "0", "--logging_steps", "1"),
        *(["--version_2_with_negative"] if negative else []),
        *more,
    ]


@pytest.fixture(scope="module")
def finished(checkpoint, files, tmp_path_factory):
    """A run on SQuAD 1.1 with several evaluations."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_squad.main(flags(checkpoint, files, folder, "--eval_steps", "2"))
    return folder


def test_the_folder_serves_every_reader(finished):
    expected = {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "README.md"),
        *("run.json", "metrics.jsonl", "all_results.json", "predictions.json", "nbest_predictions.json"),
        "answers.html",
    }
    names = {path.name for path in finished.iterdir()}
    assert expected <= names
    assert not names & {"null_odds.json", "span_predictions.json"}
    model = AutoModelForQuestionAnswering.from_pretrained(finished)
    assert type(model).__module__.startswith("transformers.")
    facts = read(finished, "run.json")
    assert {split: part["examples"] for split, part in facts["data"]["splits"].items()} == {
        "train": 30,
        "validation": 12,
    }
    assert facts["data"]["splits"]["validation"]["file"] == "dev.json"
    assert facts["windows"]["train"] > 30


def test_results_are_the_official_score_of_the_predictions(finished, files, capsys):
    results = read(finished, "all_results.json")
    assert run_command(["score", str(files / "dev.json"), str(finished / "predictions.json")]) == 0
    official = json.loads(capsys.readouterr().out)
    assert {"eval_" + name: value for name, value in official.items()} == {
        name: value for name, value in results.items() if name.startswith("eval_")
    }
    assert results["train_steps"] == 4
    assert results["train_runtime"] > 0
    assert results["train_samples_per_second"] > 0
    assert [event["step"] for event in events(finished, "eval")] == [2, 4]
    assert [event["step"] for event in events(finished, "train")] == [1, 2, 3, 4]
    assert len(read(finished, "nbest_predictions.json")) == 12


def test_it_learns_to_answer(checkpoint, files, tmp_path):
    """It learns 12 questions by heart. Each question is a word, whose place in the context is the answer."""
    (tmp_path / "easy.json").write_text(json.dumps(squad_content(12, longest=10)))
    more = ["--train_file", str(tmp_path / "easy.json"), "--validation_file", str(tmp_path / "easy.json")]
    more += ["--max_steps", "70", "--learning_rate", "5e-3", "--per_device_train_batch_size", "12"]
    run_squad.main(flags(checkpoint, files, tmp_path / "run", *more, "--logging_steps", "150"))
    assert read(tmp_path / "run", "all_results.json")["eval_exact_match"] > 80


@pytest.fixture(scope="module")
def finished_2(checkpoint, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run2"
    run_squad.main(flags(checkpoint, files, folder, "--null_score_diff_threshold", "0.05", negative=True))
    return folder


def test_version_2_reports_the_official_numbers(finished_2, files, capsys):
    results = read(finished_2, "all_results.json")
    names = ["exact", "f1", "total"]
    names = [f"{half}{name}" for half in ("", "HasAns_", "NoAns_") for name in names]
    names += ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh", "exact_match"]
    names += ["at_0_exact", "at_0_f1", "at_best_exact", "at_best_f1", "null_score_diff_threshold"]
    assert {f"eval_{name}" for name in names} == {name for name in results if name.startswith("eval_")}
    assert results["eval_NoAns_total"] == 5
    odds, spans = read(finished_2, "null_odds.json"), read(finished_2, "span_predictions.json")
    assert read(finished_2, "predictions.json") == {id_: "" if odds[id_] > 0.05 else spans[id_] for id_ in spans}
    data, folder = str(files / "dev2.json"), finished_2
    base = ["score", data, "--version_2_with_negative"]
    assert run_command([*base, str(folder / "predictions.json")]) == 0
    official = json.loads(capsys.readouterr().out)
    assert official == {name: results[f"eval_{name}"] for name in official}
    more = ["--na_prob_file", str(folder / "null_odds.json"), "--na_prob_thresh"]
    for at, prefix in (("0.05", ""), ("0", "at_0_"), (str(results["eval_null_score_diff_threshold"]), "at_best_")):
        assert run_command([*base, str(folder / "span_predictions.json"), *more, at]) == 0
        official = json.loads(capsys.readouterr().out)
        names = ["exact", "f1"] if prefix else list(official)
        assert {name: official[name] for name in names} == {name: results[f"eval_{prefix}{name}"] for name in names}
    assert read(folder, "config.json")["null_score_diff_threshold"] == results["eval_null_score_diff_threshold"]
    # No two questions have equal odds here.
    assert results["eval_at_best_f1"] == pytest.approx(results["eval_best_f1"])


@pytest.mark.parametrize("stored", [None, 0.5])
def test_the_threshold_in_the_config_decides_wherever_the_model_is_asked(finished_2, files, stored):
    """With the threshold that the run found, and with another one, the folder gives the answers that were scored."""
    questions = read_squad(files / "dev2.json", True)
    odds, spans = read(finished_2, "null_odds.json"), read(finished_2, "span_predictions.json")
    model, tokenizer = ask.load(str(finished_2))
    results = read(finished_2, "all_results.json")
    assert model.config.null_score_diff_threshold == results["eval_null_score_diff_threshold"]
    if stored:
        model.config.null_score_diff_threshold = float(np.quantile(list(odds.values()), stored)) + 1e-4
    threshold = model.config.null_score_diff_threshold
    # For the question whose odds are the threshold itself, rounding decides.
    sure = [question for question in questions if abs(odds[question.id] - threshold) > 1e-5]
    expected = {question.id: "" if odds[question.id] > threshold else spans[question.id] for question in sure}
    assert len(sure) >= 12 and (not stored or 5 <= list(expected.values()).count("") <= 8)
    assert ask.ask(model, tokenizer, sure).predictions == expected
    pipe = QuestionAnsweringPipeline(model=model, tokenizer=tokenizer, device="cpu")
    found = pipe(question=[question.text for question in sure], context=[question.context for question in sure])
    assert [result["answer"] for result in found] == list(expected.values())


@pytest.mark.parametrize("negative", [False, True])
def test_evaluation_alone_gives_the_same_answers(finished, finished_2, files, tmp_path, negative):
    model = finished_2 if negative else finished
    argv = ["--model_name_or_path", str(model), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    argv += ["--validation_file", str(files / ("dev2.json" if negative else "dev.json"))]
    argv += ["--version_2_with_negative", "--null_score_diff_threshold", "0.05"] if negative else []
    run_squad.main(argv)
    for name in ("predictions.json", "nbest_predictions.json"):
        assert (tmp_path / "run" / name).read_bytes() == (model / name).read_bytes()
    before, after = read(model, "all_results.json"), read(tmp_path / "run", "all_results.json")
    assert {k: v for k, v in before.items() if "eval" in k} == {k: v for k, v in after.items() if "eval" in k}
    assert after["train_samples_per_second"] == 0
    assert not (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("given", [None, 0.0, 0.1])
def test_evaluation_alone_applies_the_stored_threshold_unless_another_is_given(
    finished_2, files, tmp_path, capsys, given
):
    odds, spans = read(finished_2, "null_odds.json"), read(finished_2, "span_predictions.json")
    stored = read(finished_2, "config.json")["null_score_diff_threshold"]
    assert stored not in (0.0, 0.05, 0.1)  # the run that found it had been given 0.05
    argv = ["--model_name_or_path", str(finished_2), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    argv += ["--validation_file", str(files / "dev2.json"), "--version_2_with_negative"]
    run_squad.main([*argv, *([] if given is None else ["--null_score_diff_threshold", str(given)])])
    used = stored if given is None else given
    expected = {id_: "" if odds[id_] > used else spans[id_] for id_ in spans}
    assert read(tmp_path / "run", "predictions.json") == expected
    before, after = read(finished_2, "all_results.json"), read(tmp_path / "run", "all_results.json")
    assert before.keys() == after.keys()
    other = {"eval_exact", "eval_f1", "eval_exact_match"} | {name for name in after if "Ans_" in name}
    same = [name for name in after if name.startswith("eval_") and name not in other]
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    if given is None:  # the same questions, so that the stored threshold is the best one
        assert (after["eval_exact"], after["eval_f1"]) == (before["eval_at_best_exact"], before["eval_at_best_f1"])
    origin = "stored with the model" if given is None else "--null_score_diff_threshold"
    assert f"no-answer threshold: {used:g}, {origin}\n" in capsys.readouterr().out
    assert read(tmp_path / "run", "run.json")["null_score_diff_threshold"] == used


def test_a_model_without_a_stored_threshold_is_evaluated_at_zero(finished, files, tmp_path, capsys):
    argv = ["--model_name_or_path", str(finished), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    run_squad.main([*argv, "--validation_file", str(files / "dev2.json"), "--version_2_with_negative"])
    assert "no-answer threshold: 0, because the model stores none\n" in capsys.readouterr().out
    odds, spans = read(tmp_path / "run", "null_odds.json"), read(tmp_path / "run", "span_predictions.json")
    assert read(tmp_path / "run", "predictions.json") == {id_: "" if odds[id_] > 0 else spans[id_] for id_ in spans}


def test_a_resumed_run_equals_an_uninterrupted_one(checkpoint, files, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    saving = ["--save_steps", "2", "--max_steps", "5"]
    run_squad.main(flags(checkpoint, files, whole, *saving))

    def save_then_die(run, step, *rest):
        save(run, step, *rest)
        raise KeyboardInterrupt

    save = fine_tuning.save_checkpoint
    monkeypatch.setattr(fine_tuning, "save_checkpoint", save_then_die)
    with pytest.raises(KeyboardInterrupt):
        run_squad.main(flags(checkpoint, files, broken, *saving))
    monkeypatch.undo()
    assert not (broken / "model.safetensors").exists()
    run_squad.main(flags(checkpoint, files, broken, *saving, "--resume_from_checkpoint", "auto"))
    for name in ("model.safetensors", "predictions.json", "nbest_predictions.json", "metrics.jsonl"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


def test_the_answers_are_those_of_the_best_weights(checkpoint, files, tmp_path):
    """With this learning rate the network gets worse again, so the last evaluation and its answers are not kept."""
    more = ["--learning_rate", "3e-2", "--max_steps", "12", "--eval_steps", "2", "--load_best_model_at_end"]
    run_squad.main(flags(checkpoint, files, tmp_path / "run", *more, "--early_stopping_patience", "2"))
    results = read(tmp_path / "run", "all_results.json")
    scores = {event["step"]: event["eval_f1"] for event in events(tmp_path / "run", "eval")}
    assert results["best_step"] == max(scores, key=scores.get) == results["train_steps"] - 4 < 8
    assert results["eval_f1"] == scores[results["best_step"]]
    questions = read_squad(files / "dev.json")
    gold = {question.id: [text for text, _ in question.answers] for question in questions}
    assert score(gold, read(tmp_path / "run", "predictions.json"))["f1"] == results["eval_f1"]
    argv = ["--model_name_or_path", str(tmp_path / "run"), "--output_dir", str(tmp_path / "again"), *LENGTHS]
    run_squad.main([*argv, "--validation_file", str(files / "dev.json")])
    assert read(tmp_path / "again", "predictions.json") == read(tmp_path / "run", "predictions.json")
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    with pytest.raises(ValueError, match="expected one of eval_f1, eval_exact_match; got 'loss'"):
        run_squad.main(flags(checkpoint, files, tmp_path / "no", "--metric_for_best_model", "loss", "--seeds", "2"))


def test_a_series_of_runs_is_what_each_would_be_alone(checkpoint, files, tmp_path, monkeypatch, capsys):
    """The windows are made once for all runs."""
    more = ["--group_by_length", "--learning_rate", "1e-3", "--null_score_diff_threshold", "-9"]
    run_squad.main(flags(checkpoint, files, tmp_path / "all", *more, "--seeds", "2", "--seed", "7", negative=True))
    assert [path.name for path in sorted((tmp_path / "all").iterdir())] == [
        *("features", "seed-7", "seed-8", "summary.json")
    ]
    summary = read(tmp_path / "all", "summary.json")
    assert summary["baselines"] == pytest.approx({"eval_exact_match": 500 / 13, "eval_f1": 500 / 13})
    assert summary["settings"][0]["metrics"]["eval_f1"]["n"] == 2
    assert summary["settings"][0]["metrics"]["eval_f1"]["degenerate"] == 1.0  # The threshold makes all answers empty.
    assert "best on eval_f1: seed-7" in capsys.readouterr().out
    monkeypatch.setattr(window_cache, "build_windows", None)
    cache = ["--cache_dir", str(tmp_path / "all" / "features"), "--seed", "8"]
    run_squad.main(flags(checkpoint, files, tmp_path / "alone", *more, *cache, negative=True))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("alone", "all/seed-8", "all/seed-7")]
    assert weights[0] == weights[1] != weights[2]
    plain = [word for word in more if word != "--group_by_length"]
    run_squad.main(flags(checkpoint, files, tmp_path / "plain", *plain, *cache, negative=True))
    assert (tmp_path / "plain" / "model.safetensors").read_bytes() != weights[0]


def test_building_a_network_leaves_the_config_to_the_next_run():
    config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    before = config.to_dict()
    args = SquadArguments(output_dir="x", config_name="mini", tokenizer_name="y")
    run = SimpleNamespace(args=args, say=print)
    model, _ = fine_tuning.build_model(run, modeling_bert_repro.BertForQuestionAnswering, config, config, (), True)
    model.config.question_answering = {}
    assert config.to_dict() == before


@pytest.fixture(scope="module")
def still(checkpoint, tmp_path_factory):
    """The checkpoint without dropout."""
    folder = tmp_path_factory.mktemp("still") / "checkpoint"
    shutil.copytree(checkpoint, folder)
    config = BertConfig.from_pretrained(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_two_processes_do_the_work_of_one(still, files, tmp_path):
    argv = flags(still, files, tmp_path / "one", "--learning_rate", "1e-3")
    run_squad.main(argv)
    argv = flags(still, files, tmp_path / "two", "--learning_rate", "1e-3", "--per_device_train_batch_size", "4")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", str(ROOT / "run_squad.py")]
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launcher, *argv], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, two = ([event["loss"] for event in events(tmp_path / name, "train")] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-5)
    assert read(tmp_path / "two", "predictions.json") == read(tmp_path / "one", "predictions.json")
    assert read(tmp_path / "two", "run.json")["processes"] == 2


def test_the_control_has_the_same_losses_and_answers(still, files, tmp_path):
    """Without dropout, 2 x 4 rows have the losses of 8 rows at once, and transformers' network has those of ours. With
    padding in the softmax the losses are different.
    """
    losses, answers = [], []
    over_all = ["--unpad_inputs", "false"]
    for more in (
        [],
        ["--model_impl", "transformers"],
        ["--gradient_accumulation_steps", "2"],
        over_all,
        [*over_all, "--model_impl", "transformers"],
    ):
        folder = tmp_path / f"run{len(losses)}"
        size = ["--per_device_train_batch_size", "4" if "2" in more else "8"]
        run_squad.main(flags(still, files, folder, "--learning_rate", "1e-3", *size, *more))
        losses.append([event["loss"] for event in events(folder, "train")])
        answers.append(read(folder, "predictions.json"))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)
    assert losses[4] == pytest.approx(losses[3], rel=1e-5)
    assert losses[3] != pytest.approx(losses[0], rel=1e-5)
    assert answers[1] == answers[0] == answers[2]


@pytest.mark.parametrize("names", [("entailment", "neutral", "contradiction"), ("negative", "positive")])
def test_a_classifier_gets_a_head_for_spans(checkpoint, files, tmp_path, capsys, names):
    config = BertConfig.from_pretrained(checkpoint, id2label=dict(enumerate(names)), problem_type="regression")
    config.label2id = {name: number for number, name in enumerate(names)}
    modeling_bert_repro.BertForSequenceClassification(config).save_pretrained(tmp_path / "classifier")
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path / "classifier")
    run_squad.main(flags(tmp_path / "classifier", files, tmp_path / "run", "--max_steps", "1"))
    assert "newly initialised: qa_outputs.bias, qa_outputs.weight\n" in capsys.readouterr().out
    saved = BertConfig.from_pretrained(tmp_path / "run")
    assert (saved.id2label, saved.problem_type) == ({0: "LABEL_0", 1: "LABEL_1"}, None)
    modeling_bert_repro.BertForQuestionAnswering.from_pretrained(tmp_path / "run")


def test_the_fast_paths_are_on_and_can_be_switched_off(checkpoint, files, tmp_path, fast_paths):
    run_squad.main(flags(checkpoint, files, tmp_path / "on", "--max_steps", "1"))
    assert fast_paths == {"unpadded", "dropout"}
    assert not {"unpad_inputs", "fast_dropout"} & set(read(tmp_path / "on", "config.json"))
    fast_paths.clear()
    run_squad.main(
        flags(
            checkpoint,
            files,
            tmp_path / "off",
            "--max_steps",
            "1",
            "--unpad_inputs",
            "false",
            "--fast_dropout",
            "false",
        )
    )
    assert not fast_paths


def test_a_control_says_nothing_of_code_that_its_folder_does_not_hold(checkpoint, files, tmp_path):
    assert "auto_map" in read(checkpoint, "config.json")
    for name in ("repro", "transformers"):
        run_squad.main(flags(checkpoint, files, tmp_path / name, "--max_steps", "1", "--model_impl", name))
    assert "auto_map" in read(tmp_path / "repro", "config.json")
    assert "auto_map" not in read(tmp_path / "transformers", "config.json")
    assert not list((tmp_path / "transformers").glob("*.py"))
    AutoModelForQuestionAnswering.from_pretrained(tmp_path / "transformers", trust_remote_code=True)


def test_the_tokenizer_is_saved_without_truncation_and_padding(checkpoint, files, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer("old house", truncation=True, max_length=3, padding="max_length")
    shutil.copytree(checkpoint, tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    before = read(tmp_path / "start", "tokenizer.json")
    assert before["truncation"] and before["padding"]
    for name in ("built", "read"):  # When windows are read from the cache, no call changes the tokenizer.
        more = ["--max_steps", "1", "--cache_dir", str(tmp_path / "cache")]
        run_squad.main(flags(tmp_path / "start", files, tmp_path / name, *more))
        assert read(tmp_path / name, "tokenizer.json") == {**before, "truncation": None, "padding": None}


def test_the_config_says_how_it_was_evaluated(finished, finished_2, files, tmp_path):
    """A fine-tuning on SQuAD 1.1 removes the threshold of an earlier one on SQuAD 2.0."""
    config = read(finished_2, "config.json")
    lengths = {"max_seq_length": 24, "max_query_length": 8, "doc_stride": 6, "max_answer_length": 30}
    assert config["question_answering"] == {**lengths, "n_best_size": 20}
    assert read(finished, "config.json")["question_answering"] == config["question_answering"]
    assert "null_score_diff_threshold" not in read(finished, "config.json")
    run_squad.main(flags(finished_2, files, tmp_path / "again", "--max_steps", "1", "--max_answer_length", "9"))
    config = read(tmp_path / "again", "config.json")
    assert "null_score_diff_threshold" not in config
    assert config["question_answering"]["max_answer_length"] == 9


def test_a_second_run_reads_the_windows_of_the_first(finished, checkpoint, files, tmp_path, monkeypatch):
    cache = ["--cache_dir", str(finished / "features"), "--eval_steps", "2"]
    monkeypatch.setattr(window_cache, "build_windows", None)
    run_squad.main(flags(checkpoint, files, tmp_path / "run", *cache))
    assert not (tmp_path / "run" / "features").exists()
    for name in ("model.safetensors", "predictions.json"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / name).read_bytes()


def test_alignment_is_googles_where_asked_for(finished, tmp_path):
    """Accents that are characters of their own disturb Google's count of letters, so that its answers become whole
    words with their commas.
    """
    content = squad_content(5)
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["context"] = paragraph["context"].replace(" ", "\u0301, ") + "\u0301,"
            paragraph["qas"][0]["answers"] = [{"text": paragraph["context"].split(",")[0], "answer_start": 0}]
    (tmp_path / "accents.json").write_text(json.dumps(content))
    contexts = {q["id"]: p["context"] for a in content["data"] for p in a["paragraphs"] for q in p["qas"]}
    found = {}
    for name in ("offsets", "google"):
        argv = ["--model_name_or_path", str(finished), "--output_dir", str(tmp_path / name), *LENGTHS]
        argv += ["--validation_file", str(tmp_path / "accents.json"), "--answer_alignment", name]
        run_squad.main(argv)
        found[name] = read(tmp_path / name, "nbest_predictions.json")
        assert read(tmp_path / name, "predictions.json") == {id_: rows[0]["text"] for id_, rows in found[name].items()}
    for id_, context in contexts.items():
        for name in found:
            for row in found[name][id_]:
                begin = context.rfind(" ", 0, row["start"] + 1) + 1
                end = context.find(" ", row["end"])
                words = context[begin : end if end >= 0 else None]
                assert row["text"] == (words if name == "google" else context[row["start"] : row["end"]])
    assert found["google"] != found["offsets"]


def test_random_weights_are_a_baseline(checkpoint, files, tmp_path, capsys):
    argv = flags(checkpoint, files, tmp_path / "run")[2:]
    more = ["--config_name", str(checkpoint), "--tokenizer_name", str(checkpoint), "--max_train_samples", "5"]
    run_squad.main([*argv, *more, "--max_eval_samples", "3", "--max_steps", "1"])
    assert "newly initialised: all weights" in capsys.readouterr().out
    assert list(read(tmp_path / "run", "predictions.json")) == ["q0", "q1", "q2"]
    splits = read(tmp_path / "run", "run.json")["data"]["splits"]
    assert (splits["train"]["examples"], splits["validation"]["examples"]) == (5, 3)


def test_without_data_flags_the_built_in_questions_are_used(checkpoint, tmp_path, monkeypatch):
    asked = []

    def question_answering(split):
        asked.append(split)
        return squad_content(6)

    monkeypatch.setattr(documentation, "question_answering", question_answering)
    argv = ["--model_name_or_path", str(checkpoint), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    run_squad.main([*argv, "--max_steps", "1"])
    assert asked == ["train", "validation"]
    assert "Python installation" in read(tmp_path / "run", "run.json")["data"]["splits"]["train"]["source"]


@pytest.mark.slow
def test_the_built_in_questions_are_in_squads_format():
    for split in ("train", "validation"):
        assert len(parse_squad(documentation.question_answering(split), "built-in")) > 50


# --- Mistakes --------------------------------------------------------------------------------------------


def spoiled(files, change) -> str:
    content = squad_content(3)
    change(content["data"][0]["paragraphs"][1]["qas"][0])
    path = files / "spoiled.json"
    path.write_text(json.dumps(content))
    return str(path)


MISTAKES = {
    "answer outside its context": (
        lambda files: ["--validation_file", spoiled(files, lambda q: q["answers"][0].update(answer_start=999))],
        "spoiled.json, question 'q1': answer .* lies outside its context",
    ),
    "unanswerable question": (
        lambda files: ["--train_file", spoiled(files, lambda q: q.update(answers=[]))],
        "spoiled.json, question 'q1': has no answer; .* give --version_2_with_negative",
    ),
    "no such file": (lambda files: ["--train_file", "no.json"], "no.json: cannot be read"),
    "stride": (lambda files: ["--doc_stride", "14"], "--doc_stride 14 must be from 1 to 13"),
    "length": (lambda files: ["--max_seq_length", "33"], "--max_seq_length 33 is over the model's maximum of 32"),
    "query length": (lambda files: ["--max_query_length", "21"], "leave no room for the context"),
    "two sources": (lambda files: ["--dataset_name", "rajpurkar/squad"], "--dataset_name, not both"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_in_one_line_before_any_work(checkpoint, files, tmp_path, monkeypatch, capsys, name):
    more, message = MISTAKES[name]
    argv = flags(checkpoint, files, tmp_path / "run", *more(files))
    monkeypatch.setattr("sys.argv", ["run_squad.py", *argv])
    assert report_errors(run_squad.main) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert re.search(message, lines[0])
    assert not (tmp_path / "run").exists()


def test_other_mistakes_are_refused(checkpoint, files, finished, tmp_path, capsys):
    model, output = ("--model_name_or_path", str(checkpoint)), ("--output_dir", str(tmp_path / "run"))
    with pytest.raises(ValueError, match="--train_file needs --validation_file"):
        run_squad.main([*model, *output, *LENGTHS, "--train_file", str(files / "train.json")])
    with pytest.raises(ValueError, match="already holds a run"):
        run_squad.main(flags(checkpoint, files, finished))
    with pytest.raises(ValueError, match=r"newly initialised: qa_outputs\.bias, .*cannot be evaluated"):
        run_squad.main([*model, *output, *LENGTHS, "--validation_file", str(files / "dev.json")])
    argv = flags(checkpoint, files, tmp_path / "run")
    run_squad.main([*argv, "--max_steps", "1"])  # A second run with correct flags may use the same folder.
    with pytest.raises(ValueError, match="--dataset_name nobody/none, split 'train': cannot be loaded"):
        run_squad.main([*model, *LENGTHS, "--dataset_name", "nobody/none", "--output_dir", str(tmp_path / "hub")])
    with pytest.raises(SystemExit, match="2"):
        run_squad.main([*argv, "--doc_strides", "3"])
    assert "did you mean --doc_stride?" in capsys.readouterr().err


def test_the_commands_of_the_header_parse():
    text = inspect.getdoc(run_squad).replace("\\\n", " ")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    assert commands
    for command in commands:
        words = shlex.split(command)
        parse_arguments(SquadArguments, words[words.index("run_squad.py") + 1 :])
