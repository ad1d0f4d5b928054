"""bert_training/inputs/flags/scripts.py: one table says what the scripts that train are."""

import ast

import pytest
import torch
import transformers

import modeling_bert_repro
from bert_training.cards.metrics import METRICS
from bert_training.inputs.flags.fine_tuning import FineTuningArguments, NerArguments
from bert_training.inputs.flags.heads import ENCODER, HEADS, heads_of, opened_by
from bert_training.inputs.flags.scripts import SCRIPTS, path_of, script_of
from modeling_bert_repro import lstm_heads
from tests.helpers.repository import ROOT, sources
from tests.helpers.small_networks import small_config


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_row_names_exists(name):
    script = SCRIPTS[name]
    assert path_of(name) == str(ROOT / name) and script_of(script.arguments) == name
    assert {*script.metrics} <= {*METRICS}
    assert "{size}" in script.sentence and "{origin}" in script.sentence
    assert script.pretrains != issubclass(script.arguments, FineTuningArguments)
    # A report shows the fine-tuned models alone by task and metric.
    assert [bool(part) for part in (heads_of(name), script.title, script.metrics)] == 3 * [not script.pretrains]


@pytest.mark.parametrize("name", HEADS)
def test_what_is_said_of_a_class_is_so(name):
    head = HEADS[name]
    assert head.exported == hasattr(transformers, name) and hasattr(
        modeling_bert_repro if head.exported else lstm_heads, name
    )
    assert {*head.scripts} <= {*SCRIPTS}
    if head.exported:
        network = getattr(modeling_bert_repro, name)(small_config()).eval()
        keys = [key.removeprefix("cls.") for key in network.state_dict()]
        assert any("pooler" in key for key in keys) == head.pooler
        if name != ENCODER:
            assert {key.partition(".")[0] for key in keys} - {"bert"} == {*head.tensors}
        rows = torch.ones((1, 3, 4) if name == "BertForMultipleChoice" else (1, 4), dtype=torch.long)
        assert name == "BertForPreTraining" or {*head.outputs} <= {*network(rows)}


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
    """What differs between scripts is in their rows, and which heads they fine-tune in those of the heads."""
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            keys = node.keys if isinstance(node, ast.Dict) else []
            words = {ast.unparse(part).strip("'") for part in (*compared, *keys) if part}
            found |= {(path.name, word) for word in words & {*SCRIPTS, *(name.removesuffix(".py") for name in SCRIPTS)}}
    assert found == {(file, name) for name in SCRIPTS for file in ("scripts.py", *["heads.py"] * bool(heads_of(name)))}
