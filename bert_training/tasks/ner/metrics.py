"""Precision, recall and F1 of whole entities, as conlleval and seqeval's default mode define them.

An entity is correct if its type, its first word and its last word are correct. Tags that violate their scheme are read
as these tools read them: I-PER after O or after I-LOC begins an entity. seqeval finds the entities.
"""

from collections import Counter
from collections.abc import Sequence

from bert_training.tasks.classification.scores import rates


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Every entity of a sentence with tags in IOB1, BIO or BIOES: (type, first word, one after the last word)."""
    from seqeval.metrics.sequence_labeling import get_entities  # imported here because that takes almost a second

    return [(kind, first, last + 1) for kind, first, last in get_entities([*tags])]


def span_scores(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict:
    """Scores of tagged sentences, over all entities together (micro average) and by type.

    Returns:
        ``precision``, ``recall``, ``f1``, ``accuracy`` (the share of words with the right tag), and ``types``: for each
        type ``precision``, ``recall``, ``f1`` and the ``number`` of entities in the references. 0 / 0 counts as 0.0.
    """
    right: Counter[str] = Counter()
    guessed: Counter[str] = Counter()
    true: Counter[str] = Counter()
    equal = words = 0
    for prediction, reference in zip(predictions, references, strict=True):
        ours, theirs = entities(prediction), entities(reference)
        guessed.update(kind for kind, _, _ in ours)
        true.update(kind for kind, _, _ in theirs)
        right.update(kind for kind, _, _ in set(ours) & set(theirs))
        equal += sum(predicted == tag for predicted, tag in zip(prediction, reference, strict=True))
        words += len(reference)
    types = {
        kind: rates(right[kind], guessed[kind], true[kind]) | {"number": true[kind]} for kind in sorted(guessed | true)
    }
    overall = rates(right.total(), guessed.total(), true.total())
    return overall | {"accuracy": equal / words, "types": types}


def word_scores(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> dict:
    """Scores of plain tags, of which every word has one: ``accuracy``, ``f1_macro``, and ``types`` as above by tag.

    They are over the tags that occur in the references or the predictions, as in scikit-learn; 0 / 0 counts as 0.0.
    """
    guessed, true = ([tag for tags in sentences for tag in tags] for sentences in (predictions, references))
    right = [tag for guess, tag in zip(guessed, true, strict=True) if guess == tag]
    counts = [Counter(tags) for tags in (right, guessed, true)]
    types = {
        tag: rates(*(count[tag] for count in counts)) | {"number": counts[-1][tag]} for tag in sorted({*guessed, *true})
    }
    f1_macro = sum(of_tag["f1"] for of_tag in types.values()) / len(types)
    return {"accuracy": len(right) / len(true), "f1_macro": f1_macro, "types": types}
