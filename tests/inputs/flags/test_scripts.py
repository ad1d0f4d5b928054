"""bert_training/inputs/flags/scripts.py: one table says what the scripts that train are."""

import ast

import pytest

import modeling_bert_repro
from bert_training.cards.metrics import METRICS
from bert_training.inputs.flags.fine_tuning import FineTuningArguments, NerArguments
from bert_training.inputs.flags.scripts import SCRIPTS, opened_by, path_of, script_of
from modeling_bert_repro import lstm_heads
from tests.helpers.repository import ROOT, sources


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_row_names_exists(name):
    script = SCRIPTS[name]
    assert path_of(name) == str(ROOT / name) and script_of(script.arguments) == name
    assert {*script.metrics} <= {*METRICS}
    assert "{size}" in script.sentence and "{origin}" in script.sentence
    assert all(hasattr(modeling_bert_repro, head) or hasattr(lstm_heads, head) for head in script.heads)
    assert script.pretrains != issubclass(script.arguments, FineTuningArguments)
    # A report shows the fine-tuned models alone by task and metric.
    assert [bool(part) for part in (script.heads, script.title, script.metrics)] == 3 * [not script.pretrains]


def test_other_flags_belong_to_no_script():
    assert (script_of(NerArguments), script_of(FineTuningArguments)) == ("run_ner.py", "")


def test_what_opens_a_network_that_several_scripts_make():
    """The script that needs no flag is named first."""
    assert opened_by()["BertForTokenClassification"] == "run_ner.py, or run_glue.py with --label_token last"
    assert opened_by()["BertForMultipleChoice"] == "run_swag.py"


def test_a_script_may_lie_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_training.inputs.flags.scripts.sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setitem(SCRIPTS, "run_x.py", SCRIPTS["run_ner.py"])
    with pytest.raises(ValueError, match=r"expected .*run_x\.py, .*run_x\.py or run_x\.py on the PATH, found none"):
        path_of("run_x.py")
    (tmp_path / "run_x.py").touch()
    assert path_of("run_x.py") == str(tmp_path / "run_x.py")


def test_nothing_compares_the_name_of_a_script_or_tables_it():
    """What differs between scripts is in their rows."""
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            keys = node.keys if isinstance(node, ast.Dict) else []
            words = {ast.unparse(part).strip("'") for part in (*compared, *keys) if part}
            found |= {(path.name, word) for word in words & {*SCRIPTS, *(name.removesuffix(".py") for name in SCRIPTS)}}
    assert found == {("scripts.py", name) for name in SCRIPTS}
