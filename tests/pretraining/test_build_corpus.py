"""bert_training/pretraining/build_corpus.py: a corpus is built in one process or several, also after an interruption.

Its parts encoding.py and parallel_encoding.py are tested here too.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from bert_training.pretraining import build_corpus as corpus_module
from bert_training.pretraining import corpus as corpus_files
from bert_training.pretraining import encoding, parallel_encoding
from bert_training.pretraining.build_corpus import Corpus, build_corpus, encode_part
from bert_training.pretraining.corpus import CorpusWriter
from bert_training.pretraining.ranges import plan_shards
from bert_training.pretraining.sentences import split_sentences
from tests.helpers.repository import ROOT
from tests.helpers.small_corpora import DOCUMENTS, TEXT, data_bytes, make_tokenizer, random_documents
from tokenization.fingerprint import tokenizer_json


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def test_ids_sentences_and_documents(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    corpus = build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "corpus")
    sentences = [sentence for document in DOCUMENTS for line in document for sentence in split_sentences(line)]
    expected = [tokenizer(sentence, add_special_tokens=False)["input_ids"] for sentence in sentences]
    sentences = [corpus.tokens[start:stop].tolist() for start, stop in zip(corpus.sentences[:-1], corpus.sentences[1:])]
    assert sentences == expected
    assert corpus.documents.tolist() == [0, 3, 5]
    assert corpus.tokens.dtype == np.uint16
    assert (corpus.num_documents, corpus.num_sentences, corpus.num_tokens) == (2, 5, sum(map(len, expected)))
    source = corpus.manifest["sources"][0]
    assert source["name"] == "a.txt" and source["bytes"] == len(TEXT)
    assert build_corpus(DOCUMENTS, tokenizer, tmp_path / "again").tokens.tolist() == corpus.tokens.tolist()


def test_special_tokens_written_in_the_text_stay_text(tmp_path, tokenizer):
    corpus = build_corpus([["the dog [SEP] the cat [SEP]"], ["a. A."]], tokenizer, tmp_path / "c")
    pieces = tokenizer.convert_ids_to_tokens(corpus.tokens[: corpus.sentences[1]].tolist())
    assert pieces == ["the", "dog", "[", "sep", "]", "the", "cat", "[", "sep", "]"]


def test_sentences_without_tokens_are_counted_but_not_kept(tmp_path, tokenizer):
    documents = [["\u200b", "The dog. The cat."], ["\u200b"], [], ["A bird."]]
    corpus = build_corpus(documents, tokenizer, tmp_path / "c")
    assert corpus.documents.tolist() == [0, 2, 3]
    counts = corpus.manifest["counts"]
    assert (counts["empty_sentences"], counts["empty_documents"]) == (2, 2)


def test_a_large_vocabulary_takes_32_bits(tmp_path):
    tokenizer = make_tokenizer(f"word{number}" for number in range(1 << 16))
    corpus = build_corpus([["word65000. Word65535."], ["the dog"]], tokenizer, tmp_path / "c")
    assert corpus.tokens.dtype == np.int32
    assert corpus.tokens[0] == tokenizer.convert_tokens_to_ids("word65000") > 1 << 15
    assert corpus.tokens[2] == tokenizer.convert_tokens_to_ids("word65535") >= 1 << 16


def test_two_workers_write_the_same_bytes(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(corpus_module, "CHUNK_CHARACTERS", 200)
    documents = random_documents(40)
    with_one = build_corpus(documents, tokenizer, tmp_path / "one", num_workers=1)
    with_two = build_corpus(documents, tokenizer, tmp_path / "two", num_workers=2)
    assert data_bytes(with_one.path) == data_bytes(with_two.path)
    assert with_one.fingerprint == with_two.fingerprint


def test_a_text_of_one_chunk_starts_no_worker(tmp_path, tokenizer, monkeypatch):
    def started(content):
        raise AssertionError("a worker was started")

    monkeypatch.setattr(encoding, "Worker", started)
    assert build_corpus(DOCUMENTS, tokenizer, tmp_path / "one", num_workers=2).num_documents == 2
    monkeypatch.setattr(corpus_module, "CHUNK_CHARACTERS", 20)
    with pytest.raises(AssertionError, match="a worker was started"):
        build_corpus(DOCUMENTS, tokenizer, tmp_path / "more", num_workers=2)


class Interrupted(Exception):
    pass


@pytest.fixture
def files(tmp_path):
    """Two files of random documents."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for seed, path in enumerate(paths):
        path.write_text("\n\n".join("\n".join(document) for document in random_documents(30, seed)))
    return paths


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_the_work_and_write_the_same_bytes(tmp_path, tokenizer, files, monkeypatch, world_size):
    alone = build_corpus(files, tokenizer, tmp_path / "alone")
    encode, encoded = encoding.encode_lines, []
    monkeypatch.setattr(encoding, "encode_lines", lambda *arguments: encoded.append(arguments) or encode(*arguments))
    shards = len(plan_shards(files, 500))
    assert shards > 10
    for rank in range(world_size):
        encoded.clear()
        encode_part(files, tokenizer, tmp_path / "c", rank, world_size, shard_bytes=500)
        assert len(encoded) == len(range(rank, shards, world_size))  # The process encoded its own part and no more.
    encoded.clear()
    together = build_corpus(files, tokenizer, tmp_path / "c", shard_bytes=500)
    assert encoded == []
    assert data_bytes(together.path) == data_bytes(alone.path)
    assert together.manifest == alone.manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "alone", "b.txt", "c"]
    encode_part(files, tokenizer, tmp_path / "c", 0, world_size)  # The corpus is there.
    (tmp_path / "c.shards").mkdir()  # by a process that was killed when the corpus was complete
    build_corpus(files, tokenizer, tmp_path / "c")
    assert encoded == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "alone", "b.txt", "c"]


def test_an_interrupted_join_goes_on(tmp_path, tokenizer, files, monkeypatch):
    monkeypatch.setattr(corpus_files, "COMMIT_SECONDS", -1.0)
    alone = build_corpus(files, tokenizer, tmp_path / "alone")
    append, appended = CorpusWriter.append, []

    def append_until(limit):
        def append_some(self, *arguments, **more):
            if len(appended) == limit:
                raise Interrupted
            appended.append(arguments)
            append(self, *arguments, **more)

        monkeypatch.setattr(CorpusWriter, "append", append_some)

    for limit in (7, 12):
        append_until(limit)
        with pytest.raises(Interrupted):
            build_corpus(files, tokenizer, tmp_path / "c", shard_bytes=500)
    append_until(None)
    assert build_corpus(files, tokenizer, tmp_path / "c", shard_bytes=500).manifest == alone.manifest
    assert len(appended) == len(plan_shards(files, 500))  # None was appended twice.
    assert data_bytes(tmp_path / "c") == data_bytes(alone.path)


def test_an_unfinished_build_of_an_earlier_version_is_not_mixed_in(tmp_path, tokenizer, files):
    """It counted lines of the text, and this one counts shards."""
    alone = build_corpus(files, tokenizer, tmp_path / "alone")
    writer = CorpusWriter(tmp_path / "c", alone.manifest["key"], np.dtype("<u2"))
    writer.append(np.array([7, 8]), np.array([2]), np.array([1]), lines=3)
    writer.commit()
    writer.close()
    assert build_corpus(files, tokenizer, tmp_path / "c", shard_bytes=500).manifest == alone.manifest


def test_shards_of_another_text_are_not_used(tmp_path, tokenizer, files):
    encode_part(files, tokenizer, tmp_path / "c", 0, 2, shard_bytes=500)
    alone = build_corpus(files[:1], tokenizer, tmp_path / "alone")
    assert build_corpus(files[:1], tokenizer, tmp_path / "c", shard_bytes=500).manifest == alone.manifest
    assert not (tmp_path / "c.shards").exists()


def test_a_worker_that_dies_is_reported(tokenizer):
    with encoding.Worker(tokenizer_json(tokenizer)) as worker:
        assert worker.call(partial(encoding.encode_lines, lines=["the dog", None])).lengths.tolist() == [2]
        worker.process.kill()
        with pytest.raises(RuntimeError, match=r"ended with status -9 .* run again with fewer workers"):
            worker.call(partial(encoding.encode_lines, lines=["the dog"]))


def test_nobody_waits_for_a_worker_to_start(monkeypatch):
    """A pipe holds 64 KB, a tokenizer.json ten times as much."""
    start, sleep = subprocess.Popen, "import time; time.sleep(2)"
    monkeypatch.setattr(encoding.subprocess, "Popen", lambda command, **rest: start([*command[:-1], sleep], **rest))
    worker = encoding.Worker("x" * 1_000_000)
    assert worker.process.poll() is None
    worker.process.kill()
    worker.process.communicate()


def test_a_worker_without_work_ends_quietly(tokenizer, capfd):
    with encoding.Worker(tokenizer_json(tokenizer)) as worker:
        pass
    assert worker.process.returncode == 0 and capfd.readouterr().err == ""


def test_an_interrupted_build_is_continued(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(corpus_module, "CHUNK_CHARACTERS", 200)
    monkeypatch.setattr(corpus_files, "COMMIT_SECONDS", -1.0)
    documents = random_documents(40)
    whole = build_corpus(documents, tokenizer, tmp_path / "whole")
    encode, encoded = encoding.encode_lines, []

    def encode_until(limit):
        def encode_some(backend, lines):
            if len(encoded) == limit:
                raise Interrupted
            encoded.append(lines)
            return encode(backend, lines)

        return encode_some

    for limit in (5, 11):
        monkeypatch.setattr(encoding, "encode_lines", encode_until(limit))
        with pytest.raises(Interrupted):
            build_corpus(documents, tokenizer, tmp_path / "c")
        with pytest.raises(ValueError, match="not a finished corpus"):
            Corpus.open(tmp_path / "c")
    # A kill in the middle of a write leaves bytes after the last commit. They are cut off.
    with open(tmp_path / "c.building" / "tokens.bin", "ab") as file:
        file.write(b"half a chunk")
    monkeypatch.setattr(encoding, "encode_lines", encode_until(None))
    resumed = build_corpus(documents, tokenizer, tmp_path / "c")
    assert data_bytes(resumed.path) == data_bytes(whole.path)
    lines = [line for chunk in encoded for line in chunk]
    assert lines == list(corpus_module._lines_of(documents))  # Nothing was encoded twice.
    assert not (tmp_path / "c.building").exists()


def test_a_build_of_another_text_does_not_go_on_from_an_old_draft(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    key = {"format": 1, "sources": ["another"], "tokenizer_sha256": "x"}
    writer = CorpusWriter(tmp_path / "c", key, np.dtype("<u2"))
    writer.append(np.array([7, 8]), np.array([2]), np.array([1]), lines=3)
    writer.commit()
    writer.close()
    corpus = build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "c")
    assert corpus.documents.tolist() == [0, 3, 5]


def test_a_second_process_that_builds_the_same_corpus_is_refused(tmp_path, tokenizer):
    with open(tmp_path / ".c.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # As in another process: another open file, which locks.py does not know.
        with pytest.raises(ValueError, match="another process is building this corpus"):
            build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")
    assert build_corpus(DOCUMENTS, tokenizer, tmp_path / "c").num_documents == 2


def test_a_corpus_that_another_process_has_just_built_is_used(tmp_path, tokenizer, monkeypatch):
    """The other process finishes between the first look at the folder and the lock."""
    finished, looks = build_corpus(DOCUMENTS, tokenizer, tmp_path / "c"), [False]
    occupied = corpus_module.is_occupied
    monkeypatch.setattr(corpus_module, "is_occupied", lambda path: looks.pop() if looks else occupied(path))
    for _ in range(2):  # The second time, the first look finds it.
        (tmp_path / "c.shards").mkdir()  # as if it had been killed just before it removed this, and its lock
        (tmp_path / ".c.lock").touch()
        assert build_corpus(DOCUMENTS, tokenizer, tmp_path / "c").fingerprint == finished.fingerprint
        assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_full_disk_is_named(tmp_path, tokenizer, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(CorpusWriter, "append", full)
    with pytest.raises(OSError, match=r"c could not be written \(No space left on device\)"):
        build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")


def test_an_equal_corpus_is_reused_and_another_refused(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "c")
    before = (tmp_path / "c" / "manifest.json").stat().st_mtime_ns
    build_corpus([str(tmp_path / "a.txt")], tokenizer, tmp_path / "c")
    assert (tmp_path / "c" / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(
        ValueError, match=r"made from other input \(it differs in: tokenizer_sha256\); give the text, .* or choose"
    ):
        build_corpus([tmp_path / "a.txt"], make_tokenizer(["new"]), tmp_path / "c")
    with pytest.raises(ValueError, match="its token ids were made with another tokenizer"):
        Corpus.open(tmp_path / "c", make_tokenizer(["new"]))
    (tmp_path / "a.txt").write_text(TEXT + "More.\n")
    with pytest.raises(ValueError, match=r"it differs in: sources"):
        build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "c")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.md").write_text("mine")
    with pytest.raises(ValueError, match="not a finished corpus"):
        build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "other")


def test_wrong_arguments_of_build_corpus_are_refused(tmp_path, tokenizer):
    with pytest.raises(AssertionError, match="need `fingerprint`"):
        build_corpus(iter(DOCUMENTS), tokenizer, tmp_path / "c")
    with pytest.raises(ValueError, match="holds no text that the tokenizer turns into tokens"):
        build_corpus([["\u200b"]], tokenizer, tmp_path / "c")


@pytest.mark.slow
def test_a_build_killed_at_any_line_of_its_end_encodes_nothing_again(tmp_path, text_file, tokenizer_folder):
    """At its end, a build counts, hashes, writes the manifest and renames. What was encoded before is kept, and the
    corpus is the same.
    """
    shutil.copy(text_file, tmp_path / "text.txt")
    shutil.copytree(tokenizer_folder, tmp_path / "tokenizer")
    driver = [sys.executable, ROOT / "tests/programs/killed_builds.py", tmp_path]
    done = subprocess.run(driver, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


def test_text_that_changes_while_it_is_encoded_makes_no_corpus(tmp_path, tokenizer, monkeypatch):
    """Nor a shard, with which the next start would continue."""
    file = tmp_path / "text.txt"
    file.write_text("One dog. Two dogs.\n\nA cat. Two cats.\n")
    original = parallel_encoding.encoded_chunks

    def changed(*values):
        for part in original(*values):
            with open(file, "a") as text:
                text.write("\nA bird.\n")
            yield part

    monkeypatch.setattr(parallel_encoding, "encoded_chunks", changed)
    with pytest.raises(ValueError, match=r"text\.txt: it was changed or replaced while it was being read"):
        build_corpus([file], tokenizer, tmp_path / "c")
    assert not (tmp_path / "c").exists() and not any((tmp_path / "c.shards").iterdir())


def test_the_field_of_the_text_is_part_of_the_key(tmp_path):
    """Only if it is not the default, so that the corpora of earlier versions stay in use."""
    row = {"text": "The dog sat. The cat ran.", "body": "A bird sang. It was one."}
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(row)}\n")
    one = build_corpus([tmp_path / "a.jsonl"], make_tokenizer(), tmp_path / "c")
    other = build_corpus([tmp_path / "a.jsonl"], make_tokenizer(), tmp_path / "d", text_column="body")
    assert set(one.manifest["key"]) == {"format", "sources", "tokenizer_sha256"}
    assert other.manifest["key"] == one.manifest["key"] | {"text_column": "body"}
    with pytest.raises(ValueError, match="holds a corpus made from other input"):
        build_corpus([tmp_path / "a.jsonl"], make_tokenizer(), tmp_path / "c", text_column="body")
