"""Whether two output folders hold the same run, in every bit that does not depend on the clock."""

import json
import re
from pathlib import Path
from typing import Any

import torch

from bert_training.engine.run import LOCK

# Keys of JSON files and of training_state.pt whose values are times, or are computed from times; also the memory that
# the system counted, and ``metrics_bytes``, ``metrics_sha256`` and ``checksum``, of records that contain times.
CLOCK = re.compile(
    r"tokens_per_second|(train_)?mfu|peak_tflops|seconds_per_step|seconds|train_runtime|train_\w+_per_second|metrics_(bytes|sha256)|"
    r"peak_memory_gb|checksum"
)
# These say when and how often the command was given, what the clock said, and the hashes of such files.
OF_THE_CLOCK = ("run.json", "hashes.json", "README.md", "manifest.json")


def names(folder: Path) -> set[str]:
    """The files and folders in a folder, by their relative names; hidden ones as well."""
    # A killed process leaves its lock file, which refuses nobody; the next run that holds the lock removes it.
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != LOCK}


def content(path: Path) -> Any:
    """What a file holds, without the times."""
    if path.name in OF_THE_CLOCK:
        return None
    if path.suffix == ".pt":
        return _without_times(torch.load(path, weights_only=True))
    if path.suffix == ".json":
        return _without_times(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix == ".jsonl":
        return [_without_times(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return path.read_bytes()


def check_same(whole: Path, other: Path, but: str = r"") -> None:
    """Fail unless the folders have the same files, none of them an unfinished draft, with the same content.

    Args:
        but: a pattern of relative names that are not compared.
    """
    expected, found = ({name for name in names(place) if not re.fullmatch(but, name)} for place in (whole, other))
    assert found - expected == set(), "files that a run has left which was never stopped would not leave"
    assert expected - found == set(), "files that are missing"
    for name in sorted(expected):
        if (whole / name).is_file():
            difference = difference_of(content(whole / name), content(other / name))
            assert difference is None, f"{name}: {difference}"


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(one) for key, one in value.items() if not CLOCK.fullmatch(str(key))}
    return [_without_times(one) for one in value] if isinstance(value, list | tuple) else value


def difference_of(a: Any, b: Any, place: str = "") -> str | None:
    """Where two values first differ, and how; None if they are equal."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return None if torch.equal(a, b) else f"{place} differs"
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next(filter(None, (difference_of(a[key], b[key], f"{place}.{key}") for key in a)), None)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next(filter(None, (difference_of(*pair, f"{place}[{i}]") for i, pair in enumerate(zip(a, b)))), None)
    return None if type(a) is type(b) and a == b else f"{place}: {str(a)[:300]} became {str(b)[:300]}"
