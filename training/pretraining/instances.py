"""Training instances as a pure function of (corpus, settings, seed, position).

    instances = PretrainingInstances(corpus, tokenizer, seed=42, max_seq_length=128)
    batch = instances.batch(2560, 2816)      # optimiser step 10 at a global batch of 256

The positions of all epochs are laid end to end into one endless stream. An instance depends on nothing but its
position: not on the batches before it, the number of processes or a restart. One instance, drawn
(docs/data_pipeline.md shows a real one):

    input_ids       [CLS] the man [MASK] to the store [SEP] he bought a gallon [MASK] milk [SEP] [PAD]
    token_type_ids      0   0   0      0  0   0     0     0  1      1 1      1      1    1     1     0
    labels              .   .   .   went  .   .     .     .  .      . .      .     of    .     .     .
    next_sentence_label 0 (IsNext)
"""

from collections import OrderedDict
from typing import Any

import numpy as np
import torch

from tokenization.fingerprint import tokenizer_sha256
from tokenization.special_tokens import check_special_tokens
from training.engine.batches import IGNORED
from training.pretraining.corpus import Corpus
from training.pretraining.masking import mask_batch, masking_rule, random_bits
from training.pretraining.segments import Plan, label_balance, plan_packed, plan_pairs

OBJECTIVES = ("mlm_nsp", "mlm", "ltr")
# Google's generator makes ten versions of the segments (dupe_factor) and repeats them. So do we: the sizes of
# ten plans say where every epoch begins, however far away. Order and masks are new in every epoch.
VARIANTS = 10
_SEGMENT_STREAM, _SHUFFLE_STREAM, _MASK_STREAM = 1, 2, 3


class PretrainingInstances:
    """Batches of pre-training instances from a corpus.

    objective: `mlm_nsp`, pairs as in the paper; `mlm`, sentences of one document packed into one segment;
    `ltr`, the same segments, each position labelled with the token that follows it ([SEP] is not a label).
    fixed: every epoch repeats the first one, masks included: for evaluation.
    pad_to_max: pad to max_seq_length; otherwise to the longest row of the batch, rounded up to 8.
    The other settings carry the names of google-research/bert's create_pretraining_data.py.
    Raises ValueError for settings out of range, another tokenizer's corpus, or a corpus without pairs under
    `mlm_nsp`.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Any,
        *,
        seed: int,
        max_seq_length: int,
        objective: str = "mlm_nsp",
        short_seq_prob: float = 0.1,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        whole_word_mask: bool = False,
        max_predictions_per_seq: int | None = None,
        fixed: bool = False,
        pad_to_max: bool = True,
    ):
        _check_settings(objective, max_seq_length, short_seq_prob)
        if tokenizer_sha256(tokenizer) != corpus.manifest["key"]["tokenizer_sha256"]:
            raise ValueError(f"{corpus.path}: was made with another tokenizer; build it again with this one")
        self.corpus, self.seed, self.objective = corpus, seed, objective
        self.max_seq_length, self.short_seq_prob = max_seq_length, short_seq_prob
        self.fixed, self.pad_to_max = fixed, pad_to_max
        self.cls, self.sep, self.pad = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
        check_special_tokens(tokenizer)
        if objective != "ltr":
            self.rule = masking_rule(
                tokenizer,
                mlm_probability=mlm_probability,
                mask_replace_prob=mask_replace_prob,
                random_replace_prob=random_replace_prob,
                whole_word_mask=whole_word_mask,
                max_predictions_per_seq=max_predictions_per_seq,
            )
        self.capacity = max_seq_length - (3 if objective == "mlm_nsp" else 2)
        self.segment_seed = int(random_bits(seed, _SEGMENT_STREAM).view(np.int64))
        self.balance = (1.0, 1.0)
        if objective == "mlm_nsp":
            self.balance = label_balance(corpus, self.segment_seed, VARIANTS, self.capacity, short_seq_prob)
        self._sizes: dict[int, int] = {}
        self._plans: OrderedDict[int, Plan] = OrderedDict()
        self._orders: OrderedDict[int, np.ndarray] = OrderedDict()

    def epoch_size(self, epoch: int) -> int:
        """Number of instances in an epoch."""
        variant = 0 if self.fixed else epoch % VARIANTS
        if variant not in self._sizes:
            self.plan(epoch)
        return self._sizes[variant]

    def locate(self, position: int) -> tuple[int, int]:
        """(epoch, index within it) of a position of the endless stream."""
        if position < 0:
            raise ValueError(f"position is {position}; expected at least 0")
        if self.fixed:
            epoch, index = divmod(position, self.epoch_size(0))
            return epoch, index
        # Sizes are asked for one by one: a run shorter than ten epochs never plans them all.
        epoch = 0
        while epoch < VARIANTS and position >= self.epoch_size(epoch):
            position -= self.epoch_size(epoch)
            epoch += 1
        if epoch == VARIANTS:
            cycles, position = divmod(position, sum(self.epoch_size(e) for e in range(VARIANTS)))
            epoch += cycles * VARIANTS
            while position >= self.epoch_size(epoch):
                position -= self.epoch_size(epoch)
                epoch += 1
        return epoch, position

    def plan(self, epoch: int) -> Plan:
        """The spans of an epoch's instances, in the order of the corpus."""
        variant = 0 if self.fixed else epoch % VARIANTS
        if variant not in self._plans:
            self._plans[variant] = self._make_plan(variant)
            self._sizes[variant] = len(self._plans[variant])
            while len(self._plans) > 2:
                self._plans.popitem(last=False)
        return self._plans[variant]

    def order(self, epoch: int) -> np.ndarray:
        """For every index of an epoch, the row of its plan."""
        if epoch not in self._orders:
            bits = random_bits(self.seed, _SHUFFLE_STREAM, epoch, np.arange(self.epoch_size(epoch)))
            self._orders[epoch] = np.argsort(bits, kind="stable")
            while len(self._orders) > 2:
                self._orders.popitem(last=False)
        return self._orders[epoch]

    def batch(self, start: int, stop: int) -> dict[str, torch.Tensor]:
        """The instances at positions [start, stop) of the endless stream.

        input_ids, token_type_ids, attention_mask, labels (B, L) int64; labels are -100 where nothing is
        predicted. With `mlm_nsp` also next_sentence_label (B): 0 IsNext, 1 NotNext.
        """
        if stop <= start:
            raise ValueError(f"batch [{start}, {stop}) is empty; expected stop above start")
        parts = []
        epoch, index = self.locate(start)
        remaining = stop - start
        while remaining:
            count = min(remaining, self.epoch_size(epoch) - index)
            parts.append(self._rows(epoch, index, index + count))
            remaining -= count
            epoch, index = epoch + 1, 0
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if not self.pad_to_max:
            longest = int(arrays["attention_mask"].sum(1).max())
            width = min(-(-longest // 8) * 8, self.max_seq_length)
            arrays = {name: array[:, :width] if array.ndim == 2 else array for name, array in arrays.items()}
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def _make_plan(self, variant: int) -> Plan:
        seed = self.segment_seed
        if self.objective == "mlm_nsp":
            return plan_pairs(self.corpus, seed, variant, self.capacity, self.short_seq_prob, self.balance)
        return plan_packed(self.corpus, seed, variant, self.capacity, self.short_seq_prob)

    def _rows(self, epoch: int, start: int, stop: int) -> dict[str, np.ndarray]:
        """Instances [start, stop) of one epoch, as arrays."""
        epoch = 0 if self.fixed else epoch
        rows = self.order(epoch)[start:stop]
        plan = self.plan(epoch)
        a_length, b_length = (lengths[rows, None].astype(np.int64) for lengths in (plan.a_length, plan.b_length))
        column = np.arange(self.max_seq_length)  # (L)
        in_a = (column >= 1) & (column <= a_length)  # (B, L)
        in_b = (column >= a_length + 2) & (column < a_length + 2 + b_length)
        length = a_length + 2 + np.where(b_length > 0, b_length + 1, 0)
        where = np.where(in_b, plan.b_start[rows, None] - a_length - 2, plan.a_start[rows, None] - 1) + column
        tokens = self.corpus.tokens[np.where(in_a | in_b, where, 0)]
        attended = column < length
        input_ids = np.where(in_a | in_b, tokens, np.where(attended, self.sep, self.pad)).astype(np.int64)
        input_ids[:, 0] = self.cls
        if self.objective == "ltr":
            labels = np.full_like(input_ids, IGNORED)
            labels[:, :-1] = np.where(in_a[:, 1:], input_ids[:, 1:], IGNORED)
        else:
            seed = int(random_bits(self.seed, _MASK_STREAM).view(np.int64))
            index = np.arange(start, stop)
            input_ids, labels = mask_batch(self.rule, input_ids, seed, epoch, index)
        arrays = {
            "input_ids": input_ids,
            "token_type_ids": (attended & (column >= a_length + 2)).astype(np.int64),
            "attention_mask": attended.astype(np.int64),
            "labels": labels,
        }
        if self.objective == "mlm_nsp":
            arrays["next_sentence_label"] = plan.label[rows].astype(np.int64)
        return arrays


def _check_settings(objective: str, max_seq_length: int, short_seq_prob: float) -> None:
    if objective not in OBJECTIVES:
        raise ValueError(f"objective is {objective!r}; expected one of {', '.join(OBJECTIVES)}")
    if not 8 <= max_seq_length < 1 << 16:
        raise ValueError(f"max_seq_length is {max_seq_length}; expected 8 to 65535")
    if not 0 <= short_seq_prob <= 1:
        raise ValueError(f"short_seq_prob is {short_seq_prob}; expected 0 to 1")
