"""A small file in the layout of CoNLL-2003 (four columns, IOB1 tags, documents), and a call of its reader.

The sentences were written for these tests.
"""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.tasks.ner.sources import Reading, load_data, read_file
from bert_training.tasks.ner.tagged_text import Split

CONLL = """-DOCSTART- -X- -X- O

Anna NNP I-NP I-PER
Berg NNP I-NP I-PER
left VBD I-VP O
Lake NNP I-NP I-LOC
Garda NNP I-NP I-LOC
. . O O

Berg NNP I-NP I-PER
met VBD I-VP O
Clara NNP I-NP I-PER
Nils NNP B-NP B-PER
and CC O O
Red NNP I-NP I-ORG
Cross NNP I-NP I-ORG
nurses NNS I-NP O
. . O O

-DOCSTART- -X- -X- O

Rhine NNP I-NP I-LOC
FALLS VBZ I-VP O

Basel NNP I-NP I-LOC
1996-12-07 CD I-NP O
"""
CONLL_WORDS = [
    "Anna Berg left Lake Garda .".split(),
    "Berg met Clara Nils and Red Cross nurses .".split(),
    ["Rhine", "FALLS"],
    ["Basel", "1996-12-07"],
]
CONLL_TAGS = [
    "B-PER I-PER O B-LOC I-LOC O".split(),
    "B-PER O B-PER B-PER O B-ORG I-ORG O O".split(),
    ["B-LOC", "O"],
    ["B-LOC", "O"],
]


def ner_arguments(**given) -> SimpleNamespace:
    """The flags of run_ner.py, None unless they are given."""
    names = (field.name for field in fields(NerArguments))
    return SimpleNamespace(**dict.fromkeys(names) | {"mixed_tags": False, "tag_scheme": "auto"} | given)


def ner_error(**given) -> str:
    with pytest.raises(ValueError) as caught:
        load_data(ner_arguments(**given))
    return str(caught.value)


def read_columns(path: str | Path, mixed_tags: bool = False, scheme: str = "auto") -> Split:
    return read_file(path, Reading(scheme, mixed_tags))


def tags(split: Split) -> list[list[str]]:
    return [sentence.known_tags for sentence in split.sentences]


def write(folder: Path, text: str | bytes, name: str = "words.txt") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)
