"""training/corpus.py, shards.py, encoding.py: reading, building, opening."""

import gzip
import json
import lzma
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy
from transformers import BertTokenizer

from training import corpus as corpus_module
from training import encoding
from training.corpus import Corpus, build_corpus, encode_share, read_documents
from training.sentences import split_sentences
from training.shards import ShardWriter, tokenizer_json

WORDS = "the dog cat sat ran on mat far away and a bird sang it was one red blue house went home".split()
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXT = "The dog sat. The cat ran away!\nA bird sang.\n\nOne red house. It was far.\n"
DOCUMENTS = [["The dog sat. The cat ran away!", "A bird sang."], ["One red house. It was far."]]


def make_tokenizer(extra=()):
    vocab = [*SPECIALS, *WORDS, ".", "!", "[", "]", "sep", "##s", *extra]
    return BertTokenizer(vocab={word: number for number, word in enumerate(vocab)})


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def random_documents(count, seed=0, sentences=6):
    rng = np.random.default_rng(seed)
    return [
        [
            " ".join(
                " ".join(rng.choice(WORDS, rng.integers(3, 12))).capitalize() + "."
                for _ in range(rng.integers(1, sentences))
            )
            for _ in range(rng.integers(1, 3))
        ]
        for _ in range(count)
    ]


def data_bytes(path):
    return [(path / f"{name}.bin").read_bytes() for name in ("tokens", "sentences", "documents", "unigrams")]


# --- Reading ----------------------------------------------------------------------------------------------


def test_every_kind_of_file_gives_the_same_documents(tmp_path):
    import pyarrow
    import pyarrow.parquet

    texts = ["\n".join(document) for document in DOCUMENTS]
    rows = "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(TEXT.encode()))
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "e.jsonl").write_text(rows)
    (tmp_path / "f.jsonl.xz").write_bytes(lzma.compress(rows.encode()))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "g.parquet")
    (tmp_path / "h.parquet.gz").write_bytes(gzip.compress((tmp_path / "g.parquet").read_bytes()))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 8
    for file in files:
        assert list(read_documents([file])) == DOCUMENTS, file
    assert list(read_documents(files)) == DOCUMENTS * 8  # a document never goes on in the next file


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", None, r"a\.txt: no such file"),
        ("a.txt", b"", r"a\.txt: is empty"),
        ("a.txt", b"\n \n\t\n", r"a\.txt: holds no text"),
        ("a.txt", b"fine\nnot \xff\n", r"a\.txt:2: not UTF-8"),
        ("a.csv", b"text\n", r"a\.csv: unknown kind"),
        ("a.txt.xz", lzma.compress(b"some text\n" * 50)[:-20], r"a\.txt\.xz:\d+: damaged compression"),
        ("a.txt.gz", gzip.compress(b"some text\n" * 50)[:-9], r"a\.txt\.gz:\d+: damaged compression"),
        ("a.txt.gz", b"plain text", r"a\.txt\.gz:1: damaged compression"),
        ("a.jsonl", b'{"text": "one"}\n\n{"texts": "two"}\n', r"a\.jsonl:3: expected a string in the field"),
        ("a.jsonl", b'{"text": "one"}\n{"text": 2}\n', r"a\.jsonl:2: .* got int"),
        ("a.jsonl", b'["text"]\n', r"a\.jsonl:1: expected a string"),
        ("a.jsonl", b'{"text": "one"\n', r"a\.jsonl:1: not JSON"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1: not JSON"),
        ("a.jsonl", b"1" * 5000, r"a\.jsonl:1: not JSON"),
        ("a.jsonl", b'{"text": "lone \\ud800"}\n', r"a\.jsonl:1: lone surrogate at character 5"),
        ("a.jsonl", b'{"text": "one", "text": "two"}\n', r"a\.jsonl:1: not JSON \(the field `text` comes twice\)"),
        ("a.txt", b"fine\nh\0e\0l\0l\0o\0\n", r"a\.txt:2: holds a NUL byte: a binary file, or UTF-16; convert it"),
        ("a.parquet", b"PAR1 nonsense", r"a\.parquet: not a readable parquet file"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_documents([tmp_path / name]))


def test_parquet_without_text_names_its_columns(tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"title": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="expected one column `text`; its columns are title"):
        list(read_documents([tmp_path / "a.parquet"]))
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x", None]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: row 2: expected a string"):
        list(read_documents([tmp_path / "b.parquet"]))
    plain = parquet_of(["one", "two", "three"], compression="none", use_dictionary=False)
    (tmp_path / "c.parquet").write_bytes(plain.replace(b"two", b"t\xffo"))
    with pytest.raises(ValueError, match=r"c\.parquet: row 2: not UTF-8 .*; repair the text"):
        list(read_documents([tmp_path / "c.parquet"]))
    column = pyarrow.array(["x"])
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([column, column], ["text", "text"]), tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="expected one column `text`; its columns are text, text"):
        list(read_documents([tmp_path / "d.parquet"]))


def parquet_of(texts, **settings):
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), sink, **settings)
    return sink.getvalue().to_pybytes()


def test_200_malformed_inputs_are_refused_or_read_to_the_end(tmp_path):
    """Bytes changed, cut off or put in anywhere, in every kind of file.

    What is not refused, by file and line or row, is read to its end: packed files as `gzip` and `lzma` would have
    unpacked them whole, text line by line as it stands.
    """
    rng = np.random.default_rng(5)
    text, texts = TEXT.encode() * 30, [f"Row {number}.\nIt was far." for number in range(50)]
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    whole = {
        "a.txt": text,
        "a.jsonl": rows,
        "a.txt.xz": lzma.compress(text) + lzma.compress(text),
        "a.txt.gz": gzip.compress(text) + gzip.compress(text),
        "a.jsonl.gz": gzip.compress(rows),
        "a.parquet": parquet_of(texts),
        "b.parquet": parquet_of(texts, compression="none", use_dictionary=False),
        "a.parquet.xz": lzma.compress(parquet_of(texts)),
    }
    refused, read = 0, 0
    for number in range(200):
        name = list(whole)[number % len(whole)]
        damaged = bytearray(whole[name])
        kind, place = rng.integers(4), int(rng.integers(1, len(damaged)))
        if kind == 0:
            del damaged[place:]
        elif kind == 1:
            damaged[place:place] = rng.bytes(rng.integers(1, 40))
        else:  # any bytes, or letters and signs
            for position in rng.integers(0, len(damaged), 2):
                damaged[position] = rng.integers(0, 256) if kind == 2 else rng.integers(32, 127)
        file = tmp_path / name
        file.write_bytes(damaged)
        try:
            documents = list(read_documents([file]))
        except ValueError as error:
            refused += 1
            assert re.match(rf"{re.escape(str(file))}(:\d+|: row \d+)?: .+; .+", str(error)), error
            continue
        read += 1
        if ".txt" in name:
            content = bytes(damaged)
            if name != "a.txt":
                content = (gzip if name.endswith("gz") else lzma).decompress(content.rstrip(b"\0"))
            lines = [line.strip() for line in content.decode("utf-8-sig").split("\n")]
            assert [line for document in documents for line in document] == [line for line in lines if line]
        else:
            assert len(documents) == 50
    assert refused > 100 and read > 10, (refused, read)


def test_a_damaged_second_stream_is_not_taken_for_the_end(tmp_path):
    """lzma.open does: it drops what it cannot read behind a whole stream."""
    file = tmp_path / "a.txt.xz"
    first, second = lzma.compress(TEXT.encode()), lzma.compress(b"More text.\n")
    file.write_bytes(first + bytes(8) + second + bytes(4))  # padding is allowed
    assert list(read_documents([file]))[-1] == ["One red house. It was far.", "More text."]
    for rest in (b"rubbish", second[:2] + b"?" + second[3:], second[:-3], second[:20]):
        file.write_bytes(first + rest)
        with lzma.open(file) as stream:
            assert rest in (second[:-3], second[:20]) or stream.read() == TEXT.encode()
        with pytest.raises(ValueError, match=r"a\.txt\.xz:\d: damaged compression"):
            list(read_documents([file]))


# --- Building ---------------------------------------------------------------------------------------------


def test_ids_sentences_and_documents(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    corpus = build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "corpus")
    sentences = [s for document in DOCUMENTS for line in document for s in split_sentences(line)]
    expected = [tokenizer(sentence, add_special_tokens=False)["input_ids"] for sentence in sentences]
    found = [corpus.tokens[a:b].tolist() for a, b in zip(corpus.sentences[:-1], corpus.sentences[1:])]
    assert found == expected
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


def test_sentences_without_tokens_are_counted_not_kept(tmp_path, tokenizer):
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
    monkeypatch.setattr(corpus_module, "_CHUNK_CHARACTERS", 200)
    documents = random_documents(40)
    one = build_corpus(documents, tokenizer, tmp_path / "one", num_workers=1)
    two = build_corpus(documents, tokenizer, tmp_path / "two", num_workers=2)
    assert data_bytes(one.path) == data_bytes(two.path)
    assert one.fingerprint == two.fingerprint


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_the_work_and_write_the_same_bytes(tmp_path, tokenizer, monkeypatch, world_size):
    monkeypatch.setattr(corpus_module, "_CHUNK_CHARACTERS", 200)
    documents = random_documents(40)
    alone = build_corpus(documents, tokenizer, tmp_path / "alone")
    encode, encoded = encoding.encode_lines, []
    monkeypatch.setattr(encoding, "encode_lines", lambda *arguments: encoded.append(arguments) or encode(*arguments))
    chunks = len(list(corpus_module._chunks(corpus_module._lines_of(documents))))
    for rank in range(world_size):
        encoded.clear()
        encode_share(documents, tokenizer, tmp_path / "c", rank, world_size)
        assert len(encoded) == len(range(rank, chunks, world_size))  # and no more
    encoded.clear()
    together = build_corpus(documents, tokenizer, tmp_path / "c", shares=world_size)
    assert encoded == []
    assert data_bytes(together.path) == data_bytes(alone.path)
    assert together.manifest == alone.manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "c"]
    encode_share(documents, tokenizer, tmp_path / "c", 0, world_size)  # what stands is not encoded again
    assert encoded == []


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_an_interrupted_share_and_an_interrupted_join_are_continued(tmp_path, tokenizer, monkeypatch, cut):
    monkeypatch.setattr(corpus_module, "_CHUNK_CHARACTERS", 200)
    monkeypatch.setattr(corpus_module, "COMMIT_SECONDS", -1.0)
    documents = random_documents(40)
    alone = build_corpus(documents, tokenizer, tmp_path / "alone")
    for rank in range(2):
        encode_share(documents, tokenizer, tmp_path / "c", rank, 2)
    (part,) = tmp_path.glob("c.shares-2-*/part-1.bin")
    whole = part.read_bytes()
    part.write_bytes(whole[:-cut])
    encode_share(documents, tokenizer, tmp_path / "c", 1, 2)
    assert part.read_bytes() == whole
    append, appended = ShardWriter.append, []

    def append_some(self, *arguments, **more):
        if len(appended) == 7:
            raise Interrupted
        appended.append(arguments)
        append(self, *arguments, **more)

    monkeypatch.setattr(ShardWriter, "append", append_some)
    with pytest.raises(Interrupted):
        build_corpus(documents, tokenizer, tmp_path / "c", shares=2)
    monkeypatch.setattr(ShardWriter, "append", append)
    assert data_bytes(build_corpus(documents, tokenizer, tmp_path / "c", shares=2).path) == data_bytes(alone.path)


def test_shares_of_another_text_are_not_taken(tmp_path, tokenizer):
    encode_share(DOCUMENTS, tokenizer, tmp_path / "c", 0, 2)
    encode_share(DOCUMENTS, tokenizer, tmp_path / "c", 1, 2)
    with pytest.raises(OSError, match=r"shares-2-.*part-0\.bin"):
        build_corpus(DOCUMENTS * 2, tokenizer, tmp_path / "c", shares=2)
    with pytest.raises(ValueError, match="needs at least 2 documents"):
        encode_share(DOCUMENTS[:1], tokenizer, tmp_path / "c", 0, 2)


def test_a_worker_that_dies_is_reported(tokenizer):
    with encoding._Worker(tokenizer_json(tokenizer)) as worker:
        assert worker.encode(["the dog", None]).lengths.tolist() == [2]
        worker.process.kill()
        with pytest.raises(RuntimeError, match=r"ended with status -9 .* run again with fewer workers"):
            worker.encode(["the dog"])


def test_an_interrupted_build_is_continued(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(corpus_module, "_CHUNK_CHARACTERS", 200)
    monkeypatch.setattr(corpus_module, "COMMIT_SECONDS", -1.0)
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
    # What a kill in the middle of a write leaves behind the last commit is cut off.
    with open(tmp_path / "c.building" / "tokens.bin", "ab") as file:
        file.write(b"half a chunk")
    monkeypatch.setattr(encoding, "encode_lines", encode_until(None))
    resumed = build_corpus(documents, tokenizer, tmp_path / "c")
    assert data_bytes(resumed.path) == data_bytes(whole.path)
    lines = [line for chunk in encoded for line in chunk]
    assert lines == list(corpus_module._lines_of(documents))  # nothing was encoded twice
    assert not (tmp_path / "c.building").exists()


def test_another_source_does_not_go_on_where_this_one_stopped(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    key = {"format": 1, "sources": ["another"], "tokenizer_sha256": "x"}
    writer = ShardWriter(tmp_path / "c", key, np.dtype("<u2"))
    writer.append(np.array([7, 8]), np.array([2]), np.array([1]), events=3)
    writer.commit()
    writer.close()
    corpus = build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "c")
    assert corpus.documents.tolist() == [0, 3, 5]


KILLED = """
import os, signal, sys
import tokenizers
from training import corpus

class Tokenizer:
    backend_tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    all_special_ids = [0]
    def __len__(self):
        return 1

def documents():
    for number in range(40):
        yield ["A b. C d."]
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

corpus._CHUNK_CHARACTERS, corpus.COMMIT_SECONDS = 20, -1.0
print(corpus.build_corpus(documents(), Tokenizer(), sys.argv[1], fingerprint="f").num_sentences)
"""


def test_a_killed_build_leaves_no_corpus(tmp_path):
    def run(stop):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "c"), str(stop)]
        return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])

    assert run(25).returncode == -9
    assert not (tmp_path / "c").exists() and (tmp_path / "c.building").exists()
    with pytest.raises(ValueError, match="not a finished corpus"):
        Corpus.open(tmp_path / "c")
    finished = run(-1)
    assert (finished.returncode, finished.stdout.strip()) == (0, "80"), finished.stderr


def test_a_second_builder_is_turned_away(tmp_path, tokenizer):
    writer = ShardWriter(tmp_path / "c", {}, np.dtype("<u2"))
    with pytest.raises(ValueError, match="another process is building this corpus"):
        build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")
    writer.close()
    assert build_corpus(DOCUMENTS, tokenizer, tmp_path / "c").num_documents == 2


def test_a_full_disk_is_named(tmp_path, tokenizer, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(ShardWriter, "append", full)
    with pytest.raises(OSError, match=r"the disk filled up while .* run again"):
        build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")


# --- Opening ----------------------------------------------------------------------------------------------


def test_an_equal_corpus_is_reused_and_another_refused(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(TEXT)
    build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "c")
    before = (tmp_path / "c" / "manifest.json").stat().st_mtime_ns
    build_corpus([str(tmp_path / "a.txt")], tokenizer, tmp_path / "c")
    assert (tmp_path / "c" / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match=r"made from other input \(it differs in: tokenizer_sha256\)"):
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


def test_the_state_of_the_last_call_is_not_part_of_the_tokenizer(tmp_path):
    tokenizer = make_tokenizer()
    corpus = build_corpus(DOCUMENTS, tokenizer, tmp_path / "c")
    tokenizer(["the dog", "a"], truncation=True, padding="max_length", max_length=4)
    Corpus.open(corpus.path, tokenizer)
    again = build_corpus(DOCUMENTS, tokenizer, tmp_path / "d")
    assert data_bytes(again.path) == data_bytes(corpus.path)


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


# --- The user's mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "documents", [[["The dog. The cat."]], [["The dog."], ["The cat."]], [["The dog. The cat."], ["  "]], [[]]]
)
def test_pairs_need_two_documents_and_two_sentences(tmp_path, tokenizer, documents):
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(document) for document in documents) + "\n.\n")
    with pytest.raises(ValueError, match="next-sentence prediction needs at least 2 documents"):
        build_corpus(documents, tokenizer, tmp_path / "c")
    assert list(tmp_path.glob("c*")) == []  # refused before anything is written


def test_pairs_in_files_and_in_generated_documents(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("The dog. The cat.\n")
    with pytest.raises(ValueError, match="got 1 documents, the longest of 2 sentences"):
        build_corpus([tmp_path / "a.txt"], tokenizer, tmp_path / "c")
    corpus = build_corpus(iter(DOCUMENTS), tokenizer, tmp_path / "c", fingerprint="those")
    assert corpus.documents.tolist() == [0, 3, 5]  # what was looked at is read again


def test_one_document_is_enough_without_pairs(tmp_path, tokenizer):
    assert build_corpus([["The dog."]], tokenizer, tmp_path / "c", need_pairs=False).num_sentences == 1


def test_wrong_arguments(tmp_path, tokenizer):
    with pytest.raises(ValueError, match="expected a list of files or documents"):
        build_corpus("a.txt", tokenizer, tmp_path / "c")
    with pytest.raises(ValueError, match="need `fingerprint`"):
        build_corpus(iter(DOCUMENTS), tokenizer, tmp_path / "c")
    with pytest.raises(ValueError, match="num_workers is 0"):
        build_corpus(DOCUMENTS, tokenizer, tmp_path / "c", num_workers=0)
    with pytest.raises(ValueError, match="document 2: lone surrogate"):
        build_corpus([["fine. It is."], ["not \ud800"]], tokenizer, tmp_path / "c")
    with pytest.raises(ValueError, match="holds no text that the tokenizer turns into tokens"):
        build_corpus([["\u200b"]], tokenizer, tmp_path / "c", need_pairs=False)
