"""What the tests with other people's packages share: they demand their packages, and open a folder in three ways."""

import importlib
import os
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
import transformers

import modeling_bert_repro

# If this environment variable is "required", a missing package is an error; otherwise its tests are skipped.
VARIABLE = "BERT_REPRO_ECOSYSTEM"
OWN, PLAIN, TRUSTED = "our class", "plain transformers", "trust_remote_code"
WAYS = {OWN: "modeling_bert_repro.", PLAIN: "transformers.models.bert.", TRUSTED: "transformers_modules."}

# Others' packages use functions of each other that are deprecated; every other warning is an error here as elsewhere.
deprecations = [pytest.mark.filterwarnings(f"ignore::{name}Warning") for name in ("Deprecation", "Future")]
every_way = pytest.mark.parametrize("way", list(WAYS))


def required() -> bool:
    """Whether a missing package is an error."""
    return os.environ.get(VARIABLE) == "required"


def needed(name: str) -> ModuleType:
    """The module of another package. Without it, the tests of the calling file are skipped, or fail if `required`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Other packages' imports may warn of each other.
        if required():
            return importlib.import_module(name)
        return pytest.importorskip(name, reason=f"{name} is not installed: pip install -e '.[ecosystem]'")


def demand(report: pytest.TestReport) -> None:
    """Turn the report of a skipped test into that of a failed one if packages are `required`."""
    if required() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped, although {VARIABLE}=required: {report.longrepr}"


def open_folder(way: str, class_name: str, folder: Path | str, **options) -> transformers.PreTrainedModel:
    """Open a folder as ``class_name``, a name such as BertForMaskedLM, in one of ``WAYS``; in evaluation mode."""
    own = getattr(modeling_bert_repro, class_name)
    automatic = getattr(transformers, "AutoModel" + class_name.removeprefix("Bert").removeprefix("Model"))
    if way == OWN:
        model = own.from_pretrained(folder, **options)
    else:
        model = automatic.from_pretrained(folder, trust_remote_code=way == TRUSTED, **options)
    assert type(model).__name__ == class_name
    assert type(model).__module__.startswith(WAYS[way]), type(model).__module__
    return model.eval()


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest absolute difference of two tensors, of which none may have a value that is not finite."""
    assert one.shape == other.shape and one.isfinite().all() and other.isfinite().all()
    return (one - other).abs().max().item()
