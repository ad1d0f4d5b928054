"""bert_training/pretraining/build_corpus.py: a corpus is built in one process or several, also after an interruption.

Its part encoding.py is tested here too.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from bert_training.pretraining import build_corpus as building
from bert_training.pretraining import encoding
from bert_training.pretraining.build_corpus import build_corpus, make_shard, plan_corpus
from bert_training.pretraining.corpus import Corpus, shard_folders
from bert_training.pretraining.sentences import split_sentences
from tests.helpers.repository import ROOT
from tests.helpers.small_corpora import DOCUMENTS, TEXT, data_bytes, make_tokenizer, random_documents


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def files(tmp_path):
    """Two files of random documents."""
    (tmp_path / "text").mkdir()
    paths = [tmp_path / "text" / "a.txt", tmp_path / "text" / "b.txt"]
    for seed, path in enumerate(paths):
        path.write_text("\n\n".join("\n".join(document) for document in random_documents(30, seed)))
    return paths


def inodes(path):
    return {file.relative_to(path): file.stat().st_ino for file in path.rglob("*")}


def test_ids_sentences_and_documents(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    corpus = build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "corpus")
    sentences = [sentence for document in DOCUMENTS for line in document for sentence in split_sentences(line)]
    expected = [tokenizer(sentence, add_special_tokens=False)["input_ids"] for sentence in sentences]
    (shard,) = corpus.shards
    assert [
        shard.tokens[start:end].tolist() for start, end in zip(shard.sentences[:-1], shard.sentences[1:])
    ] == expected
    assert shard.documents.tolist() == [0, 3, 5]
    assert shard.tokens.dtype == np.uint16
    assert (corpus.num_documents, corpus.num_sentences, corpus.num_tokens) == (2, 5, sum(map(len, expected)))
    assert data_bytes(build_corpus(DOCUMENTS, tokenizer, tmp_path / "again").path) == data_bytes(corpus.path)


def test_special_tokens_written_in_the_text_stay_text(tmp_path, tokenizer):
    (shard,) = build_corpus([["the dog [SEP] the cat [SEP]"], ["a. A."]], tokenizer, tmp_path / "c").shards
    pieces = tokenizer.convert_ids_to_tokens(shard.tokens[: shard.sentences[1]].tolist())
    assert pieces == ["the", "dog", "[", "sep", "]", "the", "cat", "[", "sep", "]"]


def test_sentences_without_tokens_are_counted_but_not_kept(tmp_path, tokenizer):
    documents = [["\u200b", "The dog. The cat."], ["\u200b"], [], ["A bird."]]
    corpus = build_corpus(documents, tokenizer, tmp_path / "c")
    assert corpus.shards[0].documents.tolist() == [0, 2, 3]
    assert corpus.facts[0]["empty"] == {"sentences": 2, "documents": 2}


def test_a_large_vocabulary_takes_32_bits(tmp_path):
    tokenizer = make_tokenizer(f"word{number}" for number in range(1 << 16))
    (shard,) = build_corpus([["word65000. Word65535."], ["the dog"]], tokenizer, tmp_path / "c").shards
    assert shard.tokens.dtype == np.int32
    assert shard.tokens[0] == tokenizer.convert_tokens_to_ids("word65000") > 1 << 15
    assert shard.tokens[2] == tokenizer.convert_tokens_to_ids("word65535") >= 1 << 16


def test_a_stream_of_documents_becomes_shards_of_whole_documents(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK_CHARACTERS", 200)
    documents = random_documents(40)
    whole = build_corpus(documents, tokenizer, tmp_path / "whole")
    one, two = (
        build_corpus(documents, tokenizer, tmp_path / f"in-{workers}", workers, slice_bytes=3500) for workers in (1, 2)
    )
    assert len(one.shards) > 1 and data_bytes(one.path) == data_bytes(two.path)
    assert one.facts == two.facts
    assert np.array_equal(np.concatenate([shard.tokens for shard in one.shards]), whole.shards[0].tokens)
    assert one.num_documents == whole.num_documents == 40


def test_workers_start_quickly():
    program = "import sys, bert_training.pretraining.encoding as _; print(*{'torch', 'transformers'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT).stdout == "\n"


def test_a_build_that_goes_on_keeps_the_shards_that_are_there(tmp_path, tokenizer, files):
    alone = build_corpus(files, tokenizer, tmp_path / "alone", slice_bytes=2000)
    jobs = plan_corpus(files, tokenizer, tmp_path / "c", slice_bytes=2000)
    assert len(jobs) > 4
    for job in jobs[::2]:
        make_shard(job, tokenizer)
    before = inodes(tmp_path / "c")
    with pytest.raises(
        ValueError, match=r"not a finished corpus: shard-00001 and perhaps others are missing; build it"
    ):
        Corpus.open(tmp_path / "c")
    with open(tmp_path / "c" / "shard-00002" / "tokens.bin", "r+b") as file:  # which is noticed
        file.write(b"damage")
    corpus = build_corpus(files, tokenizer, tmp_path / "c", slice_bytes=2000)
    assert data_bytes(corpus.path) == data_bytes(alone.path) and corpus.facts == alone.facts
    kept = {path: inode for path, inode in before.items() if "shard-00002" not in str(path)}
    assert {path: inodes(tmp_path / "c")[path] for path in kept} == kept


def test_the_shards_of_a_stream_that_goes_on_are_kept(tmp_path, tokenizer, monkeypatch):
    documents = random_documents(40)
    alone = build_corpus(documents, tokenizer, tmp_path / "alone", slice_bytes=900)
    encode, calls = building.encode_chunk, []

    def encode_some(content, lines):
        calls.append(lines)
        if len(calls) == 4:
            raise OSError(28, os.strerror(28))
        return encode(content, lines)

    monkeypatch.setattr(building, "encode_chunk", encode_some)
    with pytest.raises(OSError, match="No space left"):
        build_corpus(documents, tokenizer, tmp_path / "c", slice_bytes=900)
    before = inodes(tmp_path / "c")
    assert len(shard_folders(tmp_path / "c")) == 3
    corpus = build_corpus(documents, tokenizer, tmp_path / "c", slice_bytes=900)
    assert data_bytes(corpus.path) == data_bytes(alone.path) and corpus.facts == alone.facts
    assert {path: inodes(tmp_path / "c")[path] for path in before} == before
    assert len(calls) == len(alone.facts) + 1  # None was encoded twice.


def test_unfinished_shards_of_another_text_are_not_used(tmp_path, tokenizer, files):
    for job in plan_corpus(files, tokenizer, tmp_path / "c", slice_bytes=500)[:-1]:
        make_shard(job, tokenizer)
    alone = build_corpus(files[:1], tokenizer, tmp_path / "alone", slice_bytes=2000)
    corpus = build_corpus(files[:1], tokenizer, tmp_path / "c", slice_bytes=2000)
    assert corpus.facts == alone.facts and len(shard_folders(tmp_path / "c")) == len(alone.facts)
    files[0].write_text(files[0].read_text().replace("dog", "cat"))  # the same size
    jobs = plan_corpus(files[:1], tokenizer, tmp_path / "c", slice_bytes=2000)
    make_shard(jobs[0], tokenizer)
    assert data_bytes(tmp_path / "c")["shard-00000/tokens.bin"] != data_bytes(alone.path)["shard-00000/tokens.bin"]


def test_an_equal_corpus_is_reused_and_another_refused(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "c")
    before = inodes(tmp_path / "c")
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    build_corpus([str(tmp_path / "b.txt")], tokenizer, tmp_path / "c")
    assert inodes(tmp_path / "c") == before
    with pytest.raises(
        ValueError, match=r"made from other input \(it differs in: tokenizer_sha256, .*\); give the text, .* or choose"
    ):
        build_corpus([tmp_path / "b.txt"], make_tokenizer(["new"]), tmp_path / "c")
    with pytest.raises(ValueError, match="its token ids were made with another tokenizer"):
        Corpus.open(tmp_path / "c", make_tokenizer(["new"]))
    (tmp_path / "b.txt").write_text(TEXT.replace("dog", "cat"))
    with pytest.raises(ValueError, match=r"holds a corpus made from another b\.txt; give the text"):
        build_corpus([tmp_path / "b.txt"], tokenizer, tmp_path / "c")
    (tmp_path / "b.txt").write_text(TEXT + "More.\n")
    with pytest.raises(ValueError, match=r"it differs in: text"):
        build_corpus([tmp_path / "b.txt"], tokenizer, tmp_path / "c")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.md").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files than a corpus \(notes.md\)"):
        build_corpus([tmp_path / "b.txt"], tokenizer, tmp_path / "other")


def test_a_text_without_tokens_is_refused(tmp_path, tokenizer):
    with pytest.raises(AssertionError, match="need `fingerprint`"):
        build_corpus(iter(DOCUMENTS), tokenizer, tmp_path / "c")
    with pytest.raises(ValueError, match=r"holds no text: no document .* or the tokenizer knows no character of it"):
        build_corpus([["\u200b"]], tokenizer, tmp_path / "d")


def test_text_that_changes_while_it_is_encoded_makes_no_shard(tmp_path, tokenizer, monkeypatch):
    file = tmp_path / "text.txt"
    file.write_text("One dog. Two dogs.\n\nA cat. Two cats.\n")
    original = encoding.encode_lines

    def changed(*values):
        with open(file, "a") as text:
            text.write("\nA bird.\n")
        return original(*values)

    monkeypatch.setattr(encoding, "encode_lines", changed)
    with pytest.raises(ValueError, match=r"text\.txt: it was changed or replaced while it was being read"):
        build_corpus([file], tokenizer, tmp_path / "c")
    assert not any((tmp_path / "c").iterdir())


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("a.txt", b"not \xff", r"a\.txt:1801: expected UTF-8 text, got byte 0xff at column 5"),
        ("a.jsonl", b'{"text": 1}', r"a\.jsonl:1801: expected a row with a text in the field `text`, got int"),
    ],
)
def test_errors_name_the_line_of_the_whole_file(tmp_path, tokenizer, name, bad, message):
    lines = [f"The dog number {number}." for number in range(1000)]
    rows = [row for line in lines for row in ([line, ""] if name == "a.txt" else [json.dumps({"text": line})] * 2)]
    content = [*(row.encode() for row in rows[:1800]), bad, *(row.encode() for row in rows[1800:])]
    (tmp_path / name).write_bytes(b"\n".join(content))
    with pytest.raises(ValueError, match=message):
        build_corpus([tmp_path / name], tokenizer, tmp_path / "c", slice_bytes=5000)
