"""Which shards of a corpus are planned and shuffled together.

The plan of an epoch holds 25 bytes for every instance, and its order 8 more. The shards of a corpus of up to
``TOGETHER`` tokens are one group: an epoch has every instance once, in an order in which all shards are mixed. A larger
corpus is dealt to several groups like cards; the epoch goes through them in a random order, and the instances of each
are shuffled. The B of a NotNext pair always comes from another document of the same shard.

A position of the stream must be found without planning every group before it. Therefore, if there are several, an epoch
takes of each as many instances as samples of its documents promise (``promised_size``), not as many as the plan has,
which differs by a per cent or so: a group that has more leaves some out in this epoch, and one that has fewer shows
some twice, with other masks. Every epoch chooses others.
"""

from collections.abc import Callable, Sequence

from bert_training.pretraining.corpus import Offsets, Shard

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
