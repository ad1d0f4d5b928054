"""The facts and the records of pre-training runs that learn nothing, and a corpus of random words."""

from pathlib import Path

import numpy as np
from transformers import BertTokenizer

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.corpus import Corpus

WORDS = [f"word{number}" for number in range(50)]
FLAGS = {
    "seed": 1,
    "config_name": "mini",
    "model_name_or_path": None,
    "objective": "mlm_nsp",
    "mlm_probability": 0.15,
    "max_seq_length": 128,
    "per_device_train_batch_size": 32,
    "gradient_accumulation_steps": 1,
    "learning_rate": 1e-3,
    "weight_decay": 0.01,
    "warmup_steps": 300,
}
FACTS = {
    "format": 1,
    "script": "run_pretraining.py",
    "flags": FLAGS,
    "processes": 1,
    "parameters": 11_000_000,
    "total_steps": 10_000,
}
LINE = 3.9  # about log(50), which is the entropy of ``random_corpus``


def random_corpus(folder: Path) -> Corpus:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(names)})
    rng = np.random.default_rng(0)
    texts = [[" ".join(rng.choice(WORDS, 12)) for _ in range(5)] for _ in range(200)]
    return build_corpus(texts, tokenizer, folder)


def run_of(loss, stop, every=20, held_out=None):
    """The records of a training whose masked-LM loss is `loss(step)`."""
    events = [{"event": "train", "step": s, "loss": loss(s) + 0.7, "mlm_loss": loss(s)} for s in range(1, stop, every)]
    if held_out is not None:
        events.append({"event": "eval", "step": stop, "eval_mlm_loss": held_out})
    return events
