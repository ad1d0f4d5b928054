"""Make the shards of a text with several processes of one machine.

The processes share nothing but the list of shards: each reads the ranges of its shard, encodes them and writes the
file. A packed file is read by this process alone, which gives chunks of it to the others.
"""

import functools
from collections.abc import Iterator, Sequence

import tokenizers

from bert_training.pretraining.encoding import Encoded, encode_lines, encoded_chunks, results_in_order
from bert_training.pretraining.ranges import is_stream
from bert_training.pretraining.shards import Job, write_shard


def write_shards(jobs: Sequence[Job], content: str, num_workers: int) -> None:
    """Make all shards that are not there, in any order.

    Args:
        jobs: the shards.
        content: the content of a tokenizer.json.
        num_workers: processes to start; with 1 this process does the work.

    Raises:
        ValueError, OSError: as ``write_shard`` does.
    """
    divided = [job for job in jobs if not is_stream(job.spans)]
    if num_workers > 1 and len(divided) > 1:
        alone = [functools.partial(write_alone, job) for job in divided]
        for _ in results_in_order(alone, min(num_workers, len(alone)), content):
            pass
        jobs = [job for job in jobs if is_stream(job.spans)]

    def encode(chunks: Iterator[list[str | None]]) -> Iterator[Encoded]:
        return (encoded for _, encoded in encoded_chunks(chunks, content, num_workers))

    for job in jobs:
        write_shard(job, encode)


def write_alone(job: Job, backend: tokenizers.Tokenizer) -> None:
    """Make a shard in a worker."""
    write_shard(job, lambda chunks: (encode_lines(backend, chunk) for chunk in chunks))
