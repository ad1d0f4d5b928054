"""Several runs side by side."""

import json
import statistics

import pytest

from training.report import main, read_runs


@pytest.fixture
def finished(tmp_path):
    def make(name, script, results, data=None, **flags):
        folder = tmp_path / name
        folder.mkdir()
        facts = {"script": script, "flags": flags, "commit": "0123456789ab", "device": "cpu", "data": data}
        (folder / "run.json").write_text(json.dumps(facts))
        (folder / "all_results.json").write_text(json.dumps(results | {"train_steps": 1000, "train_runtime": 61.4}))
        return str(folder)

    return make


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_runs_of_a_task_share_a_row_and_seeds_a_cell(finished, tmp_path, capsys):
    scores = [0.61, 0.64, 0.70]
    seeds = [
        finished(
            f"cola-{seed}", "run_glue.py", {"eval_matthews_correlation": s}, task_name="cola", model_name_or_path="m"
        )
        for seed, s in enumerate(scores)
    ]
    folders = [
        *seeds,
        finished("cola-0r", "run_glue.py", {"eval_matthews_correlation": 0.0}, task_name="cola", config_name="mini"),
        finished("qa", "run_squad.py", {"eval_exact_match": 30.25, "eval_f1": 41.5}, model_name_or_path="x/m"),
        finished(
            *("control", "run_squad.py", {"eval_exact_match": 30.0, "eval_f1": 41.0}),
            **{"model_name_or_path": "x/m", "model_impl": "transformers"},
        ),
        finished("pair", "run_glue.py", {"eval_accuracy": 0.5}, data={"task": "embedded_pair"}, config_name="mini"),
    ]
    main([*folders, "--output_dir", str(tmp_path / "out")])
    table = rows((tmp_path / "out" / "report.md").read_text())
    assert table[0][2:] == ["random weights", "from m", "from m, transformers' network"]
    mean, deviation = 100 * statistics.mean(scores), 100 * statistics.stdev(scores)
    assert table[1] == ["cola", "Matthews correlation", "0.0", f"{mean:.1f} ± {deviation:.1f} (3)", ""]
    assert table[2] == ["question answering", "exact match", "", "30.2", "30.0"]
    assert table[3] == ["question answering", "F1", "", "41.5", "41.0"]
    assert table[4] == ["embedded_pair", "accuracy", "50.0", "", ""]
    assert [row[1:3] for row in table if row[0] == folders[0]] == [["1,000", "61"]]
    assert (tmp_path / "out" / "report.png").stat().st_size > 10_000
    assert table[0][2] in capsys.readouterr().out


def test_the_folder_of_a_series_stands_for_its_runs(finished, tmp_path, capsys):
    (tmp_path / "five").mkdir()
    for seed, score in ((42, 0.5), (43, 0.7)):
        finished(f"five/seed-{seed}", "run_glue.py", {"eval_accuracy": score}, task_name="rte", model_name_or_path="m")
    (tmp_path / "five" / "summary.json").write_text('{"runs": [{"folder": "seed-42"}, {"folder": "seed-43"}]}')
    main([str(tmp_path / "five"), "--output_dir", str(tmp_path / "out")])
    table = rows((tmp_path / "out" / "report.md").read_text())
    assert table[1] == ["rte", "accuracy", "60.0 ± 14.1 (2)"]
    assert table[3:] == [[str(tmp_path / "five"), "1,000", "61 ± 0 (2)", "0123456789ab", "cpu"]]
    (tmp_path / "five" / "seed-43" / "all_results.json").unlink()
    with pytest.raises(ValueError, match=r"seed-43/all_results\.json: expected the records of a finished run"):
        read_runs(tmp_path / "five")


def test_pre_training_stands_beside_it(finished, tmp_path):
    results = {"eval_mlm_loss": 5.3, "eval_mlm_accuracy": 0.21, "eval_nsp_accuracy": 0.77}
    folder = finished("pre", "run_pretraining.py", results)
    events = [{"event": "corpus", "unigram_entropy": 7.0}, {"event": "eval", "step": 1000, "eval_mlm_loss": 5.3}]
    (tmp_path / "pre" / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    main([folder, "--output_dir", str(tmp_path / "out")])
    table = rows((tmp_path / "out" / "report.md").read_text())
    assert table[1] == ["pre", "5.300", "21.0", "77.0", "1,000", "61"]
    assert (tmp_path / "out" / "report.png").exists()


def test_a_run_that_is_not_finished_is_named(finished, tmp_path):
    folder = finished("half", "run_glue.py", {}, config_name="mini")
    (tmp_path / "half" / "all_results.json").unlink()
    with pytest.raises(ValueError, match=r"half/all_results\.json: expected the records of a finished run"):
        read_runs(folder)
