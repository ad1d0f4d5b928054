"""How fast a corpus is built: beside bare batch encoding of `tokenizers`, and by two processes beside one.

    python lab/benchmarks/corpus_speed.py                      # on idle cores; writes lab/records/corpus_speed.json
    python lab/benchmarks/corpus_speed.py --words 20000 --rounds 1 --busy --output /tmp/try.json

The text is the built-in documentation, repeated up to --words, and the vocabulary is learnt from it. In each round, in
turn and on the same cores:

- bare: the library encodes all sentences in batches with its own threads. The sentences are ready in memory.
- builder: `build_corpus` reads the file, splits, encodes and seals shards, with as many workers as cores.
- one task: all shards on one core; two tasks: the same shards in two processes, each on a core of its own. Reading the
  text for its SHA-256 is a part of both. Starting Python is not: both begin when the processes have said that they are
  ready.

A ratio is that of the medians of all rounds. At last, a document of --document_mb megabytes without a blank line is
encoded, and the largest memory of the main process is recorded; with --rounds 0 only that, in the record as it is.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from bert_training.builtin_data import documentation
from bert_training.files.atomic import write_json
from bert_training.inputs.texts import read_lines
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.encoding import CHUNK_CHARACTERS, load_backend
from bert_training.pretraining.sentences import split_sentences
from lab.benchmarks import idle
from lab.benchmarks.provenance import ROOT, provenance
from tokenization.bert_tokenizer import text_tokenizer, tokenizer_json
from tokenization.train_wordpiece import train_wordpiece

RECORD = ROOT / "lab" / "records" / "corpus_speed.json"
# Prints the largest memory of this process before the corpus is built and after it, in bytes.
MEMORY = """
import sys
root, text, tokenizer, target, workers = sys.argv[1:]
sys.path.insert(0, root)
from transformers import AutoTokenizer
from bert_training.pretraining.build_corpus import build_corpus
from lab.benchmarks.peak import peak_bytes
tokenizer = AutoTokenizer.from_pretrained(tokenizer)
before = peak_bytes()
build_corpus([text], tokenizer, target, int(workers))
print(before, peak_bytes())
"""
AT_LEAST = {"builder / bare": 0.85, "two tasks / one": 1.9}
# Prepares everything, says so, and makes the shards of a task when a line comes.
TASK = """
import os, sys
root, core, text, tokenizer, target, tasks, task = sys.argv[1:]
sys.path.insert(0, root)
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, [int(core)])
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from pathlib import Path
from transformers import AutoTokenizer
from bert_training.pretraining.build_corpus import make_shard, plan_corpus
tokenizer = AutoTokenizer.from_pretrained(tokenizer)
jobs = plan_corpus([Path(text)], tokenizer, Path(target), slice_bytes=1 << 23)
print("ready", flush=True)
sys.stdin.readline()
for job in jobs[int(task) :: int(tasks)]:
    make_shard(job, tokenizer)
"""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=20_000_000, help="the size of the text")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--document_mb", type=int, default=1000, help="the size of the single document; 0: none")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RECORD, help="the record")
    idle.add_flag(parser)
    args = parser.parse_args(argv)
    origin = provenance("lab/benchmarks/corpus_speed.py", argv, "cpu")
    record = origin | idle.demand_idle_cores(args.busy) if args.rounds else json.loads(args.output.read_text())
    cores = sorted(os.sched_getaffinity(0))[: args.cores]
    os.sched_setaffinity(0, cores)
    os.environ["RAYON_NUM_THREADS"] = str(len(cores))
    with tempfile.TemporaryDirectory() as folder:
        text, words = write_text(Path(folder), args.words)
        pieces = Path(folder, "tokenizer")
        lines = (line for line in read_lines([text]) if line is not None)
        train_wordpiece(lines, 8192, output_dir=pieces, progress=False)
        if args.rounds:
            tokenizer = AutoTokenizer.from_pretrained(pieces)
            rounds = [measure(Path(folder), text, pieces, tokenizer, cores) for _ in range(args.rounds)]
            record |= {"text": {"words": words, "bytes": text.stat().st_size}, "cores_used": len(cores)}
            record |= {"rounds": rounds} | ratios_of(rounds)
        if args.document_mb:
            origin = {name: origin[name] for name in ("command", "date", "commit")}
            record["memory"] = origin | memory(Path(folder), pieces, args.document_mb, len(cores))
    write_json(args.output, record)
    for name, least in AT_LEAST.items():
        print(f"{name}: {record['ratios'][name]:.2f} (at least {least})")


def ratios_of(rounds: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """The medians of the rounds, and the ratios of these."""
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    ratios = {
        "builder / bare": medians["bare"] / medians["builder"],
        "two tasks / one": medians["one task"] / medians["two tasks"],
    }
    return {"seconds": medians, "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()}}


def write_text(folder: Path, words: int) -> tuple[Path, int]:
    """Write the built-in documentation, as often as needed, and return the file and how many words it has."""
    documents = documentation.documents()
    path, count = folder / "text.txt", 0
    with open(path, "w", encoding="utf-8") as file:
        while count < words:
            for document in documents:
                file.write("\n".join(document) + "\n\n")
                count += sum(len(line.split()) for line in document)
                if count >= words:
                    break
    return path, count


def measure(
    folder: Path, text: Path, pieces: Path, tokenizer: PreTrainedTokenizerBase, cores: list[int]
) -> dict[str, float]:
    """The seconds of each contestant in one round."""
    seconds = {"bare": bare(text, tokenizer)}
    start = time.perf_counter()
    build_corpus([text], tokenizer, folder / "corpus", len(cores))
    seconds["builder"] = time.perf_counter() - start
    shutil.rmtree(folder / "corpus")
    seconds["one task"] = tasks(folder, text, pieces, cores[:1])
    seconds["two tasks"] = tasks(folder, text, pieces, [cores[0], cores[-1]])
    return {name: round(value, 3) for name, value in seconds.items()}


def bare(text: Path, tokenizer: PreTrainedTokenizerBase) -> float:
    """The seconds in which the library encodes all sentences, in batches of the builder's size."""
    backend = load_backend(tokenizer_json(text_tokenizer(tokenizer)))
    seconds, batch, size = 0.0, [], 0
    for line in [*read_lines([text]), None]:
        sentences = split_sentences(line) if line is not None else []
        batch += sentences
        size += sum(map(len, sentences))
        if size >= CHUNK_CHARACTERS:
            seconds, batch, size = seconds + encoding_seconds(backend, batch), [], 0
    return seconds + encoding_seconds(backend, batch)


def encoding_seconds(backend, sentences: list[str]) -> float:
    start = time.perf_counter()
    encoded = backend.encode_batch_fast(sentences, add_special_tokens=False)
    seconds = time.perf_counter() - start
    assert len(encoded) == len(sentences)
    return seconds


def memory(folder: Path, pieces: Path, megabytes: int, workers: int) -> dict[str, int]:
    """The largest memory of the process that builds the corpus of one document, in bytes."""
    documents = documentation.documents()
    text, left = folder / "document.txt", megabytes * 10**6
    with open(text, "wb") as file:
        while left > 0:
            for document in documents:
                left -= file.write("".join(f"{line}\n" for line in document).encode())
                if left <= 0:
                    break
    words = [ROOT, text, pieces, folder / "one_document", workers]
    done = subprocess.run([sys.executable, "-c", MEMORY, *map(str, words)], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    print(
        f"a document of {megabytes:,} MB: at most {after / 1e6:.0f} MB of the main process ({before / 1e6:.0f} before)"
    )
    return {"document_bytes": text.stat().st_size, "before_bytes": before, "peak_bytes": after}


def tasks(folder: Path, text: Path, pieces: Path, cores: list[int]) -> float:
    """The seconds that as many tasks as cores need together, without starting Python."""
    target = folder / "tasks"
    processes = []
    for number, core in enumerate(cores):
        words = [ROOT, core, text, pieces, target, len(cores), number]
        command = [sys.executable, "-c", TASK, *map(str, words)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    start = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.wait() == 0
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


if __name__ == "__main__":
    main()
