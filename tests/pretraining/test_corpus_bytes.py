"""A corpus is the same, byte for byte, however its text is divided, and the same as earlier versions wrote."""

import hashlib
import json
from pathlib import Path

import pytest

from bert_training.pretraining.build_corpus import Side, build_corpus
from tests.helpers.texts_of_all_kinds import tokenizer_of_letters, write_all

# Written by the version that encoded a text as one stream, before it was divided into shards.
WRITTEN = json.loads(Path(__file__).with_name("corpus_bytes.json").read_text())
RECORDED = ("dtype", "counts", "files", "vocab_size", "special_ids", "sentence_rules", "coverage")


def facts_of(folder: Path) -> dict:
    """The hashes of the files of a corpus, and of its manifest without what packed files and versions change."""
    manifest = json.loads((folder / "manifest.json").read_text())
    kept = json.dumps({name: manifest[name] for name in RECORDED}, sort_keys=True)
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in manifest["files"]}
    return digests | {"manifest": hashlib.sha256(kept.encode()).hexdigest(), "counts": manifest["counts"]}


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_of_letters()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    return write_all(tmp_path_factory.mktemp("text"))


def test_the_corpus_is_that_of_earlier_versions(tmp_path, tokenizer, files):
    assert facts_of(build_corpus(files, tokenizer, tmp_path / "c").path) == WRITTEN["whole"]


@pytest.mark.parametrize("shard_bytes", [50_000, 1700, 90])
@pytest.mark.parametrize("name", ["whole", "train", "validation"])
def test_any_division_gives_the_same_bytes(tmp_path, tokenizer, files, name, shard_bytes):
    share = Side(0.3, name == "validation", drop_empty=True)
    source = {"source": files} if name == "whole" else {"source": files, "fingerprint": "x", "side": share}
    corpus = build_corpus(tokenizer=tokenizer, output_dir=tmp_path / "c", shard_bytes=shard_bytes, **source)
    assert facts_of(corpus.path) == WRITTEN[name]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
