"""The judge of lab/benchmarks/speedrun.py: the masked-LM loss of a network's weights on fixed held-out instances.

The weights are put into transformers' own class, whoever trained them, so that all are judged by one computation and a
network that plain transformers could not open is not judged at all.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from bert_training.engine.batches import IGNORED
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances

OBJECTIVES = {"pairs": "mlm_nsp", "packed": "mlm"}
ROWS = 32
INPUTS = ("input_ids", "token_type_ids", "attention_mask")


class HeldOut:
    """Fixed held-out instances.

    Args:
        data: the folder that ``speedrun.prepare`` makes: vocabulary, config and held-out corpus.
        kind: "pairs" or "packed", a key of OBJECTIVES.
        length: the greatest number of tokens of an instance.
        count: the number of instances.
    """

    def __init__(self, data: Path, kind: str, length: int, count: int) -> None:
        tokenizer = AutoTokenizer.from_pretrained(data / "vocabulary")
        corpus = Corpus.open(data / "held_out", tokenizer)
        settings = InstanceSettings(seed=0, fixed=True, objective=OBJECTIVES[kind], max_seq_length=length)
        instances = PretrainingInstances(corpus, tokenizer, settings)
        count = min(count, instances.epoch_size(0))
        self.batches = [instances.batch(start, min(start + ROWS, count)) for start in range(0, count, ROWS)]
        self.predictions = sum(int((batch["labels"] != IGNORED).sum()) for batch in self.batches)
        state = torch.get_rng_state()  # new weights draw random numbers, and a contestant's must not change
        self.model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(data / "config")).eval()
        torch.set_rng_state(state)

    @torch.inference_mode()
    def loss(self, weights: Mapping[str, torch.Tensor]) -> float:
        """The mean loss per predicted token, in nats.

        Raises:
            ValueError: weights that transformers' class needs are missing.
        """
        missing, _ = self.model.load_state_dict(weights, strict=False)
        if missing:
            raise ValueError(f"transformers' BertForMaskedLM needs {', '.join(missing)}, which this network lacks")
        total = 0.0
        for batch in self.batches:
            chosen = batch["labels"] != IGNORED
            hidden = self.model.bert(**{name: batch[name] for name in INPUTS}).last_hidden_state[chosen]
            total += float(F.cross_entropy(self.model.cls(hidden), batch["labels"][chosen], reduction="sum"))
        return total / self.predictions
