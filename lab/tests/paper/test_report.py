"""lab/paper/report.py: the report contains the scores and the verdicts that follow from them."""

import json

import pytest

from lab.paper import picture
from lab.paper.record import is_finished, read_cells, results_of, scores_of
from lab.paper.report import content, markdown
from lab.tests.helpers.paper_plans import TABLES, plan_of, write_report_of, write_scores


@pytest.mark.parametrize("table", TABLES)
def test_the_report_shows_the_planted_results(table, tmp_path):
    plan = plan_of(table, seeds=3)
    write_scores(tmp_path, plan)
    assert all(is_finished(tmp_path, cell) for cell in plan.cells)
    scores = scores_of(plan, results_of(read_cells(tmp_path, plan)))
    written = write_report_of(tmp_path, plan)
    assert json.loads((tmp_path / "report.json").read_text()) == written
    assert (tmp_path / "report.png").stat().st_size > 10_000
    first = next(column.key for column in plan.columns if column.kind not in ("ppl", "loss"))
    reference, other = written["reference"], plan.experiment.published.rows[1].name
    assert scores[plan.experiment.published.rows[0].name, first] == pytest.approx([60.2, 60.3, 60.4])
    cell = written["rows"][plan.experiment.published.rows[0].name]["scores"][first]
    assert cell["mean"] == pytest.approx(60.3) and cell["std"] == pytest.approx(0.1)
    if reference != other:
        row = written["rows"][other]["scores"][first]
        assert row["difference"] == pytest.approx(scores[other, first][1] - scores[reference, first][1])
        assert row["interval"][0] < row["difference"] < row["interval"][1]
    text = (tmp_path / "report.md").read_text()
    for row in plan.experiment.published.rows:
        assert plan.labels[row.name] in text and all(f"{value:g}" in text for value in row.scores)
    for number, claim in enumerate(written["claims"], 1):
        assert f"| {claim['claim']} | {claim['place']} |" in text and f"*{claim['verdict']}*" in text
        for contrast in claim["contrasts"]:
            (line,) = [line for line in text.splitlines() if line.startswith(f"| ({number}) | {contrast['text']} | ")]
            for interval in (contrast["interval"], contrast["wide_interval"]):
                assert f"{interval[0]:+,.2f} to {interval[1]:+,.2f}" in line
            assert contrast["verdict"] in line and f"{100 * claim['wide_level']:.4g} %" in line
    assert plan.experiment.note in text


def test_rows_have_the_sizes_of_our_networks(tmp_path):
    """Not those of the paper's, which stand beside its numbers."""
    plan = plan_of("6")
    write_scores(tmp_path, plan)
    write_report_of(tmp_path, plan)
    text = (tmp_path / "report.md").read_text()
    (first,) = [line for line in text.splitlines() if line.startswith("| 1 layer, 64 wide, 2 heads |") and "±" in line]
    assert first.endswith("| 3 layers, 768 wide, 12 heads | 5.84 | 77.9 | 79.8 | 88.4 |")


def test_the_report_shows_what_the_pretrainings_have_learnt():
    """A table says nothing of next sentence prediction if no model has learnt it."""
    plan = plan_of("5", seeds=2)
    results = {score.cell: {"eval_accuracy": 0.5, "eval_f1": 50.0} for score in plan.scores}
    for name, cells in plan.pretrainings.items():
        for cell, loss in zip(cells, (5.0, 6.0), strict=True):
            results[cell] = {"eval_mlm_loss": loss, "unigram_entropy": 6.25}
            if name == "bert":
                results[cell]["eval_nsp_accuracy"] = loss / 10
    numbers = content(plan, results)
    assert numbers["pretrainings"]["bert"] == {
        "eval_mlm_loss": 5.5,
        "unigram_entropy": 6.25,
        "eval_nsp_accuracy": pytest.approx(0.55),
    }
    text = markdown(plan, numbers)
    assert "| `bert` | 5.50 | 6.25 | 0.55 |" in text and "| `ltr` | 5.50 | 6.25 |  |" in text
    assert "| *constant predictions* | 50.00 | 33.33 | 0.00 |  |" in text


def test_held_out_losses_of_other_objectives_are_shown_but_not_compared(tmp_path):
    plan = plan_of("5", seeds=2)
    write_scores(tmp_path, plan)
    written = write_report_of(tmp_path, plan)
    assert written["columns"]["loss"] == "held-out loss, nats"
    assert all("difference" not in row["scores"]["loss"] for row in written["rows"].values())
    heads = [line for line in (tmp_path / "report.md").read_text().splitlines() if line.startswith("| | pairs of")]
    assert ["held-out loss, nats" in head for head in heads] == [True, False]


def test_the_picture_has_no_panel_of_held_out_losses(tmp_path, monkeypatch):
    plan, figures = plan_of("5", seeds=2), []
    write_scores(tmp_path, plan)
    monkeypatch.setattr(picture, "save_figure", lambda figure, path: figures.append(figure))
    picture.draw(plan, scores_of(plan, results_of(read_cells(tmp_path, plan))), tmp_path / "report.png")
    titles = [axis.get_title(loc="left") for axis in figures[0].axes if axis.get_visible()]
    assert titles == [plan.task_titles[task] for task in ("pair", "kind", "qa")]


def test_verdicts_of_planted_results(tmp_path):
    """In this Table 5 every row is about one point below the row before. In the paper the BiLSTM is above the third."""
    plan = plan_of("5", seeds=3)
    write_scores(tmp_path, plan)
    verdicts = [claim["verdict"] for claim in write_report_of(tmp_path, plan)["claims"]]
    assert verdicts == ["holds", "holds", "contradicted", "holds", "holds"]
