"""Time and memory of the plan of an epoch, of a made-up corpus of a billion tokens.

    python lab/benchmarks/epoch_plan.py                       # some minutes
    python lab/benchmarks/epoch_plan.py --tokens 2e6 --smoke  # to see that it works; writes no record

The corpus has the files of a real one. Its tokens are a hole in a file, because a plan reads none; sentences have 5 to
40 tokens and documents 1 to 59 sentences. Every objective is planned by a process of its own, as a training does it:
the balance of the labels, the plan, the order of all instances and the first batch. The memory is the peak of the
process, with Python, torch and the pages of the corpus that it has read.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.pretraining.build_corpus import key_of
from bert_training.pretraining.corpus import FACTS, Corpus, shard_folder
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from lab.benchmarks import idle
from lab.benchmarks.peak import peak_bytes
from lab.benchmarks.provenance import provenance
from lab.tables import epoch_plan
from tokenization.bert_tokenizer import build_tokenizer

RECORD = Path(__file__).parents[1] / "records" / "epoch_plan.json"
OBJECTIVES = ("mlm_nsp", "mlm_sop", "mlm")
TARGETS = {"seconds": 60, "bytes": 2e9}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
_BLOCK = 1 << 20


def write_corpus(folder: Path, tokens: int) -> None:
    """Write the files of a corpus of about so many tokens in one shard, block by block."""
    tokenizer = build_tokenizer(PIECES)
    folder = shard_folder(folder, 0)
    folder.mkdir()
    draw = np.random.default_rng(0)
    sentences, end = round(tokens / 22.5), 0
    with open(folder / "sentences.bin", "wb") as file:
        file.write(np.zeros(1, "<i8").tobytes())
        for start in range(0, sentences, _BLOCK):
            ends = end + np.cumsum(draw.integers(5, 41, min(_BLOCK, sentences - start)))
            end = int(ends[-1])
            file.write(ends.astype("<i8").tobytes())
    borders = np.cumsum(draw.integers(1, 60, sentences // 20 + 2))
    documents = np.concatenate([[0], borders[borders < sentences], [sentences]])
    documents.astype("<i8").tofile(folder / "documents.bin")
    with open(folder / "tokens.bin", "wb") as file:
        file.truncate(2 * end)
    np.ones(len(PIECES), "<i8").tofile(folder / "unigrams.bin")
    lengths = {"tokens": end, "sentences": sentences + 1, "documents": len(documents), "unigrams": len(PIECES)}
    facts = {"key": key_of({}, tokenizer), "last": True, "dtype": "<u2", "lengths": lengths}
    write_json(folder / FACTS, facts)


def planned(folder: Path, objective: str, length: int) -> dict[str, Any]:
    """Plan and shuffle an epoch in this process; returns what it took."""
    tokenizer = build_tokenizer(PIECES)
    corpus = Corpus.open(folder, tokenizer, verify=False)
    started, computed = time.perf_counter(), time.process_time()
    settings = InstanceSettings(seed=1, max_seq_length=length, objective=objective)
    instances = PretrainingInstances(corpus, tokenizer, settings)
    instances.batch(0, 256)
    took = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - computed}
    peak = peak_bytes()
    sizes = {"tokens": corpus.num_tokens, "sentences": corpus.num_sentences, "documents": corpus.num_documents}
    return (
        sizes
        | {"instances": instances.epoch_size(0), "bytes": peak}
        | {name: round(seconds, 1) for name, seconds in took.items()}
    )


def main() -> None:
    """Measure, print the table and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=1e9, help="tokens of the corpus (1e9)")
    parser.add_argument("--length", type=int, default=128, help="tokens of an instance (128)")
    parser.add_argument("--smoke", action="store_true", help="write no record")
    parser.add_argument("--plan", nargs=2, metavar=("FOLDER", "OBJECTIVE"), help=argparse.SUPPRESS)
    idle.add_flag(parser)
    args = parser.parse_args()
    if args.plan:
        print(json.dumps(planned(Path(args.plan[0]), args.plan[1], args.length)))
        return
    record = provenance("lab/benchmarks/epoch_plan.py", device="cpu") | {"targets": TARGETS, "length": args.length}
    record |= idle.demand_idle_cores(args.busy or args.smoke)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        write_corpus(Path(name), round(args.tokens))
        for objective in OBJECTIVES:
            command = [sys.executable, __file__, "--length", str(args.length), "--plan", name, objective]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append({"objective": objective, **json.loads(done.stdout)})
    record["results"] = rows
    print(epoch_plan(record))
    if not args.smoke:
        write_json(RECORD, record)


if __name__ == "__main__":
    main()
