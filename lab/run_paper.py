"""Run the paper's own argument: Tables 5 to 8 and Figure 5 of Devlin et al. 2018, with a verdict on each conclusion.

The tables ask what pre-training on next sentences and in both directions is worth (Table 5), and what the size of the
network (6), features instead of fine-tuning (7), the mix of masks (8) and the number of steps (Figure 5) change. This
needs neither data nor a network; the text is the documentation that this Python installation carries:

    python lab/run_paper.py --table 5 --output_dir runs/table5
    python lab/run_paper.py --table figure5 --seeds 5 --output_dir runs/figure5

On real text and the tasks of GLUE, SQuAD and CoNLL-2003 that a folder holds (text/, glue/, squad/, conll/), and in the
paper's sizes:

    python lab/run_paper.py --table 8 --scale small --data_dir data --output_dir runs/table8
    python lab/run_paper.py --table 6 --scale paper --data_dir data --output_dir runs/table6

--dry_run prints every run with its command; --smoke tries everything with a few steps.
Every run is one command of the other scripts, in a folder of its own below cells/. After an interruption the same
command continues: what has finished is kept. report.md, report.json and report.png put our rows beside the paper's, and
judge its claims by a rule that lab/paper/verdicts.py states. lab/notes/paper.md explains the rest.
"""

import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bert_training.engine.errors import report_errors
from bert_training.engine.run import lock_output_dir, unlock_output_dir
from bert_training.files.atomic import write_json
from bert_training.inputs.flags.parsing import parse_arguments
from lab.paper.data import PaperArguments, checksums_of, find_tasks, find_text, prepare, scale_of
from lab.paper.experiments import EXPERIMENTS
from lab.paper.plan import make_plan
from lab.paper.record import check_unchanged, claim_folder, is_finished, read_cells, record_of, results_of
from lab.paper.report import verdicts, write_report
from lab.paper.runner import run_cells
from lab.paper.scales import RECORD


def main(argv: list[str] | None = None) -> None:
    """Plan the runs of a table, do those that are not finished, and write the report."""
    args = parse_arguments(PaperArguments, argv)
    folder = Path(args.output_dir)
    jobs = args.jobs or (2 if args.scale == "builtin" else 1)
    scale = scale_of(args)
    # All mistakes in the data are found here, before any run.
    tasks, text = find_tasks(args, scale), find_text(args)
    plan = make_plan(EXPERIMENTS[args.table], scale, tasks, text.flags, args.seeds)
    if args.dry_run:
        for cell in plan.cells:
            print(f"{cell.name}{', finished' * is_finished(folder, cell)}")
            print(f"    {shlex.join(['python', cell.script, *cell.command])}")
        return

    flags_of_runs = [cell.flags for cell in plan.cells]
    checksums = checksums_of(flags_of_runs)
    lock_output_dir(folder)
    claim_folder(folder, plan, checksums)
    prepare(folder, args, scale, text, plan)
    run_cells(folder, plan, jobs)
    check_unchanged(checksums, checksums_of(flags_of_runs))
    cells = read_cells(folder, plan)
    found = write_report(folder, plan, results_of(cells))
    write_json(folder / RECORD, record_of(folder, plan, cells, args, checksums))
    unlock_output_dir(folder)
    print(verdicts(found))
    print(f"table, claims and picture: {folder / 'report.md'}")


if __name__ == "__main__":
    sys.exit(report_errors(main))
