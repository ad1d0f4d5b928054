"""Divide tagged training data: --validation_split holds out whole documents, or sentences if there are not several.

Documents are drawn by SPLIT_SEED; one that would lead away from the share of the sentences is passed over. Both parts
keep the order of the file.
"""

from bert_training.files.hashing import digest
from bert_training.tasks.ner.tagged_text import Split
from bert_training.tasks.task_data import rows_of_units
from tokenization.errors import UserError


def divided(whole: Split, share: float, seed: int) -> dict[str, Split]:
    """The sentences to train on, "train", and those that are held out, "validation".

    Args:
        share: of the sentences, above 0 and below 1.

    Raises:
        ValueError: there is only one sentence.
    """
    in_documents = whole.facts["documents"] > 1
    units = [sentence.document if in_documents else row for row, sentence in enumerate(whole.sentences)]
    if len(whole) < 2:
        raise UserError(f"{whole.source}: --validation_split needs two sentences at least; give --validation_file")
    rows = rows_of_units(units, share, seed)
    kind = "whole documents" if in_documents else "sentences"
    described = f"{len(rows)} of {len(whole)} sentences held out (asked for {share:g}), {kind}"
    held_out = set(rows)
    others = [row for row in range(len(whole)) if row not in held_out]
    return {"train": _part(whole, others, described), "validation": _part(whole, rows, described)}


def _part(whole: Split, rows: list[int], described: str) -> Split:
    """Some sentences of a split; the SHA-256 of their part is that of the file and of their numbers."""
    sentences = [whole.sentences[row] for row in rows]
    facts = {name: value for name, value in whole.facts.items() if name not in ("sha256", "fingerprint")}
    if facts["documents"]:
        facts["documents"] = len({sentence.document for sentence in sentences})
    if "sha256" in whole.facts:
        facts["file_sha256"] = whole.facts["sha256"]
    content = whole.facts.get("sha256") or whole.facts.get("fingerprint")
    return Split(whole.source, sentences, facts | {"sha256": digest([content, rows]), "divided": described})
