"""The scores of entities are those worked by hand, those of conlleval's rules, and those of seqeval."""

import random
import warnings

import pytest

from bert_training.tasks.ner.metrics import entities, span_scores


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER O B-LOC", [("PER", 1, 3), ("LOC", 4, 5)]),
        ("I-PER I-PER O I-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),  # the scheme IOB1
        ("I-PER B-PER I-LOC", [("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 3)]),
        ("B-PER I-LOC I-LOC I-PER", [("PER", 0, 1), ("LOC", 1, 3), ("PER", 3, 4)]),
        ("S-PER B-LOC I-LOC E-LOC S-LOC", [("PER", 0, 1), ("LOC", 1, 4), ("LOC", 4, 5)]),
        ("B-a-b I-a-b I-a", [("a-b", 0, 2), ("a", 2, 3)]),
        ("B I B I O I", [("_", 0, 2), ("_", 2, 4), ("_", 5, 6)]),  # one type without a name
        ("S B E I", [("_", 0, 1), ("_", 1, 3), ("_", 3, 4)]),
        ("O O", []),
        ("", []),
    ],
)
def test_entities_of_a_sentence(tags, expected):
    assert entities(tags.split()) == expected


def test_scores_worked_by_hand():
    """Of 5 predicted entities, 2 are right, and there are 4 true ones. Of 11 tags, 7 are right."""
    references = ["B-PER I-PER O B-LOC".split(), "B-LOC O O O".split(), "O B-ORG I-ORG".split()]
    predictions = ["B-PER I-PER O B-ORG".split(), "B-LOC O B-PER O".split(), "B-ORG I-ORG O".split()]
    scores = span_scores(predictions, references)
    assert scores["precision"] == pytest.approx(2 / 5)
    assert scores["recall"] == pytest.approx(2 / 4)
    assert scores["f1"] == pytest.approx(4 / 9)
    assert scores["accuracy"] == pytest.approx((3 + 3 + 0) / 11)
    assert scores["types"]["PER"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "number": 1}
    assert scores["types"]["LOC"] == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "number": 2}
    assert scores["types"]["ORG"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "number": 1}


def test_nothing_to_find_and_nothing_found_is_zero():
    assert span_scores([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "accuracy": 1.0, "types": {}}


def sentences(generator: random.Random, prefixes: str, kinds=("-PER", "-LOC")) -> list[list[str]]:
    tags = ["O", *(f"{prefix}{kind}" for prefix in prefixes for kind in kinds)]
    return [generator.choices(tags, k=generator.randint(1, 9)) for _ in range(generator.randint(1, 12))]


@pytest.mark.parametrize("kinds", [("-PER", "-LOC"), ("",)])
@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_scores_equal_those_of_seqeval(prefixes, kinds):
    seqeval = pytest.importorskip("seqeval.metrics")
    generator = random.Random(1)
    for _ in range(100):
        references = sentences(generator, prefixes, kinds)
        guesses = ["O", *(f"{prefix}{kind}" for prefix in "BI" for kind in kinds)]
        predictions = [generator.choices(guesses, k=len(tags)) for tags in references]
        predictions = [t if generator.random() < 0.3 else p for t, p in zip(references, predictions)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # seqeval warns of its own divisions by 0 and of a deprecated call.
            theirs = seqeval.classification_report(references, predictions, output_dict=True)
            accuracy = seqeval.accuracy_score(references, predictions)
        ours = span_scores(predictions, references)
        micro = theirs.pop("micro avg", {"precision": 0, "recall": 0, "f1-score": 0})
        assert ours["accuracy"] == pytest.approx(accuracy, abs=1e-12)
        for name in ("precision", "recall", "f1"):
            key = {"f1": "f1-score"}.get(name, name)
            assert ours[name] == pytest.approx(micro[key], abs=1e-12)
            for kind, rates in ours["types"].items():
                assert rates[name] == pytest.approx(theirs[kind][key], abs=1e-12)
                assert rates["number"] == theirs[kind]["support"]
        assert set(ours["types"]) == set(theirs) - {"macro avg", "weighted avg"}
