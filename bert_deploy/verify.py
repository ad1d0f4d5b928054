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

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from bert_deploy.export_record import EXPORT, check_labels, read_export
from bert_training.cards.curves import CURVES
from bert_training.cards.metrics import percent_factor
from bert_training.files.atomic import write_json
from bert_training.files.hashing import FOLDERS, HASHES, checksums, sha256
from bert_training.inputs.flags.parsing import EVALUATION, STORED, command_parser, natures
from bert_training.inputs.flags.phases import phases_of
from bert_training.inputs.flags.scripts import SCRIPTS, path_of
from bert_training.inputs.reading import RESULTS, finished_hashes, read_object
from bert_training.record import RUN, SUMMARY, Record, read_summary
from bert_training.tasks.classification.scores import value_of
from tokenization.errors import UserError

MANIFEST = "manifest.json"
RECORDS = (EXPORT, SUMMARY, RUN, HASHES)  # one of these makes a folder one to verify
VERIFIED, DIFFERS, ADDED, UNKNOWN = "verified", "differs", "not in the record", "not recomputed"
VERDICTS = (VERIFIED, DIFFERS, ADDED, UNKNOWN)
# What reading a file of unknown origin may raise, because it is malformed or says something unexpected.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError, OSError, ArithmeticError,
             RecursionError)  # fmt: skip
ROOT = Path(__file__).parents[1]
# Another processor, another number of threads or another version of torch rounds otherwise. A prediction that is
# almost a tie may then change.
LOSS_TOLERANCE, SCORE_TOLERANCE = 1e-3, 5e-3
# What happened while the run trained: no evaluation of its weights can say it again.
OF_TRAINING = re.compile(r"train_(runtime|steps|loss|.*_per_second)|peak_memory_gb|best_step")
# Flags that say which rows are evaluated, besides those of nature EVALUATION.
OF_ROWS = ("dataset_name", "dataset_config_name", "max_train_samples", "validation_split", "folds", "group_column",
           "calibrate")  # fmt: skip
# A step that changes no weight, after which a script evaluates as it did at the end of the run.
ONE_STEP = {"max_steps": 1, "learning_rate": 0, "warmup_steps": 0, "weight_decay": 0, "save_steps": 0}


# --- findings ----------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """A claim, the verdict on it (one of VERDICTS), and the reason."""

    verdict: str
    claim: str
    reason: str

    def line(self) -> str:
        """The finding as a line of text, without characters that a terminal would obey."""
        text = f"{self.verdict:<{max(map(len, VERDICTS))}}  {self.claim}: {self.reason}".removesuffix(": ")
        return "".join(character if character.isprintable() else "?" for character in text)


def verified(claim: str, reason: str) -> Finding:
    """A claim that was confirmed."""
    return Finding(VERIFIED, claim, reason)


def differs(claim: str, reason: str) -> Finding:
    """A claim that is wrong."""
    return Finding(DIFFERS, claim, reason)


def added(claim: str, reason: str) -> Finding:
    """A file of which the record says nothing."""
    return Finding(ADDED, claim, reason)


def unknown(claim: str, reason: str) -> Finding:
    """A claim that was not computed again."""
    return Finding(UNKNOWN, claim, reason)


def compare_values(claim: str, recorded: Any, actual: Any, source: str) -> Finding:
    """Whether a value that the folder records is the one that ``source`` gives."""
    if recorded == actual:
        return verified(claim, f"{short_text(recorded)}, as {source}")
    return differs(claim, f"the folder says {short_text(recorded)}, but {source} gives {short_text(actual)}")


def short_text(value: Any) -> str:
    """A value as text of at most 80 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def run_check(claim: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check, and one more if it stops at something malformed."""
    try:
        yield from check()
    except UserError as error:
        yield differs(claim, str(error))
    except MALFORMED as error:
        yield differs(claim, f"not in the form that a run writes ({type(error).__name__}: {short_text(str(error))})")


# --- the command -------------------------------------------------------------------------------------


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
    counts = Counter[str]()
    for part in parts_of(args.folder):
        print(part)
        for finding in findings(part, asked):
            if finding.verdict == DIFFERS or not args.brief:
                print(f"  {finding.line()}", flush=True)
            counts[finding.verdict] += 1
    print(f"{args.folder}: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS))
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


# --- scores ------------------------------------------------------------------------------------------


def files_in(places: Sequence[str]) -> list[Path]:
    """What ``--data`` names, and all that is below it."""
    return [path for place in map(Path, places) for path in (place, *sorted(place.rglob("*")))]


def evaluation_flags(run: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of a run by which its script finds the rows to evaluate and evaluates weights, if they are not usual.

    Those of nature STORED are always given, because the model may bring other defaults. The precision is that of
    run.json, because it may come from accelerate's configuration instead of the flag. fp16 is left out: it needs a GPU,
    and float32 gives the same scores up to rounding.
    """
    cls, given = SCRIPTS[run["script"]].arguments, dict[str, Any]()
    flags = run["flags"] | {"mixed_precision": run.get("mixed_precision") or run["flags"].get("mixed_precision")}
    for one in fields(cls):
        nature, value = natures(cls)[one.name], flags.get(one.name)
        decides = (nature & EVALUATION or one.name in OF_ROWS) and value not in (one.default, "fp16")
        if value is not None and (decides or nature & STORED):
            given[one.name] = value
    return given


def data_flags(run: Mapping[str, Any], results: Mapping[str, Any], given: Sequence[Path]) -> dict[str, Any]:
    """The flags by which the script reads the data of the run again, from where it lies on this machine.

    Raises:
        ValueError: a file with the SHA-256 in run.json is neither in its place nor among the ``given``.
    """
    known = json.dumps(run.get("data"))

    def located(name: Any) -> Any:
        if isinstance(name, list):
            return [*map(located, name)]
        places = [*(path for path in given if path.name == Path(name).name), Path(name)]
        fit = [path for path in places if path.is_dir() or (path.is_file() and sha256(path) in known)]
        if not fit:
            raise UserError(f"no {short_text(name)} with the SHA-256 in run.json is at hand; --data names where it is")
        return str(fit[0].absolute())

    files = ["train_file", "validation_file", "data_dir"]
    tested = any(name.startswith("test_") for name in results)
    files += ["test_file"] if tested else []
    found = {name: located(run["flags"][name]) for name in files if run["flags"].get(name)}
    return found | ({"do_predict": True} if tested and run["flags"].get("do_predict") else {})


def evaluate(
    folder: Path, run: Mapping[str, Any], results: Mapping[str, Any], given: Sequence[Path], out: Path
) -> None:
    """Let the script of the run evaluate the weights of the folder.

    Raises:
        ValueError: the data is not at hand, or the script stopped.
    """
    flags = evaluation_flags(run) | data_flags(run, results, given) | ONE_STEP
    if SCRIPTS[run["script"]].pretrains:
        flags |= {"eval_steps": 0}
        if run["flags"].get("phases"):  # the last phase decides on the length of the evaluation
            flags["max_seq_length"] = phases_of(run["flags"])[-1].length
    flags |= {"model_name_or_path": str(folder.resolve()), "output_dir": str(out)}
    write_json(out.parent / "flags.json", flags)
    words = [sys.executable, path_of(run["script"]), f"--config={out.parent / 'flags.json'}"]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=out.parent)
    if done.returncode or not (out / RESULTS).is_file():
        lines = [line for line in re.split(r"[\r\n]+", done.stderr) if line.strip()] or ["no message"]
        raise UserError(f"the evaluation stopped: {lines[-1]}")


def check_scores(folder: Path, run: dict, results: dict, given: Sequence[Path]) -> Iterator[Finding]:
    """Every score in all_results.json, against an evaluation of the weights by the script of the run."""
    claimed = {name: value for name, value in results.items() if not OF_TRAINING.fullmatch(name)}
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "run")
        try:
            evaluate(folder, run, results, given, out)
        except UserError as error:
            yield unknown(", ".join(claimed) or "scores", str(error))
            return
        facts, again, config = Record.read(out).facts, Record.read(out).results or {}, settings_in(out)
    if set(checksums(facts["data"])) - set(checksums(run["data"])):
        yield unknown(", ".join(claimed), "the data at hand is not that in run.json")
        return
    for name, what in (("tokenizer_sha256", "the tokenizer"), ("parameters", "the network")):
        yield compare_values(name, run.get(name), facts[name], f"{what} of the folder")
    stored = settings_in(folder)
    for name in sorted(stored.keys() | config.keys()):
        if not is_close(name, stored.get(name), config.get(name), 1):
            found, wanted = short_text(stored.get(name)), short_text(config.get(name))
            yield differs(f"config.json, {name}", f"the folder says {found}, but {run['script']} writes {wanted}")
    yield from compare(claimed, again, run["script"], 100 / percent_factor(again))


def settings_in(folder: Path) -> dict[str, Any]:
    """The fields of a config.json and of its ``fine_tuning``, without those that decide on no answer."""
    content = read_object(folder / "config.json")
    content |= content.pop("fine_tuning", {})
    return {name: value for name, value in content.items() if "column" not in name and name != "transformers_version"}


def compare(claimed: Mapping[str, Any], again: Mapping[str, Any], source: str, whole: float) -> Iterator[Finding]:
    """What a record claims, against what was computed again; ``whole`` is the best score, 1 or 100."""
    same = []
    for name, value in claimed.items():
        found = value_of(again, name)
        if found is None and name not in again:
            yield differs(name, f"the record says {short_text(value)}, and {source} computes nothing of this name")
        elif not is_close(name, value, found, whole):
            yield differs(name, f"the record says {short_text(value)}, but {source} computes {short_text(found)}")
        else:
            same.append(f"{name} {short_text(round(found, 6) if isinstance(found, float) else found)}")
    if same:
        yield verified("scores", f"{', '.join(same)}: computed again by {source}")


def is_close(name: str, one: Any, other: Any, whole: float) -> bool:
    """Whether two results are equal up to what another machine changes: 0.1 % of a loss, half a point of a score."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_close(part, one[part], other[part], whole) for part in one)
    if isinstance(one, list) and isinstance(other, list):  # thresholds
        return len(one) == len(other) and all(is_close(name, *pair, whole) for pair in zip(one, other))
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return bool(one == other)
    # Of thresholds and temperatures, only the scores with them are stable.
    if "thresh" in name or name.endswith(("perplexity", "temperature")):
        return math.isclose(one, other, rel_tol=0.02, abs_tol=0.1)
    if name.endswith(("loss", "_per_word")):
        return math.isclose(one, other, rel_tol=LOSS_TOLERANCE, abs_tol=LOSS_TOLERANCE)
    return math.isclose(one, other, abs_tol=SCORE_TOLERANCE * whole)
