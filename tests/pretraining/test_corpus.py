"""bert_training/pretraining/corpus.py: the files of a corpus, their draft while it is built, and what is refused."""

import contextlib
import os
import pickle
import re
import shutil

import numpy as np
import pytest
from scipy.stats import entropy

from bert_training.pretraining.build_corpus import Corpus, build_corpus
from bert_training.pretraining.corpus import CorpusWriter
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from bert_training.pretraining.sentences import RULES
from tests.helpers.small_corpora import DOCUMENTS, make_tokenizer, random_documents


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def test_a_draft_that_lost_bytes_is_refused(tmp_path):
    for lost in (0, 3):
        writer = CorpusWriter(tmp_path / "c", {}, np.dtype("<u2"))
        assert writer.lines == 3 * (lost > 0)
        if not lost:
            writer.append(np.array([7, 8]), np.array([2]), np.array([1]), lines=3)
            writer.commit()
        writer.close()
    file = tmp_path / "c.building" / "sentences.bin"
    file.write_bytes(file.read_bytes()[:-lost])
    for _ in range(2):  # The second time shows that the draft is not locked.
        with pytest.raises(ValueError, match=r"sentences\.bin: damaged or cut short; delete"):
            CorpusWriter(tmp_path / "c", {}, np.dtype("<u2"))


def test_what_was_written_after_the_last_commit_is_cut_off_for_good(tmp_path):
    """Also if the next writer commits before it has written anything, and is stopped, too."""
    for lines in (0, 3, 3):
        with contextlib.closing(CorpusWriter(tmp_path / "c", {}, np.dtype("<u2"))) as writer:
            assert (writer.lines, writer.tokens, writer.closed_sentences) == (lines, 2 * (lines > 0), lines > 0)
            if not lines:
                writer.append(np.array([7, 8]), np.array([2]), np.array([1]), lines=3)
            writer.commit()
            writer.append(np.array([7, 8]), np.array([2]), np.array([1]), lines=3)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="this system does not say which file it is")
def test_data_is_synced_before_it_counts(tmp_path, monkeypatch):
    """So that a power cut loses nothing that counts, the ids are synced before the record of the progress, and the
    unigrams and the manifest before the rename.
    """
    writer, events = CorpusWriter(tmp_path / "c", {}, np.dtype("<u2")), []
    sync, replace, rename = os.fsync, os.replace, os.rename

    def synced(descriptor):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        events.append(re.sub("[0-9a-f]{32}", "#", name))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("replace"), replace(a, b)))
    monkeypatch.setattr(os, "rename", lambda a, b: (events.append("rename"), rename(a, b)))
    writer.append(np.array([7, 8]), np.array([2]), np.array([1]), lines=3)
    progress = ["tokens.bin", "sentences.bin", "documents.bin", "progress.json.#.tmp", "replace", "c.building"]
    writer.commit()
    assert events == progress
    writer.finish({"special_ids": []}, 9)
    writer.close()
    finished = ["unigrams.bin", "manifest.json.#.tmp", "replace", "c.building", "rename", tmp_path.name]
    assert events[6:] == [*progress, *finished]


@pytest.mark.parametrize("name", ["tokens", "sentences", "documents", "unigrams"])
def test_changed_files_are_refused(tmp_path, tokenizer, name):
    corpus = build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")
    file = corpus.path / f"{name}.bin"
    content = bytearray(file.read_bytes())
    file.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=f"{name}.bin: differs from its manifest"):
        Corpus.open(corpus.path, verify=False)
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    Corpus.open(corpus.path, verify=False)
    with pytest.raises(ValueError, match=f"{name}.bin: differs from its manifest"):
        Corpus.open(corpus.path)
    file.unlink()
    with pytest.raises(ValueError, match=f"{name}.bin: differs from its manifest"):
        Corpus.open(corpus.path, verify=False)


def test_damaged_manifests_are_refused(tmp_path, tokenizer):
    corpus = build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")
    file = corpus.path / "manifest.json"
    content = file.read_text()
    for damaged in (content[:50], content.replace('"tokens": ', '"tokens": 1'), "[]", "{}", "\udcff"):
        assert damaged != content
        file.write_text(damaged, errors="surrogateescape")
        with pytest.raises(ValueError, match=r"manifest\.json: damaged"):
            Corpus.open(corpus.path)


@pytest.mark.parametrize("content", [lambda data: data[:9], lambda data: data[:-1] + b"\1", lambda data: data])
def test_an_open_corpus_that_is_written_to_is_noticed(tmp_path, tokenizer, content):
    """Before it is read, because the system ends a process that reads behind the end of a mapped file."""
    corpus = build_corpus(random_documents(50), tokenizer, tmp_path / "c")
    instances = PretrainingInstances(corpus, tokenizer, InstanceSettings(seed=0, max_seq_length=16))
    instances.batch(0, 4)
    pickled, file = pickle.dumps(corpus), tmp_path / "c" / "tokens.bin"
    data = file.read_bytes()
    os.utime(file, ns=(1, file.stat().st_mtime_ns - 10**9))
    file.write_bytes(content(data))
    with pytest.raises(ValueError, match=r"tokens\.bin: it was written to while this run read it"):
        instances.batch(4, 8)
    file.write_bytes(data)
    with pytest.raises(ValueError, match="changed or replaced while this run read it"):
        pickle.loads(pickled)


def test_an_open_corpus_may_be_deleted(tmp_path, tokenizer):
    corpus = build_corpus(random_documents(50), tokenizer, tmp_path / "c")
    tokens = corpus.tokens.copy()
    shutil.rmtree(tmp_path / "c")
    corpus.check_unchanged()
    assert np.array_equal(corpus.tokens, tokens)


def test_a_corpus_pickles_as_its_path(tmp_path, tokenizer):
    corpus = build_corpus(random_documents(200), tokenizer, tmp_path / "c")
    pickled = pickle.dumps(corpus)
    assert len(pickled) < 500
    assert np.array_equal(pickle.loads(pickled).tokens, corpus.tokens)


def test_unigram_entropy_against_scipy(tmp_path, tokenizer):
    documents = random_documents(50)
    documents[0].append("xyzzy unknown words plugh")
    corpus = build_corpus(documents, tokenizer, tmp_path / "c")
    unknown = tokenizer.unk_token_id
    assert corpus.unigrams[unknown] == 4
    maskable = corpus.tokens[corpus.tokens != unknown]
    assert corpus.unigram_entropy() == pytest.approx(entropy(np.bincount(maskable)), abs=1e-12)


def test_a_build_of_other_rules_of_sentences_starts_anew(tmp_path, monkeypatch):
    """A killed build of an earlier version must not go on with other sentences; a finished corpus stays in use."""
    for rules, lines in ((1, 0), (1, 3), (2, 0)):
        monkeypatch.setattr("bert_training.pretraining.corpus.RULES", rules)
        with contextlib.closing(CorpusWriter(tmp_path / "c", {"format": 1}, np.dtype("<u2"))) as writer:
            assert writer.lines == lines
            writer.append(np.array([5, 6]), np.array([2]), np.array([1]), lines=3)
            writer.commit()
    corpus = build_corpus(DOCUMENTS, make_tokenizer(), tmp_path / "d")
    assert corpus.manifest["sentence_rules"] == RULES and corpus.manifest["key"]["format"] == 1
