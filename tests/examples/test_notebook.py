"""examples/from_table_to_service.ipynb: stored without outputs, and its cells do what the text between them says."""

import json
import os
import re
import subprocess

import pytest

from tests.helpers.repository import ROOT

NOTEBOOK = ROOT / "examples" / "from_table_to_service.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def python_of(cell: str) -> str:
    """The code of a cell, with calls of ``shell`` instead of Jupyter's lines that begin with an exclamation mark."""
    joined = re.sub(r"\\\n\s*", "", cell)
    return re.sub(r"^(\s*)!(.*)$", lambda found: f"{found[1]}shell({found[2]!r})", joined, flags=re.MULTILINE)


def shell(command: str) -> None:
    subprocess.run(command, shell=True, check=True, timeout=600)


def test_it_is_short_and_stored_without_outputs():
    assert len(CELLS) <= 25
    assert len({cell["id"] for cell in CELLS}) == len(CELLS)
    for cell in CELLS:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def test_the_installation_is_skipped_where_the_package_is():
    """The first cell is the one that installs, and the only one."""
    assert [cell for cell in CODE if "pip install --" in cell] == CODE[:1]
    exec(python_of(CODE[0]), {"shell": pytest.fail})


@pytest.mark.slow
def test_the_cells_lead_to_a_service_that_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.environ["PATH"])  # a cell changes it
    names = {"shell": shell}
    try:
        for cell in CODE:
            exec(python_of(cell), names)
    finally:
        if "service" in names:
            names["service"].kill()
    assert names["accuracy"] > 0.8  # one answer to everything reaches a third
    assert names["wrong"] & {one["id"] for one in names["mistakes"]}
    assert [answer["label"] for answer in names["answers"]] == [label for label, _ in names["new_letters"]]
    assert names["service"].returncode == 0
    assert names["exports"] == (next(tmp_path.glob("mails_*")) / "exported" / "mails" / "onnx" / "model.onnx").is_file()
