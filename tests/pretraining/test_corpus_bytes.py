"""A corpus has the same bytes whoever makes its shards, and its ids are those of the text however it is sliced.

The content of a document decides whether it is held out.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.inputs.texts import read_lines, without_empty
from bert_training.pretraining import build_corpus as building
from bert_training.pretraining.build_corpus import build_corpus, make_shard, plan_corpus
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.encoding import ALL, Side, is_held_out, lines_of_span, pieces_of, plan_slices
from tests.helpers.repository import ROOT
from tests.helpers.small_corpora import data_bytes
from tests.helpers.texts_of_all_kinds import tokenizer_of_letters, write_all

# Written by the first version, which encoded a text as one stream.
WRITTEN = json.loads(Path(__file__).with_name("corpus_bytes.json").read_text())
SIDES = {"whole": ALL, "train": Side(0.3, False), "validation": Side(0.3, True)}


def hashes_of(corpus: Corpus) -> dict:
    """The hashes of the ids and offsets of all shards as if they were one, and the counts."""
    parts = corpus.shards
    tokens = np.cumsum([0, *(shard.num_tokens for shard in parts)])
    sentences = np.cumsum([0, *(shard.num_sentences for shard in parts)])
    arrays = {
        "tokens": np.concatenate([shard.tokens for shard in parts]),
        "sentences": np.concatenate([[0], *(shard.sentences[1:] + first for shard, first in zip(parts, tokens))]),
        "documents": np.concatenate([[0], *(shard.documents[1:] + first for shard, first in zip(parts, sentences))]),
        "unigrams": corpus.unigrams,
    }
    digests = {f"{name}.bin": hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
    sizes = {"documents": corpus.num_documents, "sentences": corpus.num_sentences, "tokens": corpus.num_tokens}
    empty = {
        f"empty_{name}": sum(facts["empty"][name] for facts in corpus.facts) for name in ("sentences", "documents")
    }
    return digests | {"counts": sizes | empty}


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_of_letters()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    return write_all(tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("slice_bytes", [1 << 29, 5000, 600])
@pytest.mark.parametrize("name", SIDES)
def test_any_slices_have_the_ids_of_the_whole_text(tmp_path, tokenizer, files, name, slice_bytes):
    corpus = build_corpus(files, tokenizer, tmp_path / "c", side=SIDES[name], slice_bytes=slice_bytes)
    assert hashes_of(corpus) == WRITTEN[name]
    assert len(corpus.facts) == {1 << 29: 1, 5000: 10, 600: 35}[slice_bytes]


@pytest.mark.parametrize("size", [100_000, 611, 37])
def test_spans_have_the_documents_of_the_files(files, size):
    lines = list(without_empty(read_lines(files)))
    spans = [span for one in plan_slices(files, size=size) for span in one]
    assert [line for span in spans for line in lines_of_span(span)] == lines
    pieces = [piece for span in spans for piece in pieces_of(span, 20)]
    assert len(pieces) > len(spans) and [line for piece in pieces for line in lines_of_span(piece)] == lines


def test_small_files_share_a_slice_and_a_large_one_that_cannot_be_divided_has_its_own(files):
    slices = [[Path(span.path).name for span in one] for one in plan_slices(files, size=5000)]
    assert max(map(len, slices)) > 1 and ["c.txt.xz"] in slices


def test_a_document_longer_than_its_slice_is_whole(tmp_path, tokenizer):
    lines = ["The dog sat.", "a bird sang . " * 900, "It was far. " * 40, "", "One red house."]
    (tmp_path / "a.txt").write_text("\r\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(["The cat ran away."] * 900))
    corpus = build_corpus([tmp_path / "a.txt", tmp_path / "b.txt"], tokenizer, tmp_path / "c", slice_bytes=1000)
    assert len(corpus.facts) > 20 and (len(corpus.shards), corpus.num_documents) == (2, 3)


@pytest.mark.slow
def test_100_random_orders_and_kills(tmp_path, tokenizer, files):
    """Every shard is made by a process that the system ends after a random time, as often as it takes."""
    kills = 0
    for seed in range(100):
        rng = random.Random(seed)
        side, size = rng.choice(list(SIDES.values())), int(10 ** rng.uniform(3, 4.5))
        jobs = plan_corpus(files, tokenizer, tmp_path / str(seed), side=side, slice_bytes=size)
        work = [partial(make_shard, job, tokenizer) for job in jobs]
        rng.shuffle(work)
        limit = 0.02
        for do in work:
            while killed_after(rng.uniform(0, limit), do):
                kills, limit = kills + 1, limit * 1.5
        build_corpus(files, tokenizer, tmp_path / "alone", side=side, slice_bytes=size)
        assert contents(tmp_path / str(seed)) == contents(tmp_path / "alone"), seed
        shutil.rmtree(tmp_path / str(seed))
        shutil.rmtree(tmp_path / "alone")
    assert kills > 200


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def killed_after(seconds: float, do) -> bool:
    """Call a function in another process, and end it after this time; whether it was killed."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(1e-4, seconds))
        do()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGALRM)
    return status != 0


@pytest.mark.parametrize("packed", [False, True])
def test_workers_write_the_same_bytes(tmp_path, tokenizer, files, monkeypatch, packed):
    monkeypatch.setattr(building, "PIECE_BYTES", 700)
    chosen = [path for path in files if (path.suffix in (".xz", ".gz")) == packed]
    one, two = (build_corpus(chosen, tokenizer, tmp_path / str(workers), workers) for workers in (1, 2))
    assert data_bytes(one.path) == data_bytes(two.path) and one.facts == two.facts


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", " "])
def test_memory_does_not_grow_with_a_document(tmp_path, end):
    """60 MB without a blank line: in lines of some words, and in lines of 8 MB."""
    tokenizer_of_letters().save_pretrained(tmp_path / "tokenizer")
    line = f"the dog sat on the mat far away .{end}" * 40_000
    with open(tmp_path / "a.txt", "w") as file:
        for number in range(60 * 10**6 // len(line)):
            file.write(line)
            if number % 6 == 5:
                file.write("\n" if end == " " else "")
    program = (
        "import resource, sys; from transformers import AutoTokenizer; "
        "from bert_training.pretraining.build_corpus import build_corpus; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "build_corpus([sys.argv[1] + '/a.txt'], AutoTokenizer.from_pretrained(sys.argv[1] + '/tokenizer'), "
        "sys.argv[1] + '/c', int(sys.argv[2])); "
        "print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    for workers in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path, workers], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        before, after = (int(number) << (10 if sys.platform == "linux" else 0) for number in done.stdout.split())
        assert after < 600 * 10**6 or after - before < 300 * 10**6, (workers, before, after)
        shutil.rmtree(tmp_path / "c")


def drawn_documents(count=200):
    rng = np.random.default_rng(3)
    letters = list("aé।的𑁇 x")
    return [["".join(rng.choice(letters, rng.integers(1, 9))) for _ in range(rng.integers(0, 6))] for _ in range(count)]


def lines_of(texts):
    return [line for document in texts for line in (*document, None)]


def test_the_draw_is_that_of_the_whole_document():
    """The side is that of the CRC-32 of the joined lines."""
    sides = {True: [], False: []}
    for document in drawn_documents():
        sides[zlib.crc32("\n".join(document).encode()) < 0.4 * 2**32].append(document)
        assert is_held_out(document, 0.4) == (document in sides[True])
    for held_out, expected in sides.items():
        assert len(expected) > 40
        assert list(Side(0.4, held_out).of(lines_of(drawn_documents()))) == lines_of(expected)


def test_the_lines_of_documents_make_the_corpus_of_their_lists(tmp_path, tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    texts = [["the old house .", "a new river ."], [], ["the king ."]]
    one = build_corpus(texts, tokenizer, tmp_path / "a", fingerprint="x")
    other = build_corpus(iter(lines_of(texts)), tokenizer, tmp_path / "b", fingerprint="x")
    assert one.facts == other.facts
    assert data_bytes(one.path) == data_bytes(other.path) and one.num_documents == 2
