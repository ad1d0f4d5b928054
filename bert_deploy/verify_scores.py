"""The scores of a finished run, computed again from its weights by the script of the run.

The script gets the folder as its model, the flags of the run that say which rows are read and how weights are
evaluated, and one step with the learning rate 0. It runs in a process of its own and writes into a temporary folder.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from bert_deploy.findings import Finding, compare_values, differs, short_text, unknown, verified
from bert_training.cards.metrics import percent_factor
from bert_training.files.atomic import write_json
from bert_training.files.hashing import checksums, sha256
from bert_training.inputs.flags.natures import EVALUATION, STORED, natures
from bert_training.inputs.flags.phases import phases_of
from bert_training.inputs.flags.scripts import SCRIPTS, path_of
from bert_training.inputs.json_files import RESULTS, read_object
from bert_training.record import Record
from bert_training.tasks.classification.scores import value_of
from tokenization.errors import UserError

ROOT = Path(__file__).parents[2]
# Another processor, another number of threads or another version of torch rounds otherwise. A prediction that is
# almost a tie may then change.
LOSS_TOLERANCE, SCORE_TOLERANCE = 1e-3, 5e-3
# What happened while the run trained: no evaluation of its weights can say it again.
OF_TRAINING = re.compile(r"train_(runtime|steps|loss|mfu|.*_per_second)|peak_(tflops|memory_gb)|best_step|averaged_.*")
# Flags that say which rows are evaluated, besides those of nature EVALUATION.
OF_ROWS = ("dataset_name", "dataset_config_name", "max_train_samples", "validation_split", "split_seed", "folds",
           "fold", "group_column", "calibrate")  # fmt: skip
# A step that changes no weight, after which a script evaluates as it did at the end of the run.
ONE_STEP = {"max_steps": 1, "learning_rate": 0, "warmup_steps": 0, "weight_decay": 0, "save_steps": 0}


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
    files += ["test_file"] if any(name.startswith("test_") for name in results) else []
    return {name: located(run["flags"][name]) for name in files if run["flags"].get(name)}


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
