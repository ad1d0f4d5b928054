"""Mistakes in the network. Each is planted in a copy, and some test of the network must turn red.

When you rename or rewrite a function, update its row here.
"""

from tests.helpers.planting import Fault

ENCODER = "modeling_bert_repro/modeling_bert.py"
HEADS = "modeling_bert_repro/heads.py"
LOSSES = "modeling_bert_repro/losses.py"
UNPADDING = "modeling_bert_repro/unpadding.py"
PRETRAINED = "modeling_bert_repro/pretrained.py"
LM_HEADS = "modeling_bert_repro/pretraining_heads.py"
FAST = "modeling_bert_repro/fast_path.py"
DROPOUT = "modeling_bert_repro/fast_dropout.py"
TESTS = (
    *("parity", "modeling_bert", "losses", "fast_path", "unpadding", "second_derivatives", "outsiders"),
    "cuda_branches",
)
FIRST = {LOSSES: "losses", UNPADDING: "unpadding", FAST: "fast_path", DROPOUT: "unpadding", PRETRAINED: "modeling_bert"}


def _fault(file: str, places: str | tuple[str, ...], correct: str, faulty: str) -> Fault:
    """A row of the table; the tests that are likely to notice it come first."""
    names = sorted(TESTS, key=lambda name: name != FIRST.get(file))
    tests = tuple(f"tests/modeling_bert_repro/test_{name}.py" for name in names)
    return Fault(file=file, places=places, correct=correct, faulty=faulty, tests=tests)


FAULTS = {
    "key and value exchanged in one product": _fault(
        ENCODER, "BertSelfAttention.project", "(self.query, self.key, self.value)", "(self.query, self.value, self.key)"
    ),
    "one product of layers that somebody watches": _fault(FAST, "is_plain", "any(hooks)", "False"),
    "labels of another shape": _fault(
        LM_HEADS, "BertLanguageModel.reads_of", "labels.shape != inputs.shape[:2]", "False"
    ),
    "causal on un-padded batches": _fault(ENCODER, "BertSelfAttention.__init__", "config.is_decoder", "True"),
    "padding mask ignored": _fault(
        ENCODER, "BertModel.encode", "self.make_attention_mask(hidden_states, attention_mask)", "None"
    ),
    "no 1/sqrt(d)": _fault(ENCODER, "BertSelfAttention.__init__", "self.head_size**-0.5", "1.0"),
    "tanh GELU": _fault(ENCODER, "BertIntermediate.__init__", "config.hidden_act", "'gelu_pytorch_tanh'"),
    "tanh GELU in the LM head": _fault(
        LM_HEADS, "BertPredictionTransform.__init__", "config.hidden_act", "'gelu_pytorch_tanh'"
    ),
    "LayerNorm eps 1e-5": _fault(
        ENCODER, ("BertEmbeddings.__init__", "BertResidual.__init__"), "config.layer_norm_eps", "1e-5"
    ),
    "token types ignored": _fault(ENCODER, "BertEmbeddings.forward", "token_type_ids is None", "True"),
    "LayerNorm before the residual": _fault(
        ENCODER,
        "BertResidual.forward",
        "self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)",
        "self.LayerNorm(self.dropout(self.dense(hidden_states))) + residual",
    ),
    "untied decoder": _fault(
        LM_HEADS, "BertLanguageModel", "_tied_weights_keys = TIED_DECODER", "_tied_weights_keys = None"
    ),
    "dropout in eval": _fault(
        ENCODER, "BertSelfAttention.forward", "self.dropout.p if self.training else 0.0", "self.dropout.p"
    ),
    "position ids ignored": _fault(ENCODER, "BertEmbeddings.forward", "position_ids is None", "True"),
    "pooler over the last token": _fault(ENCODER, "BertPooler.forward", "hidden_states[:, 0]", "hidden_states[:, -1]"),
    "decoder without causal mask": _fault(
        ENCODER,
        "BertModel.make_attention_mask",
        "create_causal_mask if self.config.is_decoder else create_bidirectional_mask",
        "create_bidirectional_mask",
    ),
    "mean of each micro-batch": _fault(LOSSES, ("cross_entropy", "classification_loss"), "count is None", "True"),
    "half-precision sum": _fault(LOSSES, "at_least_float32", "logits.float()", "logits"),
    "sparse without the labels' rows": _fault(LM_HEADS, "BertLanguageModel.to_predict", "reads.rows is None", "True"),
    "decoder bias not initialised": _fault(
        LM_HEADS, "BertLanguageModel._init_weights", "initialization.zeros_(module.bias)", "pass"
    ),
    "uncut normal": _fault(
        PRETRAINED,
        "BertPreTrainedModel._init_weights",
        "initialization.trunc_normal_(module.weight, mean=0.0, std=std, a=-2 * std, b=2 * std)",
        "initialization.trunc_normal_(module.weight, mean=0.0, std=std, a=-4 * std, b=4 * std)",
    ),
    "attention into the neighbour": _fault(
        UNPADDING, "attend_by_length", "(*run, *query.shape[1:])", "(1, run[0] * run[1], *query.shape[1:])"
    ),
    "blocks without their mask": _fault(
        UNPADDING,
        "attend_in_blocks",
        "attend(module, *states, mask, **options)",
        "attend(module, *states, None, **options)",
    ),
    "blocks without the causal mask": _fault(UNPADDING, "attended_to", "module.is_causal", "False"),
    "runs without dropout": _fault(DROPOUT, "BlockAttention.forward", "thinned(softmax, drawn)", "softmax"),
    "gradient of dropped weights": _fault(
        DROPOUT,
        "BlockAttention.backward",
        "thinned(torch.matmul(gradients, values.transpose(2, 3)).to(softmax.dtype), drawn)",
        "torch.matmul(gradients, values.transpose(2, 3)).to(softmax.dtype)",
    ),
    "float32 under autocast": _fault(
        UNPADDING, "in_float32", "torch.autocast('cpu', enabled=False)", "torch.autocast('cpu', enabled=True)"
    ),
    "rows exchanged": _fault(UNPADDING, "find_tokens", "rows[rank]", "rank"),
    "no attention dropout": _fault(
        UNPADDING,
        "attend_by_length",
        "attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, **options)",
        "attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, scaling=options['scaling'])",
    ),
    "pooled padding left out": _fault(FAST, "choose_tokens", "model.pooler is not None", "False"),
    "labelled padding left out": _fault(FAST, "choose_tokens", "None if reads is None else reads.labelled", "None"),
    "unpadding where nobody asked": _fault(
        PRETRAINED, "BertPreTrainedModel.find_switch", "switch or False", "switch or True"
    ),
    "[CLS] not read": _fault(FAST, "positions_read", "read[:, 0] = True", "pass"),
    "packed positions run on": _fault(ENCODER, "BertModel.encode", "kwargs.get('cu_seq_lens_q') is not None", "False"),
    "rows of other tokens": _fault(
        UNPADDING, "Tokens.rows_at", "torch.arange(len(self.place), device=rows.device)", "self.real_cells"
    ),
    "spare rows with a label": _fault(
        LM_HEADS,
        "BertLanguageModel.to_predict",
        "with_spare_rows(labels.flatten().index_select(0, reads.rows), hidden_states, IGNORED)",
        "with_spare_rows(labels.flatten().index_select(0, reads.rows), hidden_states, 7)",
    ),
    "second derivative cut off": _fault(LOSSES, "LargeCrossEntropy.backward", "torch.is_grad_enabled()", "False"),
    "second derivative of attention cut off": _fault(
        DROPOUT, "BlockAttention.backward", "torch.is_grad_enabled()", "False"
    ),
    "blind queries see everything": _fault(DROPOUT, "attention_weights", "blind.any()", "False"),
    "problem_type of another kind": _fault(LOSSES, "find_problem_type", "num_labels == 1", "False"),
    "four predictions for Trainer": _fault(
        LM_HEADS,
        "BertForPreTraining.__init__",
        "self.config.keys_to_ignore_at_inference = ['mlm_loss', 'nsp_loss']",
        "pass",
    ),
    "span scores at padding": _fault(
        HEADS,
        "BertForQuestionAnswering.forward",
        "logits.masked_fill(padding, torch.finfo(logits.dtype).min)",
        "logits",
    ),
    "a switch in the saved config": _fault(PRETRAINED, "SWITCHES", "'unpad_inputs'", "'sparse_prediction'"),
}
