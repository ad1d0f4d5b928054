"""Where the files and pages of the project are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages() -> list[Path]:
    """The pages of the documentation, in order, without the model cards and reports that runs wrote."""
    found = [path for pattern in ("*.md", ".github/**/*.md", "docs/**/*.md") for path in ROOT.glob(pattern)]
    return sorted(path for path in found if ROOT / "lab/records/runs" not in path.parents)
