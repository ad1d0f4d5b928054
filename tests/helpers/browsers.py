"""Headless Chromium for tests of pages, and the processes that serve these."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.repository import ROOT

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[^\s)]*")


def chromium() -> str | None:
    """The program, or None if the machine has none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def need_browser() -> None:
    """Skip the test if FastAPI, playwright or Chromium is missing; fail if BERT_REPRO_BROWSER says "required"."""
    missing = [name for name in ("fastapi", "playwright") if find_spec(name) is None]
    missing += [] if chromium() else ["chromium"]
    if missing and os.environ.get("BERT_REPRO_BROWSER") == "required":
        pytest.fail(f"BERT_REPRO_BROWSER demands the tests in a browser, and {', '.join(missing)} is missing")
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


@contextmanager
def started_browser() -> Iterator[Any]:
    """A browser of playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def serving(command: list[str], pages: int, cwd: Path = ROOT, **environment: str) -> Iterator[tuple[Any, list[str]]]:
    """A process that prints the addresses of its pages, and these addresses; it is ended at the end."""
    settings = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(
        command, cwd=cwd, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    output, addresses = "", []
    try:
        while len(addresses) < pages:
            line = process.stdout.readline()
            assert line, f"ended with {process.wait()}: {output[-3000:]}"
            output += line
            addresses += ADDRESS.findall(line)
        yield process, addresses
    finally:
        process.terminate()
        process.wait(timeout=300)
        process.stdout.close()
