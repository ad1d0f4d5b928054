"""lab/paper/record.py: a folder keeps to its plan, and only finished cells of this plan count."""

import dataclasses
import hashlib
import json

import pytest

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.scripts import SCRIPTS
from lab.paper.record import check_finished_cells, claim_folder
from lab.tests.helpers.paper_plans import plan_of, write_report_of, write_scores


def test_a_folder_keeps_to_its_plan(tmp_path):
    plan = plan_of("7")
    claim_folder(tmp_path / "out", plan, {"a.txt": "1"})
    claim_folder(tmp_path / "out", plan, {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"out holds another plan \(seeds \[42, 43\] -> \[42, 43, 44\]\); give"):
        claim_folder(tmp_path / "out", plan_of("7", seeds=3), {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"another plan \(table 7 -> 8\)"):
        claim_folder(tmp_path / "out", plan_of("8"), {"a.txt": "1", "b.txt": "2"})
    with pytest.raises(ValueError, match=r"another plan \(scale builtin -> smoke\)"):
        claim_folder(tmp_path / "out", plan_of("7", smoke=True), {"a.txt": "1"})
    first, *others = plan.cells
    shorter = dataclasses.replace(first, flags={**first.flags, "max_steps": 7})
    for cells in (plan.cells[:-1], (shorter, *others)):
        with pytest.raises(ValueError, match=r"another plan \(its runs have other flags, see plan\.json"):
            claim_folder(tmp_path / "out", dataclasses.replace(plan, cells=cells), {"a.txt": "1"})
    with pytest.raises(ValueError, match=r"a\.txt: changed since the runs had begun"):
        claim_folder(tmp_path / "out", plan, {"a.txt": "2"})
    for files in ({}, {"a.txt": "1", "b.txt": "2"}):
        with pytest.raises(ValueError, match=r"[ab]\.txt: changed since the runs had begun"):
            claim_folder(tmp_path / "out", plan, files)
    (tmp_path / "killed").mkdir()
    (tmp_path / f"killed/plan.json.{'0' * 32}.tmp").write_text(
        "{"
    )  # by a process that was killed while it wrote the plan
    claim_folder(tmp_path / "killed", plan, {})
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["plan.json"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    with pytest.raises(ValueError, match=r"expected an empty folder, or one with plan\.json"):
        claim_folder(tmp_path / "other", plan, {})
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / ".lock").touch()
    claim_folder(tmp_path / "locked", plan, {})


def test_a_finished_cell_that_is_another_run_is_refused(tmp_path):
    """It may have been started by hand, or before its pre-training was repeated."""
    plan = plan_of("6")
    names = ("pretrain-l3_h768_a12-seed-42", "pair-l3_h768_a12-seed-42")
    pretraining, series = (next(cell for cell in plan.cells if cell.name == name) for name in names)
    weights = tmp_path / "cells" / pretraining.name / "model.safetensors"
    checksum = hashlib.sha256(b"weights").hexdigest()
    runs = [(pretraining, pretraining.name)]
    runs += [(series, f"{series.name}/seed-{seed}") for seed in range(42, 47)]
    for cell, folder in runs:
        args = parse_arguments(SCRIPTS[cell.script].arguments, cell.command)
        flags = dataclasses.asdict(args) | {"output_dir": f"cells/{folder}"}
        if cell is series:
            flags |= {"seeds": None, "seed": int(folder[-2:])}
        place = tmp_path / "cells" / folder
        place.mkdir(parents=True)
        facts = {"flags": flags, "initial_weights": {"model.safetensors": checksum} if cell is series else None}
        (place / "run.json").write_text(json.dumps(facts))
        (place / "all_results.json").write_text("{}")
    (tmp_path / "cells" / series.name / "summary.json").write_text("{}")
    (weights.parent / "config.json").write_text('{"model_type": "bert"}')
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
    refusal = rf"{names[0]} holds another run than the plan asks for \(max_steps 10 -> 500"
    with pytest.raises(ValueError, match=refusal):
        check_finished_cells(tmp_path, plan)
    path.unlink()
    with pytest.raises(ValueError, match=r"run\.json: not found, but the run is finished"):
        check_finished_cells(tmp_path, plan)


@pytest.mark.parametrize("results", [None, "{}", '{"eval_f1": null}'])
def test_a_missing_score_is_not_taken_for_a_result(tmp_path, results):
    plan = plan_of("7")
    write_scores(tmp_path, plan)
    path = tmp_path / "cells/code-last-seed-43/all_results.json"
    path.unlink()
    if results is not None:
        path.write_text(results)
    with pytest.raises(ValueError, match=r"code-last-seed-43: expected (a finished run|the result eval_f1)"):
        write_report_of(tmp_path, plan)
    assert not (tmp_path / "report.md").exists()
