"""The share of the training text that an epoch uses; a text without ends of sentences loses most of it in silence."""

from collections.abc import Mapping, Sequence

from bert_training.engine.run import Run
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.instances import PretrainingInstances

ENOUGH = 0.8  # as in the audit


def record_used_tokens(run: Run[PretrainingArguments], train: Mapping[int, Sequence[PretrainingInstances]]) -> None:
    """Print and record the share for the instances of each length, with a warning where it is low.

    Args:
        run: the run.
        train: the training instances of each source by length. The plan of the first epoch is exact and is needed for
            training anyway.
    """
    if not run.is_main:
        return
    shares = {length: used_share(*sources) for length, sources in train.items()}
    run.add_facts(used_tokens={str(length): round(share, 4) for length, share in shares.items()})
    listed = ", ".join(f"{share:.1%} (length {length})" for length, share in shares.items())
    run.say(f"tokens of the text that an epoch uses: {listed}")
    for sources in train.values():
        for instances in sources:
            if (share := used_share(instances)) < ENOUGH:
                run.say(low_share(share, instances))


def used_share(*sources: PretrainingInstances) -> float:
    """The share of the tokens of all sources that their first epochs show as A or as the B that follows it."""
    tokens = sum(instances.planned_tokens for instances in sources)
    return sum(plan.used_tokens for instances in sources for plan in instances.plans(0)) / tokens


def low_share(share: float, instances: PretrainingInstances) -> str:
    """A warning about a low share: why it is low, and what to do."""
    corpus, settings = instances.corpus, instances.settings
    sentence, document = corpus.num_tokens / corpus.num_sentences, corpus.num_sentences / corpus.num_documents
    lines = "put each sentence on a line of its own, and blank lines between documents only"
    remedies = ["raise --max_seq_length", "use --objective mlm, which uses every token"]
    # The sentences of ordinary prose are found without lines, but not those of a text without ends of sentences.
    remedies.insert(0 if sentence > settings.max_seq_length / 2 or document < 2 else 2, lines)
    return (
        f"warning: an epoch of instances of {settings.max_seq_length} tokens uses only {share:.1%} of the text, "
        f"because pairs of long sentences are cut and single sentences have no pair (a sentence has {sentence:.0f} "
        f"tokens on average, a document {document:.1f} sentences). What helps: {'; or '.join(remedies)}"
    )
