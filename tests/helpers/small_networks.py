"""The configuration of small networks, of which a test names what differs, and checkpoints with random weights."""

import shutil
from pathlib import Path

import torch
from transformers import BertConfig

import modeling_bert_repro

# A network of this shape learns a small task in some sixty steps.
LEARNS_FAST = {"num_attention_heads": 2, "intermediate_size": 64}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def small_config(**changes) -> BertConfig:
    """Two layers of 32 units for 99 pieces, with the arguments of ``BertConfig`` in ``changes``."""
    config = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 48,
    }
    return BertConfig(**(config | changes))


def save_random_network(folder: Path, tokenizer_folder: Path, config: BertConfig) -> Path:
    """Save a pre-training network, which has the same random weights in every call, and a tokenizer."""
    shutil.copytree(tokenizer_folder, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    modeling_bert_repro.BertForPreTraining(config).save_pretrained(folder)
    return folder
