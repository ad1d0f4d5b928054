"""What the tags of a file are: spans in one of several spellings, or plain tags, which are classes of single words.

Spans are tagged with B- and I- and more (IOB1, BIO, BIOES, BILOU, BMES), with I- alone (IO), with an underscore
(B_PER), by types without a prefix (``--tag_scheme io``), or by prefixes without a type (B, I). Plain tags, such as
parts of speech, have no prefix and no O. The tags of a whole file decide, not those of one line, so that one wrong tag
among others is an error and no class of its own.
"""

import re
from collections.abc import Collection, Iterable, Sequence

from bert_training.tasks.ner.other_layouts import TAG, TAG_OF_CELL
from tokenization.errors import UserError

AUTO, PLAIN, IO = "auto", "plain", "io"
UNDERSCORE = re.compile(r"[BIESLUM]_\S+")
TYPE_FIRST = re.compile(r"(\S+)[-_]([BIESLUM])")
PREFIXES = frozenset("BIESLUM")
UNNAMED = "SPAN"  # the type of spans whose tags name none; with it, pipelines know where they begin
MOST_CLASSES = 100  # tagsets have fewer; above it, the tags must be few among the words


def plain_labels(labels: Iterable[str]) -> bool:
    """Whether the labels of a model are classes of words: none of them has the prefix of a span."""
    return not any(TAG_OF_CELL.fullmatch(label) and label != "O" for label in labels)


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
    """Whether a tag has the prefix of a span, in whatever spelling, right or wrong."""
    forms = (TAG_OF_CELL.fullmatch(tag), UNDERSCORE.fullmatch(tag), TYPE_FIRST.fullmatch(tag), tag in ("o", "-"))
    return tag != "O" and (any(forms) or bool(re.fullmatch(r"[biesluml][-_]\S+|[BIESLUM][-_]", tag)))


def check_classes(tags: Sequence[str], source: str) -> None:
    """Refuse plain tags that are nearly as many as the words: the last column is then no tag."""
    classes = len({*tags})
    if classes > max(MOST_CLASSES, len(tags) // 20):
        raise UserError(
            f"{source}: expected tags of words, got {classes:,} different ones for {len(tags):,} words, such as "
            f"{tags[0][:40]!r}; the tag must be the last column"
        )


def wrong_tag(tag: str, where: str, remedy: str = "", spans: bool = False) -> str:
    """The message about a tag that does not fit the others.

    Args:
        spans: whether other tags of the file are those of spans.
    """
    if tag in PREFIXES:
        remedy = f"give every tag a type, such as {tag}-PER, or none of them one, so that all are B, I and O"
    elif tag[:2].upper() != tag[:2] and TAG.fullmatch(tag[0].upper() + tag[1:]):
        remedy = f"write {tag[0].upper() + tag[1:60]!r}"
    elif tag == "0":
        remedy = "write the letter O"
    elif UNDERSCORE.fullmatch(tag):
        remedy = f"write {f'{tag[0]}-{tag[2:60]}'!r}"
    elif match := TYPE_FIRST.fullmatch(tag):
        remedy = f"write {f'{match[2]}-{match[1][:60]}'!r}"
    elif spans:
        remedy = remedy or f"write {'B-' + tag[:60]!r}, or correct it"
    remedy = remedy or (
        "if words in a row with one tag are one name, give --tag_scheme io; if every word has a class of its own, such "
        "as its part of speech, give --tag_scheme plain"
    )
    return f"expected a tag O, B-TYPE or I-TYPE {where}, got {tag[:60]!r}; {remedy}"
