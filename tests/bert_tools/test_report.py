"""bert_tools/report.py: several runs side by side in tables and a picture."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from bert_tools import report
from bert_tools.report import main, read_finished_runs, tables
from bert_training.tasks import seeds
from bert_training.tasks.scored_rows import compare_rows, metric_of
from bert_training.tasks.task_data import write_rows
from tests.helpers.records import results_of_rows, write_summary


@pytest.fixture
def finished(tmp_path):
    def make(name, script, results, data=None, facts=None, **flags):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        facts = {"format": 1, "script": script, "flags": flags, "data": data} | (facts or {})
        facts |= {"commit": "0123456789ab", "device": "cpu"}
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
            *(f"cola-{seed}", "run_glue.py", {"eval_matthews_correlation": s}),
            **{"task_name": "cola", "model_name_or_path": "x/m", "seed": seed},
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
        finished("pair", "run_glue.py", {"eval_accuracy": 0.5}, data={"task": "builtin_pair"}, config_name="mini"),
    ]
    main([*folders, "--output_dir", str(tmp_path / "out")])
    table = rows((tmp_path / "out" / "report.md").read_text())
    assert table[0][2:] == ["random weights", "from m", "from m, transformers' network"]
    mean, deviation = 100 * statistics.mean(scores), 100 * statistics.stdev(scores)
    assert table[1] == ["CoLA", "Matthews correlation", "0.0", f"{mean:.1f} ± {deviation:.1f} (3)", ""]
    assert table[2] == ["question answering", "exact match", "", "30.2", "30.0"]
    assert table[3] == ["question answering", "F1", "", "41.5", "41.0"]
    assert table[4] == ["pair task", "accuracy", "50.0", "", ""]
    assert [row[1:3] for row in table if row[0] == folders[0]] == [["1,000", "61"]]
    assert (tmp_path / "out" / "report.png").stat().st_size > 10_000
    assert table[0][2] in capsys.readouterr().out


def test_the_folder_of_a_series_stands_for_its_runs(finished, tmp_path, capsys):
    for seed, score in ((42, 0.5), (43, 0.7)):
        flags = {"task_name": "rte", "model_name_or_path": "m", "seed": seed}
        finished(f"five/seed-{seed}", "run_glue.py", {"eval_accuracy": score}, **flags)
    write_summary(tmp_path / "five", runs=[{"folder": "seed-42"}, {"folder": "seed-43"}])
    main([str(tmp_path / "five"), "--output_dir", str(tmp_path / "out")])
    table = rows((tmp_path / "out" / "report.md").read_text())
    assert table[1] == ["RTE", "accuracy", "60.0 ± 14.1 (2)"]
    assert table[3:] == [[str(tmp_path / "five"), "1,000", "61 ± 0 (2)", "0123456789ab", "cpu"]]
    (tmp_path / "five" / "seed-43" / "all_results.json").unlink()
    with pytest.raises(ValueError, match=r"seed-43: expected a finished run, found no all_results\.json"):
        read_finished_runs(tmp_path / "five")


def test_pre_training_has_a_table_of_its_own(finished, tmp_path):
    results = {"eval_mlm_loss": 5.3, "eval_mlm_accuracy": 0.21, "eval_nsp_accuracy": 0.77}
    folder = finished("pre", "run_pretraining.py", results)
    events = [{"event": "corpus", "unigram_entropy": 7.0}, {"event": "eval", "step": 1000, "eval_mlm_loss": 5.3}]
    (tmp_path / "pre" / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    main([folder, "--output_dir", str(tmp_path / "out")])
    table = rows((tmp_path / "out" / "report.md").read_text())
    assert table[1] == ["pre", "5.300", "21.0", "77.0", "1,000", "61"]
    assert (tmp_path / "out" / "report.png").exists()
    order = {"eval_mlm_loss": 5.3, "eval_mlm_accuracy": 0.21, "eval_sop_accuracy": 0.8}
    runs = read_finished_runs(finished("order", "run_pretraining.py", order, objective="mlm_sop"))
    assert "| 80.0 (sentence-order) |" in report.pretraining_row(runs[0])


def cola(finished, name, score=0.5, facts=None, data=None, **flags) -> str:
    flags = {"task_name": "cola", "model_name_or_path": "x/m", "seed": 42} | flags
    return finished(name, "run_glue.py", {"eval_matthews_correlation": score}, data, facts, **flags)


def table_of(*folders: str) -> list[list[str]]:
    return rows(tables([run for folder in folders for run in read_finished_runs(folder)]).split("\n\n")[0])


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"learning_rate": 3e-5}, {"learning_rate": 1e-3}, ("learning_rate 3e-05", "learning_rate 0.001")),
        ({"max_steps": 2000}, {}, ("max_steps 2000, num_train_epochs None", "max_steps -1, num_train_epochs 3.0")),
        ({"facts": {"processes": 2}}, {"facts": {"processes": 1}}, ("processes 2", "processes 1")),
        (
            {"data": {"splits": {"train": {"sha256": "a" * 64}, "validation": {"sha256": "c" * 64}}}},
            {"data": {"splits": {"train": {"sha256": "b" * 64}, "validation": {"sha256": "c" * 64}}}},
            ("training data aaaaaaaa", "training data bbbbbbbb"),
        ),
    ],
    ids=lambda value: next(iter(value), "default") if isinstance(value, dict) else "",
)
def test_runs_that_differ_in_more_than_the_seed_have_rows_of_their_own(finished, one, other, words):
    folders = [cola(finished, "a", 0.5, **one), cola(finished, "b", 0.7, **{"seed": 43} | other)]
    table = table_of(*folders)
    assert [row[0] for row in table[1:]] == [f"CoLA, {said}" for said in words]
    assert [row[2] for row in table[1:]] == ["50.0", "70.0"]


def test_different_weights_of_the_same_name_are_distinguished(finished):
    weights = [{"initial_weights": {"model.safetensors": letter * 64}} for letter in "ab"]
    folders = [
        cola(finished, "a", 0.1, weights[0], model_name_or_path="x/m"),
        cola(finished, "b", 0.2, weights[1], model_name_or_path="x/m"),
        cola(finished, "c", 0.3, weights[0], model_name_or_path="y/m", seed=43),  # This is a copy of the first.
        cola(finished, "d", 0.4, model_name_or_path=None, config_name="mini"),
        cola(finished, "e", 0.5, model_name_or_path=None, config_name="tiny"),
    ]
    table = table_of(*folders)
    assert table[0][2:] == [
        *("random weights, config_name mini", "random weights, config_name tiny"),
        *("from m, initial_weights aaaaaaaa", "from m, initial_weights bbbbbbbb"),
    ]
    assert table[1][2:] == ["40.0", "50.0", "20.0 ± 14.1 (2)", "20.0"]
    by_path = table_of(cola(finished, "f", 0.6), cola(finished, "g", 0.7, model_name_or_path="y/m"))
    assert by_path[0][2:] == ["from m, model_name_or_path x/m", "from m, model_name_or_path y/m"]


def test_runs_without_scores_have_a_table_and_no_picture(finished, tmp_path, capsys):
    folder = finished("a", "run_glue.py", {}, task_name="rte", model_name_or_path="m")
    main([folder, "--output_dir", str(tmp_path / "out")])
    assert "no picture: no run has scores" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.md"]


def test_one_run_twice_is_refused(finished):
    folder, again = cola(finished, "a"), cola(finished, "b", 0.6)
    for folders in ((folder, folder), (folder, again)):
        with pytest.raises(ValueError, match=r"have the same settings and the same seed \(42\); give one"):
            table_of(*folders)


def test_an_undefined_score_is_called_undefined_and_counts_as_0(finished, tmp_path, monkeypatch):
    """As in the table of a series: the same runs must not have two means."""
    scores = [0.2, None, 0.4]
    folders = [cola(finished, f"{seed}", score, seed=seed) for seed, score in enumerate(scores)]
    series = seeds.statistics(scores, constant=0.0)
    assert (100 * series["mean"], 100 * series["std"], series["undefined"]) == pytest.approx((20, 20, 1))
    assert table_of(*folders)[1][2] == "20.0 ± 20.0 (3), 1 undefined"
    assert table_of(*folders[:2])[1][2] == "10.0 ± 14.1 (2), 1 undefined"
    assert table_of(folders[1])[1][2] == "undefined"
    main([folders[1], "--output_dir", str(tmp_path / "out")])
    assert (tmp_path / "out" / "report.png").exists()
    drawn = []
    monkeypatch.setattr(report.curves, "save_figure", lambda figure, path: drawn.append(figure))
    report.draw([run for folder in folders for run in read_finished_runs(folder)], tmp_path / "x.png")
    (axis,) = drawn[0].axes
    assert [text.get_text() for text in axis.texts] == ["20.0 ± 20.0 (3), 1 undefined"]
    assert [bar.get_width() for bar in axis.patches] == [pytest.approx(20.0)]


def test_f1_by_class_is_a_table_of_its_own_on_request(finished, tmp_path):
    """The classes of run_glue.py and the types of run_ner.py, with the mean over seeds; a name cannot break the row."""

    def classes(**f1) -> dict:
        by_class = {name: {"f1": value} for name, value in f1.items()}
        return {"eval_accuracy": 0.5, "eval_f1_macro": 0.4, "eval_by_class": by_class}

    folders = [
        *(finished(f"own-{seed}", "run_glue.py", classes(**{"a|b": f1, "c": 0.5}), {"task": "custom"}, seed=seed)
          for seed, f1 in enumerate((0.2, 0.4))),
        finished("ner", "run_ner.py", {"eval_f1": 0.5, "eval_LOC_f1": 0.25}, {"splits": {}}),
        finished("qa", "run_squad.py", {"eval_exact_match": 30.0, "eval_f1": 41.0, "eval_HasAns_f1": 2.0}),
    ]  # fmt: skip
    main([*folders, "--output_dir", str(tmp_path / "plain")])
    assert "F1 of the class" not in (tmp_path / "plain" / "report.md").read_text()
    assert "| macro F1 | 40.0 ± 0.0 (2) |" in (tmp_path / "plain" / "report.md").read_text()
    main([*folders, "--output_dir", str(tmp_path / "out"), "--by_class"])
    text = (tmp_path / "out" / "report.md").read_text()
    table = text.split("F1 of the class")[1].split("\n\n")[0]
    assert table.splitlines()[2:] == [
        "| custom | a\\|b | 30.0 ± 14.1 (2) |", "| custom | c | 50.0 ± 0.0 (2) |", "| named entities | LOC | 25.0 |"
    ]  # fmt: skip


# --- test data, rows, and paired differences ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("run_glue", {"eval_accuracy", "eval_f1_macro"}),
        ("run_squad", {"eval_exact_match", "eval_f1"}),
        ("run_ner", {"eval_f1", "test_f1"}),
        ("run_swag", {"eval_accuracy", "test_accuracy"}),
    ],
)
def test_the_rows_of_every_script_give_its_recorded_scores(finished_runs, script, given):
    assert results_of_rows(finished_runs[script]) == given


def rows_of(true: list, answers: list) -> list[dict]:
    return [{"id": str(row), "true": one, "answer": other} for row, (one, other) in enumerate(zip(true, answers))]


def test_metrics_of_rows_are_those_of_scikit_learn():
    draw = np.random.default_rng(0)
    true, answers = draw.choice(["a", "b", "c"], (2, 60))
    rows, chosen = rows_of(true.tolist(), answers.tolist()), draw.integers(60, size=60)
    some = true[chosen], answers[chosen]
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(*some),
        "f1_macro": sklearn_metrics.f1_score(*some, average="macro"),
        "matthews_correlation": sklearn_metrics.matthews_corrcoef(*some),
    }
    for name, value in expected.items():
        assert metric_of(rows, name)(chosen) == pytest.approx(100 * value), name
    value = sklearn_metrics.f1_score(some[0] == "b", some[1] == "b")
    assert metric_of(rows, "f1", positive="b")(chosen) == pytest.approx(100 * value)
    several = [[[name for name in "abc" if draw.random() < 0.5] for _ in range(40)] for _ in range(2)]
    truth, given = (np.array([[name in row for name in "abc"] for row in side]) for side in several)
    everything = np.arange(40)
    for name, average in (("f1_micro", "micro"), ("f1_macro", "macro")):
        value = sklearn_metrics.f1_score(truth, given, average=average)
        assert metric_of(rows_of(*several), name)(everything) == pytest.approx(100 * value), name
    assert metric_of(rows_of(*several), "subset_accuracy")(everything) == pytest.approx(
        100 * (truth == given).all(1).mean()
    )
    scores = draw.normal(size=(2, 30))
    assert metric_of(rows_of(*scores.tolist()), "pearson")(everything[:30]) == pytest.approx(
        100 * np.corrcoef(scores)[0, 1]
    )
    tags = [[[["N", 0], ["V", 1]], [["N", 0]]], [[["N", 0], ["N", 1]], [["N", 0]]]]
    f1 = sklearn_metrics.f1_score(["N", "V", "N"], ["N", "N", "N"], average="macro", zero_division=0.0)
    assert metric_of(rows_of(*tags), "f1_macro")(everything[:2]) == pytest.approx(100 * f1)
    assert metric_of(rows, "average_precision_micro") is None


def test_an_interval_is_paired_and_the_test_is_mcnemars():
    """By hand: 9 and 1 of 10 rows that differ have the exact two-sided p-value 22/1024."""
    true = ["x"] * 100
    ours, theirs = (rows_of(true, ["x" if right(row) else "y" for row in range(100)]) for right in (
        lambda row: row != 50, lambda row: row >= 9))  # fmt: skip
    metrics = [metric_of(rows, "accuracy") for rows in (ours, theirs)]
    difference, interval, alone, p = compare_rows(*metrics, 100, True).split(" | ")
    assert (difference, alone, p) == ("+8.0", "9 : 1", "0.021")
    low, high = map(float, interval.split(" to "))
    each = np.array([1.0] * 9 + [-1.0] + [0.0] * 90)
    half = 196 * each.std() / 10  # the paired interval of a mean; that of unpaired rows would be wider
    assert low == pytest.approx(8 - half, abs=1) and high == pytest.approx(8 + half, abs=1)
    assert compare_rows(*metrics, 100, True) == compare_rows(*metrics, 100, True)


@pytest.fixture
def scored(finished, tmp_path):
    """A finished run with its rows: which of them are right, for every split."""

    def make(name: str, seed: int = 42, model: str = "x/m", test: list | None = None, **right: list[bool]) -> str:
        right |= {"test": test} if test else {}
        splits = {split: {"examples": len(rows), "sha256": split} for split, rows in right.items()}
        results = {
            f"{'eval' if split != 'test' else 'test'}_accuracy": sum(rows) / len(rows) for split, rows in right.items()
        }
        flags = {"train_file": "t.csv", "seed": seed, "model_name_or_path": model}
        folder = finished(name, "run_glue.py", results, {"task": "custom", "splits": splits}, **flags)
        for split, rows in right.items():
            write_rows(Path(folder), split, rows_of(["x"] * len(rows), ["xy"[not one] for one in rows]))
        return folder

    return make


def test_test_scores_and_rows_are_shown_where_all_runs_have_them(scored):
    one = scored("one", validation=[True, False], test=[True] * 3 + [False])
    two = scored("two", model="x/n", validation=[True, True], test=[True, True, False, False])
    table = table_of(one, two)
    assert table[1:] == [
        ["custom", "accuracy, 2 rows", "50.0", "100.0"],
        ["custom", "accuracy, test, 4 rows", "75.0", "50.0"],
    ]
    assert table_of(one, scored("three", model="x/o", validation=[True, False]))[1:] == [
        ["custom", "accuracy, 2 rows", "50.0", "50.0"]
    ]
    folds = [scored(f"fold{n}", seed=n, validation=[True] * n) for n in (3, 4)]
    assert table_of(*folds)[1][1] == "accuracy, 3 to 4 rows"


def paired(*folders: str) -> list[list[str]]:
    lines = tables([run for folder in folders for run in read_finished_runs(folder)]).split("\n\n")
    return [row for part in lines if "McNemar" in part for row in rows(part)[1:]]


def test_runs_on_the_same_rows_are_compared_with_the_first_one(scored, tmp_path):
    first = scored("first", validation=[True] * 10 + [False] * 10, test=[True, False])
    other = scored("other", model="x/n", validation=[True] * 19 + [False], test=[True, False])
    assert paired(first, other) == [
        ["other against first", "validation, 20 rows", "accuracy", "+45.0", "+20.0 to +65.0", "9 : 0", "0.0039"],
        ["other against first", "test, 2 rows", "accuracy", "+0.0", "+0.0 to +0.0", "0 : 0", "1"],
    ]
    assert not paired(first, scored("more", model="x/o", validation=[True] * 21))  # other rows
    results = tmp_path / "other" / "all_results.json"
    results.write_text(results.read_text().replace('"eval_accuracy": 0.95', '"eval_accuracy": 0.99'))
    assert [row[1] for row in paired(first, other)] == ["test, 2 rows"]  # the rows are not those of the score
    (tmp_path / "first" / "scored_test.jsonl").unlink()
    assert not paired(first, other)
    again = scored("again", seed=43, validation=[True] * 10 + [False] * 10)  # shares a cell with the first one
    assert not paired(first, again, other)
