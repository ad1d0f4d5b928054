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
        file=ENCODER,
        places="BertSelfAttention.project",
        correct="(self.query, self.key, self.value)",
        faulty="(self.query, self.value, self.key)",
    ),
    "one product of layers that somebody watches": _fault(
        file=FAST,
        places="is_plain",
        correct="any(hooks)",
        faulty="False",
    ),
    "labels of another shape": _fault(
        file=LM_HEADS,
        places="BertLanguageModel.reads_of",
        correct="labels.shape != inputs.shape[:2]",
        faulty="False",
    ),
    "causal on un-padded batches": _fault(
        file=ENCODER,
        places="BertSelfAttention.__init__",
        correct="config.is_decoder",
        faulty="True",
    ),
    "padding mask ignored": _fault(
        file=ENCODER,
        places="BertModel.encode",
        correct="self.make_attention_mask(hidden_states, attention_mask)",
        faulty="None",
    ),
    "no 1/sqrt(d)": _fault(
        file=ENCODER,
        places="BertSelfAttention.__init__",
        correct="self.head_size**-0.5",
        faulty="1.0",
    ),
    "tanh GELU": _fault(
        file=ENCODER,
        places="BertIntermediate.__init__",
        correct="config.hidden_act",
        faulty="'gelu_pytorch_tanh'",
    ),
    "tanh GELU in the LM head": _fault(
        file=LM_HEADS,
        places="BertPredictionTransform.__init__",
        correct="config.hidden_act",
        faulty="'gelu_pytorch_tanh'",
    ),
    "LayerNorm eps 1e-5": _fault(
        file=ENCODER,
        places=("BertEmbeddings.__init__", "BertResidual.__init__"),
        correct="config.layer_norm_eps",
        faulty="1e-5",
    ),
    "token types ignored": _fault(
        file=ENCODER,
        places="BertEmbeddings.forward",
        correct="token_type_ids is None",
        faulty="True",
    ),
    "LayerNorm before the residual": _fault(
        file=ENCODER,
        places="BertResidual.forward",
        correct="self.LayerNorm(self.dropout(self.dense(hidden_states)) + residual)",
        faulty="self.LayerNorm(self.dropout(self.dense(hidden_states))) + residual",
    ),
    "untied decoder": _fault(
        file=LM_HEADS,
        places="BertLanguageModel",
        correct="_tied_weights_keys = TIED_DECODER",
        faulty="_tied_weights_keys = None",
    ),
    "dropout in eval": _fault(
        file=ENCODER,
        places="BertSelfAttention.forward",
        correct="self.dropout.p if self.training else 0.0",
        faulty="self.dropout.p",
    ),
    "position ids ignored": _fault(
        file=ENCODER,
        places="BertEmbeddings.forward",
        correct="position_ids is None",
        faulty="True",
    ),
    "pooler over the last token": _fault(
        file=ENCODER,
        places="BertPooler.forward",
        correct="hidden_states[:, 0]",
        faulty="hidden_states[:, -1]",
    ),
    "decoder without causal mask": _fault(
        file=ENCODER,
        places="BertModel.make_attention_mask",
        correct="create_causal_mask if self.config.is_decoder else create_bidirectional_mask",
        faulty="create_bidirectional_mask",
    ),
    "mean of each micro-batch": _fault(
        file=LOSSES,
        places=("cross_entropy", "classification_loss"),
        correct="count is None",
        faulty="True",
    ),
    "half-precision sum": _fault(
        file=LOSSES,
        places="at_least_float32",
        correct="logits.float()",
        faulty="logits",
    ),
    "sparse without the labels' rows": _fault(
        file=LM_HEADS,
        places="BertLanguageModel.to_predict",
        correct="reads.rows is None",
        faulty="True",
    ),
    "decoder bias not initialised": _fault(
        file=LM_HEADS,
        places="BertLanguageModel._init_weights",
        correct="initialization.zeros_(module.bias)",
        faulty="pass",
    ),
    "uncut normal": _fault(
        file=PRETRAINED,
        places="BertPreTrainedModel._init_weights",
        correct="initialization.trunc_normal_(module.weight, mean=0.0, std=std, a=-2 * std, b=2 * std)",
        faulty="initialization.trunc_normal_(module.weight, mean=0.0, std=std, a=-4 * std, b=4 * std)",
    ),
    "attention into the neighbour": _fault(
        file=UNPADDING,
        places="attend_by_length",
        correct="(*run, *query.shape[1:])",
        faulty="(1, run[0] * run[1], *query.shape[1:])",
    ),
    "blocks without their mask": _fault(
        file=UNPADDING,
        places="attend_in_blocks",
        correct="attend(module, *states, mask, **options)",
        faulty="attend(module, *states, None, **options)",
    ),
    "blocks without the causal mask": _fault(
        file=UNPADDING,
        places="attended_to",
        correct="module.is_causal",
        faulty="False",
    ),
    "runs without dropout": _fault(
        file=DROPOUT,
        places="BlockAttention.forward",
        correct="thinned(softmax, drawn)",
        faulty="softmax",
    ),
    "gradient of dropped weights": _fault(
        file=DROPOUT,
        places="BlockAttention.backward",
        correct="thinned(torch.matmul(gradients, values.transpose(2, 3)).to(softmax.dtype), drawn)",
        faulty="torch.matmul(gradients, values.transpose(2, 3)).to(softmax.dtype)",
    ),
    "float32 under autocast": _fault(
        file=UNPADDING,
        places="in_float32",
        correct="torch.autocast('cpu', enabled=False)",
        faulty="torch.autocast('cpu', enabled=True)",
    ),
    "rows exchanged": _fault(
        file=UNPADDING,
        places="find_tokens",
        correct="rows[rank]",
        faulty="rank",
    ),
    "no attention dropout": _fault(
        file=UNPADDING,
        places="attend_by_length",
        correct="attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, **options)",
        faulty=(
            "attend(module, *(part.view(shape).transpose(1, 2) for part in states), None, scaling=options['scaling'])"
        ),
    ),
    "pooled padding left out": _fault(
        file=FAST,
        places="choose_tokens",
        correct="model.pooler is not None",
        faulty="False",
    ),
    "labelled padding left out": _fault(
        file=FAST,
        places="choose_tokens",
        correct="None if reads is None else reads.labelled",
        faulty="None",
    ),
    "unpadding where nobody asked": _fault(
        file=PRETRAINED,
        places="BertPreTrainedModel.find_switch",
        correct="switch or False",
        faulty="switch or True",
    ),
    "[CLS] not read": _fault(
        file=FAST,
        places="positions_read",
        correct="read[:, 0] = True",
        faulty="pass",
    ),
    "packed positions run on": _fault(
        file=ENCODER,
        places="BertModel.encode",
        correct="kwargs.get('cu_seq_lens_q') is not None",
        faulty="False",
    ),
    "rows of other tokens": _fault(
        file=UNPADDING,
        places="Tokens.rows_at",
        correct="torch.arange(len(self.cells), device=rows.device)",
        faulty="self.cells",
    ),
    "second derivative cut off": _fault(
        file=LOSSES,
        places="LargeCrossEntropy.backward",
        correct="torch.is_grad_enabled()",
        faulty="False",
    ),
    "second derivative of attention cut off": _fault(
        file=DROPOUT,
        places="BlockAttention.backward",
        correct="torch.is_grad_enabled()",
        faulty="False",
    ),
    "blind queries see everything": _fault(
        file=DROPOUT,
        places="attention_weights",
        correct="blind.any()",
        faulty="False",
    ),
    "problem_type of another kind": _fault(
        file=LOSSES,
        places="find_problem_type",
        correct="num_labels == 1",
        faulty="False",
    ),
    "four predictions for Trainer": _fault(
        file=LM_HEADS,
        places="BertForPreTraining.__init__",
        correct="self.config.keys_to_ignore_at_inference = ['mlm_loss', 'nsp_loss']",
        faulty="pass",
    ),
    "span scores at padding": _fault(
        file=HEADS,
        places="BertForQuestionAnswering.forward",
        correct="logits.masked_fill(padding, torch.finfo(logits.dtype).min)",
        faulty="logits",
    ),
    "a switch in the saved config": _fault(
        file=PRETRAINED,
        places="SWITCHES",
        correct="'unpad_inputs'",
        faulty="'sparse_prediction'",
    ),
}
