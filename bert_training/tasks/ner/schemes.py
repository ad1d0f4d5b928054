"""What the tags of a file are: spans in one of several spellings, or plain tags, which are classes of single words.

Spans are tagged with B- and I- and more (IOB1, BIO, BIOES, BILOU, BMES), with I- alone (IO), with an underscore
(B_PER), by types without a prefix (``--tag_scheme io``), or by prefixes without a type (B, I). Plain tags, such as
parts of speech, have no prefix and no O. The tags of a whole file decide, not those of one line, so that one wrong tag
among others is an error and no class of its own.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from bert_training.inputs.rows import nfc
from bert_training.tasks.ner.tagged_text import PLAIN, Split
from tokenization.errors import UserError

AUTO, IO = "auto", "io"
SPAN = re.compile(r"O|[BIESLUM]-\S(.*\S)?")  # in JSON and columns with tabs, a type may have spaces
UNDERSCORE = re.compile(r"[BIESLUM]_\S+")
PREFIXES = frozenset("BIESLUM")
MIDDLE, END = "IM", "EL"  # the prefixes of later words of an entity in BIOES, BILOU and BMES
UNNAMED = "SPAN"  # the type of spans whose tags name none; with it, pipelines know where they begin


def plain_labels(labels: Iterable[str]) -> bool:
    """Whether the labels of a model are classes of words: none of them has the prefix of a span."""
    return not any(SPAN.fullmatch(label) and label != "O" for label in labels)


def are_plain(tags: Iterable[str], scheme: str) -> bool:
    """Whether these tags of a file are plain.

    Args:
        scheme: the value of --tag_scheme, or what a model or the training data has decided.
    """
    if scheme != AUTO:
        return scheme == PLAIN
    found = set(tags)
    return bool(found) and "O" not in found and not any(map(like_a_span, found)) and not _have_no_type(found)


def _have_no_type(tags: Collection[str]) -> bool:
    """Whether these tags of a whole file are prefixes alone; S, M and L without B and O may be sizes."""
    return {*tags} <= PREFIXES | {"O"} and not {"B", "O"}.isdisjoint(tags)


def with_types(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels of a model in their usual form."""
    usual = in_usual_form(labels, AUTO)
    return tuple(usual.get(label, label) for label in labels)


def in_usual_form(tags: Sequence[str], scheme: str) -> dict[str, str]:
    """For every tag of a file of spans, its usual form: B-PER for B_PER, and with ``--tag_scheme io`` I-PER for PER.

    Tags without a type get the type ``UNNAMED``.

    A tag without such a form, or of another form than the others, is kept, so that it will be refused.
    """
    types = {tag for tag in tags if tag != "O"}
    if _have_no_type(tags):
        return {tag: f"{tag}-{UNNAMED}" for tag in types}
    if types and all(UNDERSCORE.fullmatch(tag) for tag in types):
        return {tag: f"{tag[0]}-{tag[2:]}" for tag in types}
    if scheme == IO and not any(map(like_a_span, types)) and not {"B", "I"} <= types:
        return {tag: f"I-{tag}" for tag in types}
    return {}


def like_a_span(tag: str) -> bool:
    """Whether a tag has the prefix of a span, in upper or lower case."""
    return tag != "O" and bool(SPAN.fullmatch(tag.upper()) or UNDERSCORE.fullmatch(tag))


def to_bio(split: Split, mixed_tags: bool = False, scheme: str = AUTO) -> None:
    """Find the scheme of a split's tags, record it in ``facts`` and rewrite the tags as BIO, unless they are plain.

    - Plain tags have no prefix: each is the class of one word.
    - IO: there is only I-, or only types with ``--tag_scheme io``, so that two entities of one type in a row are one.
    - IOB1 (in the CoNLL-2003 files): B- is used only for an entity directly after another one of the same type.
    - BIO: every entity begins with B-.
    - BIOES, BILOU and BMES: the last word has E- or L-, a single word S- or U-; those between have I- or M-.

    Raises:
        UserError: with file and line: a tag belongs to none of these schemes, or it violates the scheme of the other
            tags. With ``mixed_tags``, an I- that cannot continue an entity begins one, as in conlleval.
    """
    for sentence in split.sentences:
        sentence.tags = [*map(nfc, sentence.known_tags)]
    tags = [tag for sentence in split.sentences for tag in sentence.known_tags]
    if are_plain(tags, scheme):
        split.facts["tag_scheme"] = PLAIN
        return
    if usual := in_usual_form(tags, scheme):
        for sentence in split.sentences:
            sentence.tags = [usual.get(tag, tag) for tag in sentence.known_tags]
    prefixes = _prefixes(split)
    with_ends = "BMES" if "M" in prefixes else "BIOES"
    schemes = (with_ends,) if prefixes & set("ESLUM") else ("BIO", "IOB1")
    breaks = {scheme: list(_breaks(split, scheme)) for scheme in schemes}
    scheme = min(breaks, key=lambda name: len(breaks[name]))
    if breaks[scheme] and (scheme == with_ends or not mixed_tags):
        place, previous, tag = breaks[scheme][0]
        remedy = "" if scheme == with_ends else ", or give --mixed_tags to let I- begin an entity, as conlleval does"
        raise UserError(
            f"{place}: {tag} cannot follow {previous} in the scheme {scheme}, which the file violates in "
            f"{len(breaks[scheme])} places; correct the tag{remedy}"
        )
    # I- alone is IO as well as IOB1, and is read in the same way.
    found = "IO" if usual and all(tag[0] == "I" for tag in usual.values()) and scheme == "IOB1" else scheme
    split.facts["tag_scheme"] = found if prefixes - {"O"} else "no entities"
    if breaks[scheme]:
        split.facts["entities_that_break_the_scheme"] = len(breaks[scheme])
    for sentence in split.sentences:
        before = ["O", *sentence.known_tags[:-1]]
        sentence.tags = [_bio(previous, tag) for previous, tag in zip(before, sentence.known_tags)]


def _prefixes(split: Split) -> set[str]:
    """The first letters of all tags. UserError, with its place, for a tag that is not one of spans."""
    for sentence in split.sentences:
        for word, tag in enumerate(sentence.known_tags):
            if not SPAN.fullmatch(tag):
                raise UserError(
                    f"{sentence.place(word)}: expected a tag O, B-TYPE or I-TYPE, got {tag[:60]!r}; correct it. If "
                    "words in a row with one tag are one name, give --tag_scheme io; if every word has a class of its "
                    "own, such as its part of speech, give --tag_scheme plain"
                )
    return {tag[0] for sentence in split.sentences for tag in sentence.known_tags}


def _breaks(split: Split, scheme: str) -> Iterator[tuple[str, str, str]]:
    """Yield (place, tag before, tag) wherever the tags of a sentence violate a scheme."""
    for sentence in split.sentences:
        previous = "O"
        for word, tag in enumerate([*sentence.known_tags, "O"]):
            same = previous != "O" and tag != "O" and previous[2:] == tag[2:]
            if scheme in ("BIOES", "BMES"):
                continues = tag[0] in MIDDLE + END
                wrong = (previous[0] in "B" + MIDDLE) != continues or (continues and not same)
            else:
                wrong = tag[0] == ("I" if scheme == "BIO" else "B") and not same
            if wrong:
                at_end = word == len(sentence.known_tags)
                yield sentence.place(word - at_end), previous, "the end of the sentence" if at_end else tag
            previous = tag


def _bio(previous: str, tag: str) -> str:
    if tag == "O":
        return tag
    continues = tag[0] in MIDDLE + END and previous[0] in "B" + MIDDLE and previous[2:] == tag[2:]
    return ("I" if continues else "B") + tag[1:]
