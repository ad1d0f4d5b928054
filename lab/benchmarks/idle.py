"""Timings need idle cores: beside one busy process, two threads together do hardly more than one."""

import argparse

import psutil

SECONDS = 2.0  # over which the other programs are watched
ALLOWED = 0.15  # cores that the background of a system may take


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Add --busy, which lets a benchmark run beside other programs."""
    parser.add_argument("--busy", action="store_true", help="measure although other programs run; the record says it")


def busy_cores(seconds: float = SECONDS) -> float:
    """The number of cores that other programs keep busy, watched for this time while this process sleeps."""
    return round(psutil.cpu_percent(interval=seconds) / 100 * psutil.cpu_count(), 2)


def demand_idle_cores(accept_busy: bool) -> dict[str, float]:
    """The part of a record that says how busy the machine was when the measurement began.

    Raises:
        SystemExit: other programs keep more than ``ALLOWED`` cores busy, and ``accept_busy`` is not set.
    """
    busy = busy_cores()
    if busy > ALLOWED and not accept_busy:
        raise SystemExit(
            f"expected idle cores, but other programs keep {busy:g} of {psutil.cpu_count()} busy, which would falsify "
            "the seconds; stop them and give the same command again, or add --busy"
        )
    return {"busy_cores_at_start": busy}
