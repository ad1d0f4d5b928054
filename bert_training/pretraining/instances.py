"""Training instances as a pure function of (corpus, settings, position).

    instances = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=42, max_seq_length=128))
    batch = instances.batch(2560, 2816)      # optimiser step 10 at a global batch of 256

The epochs, one after the other, form an endless stream of positions. An instance depends on its position alone: not on
the batches before it, on the number of processes, or on whether the run was interrupted. An instance looks like this
(docs/pretrain.md shows a real one):

    input_ids       [CLS] the man [MASK] to the store [SEP] he bought a gallon [MASK] milk [SEP] [PAD]
    token_type_ids      0   0   0      0  0   0     0     0  1      1 1      1      1    1     1     0
    labels              .   .   .   went  .   .     .     .  .      . .      .     of    .     .     .
    next_sentence_label 0 (IsNext)

Shards are planned and shuffled in groups. The plan of an epoch holds 25 bytes for every instance, and its order 8
more. The shards of a corpus of up to ``TOGETHER`` tokens are one group: an epoch has every instance once, in an order
in which all shards are mixed. A larger corpus is dealt to several groups like cards; the epoch goes through them in a
random order, and the instances of each are shuffled. The B of a NotNext pair always comes from another document of the
same shard.

A position of the stream must be found without planning every group before it. Therefore, if there are several, an epoch
takes of each as many instances as samples of its documents promise (``promised_size``), not as many as the plan has,
which differs by a per cent or so: a group that has more leaves some out in this epoch, and one that has fewer shows
some twice, with other masks. Every epoch chooses others.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED
from bert_training.inputs.flags.objectives import DEFAULT, PairTask, objective_of
from bert_training.pretraining.corpus import Corpus, Offsets, Shard
from bert_training.pretraining.hashed_random import random_bits
from bert_training.pretraining.masking import MaskingRule, MaskSettings, mask_batch, masking_rule
from bert_training.pretraining.segments import PLANNERS, EpochPlan, Planner
from tokenization.bert_tokenizer import check_special_tokens, tokenizer_sha256

# --- groups of shards ------------------------------------------------------------------------------------------------


TOGETHER = 1 << 33  # tokens; their plan has 2.4 GB at length 128
_SAMPLES, _SAMPLE_TOKENS = 4, 1 << 17  # of a shard


def with_pairs(shards: Sequence[Shard]) -> list[Shard]:
    """The shards that have pairs of sentences and two documents; all of them if none has, which no plan accepts."""
    return [shard for shard in shards if _has_pairs(shard, 0, shard.num_documents)] or list(shards)


def groups_of(shards: Sequence[Shard]) -> list[list[Shard]]:
    """The groups of shards, in which every shard is once."""
    count = -(-sum(shard.num_tokens for shard in shards) // TOGETHER)
    return [list(shards[number::count]) for number in range(min(count, len(shards)))]


def promised_size(shard: Offsets, size_of: Callable[[Offsets], int]) -> int:
    """The number of instances that an epoch takes of a shard: a function of its text and the settings alone.

    Args:
        shard: the shard.
        size_of: the number of instances in the plan of some documents.
    """
    tokens = shard.num_tokens
    planned = instances = 0
    for number in range(_SAMPLES):
        start = tokens * number // _SAMPLES
        first = shard.first_document(start)
        end = max(shard.first_document(start + _SAMPLE_TOKENS), first + 2)
        while end < shard.num_documents and not _has_pairs(shard, first, end):
            end += 1
        if end <= shard.num_documents and _has_pairs(shard, first, end):
            sample = Offsets(shard.path, shard.sentences, shard.documents[first : end + 1])
            planned += sample.num_tokens
            instances += size_of(sample)
    return max(1, round(instances * tokens / planned)) if planned else size_of(shard)


def _has_pairs(shard: Offsets, first: int, end: int) -> bool:
    # No document is empty, so one has two sentences if there are more sentences than documents.
    return end - first >= 2 and int(shard.documents[end] - shard.documents[first]) > end - first


# --- instances -------------------------------------------------------------------------------------------------------


# Epochs reuse ten versions of the segments in turn (Google's dupe_factor), so ten epoch sizes suffice to find the epoch
# of any position. Order and masks are new in every epoch.
VARIANTS = 10
_SEGMENT_STREAM, _SHUFFLE_STREAM, _MASK_STREAM, _SOURCE_STREAM, _GROUP_STREAM = 1, 2, 3, 4, 5
_SHUFFLED_TOGETHER = 1 << 20  # instances whose random numbers are made at once, which bounds the memory


@dataclass(frozen=True, kw_only=True)
class InstanceSettings(MaskSettings):
    """The settings on which the instances of a corpus depend, those of the masks included.

    They have the names of google-research/bert's create_pretraining_data.py where it has them.

    Attributes:
        seed: seed of the segments, of the order and of the masks.
        max_seq_length: the greatest number of tokens of an instance, special tokens included.
        objective: a key of ``bert_training/inputs/flags/objectives.py: OBJECTIVES``.
        short_seq_prob: share of the instances with a random shorter length.
        fixed: every epoch repeats the first one, including its masks, for evaluation.
        pad_to_max: pad to ``max_seq_length``; otherwise to the longest row of the batch, rounded up to a multiple
            of 8.

    Raises:
        ValueError: a setting is out of range.
    """

    seed: int
    max_seq_length: int
    objective: str = DEFAULT
    short_seq_prob: float = 0.1
    fixed: bool = False
    pad_to_max: bool = True

    @property
    def pairs(self) -> PairTask | None:
        """What is asked about the two segments of an instance; None if it has one."""
        return objective_of(vars(self)).pairs

    @property
    def capacity(self) -> int:
        """The number of tokens that fit between the special tokens [CLS] A [SEP] B [SEP] or [CLS] A [SEP]."""
        return self.max_seq_length - (3 if self.pairs else 2)


# The settings that are flags of run_pretraining.py; the seed of held-out instances is another.
SETTINGS = tuple(one.name for one in fields(InstanceSettings) if one.name not in ("seed", "fixed", "pad_to_max"))


def instance_settings(
    flags: Mapping[str, Any], max_seq_length: int, held_out: bool = False, source: int = 0
) -> InstanceSettings:
    """The settings of the instances of a run.

    Args:
        flags: the flags of the run.
        max_seq_length: the length of the phase.
        held_out: whether the instances are those of the held-out text, which do not depend on the seed and never
            change.
        source: the number of the source in a mixture, counted from 0; each has random numbers of its own.
    """
    shared = {name: flags[name] for name in SETTINGS if name != "max_seq_length"}
    seed = 0 if held_out else flags["seed"]
    if source:
        seed = int(random_bits(seed, _SOURCE_STREAM, source).view(np.int64))
    return InstanceSettings(seed=seed, max_seq_length=max_seq_length, fixed=held_out, **shared)


class PretrainingInstances:
    """Batches of pre-training instances from a corpus.

    Raises:
        ValueError: the tokenizer lacks a special token, or the corpus has no pairs and the objective needs them.
    """

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, settings: InstanceSettings):
        assert tokenizer_sha256(tokenizer) == corpus.tokenizer_sha256  # Corpus.open compares them
        self.corpus, self.settings = corpus, settings
        self.cls, self.sep, self.pad = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id
        check_special_tokens(tokenizer)
        objective = objective_of(vars(settings))
        self.rule: MaskingRule | None = masking_rule(tokenizer, settings) if objective.masks else None
        self._make_planner = PLANNERS[objective.segments]
        self.groups = self._groups()
        self._planners: dict[Shard, Planner] = {}
        self._sizes: dict[int, int] = {}
        self._plans: OrderedDict[tuple[int, int], list[EpochPlan]] = OrderedDict()
        self._orders: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._planner(self.groups[0][0])  # here, so that a text without pairs is refused before the training
        # Of a corpus of one group, every instance of the plan is used, whose number is known when it is planned.
        self._promised = np.zeros(0, np.int64)
        if len(self.groups) > 1:
            sizes = ([promised_size(shard, self._size_of) for shard in group] for group in self.groups)
            self._promised = np.array(list(map(sum, sizes)))

    def __getstate__(self) -> dict[str, Any]:
        """What processes that prepare batches are sent where they are not forks: no plans, which they make anew."""
        made: dict[str, Any] = {"_planners": {}, "_plans": OrderedDict(), "_orders": OrderedDict()}
        return {name: value for name, value in vars(self).items() if name != "groups"} | made

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.groups = self._groups()

    def _groups(self) -> list[list[Shard]]:
        return groups_of(with_pairs(self.corpus.shards) if self.settings.pairs else self.corpus.shards)

    def _planner_of(self, documents: Offsets, number: int = 0) -> Planner:
        streams = (_SEGMENT_STREAM, number) if number else (_SEGMENT_STREAM,)
        settings, seed = self.settings, int(random_bits(self.settings.seed, *streams).view(np.int64))
        return self._make_planner(documents, seed, VARIANTS, settings.capacity, settings.short_seq_prob)

    def _planner(self, shard: Shard) -> Planner:
        if shard not in self._planners:
            self._planners[shard] = self._planner_of(shard, self.corpus.shards.index(shard))
        return self._planners[shard]

    def _size_of(self, documents: Offsets) -> int:
        return len(self._planner_of(documents)(0))

    def epoch_size(self, epoch: int) -> int:
        """Number of instances in an epoch."""
        if len(self._promised):
            return int(self._promised.sum())
        variant = 0 if self.settings.fixed else epoch % VARIANTS
        if variant not in self._sizes:
            self.plans(epoch)
        return self._sizes[variant]

    def locate(self, position: int) -> tuple[int, int]:
        """(epoch, index within it) of a position of the endless stream."""
        if self.settings.fixed or len(self._promised):
            epoch, index = divmod(position, self.epoch_size(0))
            return epoch, index
        # Sizes are computed one by one, so that a run shorter than ten epochs never plans them all.
        epoch = 0
        while epoch < VARIANTS and position >= self.epoch_size(epoch):
            position -= self.epoch_size(epoch)
            epoch += 1
        if epoch == VARIANTS:
            cycles, position = divmod(position, sum(self.epoch_size(variant) for variant in range(VARIANTS)))
            epoch += cycles * VARIANTS
            while position >= self.epoch_size(epoch):
                position -= self.epoch_size(epoch)
                epoch += 1
        return epoch, position

    @property
    def without_pairs(self) -> list[Shard]:
        """The shards that no epoch reads, because they have no two documents or no pair of sentences."""
        read = {shard for group in self.groups for shard in group}
        return [shard for shard in self.corpus.shards if shard not in read]

    @property
    def planned_tokens(self) -> int:
        """The number of tokens of the text that ``plans(0)`` divide: of all of it, or of the first group."""
        return sum(shard.num_tokens for shard in self.groups[0])

    def plans(self, epoch: int, group: int = 0) -> list[EpochPlan]:
        """The spans of an epoch's instances, shard by shard, in the order of the text. The last two lists are kept.

        Args:
            epoch: the epoch.
            group: the number of the group of shards, if the corpus has several (``groups_of``).
        """
        variant = 0 if self.settings.fixed else epoch % VARIANTS
        if (variant, group) not in self._plans:
            while len(self._plans) > 1:  # before the new ones are made, which is what memory must hold
                self._plans.popitem(last=False)
            self._plans[variant, group] = [self._planner(shard)(variant) for shard in self.groups[group]]
            if not len(self._promised):
                self._sizes[variant] = sum(map(len, self._plans[variant, group]))
        return self._plans[variant, group]

    def plan(self, epoch: int) -> EpochPlan:
        """The spans of an epoch's instances from the first shard, ``groups[0][0]``."""
        return self.plans(epoch)[0]

    def order(self, epoch: int, group: int = 0) -> np.ndarray:
        """The order of an epoch, shuffled by seed and epoch.

        ``order[i]`` is the row of the plans, counted on from one to the next, that is instance i of the epoch (int64,
        as long as the epoch); of a corpus with several groups, instance i of those that the epoch has of this group.
        """
        if (epoch, group) not in self._orders:
            while len(self._orders) > 1:
                self._orders.popitem(last=False)
            streams = (_SHUFFLE_STREAM, epoch, group) if len(self._promised) else (_SHUFFLE_STREAM, epoch)
            bits = np.empty(sum(map(len, self.plans(epoch, group))), np.uint64)
            for start in range(0, len(bits), _SHUFFLED_TOGETHER):
                stop = min(start + _SHUFFLED_TOGETHER, len(bits))
                bits[start:stop] = random_bits(self.settings.seed, *streams, np.arange(start, stop))
            self._orders[epoch, group] = np.argsort(bits, kind="stable")
        return self._orders[epoch, group]

    def _in_groups(self, epoch: int, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Divide the instances [start, stop) of an epoch by group.

        Yields:
            (number of the group, the first and the last instance plus one among those of the group, the first one among
            those of the epoch).
        """
        if not len(self._promised):
            yield 0, start, stop, start
            return
        bits = random_bits(self.settings.seed, _GROUP_STREAM, epoch, np.arange(len(self._promised)))
        groups = np.argsort(bits, kind="stable")  # in the order of this epoch
        ends = np.cumsum(self._promised[groups])
        while start < stop:
            place = int(np.searchsorted(ends, start, side="right"))
            begin, end = int(ends[place] - self._promised[groups[place]]), min(stop, int(ends[place]))
            yield int(groups[place]), start - begin, end - begin, start
            start = end

    def batch(self, start: int, stop: int) -> dict[str, torch.Tensor]:
        """The instances at positions [start, stop) of the endless stream.

        The batch has ``input_ids``, ``token_type_ids``, ``attention_mask`` and ``labels``, all (B, L) int64; labels are
        -100 where nothing is predicted. Pairs also have ``next_sentence_label`` (B): 0 or 1, see ``PairTask.classes``.

        Raises:
            ValueError: the corpus was written to since it was opened.
        """
        assert start < stop
        parts = []
        epoch, index = self.locate(start)
        remaining = stop - start
        while remaining:
            count = min(remaining, self.epoch_size(epoch) - index)
            parts += [self._rows(epoch, *part) for part in self._in_groups(epoch, index, index + count)]
            remaining -= count
            epoch, index = epoch + 1, 0
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if not self.settings.pad_to_max:
            longest = int(arrays["attention_mask"].sum(1).max())
            width = min(-(-longest // 8) * 8, self.settings.max_seq_length)
            arrays = {name: array[:, :width] if array.ndim == 2 else array for name, array in arrays.items()}
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def _rows(self, epoch: int, group: int, start: int, stop: int, number: int) -> dict[str, np.ndarray]:
        """Instances of one group in one epoch, as arrays (B, L), padded to max_seq_length.

        Args:
            epoch: the epoch.
            group: the number of the group.
            start: the first instance among those of the group.
            stop: the last one, plus one.
            number: the number of the first one within the epoch, from which its masks are drawn.
        """
        epoch = 0 if self.settings.fixed else epoch
        order, plans, shards = self.order(epoch, group), self.plans(epoch, group), self.groups[group]
        rows = order[np.arange(start, stop) % len(order)]  # an epoch may promise more of a group than there are
        ends = np.cumsum(list(map(len, plans)))
        of = np.searchsorted(ends, rows, side="right")  # (B) the number of each row's shard
        parts = [
            self._rows_of_shard(shards[place], plans[place], rows[of == place] - (ends[place] - len(plans[place])))
            for place in np.unique(of)
        ]
        inverse = np.argsort(np.argsort(of, kind="stable"))
        arrays = {name: np.concatenate([part[name] for part in parts])[inverse] for name in parts[0]}
        input_ids, in_a = arrays["input_ids"], arrays.pop("in_a")
        if self.rule is None:
            labels = np.full_like(input_ids, IGNORED)
            labels[:, :-1] = np.where(in_a[:, 1:], input_ids[:, 1:], IGNORED)
        else:
            seed = int(random_bits(self.settings.seed, _MASK_STREAM).view(np.int64))
            input_ids, labels = mask_batch(self.rule, input_ids, seed, epoch, number + np.arange(stop - start))
        return arrays | {"input_ids": input_ids, "labels": labels}

    def _rows_of_shard(self, shard: Shard, plan: EpochPlan, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The instances in some rows of the plan of a shard, as arrays (B, L), without masks."""
        a_length, b_length = (lengths[rows, None].astype(np.int64) for lengths in (plan.a_length, plan.b_length))
        column = np.arange(self.settings.max_seq_length)  # (L)
        in_a = (column >= 1) & (column <= a_length)  # (B, L)
        in_b = (column >= a_length + 2) & (column < a_length + 2 + b_length)
        length = a_length + 2 + np.where(b_length > 0, b_length + 1, 0)
        # the token of each column: the start of its segment in the corpus plus the distance from it
        offsets = np.where(in_b, plan.b_start[rows, None] - a_length - 2, plan.a_start[rows, None] - 1) + column
        shard.check_unchanged()  # before it is read, because reading behind the end of a file ends the process
        tokens = shard.tokens[np.where(in_a | in_b, offsets, 0)]
        shard.check_unchanged()
        attended = column < length
        input_ids = np.where(in_a | in_b, tokens, np.where(attended, self.sep, self.pad)).astype(np.int64)
        input_ids[:, 0] = self.cls
        arrays = {
            "input_ids": input_ids,
            "token_type_ids": (attended & (column >= a_length + 2)).astype(np.int64),
            "attention_mask": attended.astype(np.int64),
            "in_a": in_a,
        }
        if self.settings.pairs:
            arrays["next_sentence_label"] = plan.label[rows].astype(np.int64)
        return arrays
