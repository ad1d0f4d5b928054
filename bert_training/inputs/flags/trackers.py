"""The values of --report_to: the trackers that Accelerate knows, as far as their packages are installed."""

from collections.abc import Iterator

NONE = "none"


def tracker_problems(names: list[str]) -> Iterator[str]:
    """What is wrong unless the names are those of trackers that are installed, each once; or "none" alone."""
    if names == [NONE]:
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers  # takes seconds, for this flag only

    installed = sorted(map(str, get_available_trackers()))
    has = f"installed: {', '.join(installed)}" if installed else "none is installed here"
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS and name != NONE:
            known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
            yield f"--report_to {name}: expected {NONE} or trackers out of {known} ({has})"
        elif name != NONE and name not in installed:
            yield f"--report_to {name}: not installed; pip install {name}, or leave it out ({has})"
    if NONE in names or len({*names}) < len(names):
        yield f"--report_to {' '.join(names)}: expected {NONE} alone, or every tracker once"
