"""bert_training/tools/report.py: several runs side by side in tables and a picture."""

import json
import shutil
import statistics

import pytest

from bert_training.tasks import seeds
from bert_training.tools import report
from bert_training.tools.report import main, read_finished_runs, tables


@pytest.fixture
def finished(tmp_path):
    def make(name, script, results, data=None, facts=None, **flags):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        facts = {"script": script, "flags": flags, "data": data} | (facts or {})
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
    (tmp_path / "five" / "summary.json").write_text('{"runs": [{"folder": "seed-42"}, {"folder": "seed-43"}]}')
    main([str(tmp_path / "five"), "--output_dir", str(tmp_path / "out")])
    table = rows((tmp_path / "out" / "report.md").read_text())
    assert table[1] == ["RTE", "accuracy", "60.0 ± 14.1 (2)"]
    assert table[3:] == [[str(tmp_path / "five"), "1,000", "61 ± 0 (2)", "0123456789ab", "cpu"]]
    (tmp_path / "five" / "seed-43" / "all_results.json").unlink()
    with pytest.raises(ValueError, match=r"seed-43/all_results\.json: expected the records of a finished run"):
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
        ({"learning_rate": 3e-5}, {"learning_rate": 1e-3}, ("learning rate 3e-5", "learning rate 0.001")),
        ({"num_train_epochs": 3.0}, {"num_train_epochs": 1.0}, ("3 epochs", "1 epoch")),
        ({"max_steps": 2000}, {}, ("2,000 steps", "3 epochs")),
        ({"group_by_length": True}, {"group_by_length": False}, ("group by length", "no group by length")),
        ({"max_train_samples": 10000}, {}, ("max train samples 10000", "no max train samples")),
        ({"facts": {"processes": 2}}, {"facts": {"processes": 1}}, ("2 processes", "1 process")),
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
        *("random weights, size mini", "random weights, size tiny"),
        *("from m, weights aaaaaaaa", "from m, weights bbbbbbbb"),
    ]
    assert table[1][2:] == ["40.0", "50.0", "20.0 ± 14.1 (2)", "20.0"]
    by_path = table_of(cola(finished, "f", 0.6), cola(finished, "g", 0.7, model_name_or_path="y/m"))
    assert by_path[0][2:] == ["from m, folder x/m", "from m, folder y/m"]


@pytest.mark.parametrize("name", ["series/seed-42", "series/seed-42/run.json", "series/seed-42/all_results.json"])
def test_no_link_leads_a_report_out_of_a_folder(finished, tmp_path, name):
    """Another's series with a link to a run of yours, or to a record of it."""
    for place in ("series", "mine"):
        finished(f"{place}/seed-42", "run_glue.py", {"eval_accuracy": 0.5}, task_name="rte", model_name_or_path="m")
    (tmp_path / "series" / "summary.json").write_text('{"runs": [{"folder": "seed-42"}]}')
    place = tmp_path / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    place.symlink_to(tmp_path / name.replace("series", "mine"))
    with pytest.raises(ValueError, match=rf"{place}: is a link out of .*, and nothing outside it is read"):
        main([str(tmp_path / "series"), "--output_dir", str(tmp_path / "out")])


def test_runs_without_scores_have_a_table_and_no_picture(finished, tmp_path, capsys):
    folder = finished("a", "run_glue.py", {}, task_name="rte", model_name_or_path="m")
    main([folder, "--output_dir", str(tmp_path / "out")])
    assert "no picture: no run has scores" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.md"]


def test_one_run_twice_is_refused(finished):
    folder, again = cola(finished, "a"), cola(finished, "b", 0.6)
    for folders in ((folder, folder), (folder, again)):
        with pytest.raises(
            ValueError, match=r"runs with the same settings and the same seed \(42\); expected each run"
        ):
            table_of(*folders)


def test_an_undefined_score_is_called_undefined_and_counts_as_0(finished, tmp_path):
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
    _figure, axes = report.new_figure("", 1)
    report.draw_bars(axes[0], {("cola", "score"): {"from x": [20.0, None, 40.0]}}, {"from x": "from x"})
    assert [text.get_text() for text in axes[0].texts] == ["20.0, 1 undefined  from x"]
    assert [bar.get_width() for bar in axes[0].patches] == [20.0]


def test_every_script_has_its_rows_and_others_are_named(finished, tmp_path):
    names = {"eval_precision": 0.5, "eval_recall": 0.25, "eval_f1": 0.375, "eval_accuracy": 0.9, "eval_LOC_f1": 0.1}
    folders = [
        finished("ner", "run_ner.py", names, {"labels": ["O"], "splits": {}}, model_name_or_path="m"),
        finished("swag", "run_swag.py", {"eval_accuracy": 0.75}, {"splits": {}}, model_name_or_path="m"),
        finished("mlm", "run_pretraining.py", {"eval_mlm_loss": 5.3, "eval_mlm_accuracy": 0.21}, []),
    ]
    assert table_of(*folders)[1:] == [
        ["named entities", "F1", "37.5"],
        ["named entities", "precision", "50.0"],
        ["named entities", "recall", "25.0"],
        ["multiple choice", "accuracy", "75.0"],
    ]
    finished("other", "run_other.py", {})
    with pytest.raises(ValueError, match=r"run\.json: expected a run of run_pretraining.py, .*; got one of .run_o"):
        read_finished_runs(tmp_path / "other")


@pytest.mark.parametrize("fields", [{"flags": 7}, {"script": {}}, {"flags": {"model_name_or_path": ["x"]}}])
def test_records_of_an_unexpected_form_are_one_line(finished, tmp_path, fields):
    folder = finished("odd", "run_glue.py", {"eval_accuracy": 0.5}, task_name="cola")
    path = tmp_path / "odd" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    with pytest.raises(ValueError, match=r"odd/run\.json: not in the form that a run writes"):
        read_finished_runs(folder)


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
