"""Pairs of models, our class and transformers' with the same random weights, and batches for both."""

import pytest
import torch
import transformers
from transformers import BertConfig

import modeling_bert_repro

CLASSES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForMultipleChoice",
    "BertForQuestionAnswering",
)
POOLED = ("BertForNextSentencePrediction", "BertForSequenceClassification", "BertForMultipleChoice")
MASKS = ("right", "left", "holes", "mixed")
MAX_LENGTH = 12


def tiny_config(name: str = "BertModel", **changes) -> BertConfig:
    return BertConfig(
        **{
            "vocab_size": 61,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 40,
            "max_position_embeddings": MAX_LENGTH,
            "num_labels": 3 if "Classification" in name else 2,
            **changes,
        }
    )


def randomise(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Move every parameter away from its initial value, because biases of 0 and LayerNorms of 1 hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model


def ours(name: str, attention: str = "eager", **changes):
    config = tiny_config(name, **changes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(modeling_bert_repro, name)._from_config(config, attn_implementation=attention)
    return randomise(model.double()).eval()


def pair(name: str, attention: str = "eager", **changes):
    """Our model and transformers' model with equal weights, in float64 and in evaluation mode."""
    own = ours(name, attention, **changes)
    config = tiny_config(name, **changes)
    reference = getattr(transformers, name)._from_config(config, attn_implementation=attention).double().eval()
    reference.load_state_dict(own.state_dict(), strict=True)
    return own, reference


def make_inputs(name: str, length: int = 9, batch: int = 4, seed: int = 1) -> dict[str, torch.Tensor]:
    """input_ids, token_type_ids and a mask without padding; their shape is (batch, 3, length) for multiple choice."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, 3, length) if name == "BertForMultipleChoice" else (batch, length)
    return {
        "input_ids": torch.randint(5, 61, shape, generator=generator),
        "token_type_ids": (torch.arange(length) > length // 2).long().expand(shape).clone(),
        "attention_mask": torch.ones(shape, dtype=torch.long),
    }


def padded_inputs(name: str, case: str) -> dict[str, torch.Tensor]:
    """Inputs whose sequences have equal and different lengths. Their first position may be padding."""
    inputs = make_inputs(name)
    mask = inputs["attention_mask"]
    if case in ("right", "mixed"):
        mask[0, ..., -3:], mask[2, ..., -3:], mask[3, ..., -1:] = 0, 0, 0
    if case in ("left", "mixed"):
        mask[1, ..., :2], mask[3, ..., :4] = 0, 0
    if case == "holes":
        mask[1, ..., 3:5], mask[2, ..., 7], mask[3, ..., 1] = 0, 0, 0
    return inputs


def make_labels(name: str, inputs: dict[str, torch.Tensor], seed: int = 2) -> dict[str, torch.Tensor]:
    """Labels that fit the class. Where every token has a label, different rows have different numbers of them."""
    generator = torch.Generator().manual_seed(seed)
    batch, length = inputs["input_ids"].shape[0], inputs["input_ids"].shape[-1]

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    labelled = torch.rand(batch, length, generator=generator) < torch.linspace(0.1, 0.9, batch)[:, None]
    labelled[0, 1] = True
    tokens = draw(3 if name == "BertForTokenClassification" else 61, batch, length).masked_fill(~labelled, -100)
    return {
        "BertModel": {},
        "BertForPreTraining": {"labels": tokens, "next_sentence_label": draw(2, batch)},
        "BertForMaskedLM": {"labels": tokens},
        "BertForNextSentencePrediction": {"labels": draw(2, batch)},
        "BertForSequenceClassification": {"labels": draw(3, batch)},
        "BertForTokenClassification": {"labels": tokens},
        "BertForMultipleChoice": {"labels": draw(3, batch)},
        "BertForQuestionAnswering": {
            "start_positions": torch.cat([draw(length, batch - 1), torch.tensor([length + 3])]),
            "end_positions": draw(length, batch),
        },
    }[name]


def layer_shapes(model) -> list[tuple[int, ...]]:
    """A list to which every call of the model adds the shape of the first layer's input."""
    seen = []
    encoder = (model if isinstance(model, modeling_bert_repro.BertModel) else model.bert).encoder
    encoder.layer[0].register_forward_pre_hook(lambda _, args: seen.append(tuple(args[0].shape)))
    return seen


def flatten_outputs(outputs) -> dict[str, torch.Tensor]:
    return {key: value for key, value in outputs.items() if isinstance(value, torch.Tensor)}


def loss_of(outputs) -> torch.Tensor:
    """The loss; for BertModel, which has none, a weighted sum of all outputs that no symmetry makes vanish."""
    if "loss" in outputs:
        return outputs.loss
    hidden, pooled = outputs.last_hidden_state, outputs.pooler_output
    return (hidden * torch.linspace(-1, 2, hidden.numel()).view_as(hidden)).sum() + pooled.square().sum()


def gradients(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor | None]:
    model.zero_grad()
    loss.backward()
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def assert_same(actual: dict, expected: dict, tolerance: float = 1e-9) -> None:
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        if value is None:
            assert actual[key] is None, key
        else:
            torch.testing.assert_close(
                actual[key], value, rtol=0, atol=tolerance, msg=lambda text, key=key: f"{key}: {text}"
            )


every_class = pytest.mark.parametrize("name", CLASSES)
