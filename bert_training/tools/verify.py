"""Recompute what a finished output folder claims, and say for every claim whether it holds.

    bert-repro verify runs/mrpc
    bert-repro verify downloaded --data glue/MRPC    # the scores as well, from predictions and weights
    bert-repro verify runs/seeds                     # a series, or any folder with runs below it
    bert-repro verify runs/table5                    # a table of the paper, with or without its runs
    bert-repro verify docs                           # in a checkout: the runs and the figures of the pages

Each line begins with a verdict: "verified", "differs", or "cannot be checked here", which gives the reason. Checked are
the hashes of all files (hashes.json), the tokenizer, the number of parameters, the code files, the data, the results
against metrics.jsonl and run.json, the model card against the text that the records give, the metrics of the saved
predictions, and the scores of the weights. The last two need the data: the files that run.json names or, in their
place, files of the same name in --data. docs/checkpoints.md says what each check proves.

The exit status is 0 if nothing differs, also if something cannot be checked; 1 if something differs; and 2 if there is
nothing to verify: the folder holds no run, or the run is not finished.

No file of the folder is changed, and no code of it is executed: classes come from this package, weights are read as
safetensors, nothing is unpickled, and the Hub is not asked.
"""

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from bert_training.files.hashing import HASHES
from bert_training.flags.scripts import SCRIPTS
from bert_training.networks.initial_weights import weights_sha256
from bert_training.tools import figures, verify_files, verify_paper, verify_records, verify_scores
from bert_training.tools.findings import (
    DIFFERS,
    MALFORMED,
    VERDICTS,
    Finding,
    differs,
    read_json,
    run_check,
    short_text,
    unknown,
    verified,
)
from lab.paper.places import RECORD


def main(argv: list[str] | None = None) -> None:
    """Print the findings; exits with status 1 if one of them is a difference. ValueError if nothing can be verified."""
    parser = argparse.ArgumentParser(
        prog="bert-repro verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", help="output folder of a finished run or of a series, or a folder with runs below it")
    parser.add_argument("--data", nargs="+", default=[], help="files of the run's data, or folders that have them")
    parser.add_argument(
        "--skip_evaluation", action="store_true", help="do not evaluate the weights, which may take long"
    )
    parser.add_argument("--brief", action="store_true", help="print only the lines that differ, and the counts")
    args = parser.parse_args(argv)
    folder, given = Path(args.folder), verify_scores.files_in(args.data)
    counts = dict.fromkeys(VERDICTS, 0)
    for part in [*pages_in(folder), *runs_and_series_in(folder)]:
        print(f"{part}")
        for finding in findings(part, given, not args.skip_evaluation):
            if finding.verdict == DIFFERS or not args.brief:
                print(f"  {finding.line()}", flush=True)
            counts[finding.verdict] += 1
    print(f"{folder}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts[DIFFERS]:
        sys.exit(1)


def runs_and_series_in(folder: Path) -> list[Path]:
    """The runs and series in a folder: itself, or those below it.

    Raises:
        ValueError: there is none, or the folder is that of a run which is not finished.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected the output folder of a finished run, found no folder")
    if is_run(folder):
        if not (folder / "all_results.json").is_file():
            raise ValueError(
                f"{folder}: expected a finished run, found no all_results.json; continue the run with "
                "--resume_from_checkpoint auto, or copy the folder again"
            )
        return [folder]
    folders = [path for path in sorted(folder.rglob("*")) if path.is_dir() and is_run_or_series(path)]
    folders = [folder, *folders] if is_run_or_series(folder) else folders
    if not folders and not pages_in(folder):
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:9]) or "nothing"
        raise ValueError(
            f"{folder}: expected the output folder of a finished run (with run.json), or one with runs below it; it "
            f"holds {held}"
        )
    return folders


def pages_in(folder: Path) -> list[Path]:
    """The pages of this project's documentation in a folder: those whose figures are tied to records."""
    if not (figures.ROOT / figures.RECORDS[0]).is_dir():  # installed, without a checkout
        return []
    whole = folder.resolve()
    return [folder / page.relative_to(whole) for page in figures.pages() if page.is_relative_to(whole)]


def check_page(page: Path) -> Iterator[Finding]:
    """The figures of a page, against the records that its comments name."""
    if importlib.util.find_spec("benchmarks") is None:
        yield unknown("figures", "tables of the benchmarks are printed anew: start the command in the checkout's root")
        return
    text = page.read_text(encoding="utf-8")
    wrong = figures.mistakes(text)
    yield from (differs("figures", mistake) for mistake in wrong)
    if not wrong and (count := len(figures.all_figures(text))):
        yield verified("figures", f"{count} are those of the records, settings and sources that the page names")


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or what is left of one."""
    return any((folder / name).is_file() for name in ("run.json", HASHES))


def is_run_or_series(folder: Path) -> bool:
    """Whether a folder holds a run, a series or a table of the paper."""
    return is_run(folder) or any((folder / name).is_file() for name in ("summary.json", RECORD))


def findings(folder: Path, given: list[Path], evaluate: bool = True) -> Iterator[Finding]:
    """What a check of the folder of a run, a series or a table, or of a page, finds, in the order of the claims.

    Args:
        given: files that may be the data of the run.
        evaluate: whether to evaluate the weights.
    """
    if folder.is_file():
        yield from run_check("figures", lambda: check_page(folder))
        return
    if (folder / RECORD).is_file():
        yield from run_check(RECORD, lambda: verify_paper.check_record(folder))
        return
    if not is_run(folder):
        yield from run_check("summary.json", lambda: verify_records.check_summary(folder))
        return
    yield from run_check(HASHES, lambda: verify_files.check_files(folder))
    records = []
    for name in ("run.json", "all_results.json"):
        try:
            records.append(read_json(folder / name))
            if not isinstance(records[-1], dict):
                raise ValueError("expected a JSON object")
        except FileNotFoundError:
            missing = differs if name == "run.json" else unknown
            yield missing(name, "missing, so nothing else can be checked; is the run finished?")
            return
        except MALFORMED as error:
            yield differs(name, f"cannot be read ({short_text(str(error))}), so nothing else can be checked")
            return
    run, results = records
    if str(run.get("script")) not in SCRIPTS:
        yield differs("run.json", f"expected a run of {', '.join(SCRIPTS)}; got {short_text(run.get('script'))}")
        return
    yield from run_check("run.json", lambda: verify_files.check_model(folder, run))
    yield from run_check("code files", lambda: verify_files.check_code(folder, run))
    yield from run_check("run.json", lambda: verify_files.initial_weights(run, weights_sha256))
    yield from run_check("all_results.json", lambda: verify_records.check_results(folder, run, results))
    yield from run_check("README.md", lambda: verify_records.check_card(folder, run, results))
    yield from check_scores(folder, run, results, given, evaluate)


def check_scores(folder: Path, run: dict, results: dict, given: list[Path], evaluate: bool) -> Iterator[Finding]:
    """The data, and the scores that can be computed with it."""
    try:
        data = verify_scores.sources(run, given)
    except MALFORMED as error:
        yield differs("run.json, data", f"not in the form that a run writes ({short_text(str(error))})")
        return
    if not data:
        yield unknown("data", "it came from the Hub or from this Python's documentation; run.json names no files")
    yield from (source.finding for source in data)
    by_split = {source.split: source for source in data}
    predictions = verify_scores.check_predictions
    yield from run_check("scores from predictions", lambda: predictions(folder, run, results, by_split))
    if evaluate:
        yield from run_check("scores from the weights", lambda: verify_scores.check_weights(folder, run, results, data))
    else:
        yield unknown("scores from the weights", "--skip_evaluation")
