"""Join the shards of a text as a corpus: verify each of them, choose the documents of one side, append.

A document may have parts in several shards. On which side it is depends on all of its lines, and whether it is empty,
too. The footers say enough of the parts to know both before a shard is read (``_parts``).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from bert_training.pretraining.corpus import CorpusWriter
from bert_training.pretraining.encoding import Encoded
from bert_training.pretraining.held_out import Piece, in_share
from bert_training.pretraining.shards import Job, Shard
from tokenization.coverage import Sample
from tokenization.errors import UserError


def join_shards(writer: CorpusWriter, jobs: Sequence[Job], held_out: bool | None, drop_empty: bool) -> Sample:
    """Append all shards to a corpus, in order, and return the sample of its text.

    Each of them is verified. One that is not whole is not committed, so a join that is started again begins with it.

    Args:
        writer: of the corpus; it has its ``lines`` first shards already.
        jobs: the shards.
        held_out: append the held-out documents, or the others; None: all.
        drop_empty: leave documents without a paragraph uncounted.

    Raises:
        ValueError: a shard is missing, damaged or one of another corpus.
    """
    shards = opened_shards(jobs)
    sample = Sample(below=jobs[0].below)
    done = writer.lines
    for number, part in enumerate(_parts(shards, jobs[0].share)):
        for name, drawn in part.shard.footer["samples"].items():
            if held_out is None or part.sides()[name] == held_out:
                sample.merge((draw, text) for draw, text in drawn)
        if number < done:
            continue
        for encoded in part.chosen(held_out, drop_empty):
            writer.append(encoded.tokens, encoded.lengths, encoded.ends, lines=0)
        writer.lines += 1
        writer.commit_sometimes()
    return sample


def opened_shards(jobs: Sequence[Job]) -> list[Shard]:
    """The shards, which are all there and of one corpus; their content is verified when it is read.

    Raises:
        ValueError: they are not; the message names the first such shard.
    """
    missing = [job for job in jobs if not job.path.is_file()]
    if missing:
        names = ", ".join(str(job.number) for job in missing[:20]) + (", ..." if len(missing) > 20 else "")
        raise UserError(
            f"{missing[0].path.parent}: {len(missing)} of {len(jobs)} shards are missing ({names}); shard S of N tasks "
            "is made by task S modulo N: start these tasks again, or give the command without --join"
        )
    shards = []
    for job in jobs:
        shard = Shard(job.path)
        shard.check(job.key, job.number)
        shards.append(shard)
    return shards


class _Part:
    """A shard and what the shards around it say of the documents that it has only a part of."""

    def __init__(self, shard: Shard, share: float | None, before: Piece):
        self.shard, self.share, self.before = shard, share, before
        self.tail_is_held_out = False  # until a later shard says it
        self.head = before.then(Piece(*shard.footer["head"])) if shard.footer.get("head") else None

    @property
    def head_is_held_out(self) -> bool:
        """The side of the first document that ends in the shard."""
        return self.head is not None and self.share is not None and in_share(self.head.checksum, self.share)

    def after(self) -> Piece:
        """The part of the document that has not ended at the end of the shard."""
        tail = Piece(*self.shard.footer["tail"])
        return tail if self.shard.footer["documents"] else self.before.then(tail)

    def sides(self) -> dict[str, bool]:
        """Whether the texts of each sample are held out."""
        return {
            "all": False,
            "train": False,
            "held_out": True,
            "head": self.head_is_held_out,
            "tail": self.tail_is_held_out,
        }

    def chosen(self, held_out: bool | None, drop_empty: bool) -> Iterator[Encoded]:
        """The records, with the documents of one side only; see ``join_shards``."""
        sides = np.zeros(self.shard.footer["documents"] + 1, bool)
        if self.share is not None and held_out is not None:
            checks = self.shard.checks()
            sides[:-1] = checks < self.share * 2**32
            sides[0] = self.head_is_held_out
            sides[-1] = self.tail_is_held_out
        kept = np.ones_like(sides) if held_out is None else sides == held_out
        done, waiting = 0, self.before.lines
        for encoded in self.shard.records():
            count = len(encoded.ends)
            yield _chosen(encoded, kept[done : done + count + 1], waiting if drop_empty else None)
            waiting = encoded.size - int(encoded.paragraphs[-1]) if count else waiting + encoded.size
            done += count


def _parts(shards: Sequence[Shard], share: float | None) -> list[_Part]:
    """The shards with what they need to know of each other, in one pass over their footers."""
    parts: list[_Part] = []
    waiting: list[_Part] = []  # the side of their last document is not known yet
    before = Piece()
    for shard in shards:
        part = _Part(shard, share, before)
        if shard.footer["documents"]:
            for earlier in waiting:
                earlier.tail_is_held_out = part.head_is_held_out
            waiting = []
        waiting.append(part)
        parts.append(part)
        before = part.after()
    return parts


def _chosen(encoded: Encoded, kept: np.ndarray, waiting: int | None) -> Encoded:
    """The sentences of some documents of a record.

    Args:
        encoded: a record in which D documents end.
        kept: (D + 1) whether each of them is kept, and the one that goes on behind the record.
        waiting: the number of paragraphs that the first document had before the record; None to keep empty documents.
    """
    tokens, lengths, ends = encoded.tokens, encoded.lengths.astype(np.int64), encoded.ends.astype(np.int64)
    ended = kept[:-1]
    if waiting is not None and len(ends):
        sizes = np.diff(encoded.paragraphs.astype(np.int64), prepend=-waiting)
        ended = ended & (sizes > 0)
    if not kept.all():
        sentences = np.repeat(kept, np.diff(ends, prepend=0, append=len(lengths)))
        tokens = tokens[np.repeat(sentences, lengths)]
        ends = np.concatenate([[0], np.cumsum(sentences)])[ends]
        lengths = lengths[sentences]
    return encoded._replace(tokens=tokens, lengths=lengths, ends=ends[ended])
