"""docs/promises.md: the public names exist, have docstrings, and are those of ``__all__``."""

import importlib
import inspect

import pytest

from bert_training.record import Record
from tests.helpers.repository import ROOT

SCRIPTS = sorted(path.stem for path in (*ROOT.glob("run_*.py"), ROOT / "extract_features.py"))
NAMED = {
    "bert_deploy.ask": ["answers", "load"],
    "tokenization.train_wordpiece": ["train_wordpiece"],
    **{script: ["main"] for script in SCRIPTS},
}
PACKAGES = ("modeling_bert_repro", "tokenization")


@pytest.mark.parametrize("module", [*PACKAGES, *NAMED])
def test_public_names_are_there_and_explained(module):
    loaded = importlib.import_module(module)
    for name in NAMED.get(module, getattr(loaded, "__all__", [])):
        assert inspect.getdoc(getattr(loaded, name)), name
    text = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    assert module in text or module in SCRIPTS


def test_a_record_has_what_is_promised():
    assert set(Record.__dataclass_fields__) == {"facts", "results"}
