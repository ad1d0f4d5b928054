"""Whatever stands above the core may be deleted with its tests: the core trains without it."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.helpers.repository import ROOT

ABOVE = ("bert_tools", "bert_deploy", "lab")
# Python runs this before anything else: an editable installation would find the packages that were deleted.
WITHOUT_INSTALLED = """
import sys
sys.meta_path[:] = [one for one in sys.meta_path if not one.__module__.startswith("__editable__")]
"""


@pytest.mark.slow
def test_the_core_trains_and_passes_its_tests_without_the_annexes(tmp_path):
    """The tests of pages, packages and examples belong to the whole project, and so are deleted as well.

    The patterns also take tests/bert_tools and tests/bert_deploy away.
    """
    away = shutil.ignore_patterns(*ABOVE, ".*", "__pycache__", "*.egg-info", "demo", "runs", "project", "examples")
    core = shutil.copytree(ROOT, tmp_path / "core", ignore=away)
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_INSTALLED)
    environment = os.environ | {"PYTHONPATH": f"{core}:{tmp_path}"}

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=core, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    assert not (core / "tests" / "bert_tools").exists()
    run("-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider", "-m", "not slow and not gpu", "tests")
    listed = run("-m", "bert_training", "--help")
    assert "upload" in listed and "export" not in listed
