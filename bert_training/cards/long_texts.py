"""What the model card says of texts that are longer than the model reads at once."""

from collections.abc import Iterator
from typing import Any

from bert_training.cards.markdown import plain
from bert_training.inputs.flags.fine_tuning import SPECIAL_TOKENS, head_of, stride_of


def how_texts_were_read(run: dict[str, Any]) -> Iterator[str]:
    """A line that says how long texts are read, and one for each split in which tokens were lost.

    Args:
        run: the content of run.json.
    """
    flags, counts = run["flags"], run.get("cut_at_max_seq_length") or {}
    how, length = flags.get("long_texts"), flags.get("max_seq_length")
    if how == "windows":
        yield (
            f"Texts of more than {length} tokens are read in windows of that length, each of which begins "
            f"{stride_of(length - SPECIAL_TOKENS)} tokens after the one before it, at most {flags['max_windows']} of a "
            "text. The logits of a text are the mean of those of its windows, in training and afterwards."
        )
    elif how == "head_tail":
        room = length - SPECIAL_TOKENS
        yield (
            f"Of texts of more than {length} tokens, the first {head_of(room)} and the last {room - head_of(room)} are "
            "read; of pairs, a quarter of what each text may keep is its beginning, and the rest its end."
        )
    for split, facts in counts.items():
        if facts.get("tokens_lost"):
            share = 100 * facts["tokens_lost"] / facts["tokens"]
            yield (
                f"Not read, {plain(split)}: {share:.1f} % of the tokens, of {facts['cut']:,} of {facts['examples']:,} "
                f"examples that are too long; the longest has {facts['longest']:,} tokens."
            )
