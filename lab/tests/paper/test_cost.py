"""lab/paper/cost.py: the operations of a plan, the measured speed, and what a dry run prints."""

import functools
import json
from pathlib import Path

import pytest

from bert_tools import budget
from lab import run_paper
from lab.paper import cost, data, published
from lab.paper.data import PaperArguments, scale_of
from lab.paper.experiments import PRETRAINING_TASKS
from lab.paper.scales import BUILTIN, Size
from lab.tests.helpers.paper_plans import TABLES, plan_of


def test_costs_follow_the_operations():
    plan = plan_of("5")
    seconds = cost.costs(plan, BUILTIN, 1e9)
    # A layer costs 8 H^2 + 4 H I + 4 n H a token, the head 2 H^2 + 2 H V a prediction, the pooler 2 H^2 a sequence.
    # Training costs three times as much.
    # Two fifths of the steps have sequences of 32 tokens, the others of 64.
    steps = PRETRAINING_TASKS.steps["builtin"]
    for name, share, batches in (("bert", 0.15, (64, 64)), ("ltr", 1.0, (86, 82))):
        flops = 0.0
        for length, steps_share, batch in zip((32, 64), (0.4, 0.6), batches, strict=True):
            sequences = steps_share * steps * batch
            tokens, layer = sequences * length, 24 * 128**2 + 4 * length * 128
            head = share * tokens * (2 * 128**2 + 2 * 128 * 4096)
            flops += 3 * (2 * tokens * layer + head + sequences * 2 * 128**2)
        assert seconds[f"pretrain-{name}-seed-42"] == pytest.approx(flops / 1e9)
    assert seconds["qa-ltr_bilstm-seed-42"] > 1.5 * seconds["qa-ltr-seed-42"]
    assert cost.lstm_flops(10, 3) == 2 * 8 * 3 * (13 + 9)
    ladder = cost.costs(plan_of("6"), BUILTIN, 1e9)
    sizes = [ladder[f"kind-{row}-seed-42"] for row in published.LADDER]
    assert sizes == sorted(sizes) and sizes[-1] > 5 * sizes[0]


def test_the_planner_times_the_first_network():
    asked = []

    def start(flags, launcher=()):
        asked.extend(flags)
        folder = Path(flags[flags.index("--output_dir") + 1])
        folder.mkdir()
        records = [
            {"event": "train", "max_seq_length": length, "seconds_per_step": seconds}
            for length, seconds in ((32, 0.25), (64, 0.5))
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, records * 4)))
        (folder / "all_results.json").write_text("{}")
        (folder / "run.json").write_text('{"device": "cpu"}')

    speed, device = cost.measure_speed(
        plan_of("5"), scale_of(PaperArguments("5", "o")), functools.partial(budget.timed_run, run_script=start)
    )
    shape = data.config_of(BUILTIN, Size(2, 128, 2), 4096)
    assert device == "cpu"
    flops = 0.4 * cost.training_flops(shape, 2048, 64, 0.15 * 2048)
    flops += 0.6 * cost.training_flops(shape, 4096, 64, 0.15 * 4096)
    assert speed == pytest.approx(flops / (0.4 * 0.25 + 0.6 * 0.5))
    assert asked[asked.index("--phases") + 1] == "32:0.500000000:64x1,64:0.500000000:64x1"  # As many steps of each.


def test_the_dry_run_prints_every_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run_paper, "measure_speed", lambda *arguments: (1e11, "a device"))
    for table in TABLES:
        run_paper.main(["--table", table, "--dry_run", "--output_dir", str(tmp_path / "out")])
        lines = capsys.readouterr().out.splitlines()
        plan = plan_of(table, seeds=3)
        assert [line.split(":")[0] for line in lines[:-2:2]] == [cell.name for cell in plan.cells]
        assert all(line.startswith("    python run_") for line in lines[1:-2:2])
        assert f"{len(plan.cells)} runs, 0 of them finished" in lines[-1] and "on a device" in lines[-1]
    run_paper.main(["--table", "6", "--scale", "paper", "--dry_run", "--output_dir", str(tmp_path / "out")])
    assert "years" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
