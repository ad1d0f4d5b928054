"""What holds for both networks with an LSTM, the one on frozen features and the one on top of BERT."""

import torch


def padded_batch() -> dict[str, torch.Tensor]:
    """Two rows of 6 and of 4 tokens."""
    ids = torch.arange(5, 17).view(2, 6)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


def assert_padding_changes_nothing(model: torch.nn.Module) -> None:
    """Otherwise the backward direction of the LSTM would begin in the padding."""
    batch = padded_batch()
    together, alone = model(**batch), model(**{name: tensor[1:, :4] for name, tensor in batch.items()})
    assert together.keys() == alone.keys()
    for name, logits in alone.items():
        torch.testing.assert_close(together[name][1, :4], logits[0], atol=1e-6, rtol=1e-5)


def assert_lstm_without_autocast(model: torch.nn.Module) -> None:
    """oneDNN has no mixed-precision LSTM for processors without bfloat16 arithmetic: torch raises an error there."""
    seen = []
    hook = model.lstm.register_forward_pre_hook(
        lambda module, inputs: seen.append((inputs[0].data.dtype, torch.is_autocast_enabled("cpu")))
    )
    with torch.autocast("cpu", torch.bfloat16):
        model(**padded_batch())
    hook.remove()
    assert seen == [(torch.float32, False)]
