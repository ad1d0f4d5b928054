"""The scripts of modeling-bert-repro; everything else that is installed stands in pyproject.toml."""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent

# Installed as programs, not as modules, so that no module of a common name lands beside a user's own code.
setup(scripts=sorted(path.name for path in (*HERE.glob("run_*.py"), HERE / "extract_features.py")))
