"""Asking and serving a finished model imports nothing that only training needs."""

import subprocess
import sys

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from tests.helpers.repository import ROOT

TRAINING = ("datasets", "evaluate", "sklearn", "pandas", "pyarrow", "matplotlib", "tensorboard", "gradio")
SERVE = "import bert_deploy.serve"


def modules(code):
    """The names of all modules that a new process has imported after this."""
    code += "\nimport sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(found.stdout.split())


@pytest.mark.slow
def test_ask_and_serve_import_nothing_of_the_training():
    found = modules(f"import bert_deploy.ask\n{SERVE}")
    assert "bert_deploy.readings" in found and "torch" in found
    assert not found & {*TRAINING}
    assert not [name for name in found if name.startswith(("lab", "run_", "bert_training.builtin_data"))]


@pytest.mark.slow
def test_ask_needs_no_package_that_the_pipeline_does_not():
    pipeline = "from transformers import pipeline, AutoTokenizer, BertForSequenceClassification"
    packages = {name.partition(".")[0] for name in modules(pipeline)}
    asked = {name.partition(".")[0] for name in modules("import bert_deploy.ask")}
    assert asked - packages <= {"bert_deploy", "bert_training", "modeling_bert_repro", "tokenization"}
