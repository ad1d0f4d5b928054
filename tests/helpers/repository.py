"""Where the files and pages of the project are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
HOUSES = ("bert_training", "bert_tools", "bert_deploy")


def sources() -> list[Path]:
    """The files of the training, its annexes and the scripts: all of the product but network and tokenizer."""
    return [*(path for house in HOUSES for path in (ROOT / house).rglob("*.py")), *ROOT.glob("*.py")]


def pages() -> list[Path]:
    """The pages of the documentation, in order, without the model cards and reports that runs wrote."""
    found = [path for pattern in ("*.md", ".github/**/*.md", "docs/**/*.md") for path in ROOT.glob(pattern)]
    return sorted(path for path in found if ROOT / "lab/records/runs" not in path.parents)
