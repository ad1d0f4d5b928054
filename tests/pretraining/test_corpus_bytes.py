"""A corpus is the same, byte for byte, however its text is divided, and the same as earlier versions wrote."""

import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from bert_training.inputs.texts import read_lines
from bert_training.pretraining.build_corpus import Side, build_corpus, encode_part
from bert_training.pretraining.held_out import Piece, continued
from bert_training.pretraining.ranges import RangeReader, Span, plan_shards
from tests.helpers.repository import ROOT
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


def test_ranges_have_the_lines_of_the_files(files):
    """With the same places, too, by which texts are drawn for the sample."""
    lines, places = list(read_lines(files)), None
    for shard_bytes in (100_000, 611, 37):
        found = [pair for shard in plan_shards(files, shard_bytes) for span in shard for pair in RangeReader(span)]
        assert [line for _, line in found] == lines
        assert len({place for place, line in found if line is not None}) == sum(line is not None for line in lines)
        assert places in (None, found)
        places = found


def test_a_line_larger_than_its_range_and_a_document_without_blank_lines(tmp_path, tokenizer):
    lines = ["The dog sat.", "a bird sang . " * 900, "It was far. " * 40, "", "One red house."]
    (tmp_path / "a.txt").write_text("\r\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(["The cat ran away."] * 900))
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    whole = build_corpus(files, tokenizer, tmp_path / "whole")
    divided = build_corpus(files, tokenizer, tmp_path / "c", shard_bytes=200)
    assert len(plan_shards(files, 200)) > 100
    assert (whole.num_documents, divided.manifest) == (3, whole.manifest)


def test_a_shard_that_reads_beyond_its_range_says_so(tmp_path):
    """So that a change of the end of its last line is noticed."""
    (tmp_path / "a.txt").write_text("one line of text\n" * 10)
    reader = RangeReader(Span(0, str(tmp_path / "a.txt"), 20, 40, 170))
    assert [place for place, _ in reader] == [35]
    assert reader.extents == [(20, 51)]


@pytest.mark.parametrize("parts", [[0, 0, 3], [2, 1, 0], [1, 2, 1], [3]])
def test_the_side_of_a_document_is_known_from_its_parts(parts):
    lines = iter(["The dog sat.", "été", "यह एक", "A bird."])
    expected, joined = None, Piece()
    for count in parts:
        piece = Piece()
        for line in itertools.islice(lines, count):
            expected = continued(expected, line)
            piece.add(line)
        joined = joined.then(piece)
    assert (joined.checksum, joined.lines) == (expected, sum(parts))


@pytest.mark.slow
def test_200_random_divisions_orders_and_kills(tmp_path, tokenizer, files):
    """Every process is ended by the system after a random time, as often as it takes until it is fast enough."""
    kills = 0
    for seed in range(200):
        rng = random.Random(seed)
        name = rng.choice(["whole", "train", "validation"])
        side = Side(0.3, name == "validation", drop_empty=True)
        source = {"source": files} if name == "whole" else {"source": files, "fingerprint": "x", "side": side}
        arguments = source | {"tokenizer": tokenizer, "output_dir": tmp_path / str(seed)}
        arguments["shard_bytes"] = int(10 ** rng.uniform(2, 4.5))
        ranks = rng.choices([1, 2, 5, 64], [3, 3, 3, 1])[0]
        work = [partial(encode_part, rank=rank, world_size=ranks, **arguments) for rank in range(ranks)]
        rng.shuffle(work)
        limit = 0.02
        for do in [*work, partial(build_corpus, **arguments)]:
            while killed_after(rng.uniform(0, limit), do):
                kills, limit = kills + 1, limit * 1.5
        assert facts_of(tmp_path / str(seed)) == WRITTEN[name], seed
        assert [path.name for path in tmp_path.iterdir()] == [str(seed)], seed
        shutil.rmtree(tmp_path / str(seed))
    assert kills > 400


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
        assert after < 600 * 10**6 or after - before < 150 * 10**6, (workers, before, after)
        shutil.rmtree(tmp_path / "c")
