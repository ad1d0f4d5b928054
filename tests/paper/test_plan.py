"""training/paper/plan.py: the plan of a table, its cost, its folder and its report. No run is made."""

import dataclasses
import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from transformers import BertConfig

import run_paper
from tests.helpers.official_files import write_task
from training.flags.parsing import parse_arguments
from training.flags.scripts import SCRIPTS
from training.paper import cost, data, published, report
from training.paper.data import find_tasks, find_text, scale_of
from training.paper.flags import PaperArguments
from training.paper.folder import check_finished_cells, claim_folder, is_finished, read_scores
from training.paper.plan import Plan, make_plan
from training.paper.scales import Size

TABLES = ("5", "6", "7", "8", "figure5")


def planned(table: str, scale: str = "builtin", seeds: int = 2, **more) -> Plan:
    args = PaperArguments(table=table, output_dir="out", scale=scale, seeds=seeds, **more)
    found = scale_of(args)
    return make_plan(table, found, find_tasks(args, found), find_text(args, found), seeds)


@pytest.fixture
def data_dir(tmp_path) -> Path:
    """A data folder with a real text of two lines, MRPC and SST-2."""
    (tmp_path / "data/text").mkdir(parents=True)
    (tmp_path / "data/text/wiki.txt").write_text("a\nb\n\nc\nd\n")
    (tmp_path / "data/text/wiki_heldout.txt").write_text("e\nf\n")
    for task, folder in (("mrpc", "MRPC"), ("sst2", "SST-2")):
        write_task(tmp_path / "data/glue" / folder, task)
    return tmp_path / "data"


@pytest.mark.parametrize("scale", ["builtin", "smoke", "paper"])
@pytest.mark.parametrize("table", TABLES)
def test_every_command_is_one_of_its_script(table, scale):
    more = {"builtin": {}, "smoke": {"smoke": True}, "paper": {"dry_run": True}}[scale]
    plan = planned(table, "paper" if scale == "paper" else "builtin", **more)
    names = [cell.name for cell in plan.cells]
    assert len(names) == len(set(names))
    for number, cell in enumerate(plan.cells):
        parse_arguments(SCRIPTS[cell.script], cell.command)
        assert set(cell.needs) <= set(names[:number])
    rows = {row.name for row in published.PUBLISHED[table].rows}
    places = Counter((score.row, score.column) for score in plan.scores)
    assert {row for row, _ in places} == rows and set(places.values()) == {2}
    assert len(places) == len(rows) * len(plan.columns)


def command(plan: Plan, name: str) -> str:
    return " ".join(next(cell for cell in plan.cells if cell.name == name).command)


def test_rows_differ_in_what_the_paper_varies():
    plan = planned("5")
    assert "--objective ltr" in command(plan, "pretrain-ltr-seed-43") and "--seed 43" in command(
        plan, "pretrain-ltr-seed-43"
    )
    assert "pretrain-ltr_bilstm-seed-42" not in {cell.name for cell in plan.cells}
    bilstm = command(plan, "qa-ltr_bilstm-seed-42")
    assert "--bilstm_on_top" in bilstm and "--model_name_or_path cells/pretrain-ltr-seed-42" in bilstm
    assert "--label_token last" in command(plan, "pair-ltr-seed-42")
    assert "--label_token" not in command(plan, "pair-no_nsp-seed-42")
    assert "--seeds 5" in command(planned("6"), "kind-l24_h1024_a16-seed-42")
    assert "--feature_based weighted_sum_all" in command(planned("7"), "code-weighted_sum_all-seed-42")
    mix = command(planned("8"), "pretrain-mix_0_20_80-seed-42")
    assert "--mask_replace_prob 0 --random_replace_prob 0.8" in mix
    assert "--feature_based concat_last_four" in command(planned("8"), "code_features-mix_0_20_80-seed-42")
    figure = planned("figure5")
    assert "--save_total_limit 0" in command(figure, "pretrain-mlm-seed-42")
    tuned = command(figure, "pair-mlm-step-600-seed-42")
    assert "--model_name_or_path cells/pretrain-mlm-seed-42/checkpoint-600 --tokenizer_name vocabulary" in tuned


def test_the_small_scale_takes_what_is_there(data_dir):
    plan = planned("5", "small", data_dir=str(data_dir))
    assert list(plan.titles.values()) == ["MRPC", "SST-2", "held-out loss, nats"]
    words = command(plan, "pretrain-bert-seed-42")
    assert f"--train_file {data_dir}/text/wiki.txt --validation_file {data_dir}/text/wiki_heldout.txt" in words
    assert [column.key for column in planned("8", "small", data_dir=str(data_dir)).columns] == [
        *("sst2", "code", "code_features")
    ]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--table", "5", "--seeds", "1"], "--seeds must be at least 2; got 1"),
        (["--table", "9"], "invalid choice: '9'"),
        (["--table", "5", "--jobs", "0"], "--jobs must be at least 1"),
        (["--table", "5", "--scale", "small"], "--scale small needs --data_dir"),
        (["--table", "5", "--scale", "paper"], "--scale paper needs --data_dir"),
        (["--table", "5", "--data_dir", "d"], "--data_dir has no effect at the built-in scale"),
        (["--table", "5", "--scale", "small", "--data_dir", "d", "--smoke"], "--smoke tries the built-in scale"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags, told, capsys):
    with pytest.raises(SystemExit) as stop:
        run_paper.main([*flags, "--output_dir", "out"])
    assert stop.value.code == 2 and told in capsys.readouterr().err.splitlines()[-1]


def test_a_scale_without_its_data_is_refused_before_any_run(data_dir, tmp_path):
    flags = ["--output_dir", str(tmp_path / "out"), "--data_dir", str(data_dir)]
    with pytest.raises(ValueError, match="found no data of mnli, qnli, squad, which table 5 needs at the scale paper"):
        run_paper.main([*flags, "--table", "5", "--scale", "paper"])
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match=r"no text in .*nothing/text; expected text/ with documents"):
        run_paper.main(["--table", "7", "--scale", "small", *flags[:3], str(tmp_path / "nothing")])
    assert not (tmp_path / "out").exists()


def test_a_folder_keeps_to_its_plan(tmp_path):
    plan = planned("7")
    claim_folder(tmp_path / "out", plan, {"a.txt": "1"})
    claim_folder(tmp_path / "out", plan, {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"out holds another plan \(seeds \[42, 43\] -> \[42, 43, 44\]\); give"):
        claim_folder(tmp_path / "out", planned("7", seeds=3), {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"another plan \(table 7 -> 8\)"):
        claim_folder(tmp_path / "out", planned("8"), {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"another plan \(scale builtin -> smoke\)"):
        claim_folder(tmp_path / "out", planned("7", smoke=True), {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"another plan \(other commands\); give another folder"):
        claim_folder(tmp_path / "out", dataclasses.replace(plan, cells=plan.cells[:-1]), {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"a\.txt: changed since the runs had begun"):
        claim_folder(tmp_path / "out", plan, {"a.txt": "2"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(ValueError, match=r"expected an empty folder, or one with plan\.json"):
        claim_folder(tmp_path / "other", plan, {})


def test_a_finished_cell_that_is_another_run_is_refused(tmp_path):
    """It may have been started by hand, or before its pre-training was repeated."""
    plan = planned("6")
    names = ("pretrain-l3_h768_a12-seed-42", "pair-l3_h768_a12-seed-42")
    pretraining, series = (next(cell for cell in plan.cells if cell.name == name) for name in names)
    weights = tmp_path / "cells" / pretraining.name / "model.safetensors"
    checksum = hashlib.sha256(b"weights").hexdigest()
    runs = [(pretraining, pretraining.name)]
    runs += [(series, f"{series.name}/seed-{seed}") for seed in range(42, 47)]
    for cell, folder in runs:
        args = parse_arguments(SCRIPTS[cell.script], cell.command)
        flags = dataclasses.asdict(args) | {"output_dir": f"cells/{folder}"}
        if cell is series:
            flags |= {"seeds": None, "seed": int(folder[-2:])}
        place = tmp_path / "cells" / folder
        place.mkdir(parents=True)
        facts = {"flags": flags, "initial_weights": {"model.safetensors": checksum} if cell is series else None}
        (place / "run.json").write_text(json.dumps(facts))
        (place / "all_results.json").write_text("{}")
    (tmp_path / "cells" / series.name / "summary.json").write_text("{}")
    check_finished_cells(tmp_path, plan)  # The weights have been deleted, which contradicts nothing.
    weights.write_bytes(b"weights")
    check_finished_cells(tmp_path, plan)

    weights.write_bytes(b"others")
    with pytest.raises(
        ValueError, match=rf"seed-42 holds another run .*\(the weights of cells/{names[0]}\); delete it"
    ):
        check_finished_cells(tmp_path, plan)
    weights.unlink()
    path = tmp_path / "cells" / pretraining.name / "run.json"
    path.write_text(path.read_text().replace('"max_steps": 500', '"max_steps": 10'))
    with pytest.raises(ValueError, match=rf"{names[0]} holds another run than the plan asks for \(max_steps 10 -> 500"):
        check_finished_cells(tmp_path, plan)
    path.unlink()
    with pytest.raises(ValueError, match=r"run\.json: not found, but the run is finished"):
        check_finished_cells(tmp_path, plan)


@pytest.mark.parametrize("results", [None, "{}", '{"eval_f1": null}'])
def test_a_missing_score_is_not_taken_for_a_result(tmp_path, results):
    plan = planned("7")
    plant(tmp_path, plan)
    path = tmp_path / "cells/code-last-seed-43/all_results.json"
    path.unlink()
    if results is not None:
        path.write_text(results)
    with pytest.raises(ValueError, match=r"code-last-seed-43: expected (a finished run|the result eval_f1)"):
        report.write_report(tmp_path, plan)
    assert not (tmp_path / "report.md").exists()


def test_a_changed_corpus_is_refused(tmp_path, monkeypatch, text_file):
    def write_files(folder, packages):
        assert packages is False  # A smoke run reads the standard library only.
        shutil.copy(text_file, folder / "corpus.txt")

    monkeypatch.setattr(data.documentation, "write_files", write_files)
    args = PaperArguments("5", str(tmp_path), smoke=True)
    arguments = (tmp_path, args, scale_of(args), {"train_file": "data/corpus.txt"}, [Size(1, 32, 2)], True)
    data.prepare(*arguments)
    config = BertConfig.from_pretrained(tmp_path / "sizes/L1_H32_A2")
    vocabulary = (tmp_path / "vocabulary/vocab.txt").read_text().splitlines()
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (len(vocabulary), 32, 128)
    assert vocabulary[config.pad_token_id] == "[PAD]"
    data.prepare(*arguments)
    with open(tmp_path / "data/corpus.txt", "a") as file:
        file.write("One more line.\n")
    with pytest.raises(ValueError, match=r"data was changed after the runs had begun \(corpus\.txt does not match"):
        data.prepare(*arguments)


# --- The cost --------------------------------------------------------------------------------------------


def test_costs_follow_the_operations():
    plan = planned("5")
    found = cost.costs(plan, 4096, 1e9)
    # A layer costs 8 H^2 + 4 H I + 4 n H a token, the head 2 H^2 + 2 H V a prediction, the pooler 2 H^2 a sequence.
    # Training costs three times as much.
    tokens, sequences, layer = 1200 * 32 * 64, 1200 * 32, 24 * 128**2 + 4 * 64 * 128
    for name, share in (("bert", 0.15), ("ltr", 1.0)):
        head = share * tokens * (2 * 128**2 + 2 * 128 * 4096)
        flops = 3 * (2 * tokens * layer + head + sequences * 2 * 128**2)
        assert found[f"pretrain-{name}-seed-42"] == pytest.approx(flops / 1e9)
    assert found["qa-ltr_bilstm-seed-42"] > 1.5 * found["qa-ltr-seed-42"]
    assert cost.lstm_flops(10, 3) == 2 * 8 * 3 * (13 + 9)
    ladder = cost.costs(planned("6"), 4096, 1e9)
    sizes = [ladder[f"kind-{row}-seed-42"] for row in published.LADDER]
    assert sizes == sorted(sizes) and sizes[-1] > 5 * sizes[0]


def test_the_planner_times_the_first_network():
    asked = []

    def start(flags, launcher=()):
        asked.extend(flags)
        folder = Path(flags[flags.index("--output_dir") + 1])
        folder.mkdir()
        record = {"event": "train", "max_seq_length": 64, "seconds_per_step": 0.5}
        (folder / "metrics.jsonl").write_text("\n".join([json.dumps(record)] * 4))
        (folder / "all_results.json").write_text("{}")
        (folder / "run.json").write_text('{"device": "cpu"}')

    speed, device = cost.measured_speed(planned("5"), scale_of(PaperArguments("5", "o")), start)
    shape = data.config_of(Size(2, 128, 2), 4096)
    assert device == "cpu"
    assert speed == pytest.approx(cost.training_flops(shape, 2048, 32, 0.15 * 2048) / 0.5)
    assert asked[asked.index("--phases") + 1] == "64:1.000000000:32x1"


def test_the_dry_run_prints_every_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run_paper, "measured_speed", lambda plan, scale: (1e11, "a device"))
    for table in TABLES:
        run_paper.main(["--table", table, "--dry_run", "--output_dir", str(tmp_path / "out")])
        lines = capsys.readouterr().out.splitlines()
        plan = planned(table, seeds=3)
        assert [line.split(":")[0] for line in lines[:-2:2]] == [cell.name for cell in plan.cells]
        assert all(line.startswith("    python run_") for line in lines[1:-2:2])
        assert f"{len(plan.cells)} runs, 0 of them finished" in lines[-1] and "on a device" in lines[-1]
    run_paper.main(["--table", "6", "--scale", "paper", "--dry_run", "--output_dir", str(tmp_path / "out")])
    assert "years" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


# --- The report ------------------------------------------------------------------------------------------


def plant(folder: Path, plan: Plan) -> None:
    """Write finished cells. A score is 60, 59, ... for the row, plus a multiple of the seed that rises with the row."""
    rows = [row.name for row in published.PUBLISHED[plan.table].rows]
    for cell in plan.cells:
        if cell.task is None:
            (folder / "cells" / cell.name).mkdir(parents=True)
            (folder / "cells" / cell.name / "all_results.json").write_text("{}")
    for score in plan.scores:
        place = folder / "cells" / score.cell
        place.mkdir(parents=True, exist_ok=True)
        row = rows.index(score.row)
        value = (60 - row + (1 + row / 10) * (score.seed % 10) / 10) / score.factor
        if plan.table == "6" and score.metric != "eval_perplexity":
            metrics = {"settings": [{"metrics": {score.metric: {"mean": value}}}]}
            (place / "summary.json").write_text(json.dumps(metrics))
        else:
            (place / "all_results.json").write_text(json.dumps({score.metric: value}))


@pytest.mark.parametrize("table", TABLES)
def test_the_report_shows_the_planted_results(table, tmp_path):
    plan = planned(table, seeds=3)
    plant(tmp_path, plan)
    assert all(is_finished(tmp_path, cell) for cell in plan.cells)
    scores = read_scores(tmp_path, plan)
    found = report.write_report(tmp_path, plan)
    assert json.loads((tmp_path / "report.json").read_text()) == found
    assert (tmp_path / "report.png").stat().st_size > 10_000
    first = next(column.key for column in plan.columns if column.kind not in ("ppl", "loss"))
    reference, other = found["reference"], published.PUBLISHED[table].rows[1].name
    assert scores[published.PUBLISHED[table].rows[0].name, first] == pytest.approx([60.2, 60.3, 60.4])
    cell = found["rows"][published.PUBLISHED[table].rows[0].name]["scores"][first]
    assert cell["mean"] == pytest.approx(60.3) and cell["std"] == pytest.approx(0.1)
    if reference != other:
        row = found["rows"][other]["scores"][first]
        assert row["difference"] == pytest.approx(scores[other, first][1] - scores[reference, first][1])
        assert row["interval"][0] < row["difference"] < row["interval"][1]
    text = (tmp_path / "report.md").read_text()
    for row in published.PUBLISHED[table].rows:
        assert row.label in text and all(f"{value:g}" in text for value in row.scores)
    for claim in found["claims"]:
        assert f"| {claim['claim']} | {claim['place']} |" in text and f"*{claim['verdict']}*" in text


def test_verdicts_of_planted_results(tmp_path):
    """In this Table 5 every row is about one point below the row before. In the paper the BiLSTM is above the third."""
    plan = planned("5", seeds=3)
    plant(tmp_path, plan)
    verdicts = [claim["verdict"] for claim in report.write_report(tmp_path, plan)["claims"]]
    assert verdicts == ["holds", "holds", "contradicted", "holds", "holds"]
