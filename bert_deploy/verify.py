"""Say which files of a finished folder are those of its record, and compute the scores of the record again.

    bert-repro verify runs/mrpc
    bert-repro verify downloaded --data glue/MRPC     # where its data lies on this machine
    bert-repro verify runs/seeds                      # a series, or any folder with runs below it
    bert-repro verify exported/mails                  # an export

The record of a run is run.json, all_results.json and hashes.json; that of an export is export.json. Each line begins
with a verdict: "verified"; "differs"; "not in the record", for a file of which the record says nothing; or "not
recomputed", with the reason. Scores of a run are computed again by its script, from the weights and all data of the
run; an export is scored when it is made. docs/checkpoints.md says what this proves.

The exit status is 0 if all that the record says holds; 1 if something differs; 3 if nothing differs, but something was
not recomputed, as of a run that is not finished (with --skip_evaluation, 0); and 2 if the folder holds no run.

No file of the folder is changed and no code of it is executed, and the Hub is not asked. Of other
files, only the data is read, if it has a SHA-256 that is in run.json.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_deploy.export_record import EXPORT, check_labels, read_export
from bert_deploy.findings import (
    DIFFERS,
    UNKNOWN,
    Finding,
    added,
    differs,
    print_findings,
    run_check,
    short_text,
    unknown,
    verified,
)
from bert_deploy.verify_scores import check_scores, files_in
from bert_training.cards.curves import CURVES
from bert_training.files.hashing import FOLDERS, HASHES, sha256
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.json_files import RESULTS, finished_hashes, read_object
from bert_training.record import RUN, SUMMARY, Record, read_summary
from tokenization.errors import UserError

MANIFEST = "manifest.json"
RECORDS = (EXPORT, SUMMARY, RUN, HASHES)  # one of these makes a folder one to verify


class Asked(NamedTuple):
    """Files that may be the data of a run, and whether scores are computed again."""

    given: Sequence[Path] = ()
    evaluate: bool = True


def main(argv: list[str] | None = None) -> None:
    """Print the findings; exits with status 1 if one is a difference, 3 if something was not recomputed."""
    parser = command_parser("verify", __doc__)
    parser.add_argument("folder", type=Path, help="folder of a finished run, an export or a series, or one with such")
    parser.add_argument("--data", nargs="+", default=[], help="files of the run's data, or folders that have them")
    parser.add_argument("--skip_evaluation", action="store_true", help="compare files only; evaluating may take long")
    parser.add_argument("--brief", action="store_true", help="print only the lines that differ, and the counts")
    args = parser.parse_args(argv)
    asked = Asked(files_in(args.data), not args.skip_evaluation)
    counts = print_findings([(part, findings(part, asked)) for part in parts_of(args.folder)], args.brief)
    print(f"{args.folder}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    if counts[DIFFERS] or (counts[UNKNOWN] and not args.skip_evaluation):
        sys.exit(1 if counts[DIFFERS] else 3)


def parts_of(folder: Path) -> list[Path]:
    """The runs, series and exports in a folder: itself, and those below it. Raises ValueError if there is none."""
    parts = [Path(place) for place, _, names in os.walk(folder) if not {*RECORDS}.isdisjoint(names)]
    if not parts:
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:9]) if folder.is_dir() else "no folder"
        raise UserError(
            f"{folder}: expected the folder of a finished run (with {RUN}), or one with runs below it; found "
            f"{held or 'nothing'}"
        )
    return sorted(parts)


def findings(folder: Path, asked: Asked) -> Iterator[Finding]:
    """What a check of the folder of a run, a series or an export finds."""
    kind, facts = next(name for name in RECORDS if (folder / name).is_file() or name == HASHES), dict[str, Any]()
    try:
        readers = {EXPORT: read_export, SUMMARY: read_summary}
        facts = readers[kind](folder) if kind in readers else Record.read(folder).facts
    except (UserError, OSError) as error:
        yield differs(kind, str(error))
    yield from run_check("files", lambda: check_files(folder, facts))
    if facts and kind != SUMMARY:
        yield from run_check("labels", lambda: labels_of(folder, None if kind == EXPORT else facts))
    if facts and kind not in (SUMMARY, EXPORT):
        yield from run_check("scores", lambda: check_run(folder, facts, asked))


def own_paths(folder: Path) -> list[Path]:
    """The files in a folder, and the links in it to folders, but not those of other runs below it."""
    paths = []
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        paths += [Path(place, name) for name in (*names, *links)]
        inside = (name for name in folders if not any(Path(place, name, record).exists() for record in RECORDS))
        folders[:] = sorted(inside)
    return sorted(paths)


# --- files ----------------------------------------------------------------------------------------------


def recorded_hashes(folder: Path, names: Iterable[str], facts: dict[str, Any]) -> dict[str, str]:
    """The SHA-256 of every file that the record knows, by its name; also of the files of checkpoints."""
    hashes = dict(facts.get("sha256", {}))
    if (folder / HASHES).is_file():
        hashes |= finished_hashes(folder / HASHES)
    for name in filter(is_manifest, names):
        listed = read_object(folder / name)["sha256"].items()
        hashes |= {f"{Path(name).parent}/{file}": digest for file, digest in listed}
    return hashes


def check_files(folder: Path, facts: dict[str, Any]) -> Iterator[Finding]:
    """Every file of the folder: the one of the record, another one, or one of which the record says nothing."""
    present = {path.relative_to(folder).as_posix(): path for path in own_paths(folder)}
    recorded, same, others = recorded_hashes(folder, present, facts), 0, defaultdict[str, list[str]](list)
    for name, path in present.items():
        if name in (HASHES, EXPORT, SUMMARY) or is_manifest(name):
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


def is_manifest(name: str) -> bool:
    """Whether a file is the record of a checkpoint."""
    return Path(name).name == MANIFEST and name.count("/") == 1


# --- runs --------------------------------------------------------------------------------------------


def labels_of(folder: Path, run: dict[str, Any] | None) -> Iterator[Finding]:
    """Whether config.json has the labels of the run in their order."""
    path = folder / "config.json"
    if path.is_file() and (named := check_labels(path, read_object(path), run)):
        yield verified("labels", short_text(named))


def check_run(folder: Path, run: dict[str, Any], asked: Asked) -> Iterator[Finding]:
    """The scores of a run."""
    if not (folder / RESULTS).is_file():
        yield unknown(RESULTS, "missing; is the run finished?")
    elif not asked.evaluate:
        yield unknown("scores", "--skip_evaluation")
    elif not list(folder.glob("model*.safetensors")):
        yield unknown("scores", "the folder has no weights (model.safetensors)")
    else:
        yield from check_scores(folder, run, read_object(folder / RESULTS), asked.given)
