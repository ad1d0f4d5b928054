"""lab/tables.py: the tables of the pages are those of the records, with date, processor and commit."""

import json
import re

import pytest

from bert_training.inputs.flags.phases import phases_of, with_steps
from lab import run_tables, tables
from lab.tests.helpers.paper_plans import write_table
from tests.helpers.repository import ROOT


@pytest.mark.parametrize("path", tables.pages(), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_what_the_command_writes(path):
    text = path.read_text(encoding="utf-8")
    assert tables.rewritten(text) == text, "python lab/tables.py writes the tables of the records"


def test_every_table_is_on_a_page():
    shown = {name for path in tables.pages() for name in re.findall("<!-- table: (.*?) -->", path.read_text())}
    assert shown == set(tables.TABLES)


@pytest.mark.parametrize("path", sorted(tables.FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_a_record_says_when_and_at_which_commit_it_was_measured(path):
    record = json.loads(path.read_text(encoding="utf-8"))
    parts = [record] if "date" in record else list(record.values())
    assert all(re.match(r"20\d\d-\d\d-\d\d", part["date"]) and part["commit"] for part in parts)


def test_the_table_of_students_compares_each_with_its_teacher():
    """The record does not exist before it is measured; a share is that of the teacher with the same seed."""
    models = {
        "teacher": {"scores": [0.8, 0.9], "mean": 0.85, "interval": [0.8, 0.9], "share": 1, "share_interval": [1, 1]},
        "student": {"scores": [0.76, 0.9], "mean": 0.83, "interval": [0.7, 0.96], "share": 0.975,
                    "share_interval": [0.95, 1.0]},
    }  # fmt: skip
    speed = {"steps": {"ratio": 1.904}, "forward passes": {"ratio": 1.95}}
    made = tables.students({"mrpc": {"task": "mrpc", "models": models, "speed": speed}})
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in made.splitlines()[2:]]
    assert rows[0] == ["MRPC, F1", "teacher", "2", "85.0 (80.0 to 90.0)", "", "", ""]
    assert rows[1] == ["MRPC, F1", "student", "2", "83.0 (70.0 to 96.0)", "97.5 (95.0 to 100.0)", "1.90", "1.95"]


def test_a_table_is_replaced_and_the_rest_of_the_page_stays():
    page = "# A\n\n<!-- table: lengths -->\nold\n<!-- end -->\n\nText <!-- end -->.\n"
    made = tables.rewritten(page)
    assert made == page.replace("old\n", tables.TABLES["lengths"]())
    assert "| mrpc train | 128 | 41.6 |\n" in made and tables.rewritten(made.replace("41.6", "41.7")) == made


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- table: nothing -->\n<!-- end -->\n", "with one of step_cpu, .*; got <!-- table: nothing -->"),
        ("<!-- table: lengths -->\n\n<!-- table: squad -->\n<!-- end -->\n", "got <!-- table: lengths -->"),
        ("<!-- table: lengths -->\n| a |\n", "expected <!-- end --> after every table"),
    ],
)
def test_an_unknown_or_open_table_is_an_error(page, message, tmp_path, monkeypatch):
    message = message.replace("with one of", "where NAME is one of")
    (tmp_path / "README.md").write_text(page)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=f"README.md: .*{message}"):
        tables.write_pages()
    assert (tmp_path / "README.md").read_text() == page


def test_the_command_writes_the_pages_and_names_them(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    page, other = tmp_path / "README.md", tmp_path / "docs" / "a.md"
    page.write_text("<!-- table: lengths -->\n<!-- end -->\n")
    other.write_text("# A\n")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    tables.write_pages()
    assert page.read_text().endswith("commit 74c996b-dirty: `lab/records/lengths.json`*\n<!-- end -->\n")
    assert capsys.readouterr().out == "README.md: its tables are new\n"


def test_the_line_below_a_table_has_days_processors_and_commits_in_their_order():
    line = run_tables.sentence(
        "Measured",
        ["2026-11-22T09:00:00", "2026-11-20T08:00:00", "2026-11-22T10:00:00"],
        ["bbbbbbbbb", "ccccccccc-dirty", "bbbbbbbbb"],
        ["cpu, x86_64, 1 threads", "AMD EPYC", "AMD EPYC"],
        "a.json",
    )
    assert (
        line == "*Measured 2026-11-20 to 2026-11-22 on x86_64 and AMD EPYC, commits ccccccc-dirty, bbbbbbb: `a.json`*\n"
    )
    assert run_tables.sentence("At", ["2026-11-20"], ["a"], [""], "b") == "*At 2026-11-20, commit a: `b`*\n"


def test_a_step_without_an_evaluation_is_an_error():
    with pytest.raises(ValueError, match="mini-14000: expected an evaluation at step 7; there are those at"):
        run_tables.held_out({"mini-14000": (7,)})


def test_the_table_of_the_control_has_the_means_and_differences_of_the_summaries():
    summary = json.loads((ROOT / "lab/records/runs/minilm-stsb-control/summary.json").read_text())
    scores = [run["results"]["eval_pearson"] for run in summary["runs"]]
    row = run_tables.control().splitlines()[2]
    assert row.startswith(
        f"| STS-B, Pearson correlation | 5 | 84.3 | {100 * sum(scores) / 5:.1f} | +0.3 | -1.0 to +1.7 |"
    )


def test_a_recorded_report_is_shown_by_its_verdicts_its_picture_and_a_link(monkeypatch, tmp_path):
    monkeypatch.setattr(run_tables, "RUNS", tmp_path)
    write_table(tmp_path / "paper/table7", "7")
    verdicts, picture, link, recorded = run_tables.paper("table7").strip().split("\n\n")
    assert verdicts.splitlines()[2].startswith("| (1) | The concatenation of the last four layers is the best")
    assert len(verdicts.splitlines()) == 5 and picture.endswith("](../records/runs/paper/table7/report.png)")
    assert link.endswith("](../records/runs/paper/table7/report.md)")
    assert "`lab/records/runs/paper/table7/record.json`" in recorded


def test_the_times_of_runs_are_shown_on_request():
    scores, made = run_tables.compared("stsb-*").strip().split("\n\n")
    assert scores.startswith("| task | metric, per cent |") and made.startswith("*Runs of 2026-11-21")
    again, times, _ = run_tables.compared("stsb-*", with_times=True).strip().split("\n\n")
    assert again == scores and times.startswith("| run | steps | seconds of training |")


def test_the_table_of_deduplication_has_the_means_of_the_seeds():
    run = {"eval_mlm_loss": 4.5, "eval_nats_per_word": 7.0, "eval_mlm_accuracy": 0.25, "corpus": {"tokens": 8_600_000}}
    made = tables.deduplication({"variants": {"as it is": [run, run | {"eval_mlm_loss": 4.7}]}})
    assert "| as it is | 8.6 | 2 | 4.600 | 7.000 | 25.0 |" in made


def test_the_pieces_that_phases_have_read_by_hand():
    """4 steps of 2 x 3 rows of 16, then 1 step of 2 rows of 32."""
    flags = {"phases": "16:0.8:3x2,32:0.2:2", "per_device_train_batch_size": 9, "gradient_accumulation_steps": 1}
    phases = with_steps(phases_of(flags), 5)
    assert [run_tables.pieces_until(step, phases) for step in (1, 4, 5)] == [96, 384, 448]
