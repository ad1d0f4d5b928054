"""run_squad.py from its flags to its folder, on tiny networks."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForQuestionAnswering, BertConfig

import run_squad
from bert_training.builtin_data import documentation
from bert_training.cards.hub_upload import files_to_upload
from bert_training.tasks.squad.metrics import score
from bert_training.tasks.squad.questions import read_squad
from tests.helpers.records import events, read
from tests.helpers.script_checks import resumed_equals_uninterrupted
from tests.helpers.squad_examples import squad_content
from tests.helpers.squad_runs import LENGTHS, official_scores, squad_flags
from tests.helpers.torchrun import torchrun

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def start(squad_checkpoint, squad_files):
    return lambda folder, *more: run_squad.main(squad_flags(squad_checkpoint, squad_files, folder, *more))


def test_the_folder_serves_every_reader(finished_squad):
    expected = {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "README.md"),
        *("run.json", "metrics.jsonl", "all_results.json", "predictions.json", "nbest_predictions.json"),
    }
    names = {path.name for path in finished_squad.iterdir()}
    assert expected <= names
    assert not names & {"null_odds.json", "span_predictions.json"}
    model = AutoModelForQuestionAnswering.from_pretrained(finished_squad)
    assert type(model).__module__.startswith("transformers.")
    facts = read(finished_squad, "run.json")
    assert {split: part["examples"] for split, part in facts["data"]["splits"].items()} == {
        "train": 30,
        "validation": 12,
    }
    assert facts["data"]["splits"]["validation"]["file"] == "dev.json"
    assert facts["windows"]["train"] > 30


def test_results_are_the_official_score_of_the_predictions(finished_squad, squad_files):
    results = read(finished_squad, "all_results.json")
    official = official_scores(squad_files / "dev.json", finished_squad / "predictions.json")
    assert {"eval_" + name: value for name, value in official.items()} == {
        name: value for name, value in results.items() if name.startswith("eval_")
    }
    assert results["train_steps"] == 4
    assert results["train_runtime"] > 0
    assert results["train_samples_per_second"] > 0
    assert [event["step"] for event in events(finished_squad, "eval")] == [2, 4]
    assert [event["step"] for event in events(finished_squad, "train")] == [1, 2, 3, 4]
    assert len(read(finished_squad, "nbest_predictions.json")) == 12


@pytest.mark.slow
def test_it_learns_to_answer(squad_checkpoint, squad_files, tmp_path):
    """It learns 12 questions by heart. Each question is a word, whose place in the context is the answer."""
    (tmp_path / "easy.json").write_text(json.dumps(squad_content(12, longest=10)))
    more = ["--train_file", str(tmp_path / "easy.json"), "--validation_file", str(tmp_path / "easy.json")]
    more += ["--max_steps", "70", "--learning_rate", "5e-3", "--per_device_train_batch_size", "12"]
    run_squad.main(squad_flags(squad_checkpoint, squad_files, tmp_path / "run", *more, "--logging_steps", "150"))
    assert read(tmp_path / "run", "all_results.json")["eval_exact_match"] > 80


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(start, tmp_path):
    resumed_equals_uninterrupted(start, tmp_path, ["predictions.json", "nbest_predictions.json"])


def test_the_answers_are_those_of_the_best_weights(squad_checkpoint, squad_files, tmp_path):
    """With this learning rate the network gets worse again, so the last evaluation and its answers are not kept."""
    more = ["--learning_rate", "3e-2", "--max_steps", "12", "--eval_steps", "2", "--load_best_model_at_end"]
    run_squad.main(squad_flags(squad_checkpoint, squad_files, tmp_path / "run", *more))
    results = read(tmp_path / "run", "all_results.json")
    scores = {event["step"]: event["eval_f1"] for event in events(tmp_path / "run", "eval")}
    assert results["best_step"] == max(scores, key=scores.get) < results["train_steps"] == 12
    assert results["eval_f1"] == scores[results["best_step"]]
    questions = read_squad(squad_files / "dev.json")
    gold = {question.id: [text for text, _ in question.answers] for question in questions}
    assert score(gold, read(tmp_path / "run", "predictions.json"))["f1"] == results["eval_f1"]
    argv = ["--model_name_or_path", str(tmp_path / "run"), "--output_dir", str(tmp_path / "again"), *LENGTHS]
    run_squad.main([*argv, "--validation_file", str(squad_files / "dev.json")])
    assert read(tmp_path / "again", "predictions.json") == read(tmp_path / "run", "predictions.json")
    assert not list((tmp_path / "run").glob("checkpoint-*"))
    with pytest.raises(ValueError, match="expected one of eval_f1, eval_exact_match; got 'loss'"):
        run_squad.main(
            squad_flags(
                squad_checkpoint,
                squad_files,
                tmp_path / "no",
                "--metric_for_best_model",
                "loss",
                "--load_best_model_at_end",
            )
        )


@pytest.mark.parametrize("flag", ["--validation_file", "--test_file"])
def test_a_model_that_only_answers_is_saved_as_it_was(finished_squad, squad_files, tmp_path, flag):
    """The folder holds what docs/checkpoints.md lists for all scripts, so that it can be uploaded."""
    argv = ["--model_name_or_path", str(finished_squad), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    argv += [flag, str(squad_files / "dev.json")]
    run_squad.main(argv)
    assert "model.safetensors" in {path.name for path in files_to_upload(tmp_path / "run")}
    before, after = (load_file(folder / "model.safetensors") for folder in (finished_squad, tmp_path / "run"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert read(tmp_path / "run", "config.json") == read(finished_squad, "config.json")
    card = (tmp_path / "run" / "README.md").read_text()
    assert "## Evaluation\n" in card and not (tmp_path / "run" / "training_curves.png").exists()


@pytest.mark.slow
def test_a_series_of_runs_is_what_each_would_be_alone(squad_checkpoint, squad_files, tmp_path, capsys):
    more = ["--learning_rate", "1e-3", "--null_score_diff_threshold", "-9"]
    run_squad.main(
        squad_flags(
            squad_checkpoint, squad_files, tmp_path / "all", *more, "--seeds", "2", "--seed", "7", negative=True
        )
    )
    assert [path.name for path in sorted((tmp_path / "all").iterdir())] == [*("seed-7", "seed-8", "summary.json")]
    summary = read(tmp_path / "all", "summary.json")
    assert summary["baselines"] == pytest.approx({"eval_exact_match": 500 / 13, "eval_f1": 500 / 13})
    assert summary["settings"][0]["metrics"]["eval_f1"]["n"] == 2
    assert summary["settings"][0]["metrics"]["eval_f1"]["degenerate"] == 1.0  # The threshold makes all answers empty.
    assert "best on eval_f1: seed-7" in capsys.readouterr().out
    alone = [*more, "--seed", "8"]
    run_squad.main(squad_flags(squad_checkpoint, squad_files, tmp_path / "alone", *alone, negative=True))
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("alone", "all/seed-8", "all/seed-7")]
    assert weights[0] == weights[1] != weights[2]


@pytest.fixture(scope="module")
def still(squad_checkpoint, tmp_path_factory):
    """The checkpoint without dropout."""
    folder = tmp_path_factory.mktemp("still") / "checkpoint"
    shutil.copytree(squad_checkpoint, folder)
    config = BertConfig.from_pretrained(folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_two_processes_do_the_work_of_one(still, squad_files, tmp_path):
    argv = squad_flags(still, squad_files, tmp_path / "one", "--learning_rate", "1e-3")
    run_squad.main(argv)
    argv = squad_flags(
        still, squad_files, tmp_path / "two", "--learning_rate", "1e-3", "--per_device_train_batch_size", "4"
    )
    torchrun("run_squad.py", argv)
    one, two = ([event["loss"] for event in events(tmp_path / name, "train")] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-5)
    assert read(tmp_path / "two", "predictions.json") == read(tmp_path / "one", "predictions.json")
    assert read(tmp_path / "two", "run.json")["processes"] == 2


def test_the_control_has_the_same_losses_and_answers(still, squad_files, tmp_path):
    """Without dropout, 2 x 4 rows have the losses of 8 rows at once, and transformers' network has those of ours."""
    losses, answers = [], []
    for more in ([], ["--model_impl", "transformers"], ["--gradient_accumulation_steps", "2"]):
        folder = tmp_path / f"run{len(losses)}"
        size = ["--per_device_train_batch_size", "4" if "2" in more else "8"]
        run_squad.main(squad_flags(still, squad_files, folder, "--learning_rate", "1e-3", *size, *more))
        losses.append([event["loss"] for event in events(folder, "train")])
        answers.append(read(folder, "predictions.json"))
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)
    assert answers[1] == answers[0] == answers[2]


def test_without_data_flags_the_built_in_questions_are_used(squad_checkpoint, tmp_path, monkeypatch):
    asked = []

    def question_answering(split):
        asked.append(split)
        return squad_content(6)

    monkeypatch.setattr(documentation, "question_answering", question_answering)
    argv = ["--model_name_or_path", str(squad_checkpoint), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    run_squad.main([*argv, "--max_steps", "1"])
    assert asked == ["train", "validation"]
    assert "Python installation" in read(tmp_path / "run", "run.json")["data"]["splits"]["train"]["source"]
