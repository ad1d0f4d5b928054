"""Say which files of a finished folder are those of its record, and compute the scores of the record again.

    bert-repro verify runs/mrpc
    bert-repro verify downloaded --data glue/MRPC     # where its data lies on this machine
    bert-repro verify runs/seeds                      # a series, or any folder with runs below it
    bert-repro verify exported/mails --run runs/mails # an export, against the folder that was exported

The record of a run is run.json, all_results.json and hashes.json; that of an export is export.json, and that of a
series summary.json. Each line begins with a verdict: "verified"; "differs"; "not in the record", for a file of which
the record says nothing; or "not recomputed", with the reason. Scores are computed again by the script of the run, from
the weights and all data of the run; those of an export by the gate of `bert-repro export`, from the exported files.
docs/checkpoints.md says what this proves.

The exit status is 0 if all that the record says holds; 1 if something differs, or there is code that no run writes; 3
if nothing differs, but something was not recomputed (with --skip_evaluation, 0); and 2 if there is nothing to verify:
the folder holds no run, or the run is not finished.

No file of the folder is changed and no code of it is executed, and the Hub is not asked. Of other
files, only the data is read, if it has a SHA-256 that is in run.json.
"""

import filecmp
import fnmatch
import importlib.util
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_training.cards.curves import CURVES
from bert_training.engine.precision import CHOSEN
from bert_training.engine.versions import commit
from bert_training.files.hashing import FOLDERS, HASHES, sha256
from bert_training.files.json_files import is_plain_name, read_object
from bert_training.files.records import RESULTS, finished_hashes, nearly_equal
from bert_training.inputs.flags.parsing import command_parser
from bert_training.record import Record
from bert_training.tasks.seeds import Series, read_summary, summarise
from bert_training.tools.exported import EXPORT, check_labels, read_export
from bert_training.tools.findings import (
    DIFFERS,
    UNKNOWN,
    Finding,
    added,
    compare_values,
    differs,
    print_findings,
    run_check,
    short_text,
    unknown,
    verified,
)
from bert_training.tools.verify_scores import check_scores, compare, files_in
from tokenization.errors import UserError

SUMMARY, MANIFEST = "summary.json", "manifest.json"
RECORDS = ("run.json", HASHES, EXPORT, SUMMARY)  # one of these makes a folder one to verify
RUNS_CODE = ("auto_map", "custom_pipelines")  # fields of a config, at any depth


class Asked(NamedTuple):
    """Files that may be the data of a run; the folder that was exported; whether scores are computed again."""

    given: Sequence[Path] = ()
    run: Path | None = None
    evaluate: bool = True


def main(argv: list[str] | None = None) -> None:
    """Print the findings; exits with status 1 if one is a difference, 3 if something was not recomputed."""
    parser = command_parser("verify", __doc__)
    parser.add_argument("folder", type=Path, help="folder of a finished run, an export or a series, or one with such")
    parser.add_argument("--data", nargs="+", default=[], help="files of the run's data, or folders that have them")
    parser.add_argument("--run", type=Path, help="of an export: the folder that was exported")
    parser.add_argument("--skip_evaluation", action="store_true", help="compare files only; evaluating may take long")
    parser.add_argument("--brief", action="store_true", help="print only the lines that differ, and the counts")
    args = parser.parse_args(argv)
    asked = Asked(files_in(args.data), args.run, not args.skip_evaluation)
    counts = print_findings([(part, findings(part, asked)) for part in parts_of(args.folder)], args.brief)
    print(f"{args.folder}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts[DIFFERS] or (counts[UNKNOWN] and not args.skip_evaluation):
        sys.exit(1 if counts[DIFFERS] else 3)


def parts_of(folder: Path) -> list[Path]:
    """The runs, series and exports in a folder: itself, and those below it.

    Raises:
        ValueError: there is none, or the folder is that of a run which is not finished.
    """
    parts = [Path(place) for place, _, names in os.walk(folder) if any(name in names for name in RECORDS)]
    if not parts:
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:9]) if folder.is_dir() else "no folder"
        raise UserError(
            f"{folder}: expected the output folder of a finished run (with run.json), or one with runs below it; found "
            f"{held or 'nothing'}"
        )
    if parts == [folder] and "run.json" in os.listdir(folder) and not (folder / RESULTS).is_file():
        raise UserError(
            f"{folder}: expected a finished run, found no {RESULTS}; continue the run with "
            "--resume_from_checkpoint auto, or copy the folder again"
        )
    return sorted(parts)


def findings(folder: Path, asked: Asked) -> Iterator[Finding]:
    """What a check of the folder of a run, a series or an export finds."""
    paths = own_paths(folder)
    kind, facts = next((name for name in CHECKS if (folder / name).is_file()), HASHES), dict[str, Any]()
    try:
        readers = {EXPORT: read_export, SUMMARY: read_summary}
        facts = readers[kind](folder) if kind in readers else Record.read(folder).facts
    except (UserError, OSError) as error:
        yield differs(kind, str(error))
    yield from run_check("files", lambda: check_files(folder, paths, facts))
    yield from run_check("code", lambda: check_names_of_code(folder, paths))
    if facts:
        yield from run_check(kind, lambda: CHECKS[kind](folder, facts, asked))


def own_paths(folder: Path) -> list[Path]:
    """The files in a folder, and the links in it to folders, but not those of other runs below it."""
    paths = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        paths += [Path(place, name) for name in (*names, *links)]
        inside = (name for name in folders if not any(Path(place, name, record).exists() for record in RECORDS))
        folders[:] = sorted(inside)
    return sorted(paths)


# --- files and code ----------------------------------------------------------------------------------------------


def recorded_hashes(folder: Path, paths: Sequence[Path], facts: dict[str, Any]) -> dict[str, str]:
    """The SHA-256 of every file that the record knows, by its name; also of the files of checkpoints."""
    hashes = dict(facts.get("sha256", {}))
    if (folder / HASHES).is_file():
        hashes |= finished_hashes(folder / HASHES)
    for path in paths:
        if path.name == MANIFEST and path.parent.parent == folder:
            listed = read_object(path)["sha256"].items()
            hashes |= {f"{path.parent.name}/{name}": digest for name, digest in listed}
    return hashes


def check_files(folder: Path, paths: Sequence[Path], facts: dict[str, Any]) -> Iterator[Finding]:
    """Every file of the folder: the one of the record, another one, or one of which the record says nothing."""
    recorded, same, others = recorded_hashes(folder, paths, facts), 0, defaultdict[str, list[str]](list)
    present = {path.relative_to(folder).as_posix(): path for path in paths}
    for name, path in present.items():
        if path.suffix == ".py" and not is_installed(path):
            yield other_code(name, name in recorded, facts.get("commit", ""))
        if name in (HASHES, EXPORT, SUMMARY) or (path.name == MANIFEST and path.parent.parent == folder):
            continue
        if name not in recorded:
            others[name.split("/")[0]].append(name)
        elif sha256(path) == recorded[name]:
            same += 1
        elif name == CURVES:  # which may be drawn again
            others[name].append(name)
        else:
            yield differs(name, f"the file has changed: its SHA-256 is not {short_text(recorded[name])[:12]}...")
    for name in recorded.keys() - present.keys():
        if name.split("/")[0] not in FOLDERS:  # which may be deleted
            yield differs(name, "the file is missing")
    for place, names in others.items():
        yield added(names[0], "") if len(names) == 1 else added(f"{place}/", f"{len(names)} files")
    if same:
        record = next(folder / name for name in (HASHES, EXPORT) if (folder / name).is_file())
        yield verified("files", f"{same} have the hashes in {record.name}, whose own SHA-256 is {sha256(record)}")


def other_code(name: str, recorded: bool, then: str) -> Finding:
    """The finding about a code file that is not one of the installed package; ``then`` is the commit of the run."""
    if recorded and Path(name).name in installed_code() and (then != commit() or not re.fullmatch("[0-9a-f]+", then)):
        return unknown(name, f"code of commit {then}, and this is {commit()}; read it before you execute it")
    return differs(name, "code that is not that of the package; do not execute it unread")


def check_names_of_code(folder: Path, paths: Sequence[Path]) -> Iterator[Finding]:
    """The code that configs name for ``trust_remote_code``: it has to be in the folder, beside the config."""
    for path in paths:
        if fnmatch.fnmatch(path.name, "*config*.json"):
            for name in names_of_code(read_object(path)):
                module = name.rpartition(".")[0]
                if not is_plain_name(module) or not path.with_name(f"{module}.py").is_file():
                    claim = f"{path.relative_to(folder).as_posix()}, {short_text(name)}"
                    yield differs(claim, "code from elsewhere, which trust_remote_code=True would run")


def names_of_code(content: Any, inside: bool = False) -> Iterator[str]:
    """The names of code in the content of a config, at any depth."""
    if isinstance(content, str) and inside:
        yield content
    elif isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from names_of_code(value, inside or key in RUNS_CODE)


def is_installed(path: Path) -> bool:
    """Whether a code file is the one of this name that runs copy into their folders."""
    installed = installed_code().get(path.name)
    return installed is not None and filecmp.cmp(path, installed, shallow=False)


def installed_code() -> dict[str, Path]:
    """The files that may be copied into saved folders, by name; the network's package is found but not imported."""
    spec = importlib.util.find_spec("modeling_bert_repro")
    places = (spec and spec.submodule_search_locations) or []
    return {path.name: path for place in places for path in Path(place).glob("*.py")}


# --- runs, exports, series ---------------------------------------------------------------------------------------


def check_run(folder: Path, run: dict[str, Any], asked: Asked) -> Iterator[Finding]:
    """The labels and the scores of a run."""
    if not (folder / RESULTS).is_file():
        yield unknown(RESULTS, "missing; is the run finished?")
        return
    yield from run_check("labels", lambda: labels_of(folder, run))
    if not asked.evaluate:
        yield unknown("scores", "--skip_evaluation")
    elif not list(folder.glob("model*.safetensors")):
        yield unknown("scores", "the folder has no weights (model.safetensors)")
    else:
        yield from check_scores(folder, run, read_object(folder / RESULTS), asked.given)


def labels_of(folder: Path, run: dict[str, Any] | None) -> Iterator[Finding]:
    """Whether config.json has the labels of the run in their order."""
    path = folder / "config.json"
    if path.is_file() and (named := check_labels(path, read_object(path), run)):
        yield verified("labels", short_text(named))


def check_export(folder: Path, record: dict[str, Any], asked: Asked) -> Iterator[Finding]:
    """What export.json says of the files, against what the gate of the export says of them now."""
    yield from run_check("labels", lambda: labels_of(folder, None))
    if not asked.evaluate or not asked.run:
        yield unknown("scores", "--skip_evaluation" if asked.run else "--run names the folder that was exported")
        return
    from bert_training.tools import export  # it imports torch, and computes with onnxruntime

    try:
        model, again = export.scored_again(folder, record, asked.run, asked.given)
    except UserError as error:
        yield unknown("scores", str(error))
        return
    yield compare_values("weights_sha256", record.get("weights_sha256"), again["weights_sha256"], str(asked.run))
    with tempfile.TemporaryDirectory() as place:
        export.write_beside(model, Path(place))
        for path in own_paths(Path(place)):
            name = path.relative_to(place).as_posix()
            if not (folder / name).is_file() or not filecmp.cmp(path, folder / name, shallow=False):
                yield differs(name, f"not what an export of {asked.run} writes")
    for name, claims in {"torch": record["torch"], **record["files"]}.items():
        found = again["torch"] if name == "torch" else again["files"].get(name, {})
        for whole, in_points in ((100, True), (1, False)):
            some = {claim: value for claim, value in claims.items() if (claim in export.IN_POINTS) == in_points}
            some = {claim: value for claim, value in some.items() if claim not in export.MEASURED}
            yield from compare(some, found, f"the gate of {name}", whole)


def check_summary(folder: Path, summary: dict[str, Any], _: Asked) -> Iterator[Finding]:
    """summary.json of a series, whose statistics are computed again from the results of its runs."""
    runs = []
    for one in summary["runs"]:
        path, inside = folder / one["folder"] / RESULTS, is_plain_name(one["folder"])
        if inside and path.is_file():
            runs.append(one | {"results": read_object(path)})
        else:
            yield unknown(f"{SUMMARY}, {short_text(one['folder'])}", "the run is not here; its results are believed")
            runs.append(one)
    task, metric, baselines = summary["task"], summary["metric"], summary["baselines"]
    facts: dict[str, Any] = {"splits": {}}
    folds = tuple(Series(task, facts, metric, one) for one in summary.get("fold_baselines", ()))
    of_data = {name: summary.get(name) for name in ("validation", CHOSEN)}
    again: dict[str, Any] = summarise(runs, Series(task, facts, metric, baselines, folds)) | of_data
    wrong = [name for name in summary if not nearly_equal(summary[name], again.get(name))]
    for name in wrong:
        yield (unknown if name == "comparison" else differs)(f"{SUMMARY}, {name}", "not from the results of its runs")
    if not wrong:
        yield verified(SUMMARY, f"its statistics are those of the results of {len(runs)} runs")


CHECKS = {"run.json": check_run, EXPORT: check_export, SUMMARY: check_summary}  # by the record of the folder
