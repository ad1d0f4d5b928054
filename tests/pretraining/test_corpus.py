"""bert_training/pretraining/corpus.py: the shards of a corpus, and what is refused."""

import os
import pickle
import shutil

import numpy as np
import pytest
from scipy.stats import entropy

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.corpus import Corpus, unigram_entropy
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from tests.helpers.small_corpora import DOCUMENTS, make_tokenizer, random_documents


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.mark.parametrize("name", ["tokens", "sentences", "documents", "unigrams"])
def test_changed_files_are_refused(tmp_path, tokenizer, name):
    corpus = build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")
    file = corpus.shards[0].path / f"{name}.bin"
    content = bytearray(file.read_bytes())
    file.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=rf"shard-00000: {name}\.bin has \d+ bytes, expected \d+; delete"):
        Corpus.open(corpus.path, verify=False)
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    Corpus.open(corpus.path, verify=False)
    with pytest.raises(ValueError, match=rf"{name}\.bin does not match its checksum"):
        Corpus.open(corpus.path)
    file.unlink()
    with pytest.raises(ValueError, match=rf"{name}\.bin has -1 bytes"):
        Corpus.open(corpus.path, verify=False)


def test_damaged_facts_are_refused(tmp_path, tokenizer):
    corpus = build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")
    file = corpus.shards[0].path / "shard.json"
    content = file.read_text()
    for damaged in (content[:50], content.replace('"format": 1', '"format": 9'), "[]", "{}", "\udcff"):
        assert damaged != content
        file.write_text(damaged, errors="surrogateescape")
        with pytest.raises(ValueError, match=r"shard\.json: missing, damaged or of another format"):
            Corpus.open(corpus.path)
    file.write_text(content.replace('"tokens": ', '"tokens": 1'))
    with pytest.raises(ValueError, match=r"shard\.json does not match its checksum"):
        Corpus.open(corpus.path)


def test_shards_of_two_corpora_are_not_mixed(tmp_path, tokenizer):
    one, other = (
        build_corpus(random_documents(30, seed), tokenizer, tmp_path / str(seed), slice_bytes=900) for seed in (1, 2)
    )
    assert len(one.shards) > 2
    shutil.rmtree(one.path / "shard-00001")
    shutil.copytree(other.path / "shard-00001", one.path / "shard-00001")
    with pytest.raises(ValueError, match="it has shards of several corpora"):
        Corpus.open(one.path)


@pytest.mark.parametrize("content", [lambda data: data[:9], lambda data: data[:-1] + b"\1", lambda data: data])
def test_an_open_corpus_that_is_written_to_is_noticed(tmp_path, tokenizer, content):
    """Before it is read, because the system ends a process that reads behind the end of a mapped file."""
    corpus = build_corpus(random_documents(50), tokenizer, tmp_path / "c")
    instances = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=0, max_seq_length=16))
    instances.batch(0, 4)
    pickled, file = pickle.dumps(corpus), corpus.shards[0].path / "tokens.bin"
    data = file.read_bytes()
    os.utime(file, ns=(1, file.stat().st_mtime_ns - 10**9))
    file.write_bytes(content(data))
    with pytest.raises(ValueError, match=r"tokens\.bin: it was written to while this run read it"):
        instances.batch(4, 8)
    file.write_bytes(data)
    with pytest.raises(ValueError, match="changed or replaced while this run read it"):
        pickle.loads(pickled)


def test_a_corpus_pickles_as_its_path(tmp_path, tokenizer):
    corpus = build_corpus(random_documents(200), tokenizer, tmp_path / "c")
    pickled = pickle.dumps(corpus)
    assert len(pickled) < 600
    assert np.array_equal(pickle.loads(pickled).shards[0].tokens, corpus.shards[0].tokens)


def test_unigram_entropy_against_scipy(tmp_path, tokenizer):
    documents = random_documents(50)
    documents[0].append("xyzzy unknown words plugh")
    corpus = build_corpus(documents, tokenizer, tmp_path / "c", slice_bytes=900)
    assert len(corpus.shards) > 2
    unknown = tokenizer.unk_token_id
    assert corpus.unigrams[unknown] == 4
    tokens = np.concatenate([shard.tokens for shard in corpus.shards])
    assert unigram_entropy([corpus], [1.0]) == pytest.approx(entropy(np.bincount(tokens[tokens != unknown])), abs=1e-12)
