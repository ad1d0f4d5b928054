"""Do the network's tests notice mistakes? Each row plants one in a copy of the package; some test must turn red."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.planting import plant
from tests.helpers.repository import ROOT

PACKAGE = ROOT / "modeling_bert_repro"
TESTS = (
    *("test_parity.py", "test_modeling_bert.py", "test_losses.py", "test_unpadding.py"),
    *("test_second_derivatives.py", "test_outsiders.py"),
)
ENCODER, HEADS, LOSSES, UNPADDING = "modeling_bert.py", "heads.py", "losses.py", "unpadding.py"
PRETRAINED, LM_HEADS, FAST, DROPOUT = "pretrained.py", "pretraining_heads.py", "fast_path.py", "fast_dropout.py"
# name: (file, functions, correct code, faulty code). A function that is renamed needs its new name here, one that is
# rewritten its new code; tests/helpers/planting.py says how they are looked for.
FAULTS = {
    "causal on un-padded batches": (ENCODER, "BertSelfAttention.__init__", "config.is_decoder", "True"),
    "padding mask ignored": (
        ENCODER,
        "BertModel.forward",
        "self.make_attention_mask(hidden_states, attention_mask)",
        "None",
    ),
    "no 1/sqrt(d)": (ENCODER, "BertSelfAttention.__init__", "self.head_size**-0.5", "1.0"),
    "tanh GELU": (ENCODER, "BertIntermediate.__init__", "config.hidden_act", "'gelu_pytorch_tanh'"),
    "tanh GELU in the LM head": (
        LM_HEADS,
        "BertPredictionTransform.__init__",
        "config.hidden_act",
        "'gelu_pytorch_tanh'",
    ),
    "LayerNorm eps 1e-5": (
        ENCODER,
        ("BertEmbeddings.__init__", "BertResidual.__init__"),
        "config.layer_norm_eps",
        "1e-5",
    ),
    "token types ignored": (ENCODER, "BertEmbeddings.forward", "token_type_ids is None", "True"),
    "LayerNorm before the residual": (
        ENCODER,
        "BertResidual.forward",
        "self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)",
        "self.LayerNorm(self.dropout(self.dense(hidden_states))) + residual",
    ),
    "untied decoder": (LM_HEADS, "BertLanguageModel", "_tied_weights_keys = TIED_DECODER", "_tied_weights_keys = None"),
    "dropout in eval": (
        ENCODER,
        "BertSelfAttention.forward",
        "self.dropout.p if self.training else 0.0",
        "self.dropout.p",
    ),
    "position ids ignored": (ENCODER, "BertEmbeddings.forward", "position_ids is None", "True"),
    "pooler over the last token": (ENCODER, "BertPooler.forward", "hidden_states[:, 0]", "hidden_states[:, -1]"),
    "decoder without causal mask": (
        ENCODER,
        "BertModel.make_attention_mask",
        "create_causal_mask if self.config.is_decoder else create_bidirectional_mask",
        "create_bidirectional_mask",
    ),
    "mean of each micro-batch": (LOSSES, ("cross_entropy", "classification_loss"), "count is None", "True"),
    "half-precision sum": (LOSSES, "at_least_float32", "logits.float()", "logits"),
    "sparse without the labels' rows": (
        LM_HEADS,
        "BertLanguageModel.predict_tokens",
        "(hidden_states[labelled], labels[labelled])",
        "(hidden_states, labels)",
    ),
    "decoder bias not initialised": (
        LM_HEADS,
        "BertLanguageModel._init_weights",
        "initialization.zeros_(module.bias)",
        "pass",
    ),
    "uncut normal": (
        PRETRAINED,
        "BertPreTrainedModel._init_weights",
        "initialization.trunc_normal_(module.weight, mean=0.0, std=std, a=-2 * std, b=2 * std)",
        "initialization.trunc_normal_(module.weight, mean=0.0, std=std, a=-4 * std, b=4 * std)",
    ),
    "attention into the neighbour": (
        UNPADDING,
        "attend_by_length",
        "(*run, *query.shape[1:])",
        "(1, run[0] * run[1], *query.shape[1:])",
    ),
    "blocks without their mask": (
        UNPADDING,
        "attend_in_blocks",
        "attend(module, *states, mask, **options)",
        "attend(module, *states, None, **options)",
    ),
    "blocks without the causal mask": (UNPADDING, "attend_in_blocks", "module.is_causal", "False"),
    "rows exchanged": (UNPADDING, "find_tokens", "rows[rank]", "rank"),
    "no attention dropout": (
        UNPADDING,
        "attend_by_length",
        "attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, **options)",
        "attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, scaling=options['scaling'])",
    ),
    "pooled padding left out": (FAST, "choose_tokens", "model.pooler is not None", "False"),
    "labelled padding left out": (FAST, "choose_tokens", "None if reads is None else reads.labelled", "None"),
    "unpadding where nobody asked": (
        PRETRAINED,
        "BertPreTrainedModel.find_switch",
        "switch or False",
        "switch or True",
    ),
    "[CLS] not read": (FAST, "positions_read", "read[:, 0] = True", "pass"),
    "packed positions run on": (FAST, "Layout.encode", "kwargs.get('cu_seq_lens_q') is not None", "False"),
    "rows of other tokens": (
        UNPADDING,
        "Tokens.rows_at",
        "torch.arange(len(self.cells), device=rows.device)",
        "self.cells",
    ),
    "second derivative cut off": (LOSSES, "LargeCrossEntropy.backward", "torch.is_grad_enabled()", "False"),
    "second derivative of attention cut off": (
        DROPOUT,
        "DropoutAttention.backward",
        "torch.is_grad_enabled()",
        "False",
    ),
    "blind queries see everything": (DROPOUT, "attention_weights", "blind.any()", "False"),
    "problem_type of another kind": (LOSSES, "find_problem_type", "num_labels == 1", "False"),
    "four predictions for Trainer": (
        LM_HEADS,
        "BertForPreTraining.__init__",
        "self.config.keys_to_ignore_at_inference = ['mlm_loss', 'nsp_loss']",
        "pass",
    ),
    "span scores at padding": (
        HEADS,
        "BertForQuestionAnswering.forward",
        "logits.masked_fill(attention_mask.unsqueeze(-1) == 0, torch.finfo(logits.dtype).min)",
        "logits",
    ),
    "a switch in the saved config": (PRETRAINED, "SWITCHES", "'unpad_inputs'", "'sparse_prediction'"),
}


def faulty_source(name: str) -> str:
    file, places, correct, faulty = FAULTS[name]
    source = (PACKAGE / file).read_text(encoding="utf-8")
    return plant(source, (places,) if isinstance(places, str) else places, correct, faulty)


@pytest.mark.parametrize("name", FAULTS)
def test_the_table_fits_the_network(name):
    compile(faulty_source(name), FAULTS[name][0], "exec")


def test_faults_are_planted_where_they_are_named():
    source = "LIMITS = (1, 2)\n\n\nclass A:\n    def f(self, x):\n"
    source += "        return x + (  # \u00fc\n            x*2\n        )\n"
    source += "\n    def g(self, x):\n        x = x * 2\n        return x * 2\n"
    assert plant(source, ("A.f",), "x * 2", "x + 2") == source.replace("x*2", "(x + 2)")
    assert plant(source, ("A.g",), "x = x * 2", "pass") == source.replace("x = x * 2", "pass")
    assert plant(source, ("A",), "x * 2", "0").count("(0)") == 3
    assert plant(source, ("LIMITS",), "2", "3") == source.replace("(1, 2)", "(1, (3))")
    with pytest.raises(ValueError, match=r"no function, class or assignment 'A\.h'; adapt"):
        plant(source, ("A.g", "A.h"), "x * 2", "0")
    with pytest.raises(ValueError, match=r"A\.f does not hold 'x \* 3'; adapt"):
        plant(source, ("A.f",), "x * 3", "0")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_noticed(name, tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "modeling_bert_repro")
    shutil.copytree(ROOT / "tests" / "helpers", tmp_path / "tests" / "helpers")
    room = Path("tests", "modeling_bert_repro")
    (tmp_path / room).mkdir()
    for file in ("tests/__init__.py", *(room / name for name in ("__init__.py", *TESTS))):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / "modeling_bert_repro" / FAULTS[name][0]).write_text(faulty_source(name), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 1, f"no test noticed: {name}\n{result.stdout[-2000:]}"
    assert "FAILED" in result.stdout, result.stdout[-2000:]
