"""Run the paper's own argument: Tables 5 to 8 and Figure 5 of Devlin et al. 2018, with a verdict on each conclusion.

What pre-training on next sentences and in both directions is worth (Table 5), the size of the network (6), features
instead of fine-tuning (7), the mix of masks (8), the number of steps (Figure 5). Without data and without a network, on
the documentation that this Python installation carries, on two CPU cores:

    python run_paper.py --table 5 --output_dir runs/table5
    python run_paper.py --table figure5 --seeds 5 --output_dir runs/figure5

On real text and whatever of GLUE, SQuAD and CoNLL a folder holds (text/, glue/, squad/, conll/); and the paper's sizes:

    python run_paper.py --table 8 --scale small --data_dir data --output_dir runs/table8
    python run_paper.py --table 6 --scale paper --data_dir data --output_dir runs/table6

--dry_run prints every run with its command and an estimate of its cost; --smoke tries the path with a few steps. Every
run is one command of the other scripts, in a folder of its own below cells/. After an interruption the same command
goes on: what has finished is kept. report.md, report.json and report.png put our rows beside the paper's, and judge its
claims by a rule that training/paper/verdicts.py states. docs/paper.md explains the rest.
"""

import sys
from pathlib import Path

from training.engine.run import report_errors
from training.flags.parsing import parse_arguments
from training.paper.cost import costs, dry_run, measured_speed
from training.paper.data import checksums_of, find_tasks, find_text, prepare, scale_of
from training.paper.flags import PaperArguments
from training.paper.plan import claim_folder, make_plan
from training.paper.report import verdicts, write_report
from training.paper.runner import only_one, run_cells, threads_of
from training.paper.scales import DATA


def main(argv: list[str] | None = None) -> None:
    """Plan the runs of a table, do those that are not finished, and write the report."""
    args = parse_arguments(PaperArguments, argv)
    folder, jobs = Path(args.output_dir), args.jobs or (2 if args.scale == "builtin" else 1)
    scale = scale_of(args)
    # All mistakes in the data are found here, before any run.
    tasks, text = find_tasks(args, scale), find_text(args, scale)
    plan = make_plan(args.table, scale, tasks, text, args.seeds)
    if args.dry_run:
        with threads_of(jobs):
            speed, device = measured_speed(plan, scale)
        print(dry_run(plan, folder, costs(plan, scale.vocab_size, speed), device, jobs))
        return

    claim_folder(folder, plan, checksums_of(cell.flags for cell in plan.cells))
    builtin = any(value.startswith(f"{DATA}/") for cell in plan.cells for value in cell.flags.values())
    with only_one(folder):
        prepare(folder, args, scale, text, plan.sizes(), builtin)
        run_cells(folder, plan, jobs)
        found = write_report(folder, plan)
    print(verdicts(found))
    print(f"table, claims and picture: {folder / 'report.md'}")


if __name__ == "__main__":
    sys.exit(report_errors(main))
