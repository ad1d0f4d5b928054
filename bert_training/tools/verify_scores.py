"""The scores of a finished folder, computed again from its weights.

Data is used only if its SHA-256 is the one in run.json. Weights are evaluated by the run's own script, in a process of
its own, which gets links to the model's and the tokenizer's files only and writes into a temporary folder.
"""

import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from bert_training.cards.metrics import percent_factor
from bert_training.files.hashing import sha256
from bert_training.files.json_files import read_json
from bert_training.inputs.flags.natures import EVALUATION, STORED, natures
from bert_training.inputs.flags.phases import phases_of
from bert_training.inputs.flags.scripts import SCRIPTS, path_of
from bert_training.tasks.classification.by_class import value_of
from bert_training.tasks.classification.scores import metric_prefix
from bert_training.tools.findings import (
    MALFORMED,
    Finding,
    differs,
    is_ordinary,
    run_check,
    short_text,
    unknown,
    verified,
)
from bert_training.tools.verify_files import without_weights
from tokenization.errors import UserError

ROOT = Path(__file__).parents[2]
MODEL_FILES = ("config.json", "model*.safetensors", "model.safetensors.index.json", "tokenizer.json",
               "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt")  # fmt: skip
# Another processor, another number of threads or another version of torch rounds otherwise. A prediction that is
# almost a tie may then change.
LOSS_TOLERANCE, SCORE_TOLERANCE = 1e-3, 5e-3
# One step that changes nothing, for scripts that read the data to evaluate on from the training data.
OF_WORDS = ("nats_per_word", "pieces_per_word", "unk_share")
NO_TRAINING = ("--learning_rate=0", "--warmup_steps=0", "--weight_decay=0", "--max_steps=1")


# --- data ------------------------------------------------------------------------------------------------------------


class Source:
    """A file of data that the run read.

    Attributes:
        split: its split: train, validation_matched, ...
        name: the path in run.json.
        path: the file on this machine if it has the hash in run.json, otherwise None.
        finding: whether it has.
    """

    def __init__(self, split: str, name: str, digest: str, given: list[Path]):
        self.split, self.name = split, name
        self.path: Path | None = None
        claim = f"data, {split}"
        places = [path for path in given if path.name == Path(name).name]
        for path in [*places, Path(name)]:
            if is_ordinary(path) and sha256(path) == digest:
                self.path = path.absolute()
                self.finding = verified(claim, f"{short_text(str(path))} has the SHA-256 in run.json")
                return
        if places:
            self.finding = differs(claim, f"{short_text(str(places[0]))} does not have the SHA-256 in run.json")
        elif is_ordinary(Path(name)):
            self.finding = unknown(claim, f"{short_text(name)} on this machine is another file than the run read")
        elif Path(name).exists():
            self.finding = unknown(claim, f"{short_text(name)} is no ordinary file, so it is not read")
        else:
            place = "on this machine" if Path(name).is_absolute() else "below the folder of this command"
            self.finding = unknown(claim, f"{short_text(name)} is not {place}; --data names the folder that has it")


def files_in(places: list[str]) -> list[Path]:
    """The files that ``--data`` names: files, and those in folders at any depth. ValueError if there is no such one."""
    files: list[Path] = []
    for place in map(Path, places):
        if not place.exists():
            raise UserError(f"--data {place}: expected a file or a folder, found none")
        files += sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
    return files


def sources(run: dict, given: list[Path]) -> list[Source]:
    """The files of data that a run read, in the order of run.json. Data of the Hub and built-in data have none."""
    data, flags = run.get("data"), run["flags"]
    if isinstance(data, list):  # of pre-training
        paths = [*(flags.get("train_file") or []), *(flags.get("validation_file") or [])]
        files = [one for one in data if "bytes" in one]
        # A folder or a pattern stands for files that have only their names in run.json.
        named = [Path(path).name for path in paths] == [one["name"] for one in files]
        pairs = zip(files, paths if named else [one["name"] for one in files], strict=True)
        return [Source(one.get("split", "train"), name, one["sha256"], given) for one, name in pairs]
    listed = []
    for split, facts in ((data or {}).get("splits") or {}).items():
        own = flags.get(f"{split.split('_')[0]}_file")
        name = own or (facts.get("source") if flags.get("data_dir") else None)
        if name and "divided" in facts:  # a part of the file of training data
            listed.append(Source(split, name, facts["file_sha256"], given))
        elif name and "sha256" in facts:
            listed.append(Source(split, name, facts["sha256"], given))
    return listed


def check_scores(folder: Path, run: dict, results: dict, given: list[Path], evaluate: bool) -> Iterator[Finding]:
    """The data, and the scores that the weights have on it. Arguments as for ``verify.findings``."""
    try:
        data = sources(run, given)
    except MALFORMED as error:
        yield differs("run.json, data", f"not in the form that a run writes ({short_text(str(error))})")
        return
    if not data:
        yield unknown("data", "it came from the Hub or from this Python's documentation; run.json names no files")
    yield from (source.finding for source in data)
    if evaluate:
        yield from run_check("scores from the weights", lambda: check_weights(folder, run, results, data))
    else:
        yield unknown("scores from the weights", "--skip_evaluation")


# --- from the weights ------------------------------------------------------------------------------------------------


def check_weights(folder: Path, run: dict, results: dict, data: list[Source]) -> Iterator[Finding]:
    """The scores of the weights, by an evaluation of the run's own script."""
    claim = "scores from the weights"
    if not (folder / "config.json").is_file() or not list(folder.glob("model*.safetensors")):
        yield unknown(claim, without_weights(folder))
        return
    pretraining = SCRIPTS[run["script"]].pretrains
    if pretraining and run["flags"].get("dataset_name"):
        yield unknown(claim, "its training data came from the Hub")
        return
    if run["flags"].get("validation_split") == 0 and not pretraining:
        yield unknown(claim, "it was trained without validation data (--validation_split 0)")
        return
    divided = not pretraining and divides(run)
    part = "train" if divided else "validation"  # the part held out is found again in the training data
    needed = [one for one in data if pretraining or one.split.startswith(part)]
    if not needed or any(one.path is None for one in needed):
        yield unknown(claim, "the data is not at hand as a file that has the SHA-256 in run.json")
        return
    if pretraining:
        if len([one for one in needed if one.split == "validation"]) != len(run["flags"].get("validation_file") or []):
            # An entry stands for several files, whose hidden words were chosen together.
            results = {name: value for name, value in results.items() if not name.endswith(OF_WORDS)}
        yield from _close_scores(folder, run, results, _pretraining_flags(run, needed), "eval_", "eval_")
        return
    for one in needed:
        test = [other for other in data if other.split.startswith("test") and other.path]
        own = (
            [*NO_TRAINING, f"--train_file={one.path}", *split_flags(run)]
            if divided
            else [f"--validation_file={one.path}"]
        )
        paths = [*own, *(f"--test_file={other.path}" for other in test)]
        recorded_prefix = "eval_" if divided else metric_prefix(one.split)
        evaluated_prefix = "eval_mnli_m_" if recorded_prefix == "eval_mnli_mm_" else recorded_prefix
        scored = any(name.startswith("test_") for name in results)
        paths = paths if scored else own
        flags = [*evaluation_flags(run), *paths]
        if scored and test and _finds_threshold(run):
            tested = {name: value for name, value in results.items() if name.startswith("test_")}
            results = {name: value for name, value in results.items() if name not in tested}
            stored = [word for word in evaluation_flags(run) if not word.startswith("--null_score_diff_threshold")]
            yield from _close_scores(folder, run, tested, [*stored, *paths[len(own) :]], "test_", "test_")
            flags = [*evaluation_flags(run), *own]
        yield from _close_scores(folder, run, results, flags, recorded_prefix, evaluated_prefix)


def evaluation_flags(run: dict) -> list[str]:
    """The flags of nature EVALUATION that differ from their defaults, as words of a command.

    Those of nature STORED are always given, because the model may bring other defaults.

    The precision is that of run.json, because it may come from accelerate's configuration instead of the flag. fp16 is
    left out: it needs a GPU, and float32 gives the same scores up to rounding.

    Raises:
        ValueError: a word of run.json would be another flag.
    """
    cls = SCRIPTS[run["script"]].arguments
    flags = run["flags"] | {"mixed_precision": run.get("mixed_precision") or run["flags"].get("mixed_precision")}
    given = []
    for one in fields(cls):
        value = flags.get(one.name)
        nature, usual = natures(cls)[one.name], (None, "fp16", one.default)
        decides = nature & EVALUATION and value not in usual
        if not decides and not (nature & STORED and value is not None):
            continue
        if isinstance(value, list):
            if any(str(word).startswith("-") for word in value):  # it would be another flag, such as --push_to_hub
                raise UserError(f"--{one.name}: expected words that do not begin with '-', got {short_text(value)}")
            given += [f"--{one.name}", *map(str, value)]
        else:
            given.append(f"--{one.name}={str(value).lower() if isinstance(value, bool) else value}")
    return given


def _finds_threshold(run: dict) -> bool:
    """Whether the test was answered with the no-answer threshold that the run found and stored, not that of a flag."""
    flags = run["flags"]
    return bool(flags.get("version_2_with_negative")) and not flags.get("null_score_diff_threshold")


def divides(run: dict) -> bool:
    """Whether a fine-tuning divided its training data, so that no file of its own has what was held out."""
    return any(run["flags"].get(name) for name in ("validation_split", "folds"))


def split_flags(run: dict) -> list[str]:
    """The flags by which a fine-tuning that divided its training data finds the same part, as words of a command.

    A training begins without the stored temperature, and finds it on the same rows.
    """
    names = ("validation_split", "folds", "group_column")
    given = [f"--{name}={run['flags'][name]}" for name in names if run["flags"].get(name) is not None]
    return [*given, *(["--calibrate"] if run["flags"].get("calibrate") else [])]


def _pretraining_flags(run: dict, data: list[Source]) -> list[str]:
    """The flags of a run of one step whose learning rate is 0, because the script does not evaluate without one."""
    flags, defaults = run["flags"], {one.name: one.default for one in fields(SCRIPTS[run["script"]].arguments)}
    given = [*NO_TRAINING, "--eval_steps=0", *evaluation_flags(run)]
    held_out = [str(one.path) for one in data if one.split == "validation"]
    if not held_out and flags.get("validation_split") != defaults["validation_split"]:
        given.append(f"--validation_split={flags['validation_split']}")
    if flags.get("phases"):  # the last phase decides on the length of the evaluation, and not the longest one
        given.append(f"--max_seq_length={phases_of(flags)[-1].length}")
    train = [str(one.path) for one in data if one.split == "train"]  # none: the built-in text
    given += ["--train_file", *train] if train else []
    return [*given, *(["--validation_file", *held_out] if held_out else [])]


def _close_scores(
    folder: Path, run: dict, results: dict, flags: list[str], recorded_prefix: str, evaluated_prefix: str
) -> Iterator[Finding]:
    """The recorded results, against those of an evaluation, whose names may have another prefix.

    Args:
        recorded_prefix: the beginning of the results' names in all_results.json.
        evaluated_prefix: the beginning of their names in the evaluation.
    """
    with tempfile.TemporaryDirectory() as place:
        evaluation = _evaluate(folder, run["script"], flags, Path(place))
    if isinstance(evaluation, Finding):
        yield evaluation
        return
    compared = {name: value for name, value in results.items() if name.startswith((recorded_prefix, "test_"))}
    if not compared:
        yield unknown("scores from the weights", f"all_results.json has no {recorded_prefix} results")
    same, whole = [], 100 / percent_factor(evaluation)
    for name, value in compared.items():
        has_prefix = name.startswith(recorded_prefix)
        name_there = evaluated_prefix + name.removeprefix(recorded_prefix) if has_prefix else name
        again = value_of(evaluation, name_there)
        if again is None and name_there not in evaluation:
            yield unknown(f"{name} from the weights", "the evaluation does not give it")
        elif is_close(name, value, again, whole):
            same.append(f"{name} {short_text(again)}")
        else:
            yield differs(name, f"all_results.json says {short_text(value)}, but the weights give {short_text(again)}")
    if same:
        yield verified("scores from the weights", f"{', '.join(same)}: computed again by {run['script']}")


def is_close(name: str, one: Any, other: Any, whole: float) -> bool:
    """Whether two results are equal up to what another machine changes: 0.1 % of a loss, half a point of a score.

    Args:
        whole: the best score, 1 or 100.
    """
    if isinstance(one, dict) and isinstance(other, dict):  # the scores by class
        return one.keys() == other.keys() and all(is_close(part, one[part], other[part], whole) for part in one)
    if not isinstance(one, int | float) or not isinstance(other, int | float):
        return bool(one == other)
    # Of thresholds and temperatures, only the scores with them are stable.
    if "thresh" in name or name.endswith(("perplexity", "temperature")):
        return math.isclose(one, other, rel_tol=0.02, abs_tol=0.1)
    if name.endswith(("loss", "_per_word")):
        return math.isclose(one, other, rel_tol=LOSS_TOLERANCE, abs_tol=LOSS_TOLERANCE)
    return math.isclose(one, other, abs_tol=SCORE_TOLERANCE * whole)


def _evaluate(folder: Path, script: str, flags: list[str], place: Path) -> dict | Finding:
    """The results of the script on the folder's weights, or the reason why there are none."""
    model = place / "model"
    model.mkdir()
    # run.json says what an older version did not store in config.json, such as that the texts are pairs.
    for path in {path for pattern in (*MODEL_FILES, "run.json") for path in folder.glob(pattern)}:
        (model / path.name).symlink_to(path.resolve())
    words = [sys.executable, path_of(script), f"--model_name_or_path={model}", f"--output_dir={place / 'run'}"]
    words += ["--save_steps=0", *flags]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=place)
    results = place / "run" / "all_results.json"
    if done.returncode or not results.is_file():
        lines = [line for line in re.split(r"[\r\n]+", done.stderr) if line.strip()] or ["no message"]
        refused = differs if done.returncode == 2 else unknown  # 2: the script refuses the folder
        return refused("scores from the weights", f"the evaluation stopped: {short_text(lines[-1])}")
    return dict(read_json(results))
