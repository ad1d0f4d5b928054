"""Mistakes in the network. Each is planted in a copy, and some test of the network must turn red.

After a function was renamed or rewritten, its new name or code must be entered here.
"""

from tests.helpers.planting import Fault

ENCODER, HEADS, LOSSES, UNPADDING = "modeling_bert.py", "heads.py", "losses.py", "unpadding.py"
PRETRAINED, LM_HEADS, FAST, DROPOUT = "pretrained.py", "pretraining_heads.py", "fast_path.py", "fast_dropout.py"
TESTS = tuple(
    f"tests/modeling_bert_repro/test_{name}.py"
    for name in ("parity", "modeling_bert", "losses", "unpadding", "second_derivatives", "outsiders")
)
# For each fault its name, and (file, functions, correct code, faulty code).
_ROWS = {
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

FAULTS = {name: Fault(f"modeling_bert_repro/{file}", *row, TESTS) for name, (file, *row) in _ROWS.items()}
