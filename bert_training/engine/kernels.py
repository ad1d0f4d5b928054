"""Which of torch's kernels a process uses."""

import torch


def keep_cudnn_from_attention() -> None:
    """Let torch compute attention on GPUs by FlashAttention and, with a mask, by its memory-efficient kernel.

    cuDNN makes a plan for every new shape, and batches differ in length. On an H100, a plan takes a fifth of a second;
    the first 60 steps of transformers' network with 32 pairs of MRPC took five times as long with cuDNN, and steps of
    one length no less time than with FlashAttention (lab/notes/performance.md).
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
