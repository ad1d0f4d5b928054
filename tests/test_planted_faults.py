"""Do the network's tests notice mistakes? Each row plants one in a copy of the package; some test must turn red."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TESTS = (
    *("test_parity.py", "test_modeling_bert.py", "test_modeling_losses.py", "test_unpadding.py"),
    *("test_second_derivatives.py", "test_outsiders.py"),
)
ENCODER, HEADS, LOSSES, UNPADDING = "modeling_bert.py", "heads.py", "losses.py", "unpadding.py"
PRETRAINED, LM_HEADS, FAST, DROPOUT = "pretrained.py", "pretraining_heads.py", "fast_path.py", "fast_dropout.py"
FAULTS = {  # name: (file, correct text, faulty text)
    "causal on un-padded batches": (ENCODER, "self.is_causal = config.is_decoder", "self.is_causal = True"),
    "padding mask ignored": (
        ENCODER,
        "self.encoder(hidden_states, mask, **kwargs)",
        "self.encoder(hidden_states, None, **kwargs)",
    ),
    "no 1/sqrt(d)": (ENCODER, "self.scaling = self.head_size**-0.5", "self.scaling = 1.0"),
    "tanh GELU": (ENCODER, "ACT2FN[config.hidden_act]", 'ACT2FN["gelu_pytorch_tanh"]'),
    "tanh GELU in the LM head": (LM_HEADS, "ACT2FN[config.hidden_act]", 'ACT2FN["gelu_pytorch_tanh"]'),
    "LayerNorm eps 1e-5": (ENCODER, "eps=config.layer_norm_eps", "eps=1e-5"),
    "token types ignored": (ENCODER, "if token_type_ids is None:", "if True:"),
    "LayerNorm before the residual": (
        ENCODER,
        "self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)",
        "self.LayerNorm(self.dropout(self.dense(hidden_states))) + residual",
    ),
    "untied decoder": (LM_HEADS, "_tied_weights_keys = TIED_DECODER", "_tied_weights_keys = None"),
    "dropout in eval": (ENCODER, "self.dropout.p if self.training else 0.0", "self.dropout.p"),
    "position ids ignored": (ENCODER, "if position_ids is None:", "if True:"),
    "pooler over the last token": (ENCODER, "hidden_states[:, 0]", "hidden_states[:, -1]"),
    "decoder without causal mask": (ENCODER, "create_causal_mask if self.config.is_decoder else ", ""),
    "mean of each micro-batch": (LOSSES, "if count is None else count)", ")"),
    "half-precision sum": (LOSSES, "logits.float() if", "logits if"),
    "sparse without the labels' rows": (LM_HEADS, "hidden_states[labelled], labels[labelled]", "hidden_states, labels"),
    "decoder bias not initialised": (LM_HEADS, "            initialization.zeros_(module.bias)", "            pass"),
    "uncut normal": (PRETRAINED, "a=-2 * std, b=2 * std", "a=-4 * std, b=4 * std"),
    "attention into the neighbour": (
        UNPADDING,
        "shape = (*run, *query.shape[1:])",
        "shape = (1, run[0] * run[1], *query.shape[1:])",
    ),
    "blocks without their mask": (
        UNPADDING,
        "attend(module, *states, mask, **options)",
        "attend(module, *states, None, **options)",
    ),
    "blocks without the causal mask": (UNPADDING, "if module.is_causal:", "if False:"),
    "rows exchanged": (UNPADDING, "index = rows[rank] *", "index = rank *"),
    "no attention dropout": (
        UNPADDING,
        "for part in states), None, **options)",
        "for part in states), None, scaling=options['scaling'])",
    ),
    "pooled padding left out": (FAST, "        kept = first if kept is None else kept | first", "        pass"),
    "labelled padding left out": (FAST, "None if reads is None else reads.labelled", "None"),
    "unpadding where nobody asked": (
        PRETRAINED,
        "return switch or False",
        "return 'auto' if switch is None else switch",
    ),
    "[CLS] not read": (FAST, "read[:, 0] = True", "pass"),
    "packed positions run on": (FAST, 'kwargs.get("cu_seq_lens_q") is not None', "False"),
    "rows of other tokens": (UNPADDING, "torch.arange(len(self.cells), device=rows.device)", "self.cells"),
    "second derivative cut off": (LOSSES, "        if torch.is_grad_enabled():", "        if False:"),
    "second derivative of attention cut off": (DROPOUT, "        if torch.is_grad_enabled():", "        if False:"),
    "blind queries see everything": (DROPOUT, "weights.masked_fill(blind, 0.0) if blind.any() else weights", "weights"),
    "problem_type not settled": (HEADS, "self.config.problem_type = find", "_ = find"),
    "four predictions for Trainer": (LM_HEADS, "keys_to_ignore_at_inference", "keys_to_ignore"),
    "span scores at padding": (HEADS, "logits = logits.masked_fill(", "logits.masked_fill("),
    "a switch in the saved config": (PRETRAINED, '"unpad_inputs", ', ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_noticed(name, tmp_path):
    file, correct, faulty = FAULTS[name]
    shutil.copytree(ROOT / "modeling_bert_repro", tmp_path / "modeling_bert_repro")
    shutil.copytree(ROOT / "tests" / "helpers", tmp_path / "tests" / "helpers")
    for test in ("__init__.py", *TESTS):
        shutil.copy(ROOT / "tests" / test, tmp_path / "tests")
    path = tmp_path / "modeling_bert_repro" / file
    source = path.read_text()
    assert correct in source, "the table is out of date"
    path.write_text(source.replace(correct, faulty))
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
