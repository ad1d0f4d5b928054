"""run_squad.py with questions without answers: the scores of version 2, and the threshold that a model stores."""

import pytest

import run_squad
from tests.helpers.records import read
from tests.helpers.squad_runs import LENGTHS, official_scores, squad_flags

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def finished_2(squad_checkpoint, squad_files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run2"
    run_squad.main(
        squad_flags(squad_checkpoint, squad_files, folder, "--null_score_diff_threshold", "0.05", negative=True)
    )
    return folder


def test_version_2_reports_the_official_numbers(finished_2, squad_files):
    results = read(finished_2, "all_results.json")
    names = ["exact", "f1", "total"]
    names = [f"{half}{name}" for half in ("", "HasAns_", "NoAns_") for name in names]
    names += ["best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh", "exact_match"]
    names += ["at_0_exact", "at_0_f1", "at_best_exact", "at_best_f1", "null_score_diff_threshold"]
    assert {f"eval_{name}" for name in names} == {name for name in results if name.startswith("eval_")}
    assert results["eval_NoAns_total"] == 5
    odds, spans = read(finished_2, "null_odds.json"), read(finished_2, "span_predictions.json")
    assert read(finished_2, "predictions.json") == {id_: "" if odds[id_] > 0.05 else spans[id_] for id_ in spans}
    data, folder = squad_files / "dev2.json", finished_2
    official = official_scores(data, folder / "predictions.json", True)
    assert official == {name: results[f"eval_{name}"] for name in official}
    for at, prefix in ((0.05, ""), (0.0, "at_0_"), (results["eval_null_score_diff_threshold"], "at_best_")):
        official = official_scores(data, folder / "span_predictions.json", True, folder / "null_odds.json", at)
        names = ["exact", "f1"] if prefix else list(official)
        assert {name: official[name] for name in names} == {name: results[f"eval_{prefix}{name}"] for name in names}
    assert read(folder, "config.json")["null_score_diff_threshold"] == results["eval_null_score_diff_threshold"]
    # No two questions have equal odds here.
    assert results["eval_at_best_f1"] == pytest.approx(results["eval_best_f1"])


@pytest.mark.parametrize("given", [None, 0.0])
def test_evaluation_alone_applies_the_stored_threshold_unless_another_is_given(
    finished_2, squad_files, tmp_path, capsys, given
):
    odds, spans = read(finished_2, "null_odds.json"), read(finished_2, "span_predictions.json")
    stored = read(finished_2, "config.json")["null_score_diff_threshold"]
    assert stored not in (0.0, 0.05, 0.1)  # the run that found it had been given 0.05
    argv = ["--model_name_or_path", str(finished_2), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    argv += ["--validation_file", str(squad_files / "dev2.json"), "--version_2_with_negative"]
    argv += ["--test_file", str(squad_files / "dev2.json")]
    run_squad.main([*argv, *([] if given is None else ["--null_score_diff_threshold", str(given)])])
    used = stored if given is None else given
    expected = {id_: "" if odds[id_] > used else spans[id_] for id_ in spans}
    assert read(tmp_path / "run", "predictions.json") == expected
    before, after = read(finished_2, "all_results.json"), read(tmp_path / "run", "all_results.json")
    tested = {name for name in after if name.startswith("test_")}
    assert before.keys() == after.keys() - tested and after["test_f1"] == after["eval_f1"]
    # A threshold is never found on test data.
    assert not [name for name in tested if "best_" in name or "at_" in name or "threshold" in name]
    other = {"eval_exact", "eval_f1", "eval_exact_match"} | {name for name in after if "Ans_" in name}
    same = [name for name in after if name.startswith("eval_") and name not in other]
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    if given is None:  # the same questions, so that the stored threshold is the best one
        assert (after["eval_exact"], after["eval_f1"]) == (before["eval_at_best_exact"], before["eval_at_best_f1"])
    origin = "stored with the model" if given is None else "--null_score_diff_threshold"
    assert f"no-answer threshold: {used:g}, {origin}\n" in capsys.readouterr().out
    assert read(tmp_path / "run", "run.json")["null_score_diff_threshold"] == used
    assert read(tmp_path / "run", "config.json")["null_score_diff_threshold"] == stored


def test_a_model_without_a_stored_threshold_is_evaluated_at_zero(finished_squad, squad_files, tmp_path, capsys):
    argv = ["--model_name_or_path", str(finished_squad), "--output_dir", str(tmp_path / "run"), *LENGTHS]
    run_squad.main([*argv, "--validation_file", str(squad_files / "dev2.json"), "--version_2_with_negative"])
    assert "no-answer threshold: 0, because the model stores none\n" in capsys.readouterr().out
    odds, spans = read(tmp_path / "run", "null_odds.json"), read(tmp_path / "run", "span_predictions.json")
    assert read(tmp_path / "run", "predictions.json") == {id_: "" if odds[id_] > 0 else spans[id_] for id_ in spans}


def test_the_config_says_how_it_was_evaluated(finished_squad, finished_2, squad_files, tmp_path):
    """A fine-tuning on SQuAD 1.1 removes the threshold of an earlier one on SQuAD 2.0."""
    config = read(finished_2, "config.json")
    lengths = {"max_seq_length": 24, "max_query_length": 8, "doc_stride": 6, "max_answer_length": 30}
    assert config["question_answering"] == {**lengths, "n_best_size": 20}
    assert read(finished_squad, "config.json")["question_answering"] == config["question_answering"]
    assert "null_score_diff_threshold" not in read(finished_squad, "config.json")
    run_squad.main(
        squad_flags(finished_2, squad_files, tmp_path / "again", "--max_steps", "1", "--max_answer_length", "9")
    )
    config = read(tmp_path / "again", "config.json")
    assert "null_score_diff_threshold" not in config
    assert config["question_answering"]["max_answer_length"] == 9
