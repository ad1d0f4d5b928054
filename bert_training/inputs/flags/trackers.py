"""The values of --report_to: the trackers that Accelerate knows, as far as their packages are installed."""

from tokenization.errors import UserError

NONE = "none"


def check_trackers(names: list[str]) -> None:
    """Raise ValueError unless the names are those of trackers that are installed, each once; or "none" alone."""
    if names == [NONE]:
        return
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers  # takes seconds, for this flag only

    installed = sorted(map(str, get_available_trackers()))
    has = f"installed: {', '.join(installed)}" if installed else "none is installed here"
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS and name != NONE:
            known = ", ".join(sorted(LOGGER_TYPE_TO_CLASS))
            raise UserError(f"--report_to {name}: expected {NONE} or trackers out of {known} ({has})")
    if NONE in names or len({*names}) < len(names):
        raise UserError(f"--report_to {' '.join(names)}: expected {NONE} alone, or every tracker once")
    missing = [name for name in names if name not in installed]
    if missing:
        packages = " ".join(missing)
        raise UserError(f"--report_to {packages}: not installed; pip install {packages}, or leave it out ({has})")
