"""lab/paper/plan.py: every cell of a table is a command of its script, and rows differ as in the paper."""

from collections import Counter

import pytest

from bert_training.tasks.seeds import planned_runs
from lab import run_paper
from lab.paper.plan import files_in, number_in_words, words_of
from lab.tests.helpers.paper_plans import TABLES, command, plan_of


@pytest.mark.parametrize("scale", ["builtin", "smoke", "paper"])
@pytest.mark.parametrize("table", TABLES)
def test_every_command_is_one_of_its_script(table, scale):
    more = {"builtin": {}, "smoke": {"smoke": True}, "paper": {"dry_run": True}}[scale]
    plan = plan_of(table, "paper" if scale == "paper" else "builtin", **more)
    names = [cell.name for cell in plan.cells]
    assert len(names) == len(set(names))
    for number, cell in enumerate(plan.cells):
        cell.arguments()
        assert set(cell.needs) <= set(names[:number])
    rows = {row.name for row in plan.experiment.published.rows}
    places = Counter((score.row, score.column) for score in plan.scores)
    assert {row for row, _ in places} == rows and set(places.values()) == {2}
    assert len(places) == len(rows) * len(plan.columns)


def test_the_dry_run_prints_every_run(tmp_path, capsys):
    run_paper.main(["--table", "6", "--scale", "paper", "--dry_run", "--output_dir", str(tmp_path / "out")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[::2] == [cell.name for cell in plan_of("6", "paper", seeds=3, dry_run=True).cells]
    assert all(line.startswith("    python run_") for line in lines[1::2]) and not (tmp_path / "out").exists()


def test_rows_differ_in_what_the_paper_varies():
    plan = plan_of("5")
    assert "--objective ltr" in command(plan, "pretrain-ltr-seed-43") and "--seed 43" in command(
        plan, "pretrain-ltr-seed-43"
    )
    assert "pretrain-ltr_bilstm-seed-42" not in {cell.name for cell in plan.cells}
    bilstm = command(plan, "qa-ltr_bilstm-seed-42")
    assert "--bilstm_on_top" in bilstm and "--model_name_or_path cells/pretrain-ltr-seed-42" in bilstm
    assert "--label_token last" in command(plan, "pair-ltr-seed-42")
    assert "--label_token" not in command(plan, "pair-no_nsp-seed-42")
    assert "--seeds 5" in command(plan_of("6"), "kind-l24_h1024_a16-seed-42")
    assert "--feature_based weighted_sum_all" in command(plan_of("7"), "code-weighted_sum_all-seed-42")
    # A row reads equally many tokens in a step, with and without next sentence prediction.
    assert "--phases 32:0.4:64,64:0.6:64" in command(plan, "pretrain-bert-seed-42")
    for row in ("no_nsp", "ltr"):
        assert "--phases 32:0.4:86,64:0.6:82" in command(plan, f"pretrain-{row}-seed-42")
    mix = command(plan_of("8"), "pretrain-mix_0_20_80-seed-42")
    assert "--mask_replace_prob 0 --random_replace_prob 0.8" in mix
    assert "--feature_based concat_last_four" in command(plan_of("8"), "code_features-mix_0_20_80-seed-42")
    figure = plan_of("figure5")
    assert "--save_total_limit 0" in command(figure, "pretrain-mlm-seed-42")
    tuned = command(figure, "pair-mlm-step-320-seed-42")
    assert "--model_name_or_path cells/pretrain-mlm-seed-42/checkpoint-320 --tokenizer_name vocabulary" in tuned


def test_scores_are_brought_to_per_cent():
    """run_squad.py gives per cent, the other scripts shares."""
    factors = {(score.column, score.factor) for score in plan_of("5").scores}
    assert factors == {("pair", 100.0), ("kind", 100.0), ("qa", 1.0), ("loss", 1.0)}


def test_all_rows_of_a_table_have_the_same_recipe():
    for table in TABLES:
        recipes = {cell.flags.get("recipe") for cell in plan_of(table).cells if cell.task is None}
        assert recipes == {"fast"}
    assert "--initializer_range 0.0566" in command(plan_of("8"), "pretrain-mix_100_0_0-seed-42")


def test_no_two_restarts_of_a_row_have_the_same_seed():
    plan = plan_of("6")
    seeds = [
        run.seed
        for cell in plan.cells
        if cell.name.startswith("kind-l3_h768_a12-")
        for run in planned_runs(cell.arguments())
    ]
    assert sorted(seeds) == list(range(42, 52))


def test_words_of_every_kind_of_value():
    flags = {"train_file": ["a b.txt", "c.txt"], "name": "x", "on": True, "off": False, "steps": 0, "rate": 2e-3}
    assert "|".join(words_of(flags)) == "--train_file|a b.txt|c.txt|--name|x|--on|--steps|0|--rate|2e-3"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1_000_000, "1000000"), (0.0, "0"), (1.0, "1"), (0.8, "0.8"), (5e-5, "5e-5"), (1.5e-3, "1.5e-3")],
)
def test_numbers_are_written_as_by_hand(value, text):
    assert number_in_words(value) == text and float(text) == value


def test_a_number_is_never_rounded():
    with pytest.raises(AssertionError, match="more digits"):
        number_in_words(1 / 3)


def test_the_files_that_flags_name():
    flags = {"train_file": ["a", "b"], "validation_file": "c", "data_dir": "d", "lstm_size": 3, "seed": 1}
    assert files_in(flags) == ["a", "b", "c", "d"]
