"""Use a corpus that ``bert-repro corpus`` has prepared (--corpus_dir) as the training corpus of a run.

The run gets files of its own: other names of the same files where the disk allows that, and copies elsewhere. The
prepared folder may therefore be deleted or used by other runs, and everything that reads the folder of a run finds the
corpus where it always is.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import is_occupied, make_folder, new_folder
from bert_training.pretraining.build_corpus import described_by, key_of
from bert_training.pretraining.corpus import Corpus, write_manifest
from tokenization.errors import UserError


def adopt(
    prepared: str,
    target: Path,
    tokenizer: PreTrainedTokenizerBase,
    sources: list[dict[str, Any]],
    text_column: str,
    fingerprint: str,
) -> None:
    """Make ``target`` the corpus in the folder ``prepared``; nothing is done if there is something already.

    Args:
        prepared: the folder of a finished corpus.
        target: that of the run.
        tokenizer: the tokenizer of the run.
        sources: name, bytes and SHA-256 of the files of the run's text.
        text_column: the field of the text in the run.
        fingerprint: of the run's corpus, as for ``build_corpus``.

    Raises:
        ValueError: ``prepared`` is no finished corpus, is damaged, or is one of another text or tokenizer.
        OSError: ``target`` could not be written.
    """
    if is_occupied(target):
        return
    corpus = Corpus.open(prepared, tokenizer)
    found = [source["sha256"] for source in corpus.manifest["sources"]]
    same_column = corpus.manifest["key"].get("text_column", "text") == text_column
    if found != [source["sha256"] for source in sources] or not same_column:
        names = ", ".join(source["name"] for source in corpus.manifest["sources"])
        raise UserError(
            f"--corpus_dir {prepared}: it was made from other text ({names[:200]}) than --train_file and --text_column "
            "name; give the same files in the same order, or prepare another corpus"
        )
    described = described_by(fingerprint)
    make_folder(target.parent)
    with new_folder(target) as draft:
        for name in corpus.manifest["files"]:
            try:
                os.link(corpus.path / name, draft / name)
            except OSError:  # another disk, or one without hard links
                shutil.copyfile(corpus.path / name, draft / name)
        write_manifest(draft, corpus.manifest | {"key": key_of(described, tokenizer), "sources": described})
