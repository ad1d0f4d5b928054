"""What the formula of docs/scaling.md predicts, against what happens with texts of 1, 10 and 100 times the same size.

    python lab/benchmarks/corpus_scale.py                       # under 5 minutes on two idle cores
    python lab/benchmarks/corpus_scale.py --words 3000 --smoke  # to see that it works; writes no record

The text is made up: words with the frequencies of Zipf's law, so that longer texts have more distinct words. The rates
are measured on a sample of it, as the command measures them on the built-in corpus. Then each part is done by a process
of its own: counting words for a vocabulary, building the corpus with one process, and planning an epoch, for which
there is no prediction. Predictions of time and disk are those of the formula (corpus_costs.py).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.inputs.texts import read_documents
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from lab.benchmarks import idle
from lab.benchmarks.corpus_costs import PIECES, SAMPLE_WORDS, costs_of, measured_rates
from lab.benchmarks.peak import peak_bytes
from lab.benchmarks.provenance import provenance
from lab.tables import corpus_scale
from tokenization.train_wordpiece import count_words, train_wordpiece

RECORD = Path(__file__).parents[1] / "records" / "corpus_scale.json"
SCALES = (1, 10, 100)
PARTS = ("vocabulary", "corpus", "epoch")
LENGTH = 128
SENTENCES = 20_000  # that are made at once
_LETTERS = np.array([*"etaoinshrdlucmfwypvbgkjqxz"])


def _word(rank: int) -> str:
    letters = []
    while True:
        rank, letter = divmod(rank, 26)
        letters.append(_LETTERS[letter])
        if not rank:
            return "".join(letters)


def documents(words: int, seed: int = 0) -> Iterator[list[str]]:
    """Documents of 1 to 39 sentences of 8 to 30 words, until there are so many words."""
    draw = np.random.default_rng(seed)
    known: dict[int, str] = {}
    while words > 0:
        counts = draw.integers(8, 31, SENTENCES)
        ranks = np.minimum(draw.zipf(1.15, int(counts.sum())), 26**7).tolist()
        for rank in set(ranks) - known.keys():
            known[rank] = _word(rank)
        text = iter([known[rank] for rank in ranks])
        lines = [" ".join(next(text) for _ in range(count)) + "." for count in counts.tolist()]
        start = 0
        while start < len(lines) and words > 0:
            size = int(draw.integers(1, 40))
            yield lines[start : start + size]
            words -= int(counts[start : start + size].sum())
            start += size


def write_text(path: Path, words: int) -> int:
    """Write a text of so many words or a few more; returns how many."""
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        for document in documents(words):
            written += sum(line.count(" ") + 1 for line in document)
            file.write("\n".join(document) + "\n\n")
    return written


def done(part: str, folder: Path) -> dict[str, Any]:
    """Do one part in this process; returns the seconds and the peak of its memory."""
    text, target = folder / "text.txt", folder / "corpus"
    tokenizer = AutoTokenizer.from_pretrained(folder.parent / "vocabulary")
    started = time.perf_counter()
    if part == "vocabulary":
        count_words(line for document in read_documents([text]) for line in document)
    elif part == "corpus":
        build_corpus([text], tokenizer, target)
    else:
        settings = InstanceSettings(seed=1, max_seq_length=LENGTH)
        PretrainingInstances(Corpus.open(target, verify=False), tokenizer, settings).batch(0, 64)
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 3), "bytes": peak_bytes()}


def main() -> None:
    """Measure, print the table and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=100_000, help="words of the smallest text (100000)")
    parser.add_argument("--smoke", action="store_true", help="write no record")
    parser.add_argument("--part", nargs=2, metavar=("PART", "FOLDER"), help=argparse.SUPPRESS)
    idle.add_flag(parser)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(done(args.part[0], Path(args.part[1]))))
        return
    record = provenance("lab/benchmarks/corpus_scale.py", device="cpu")
    record |= idle.demand_idle_cores(args.busy or args.smoke)
    sample = list(documents(SAMPLE_WORDS, seed=1))
    rates = measured_rates(sample)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        lines = (line for document in sample for line in document)
        train_wordpiece(lines, PIECES, output_dir=Path(name, "vocabulary"), progress=False)
        for scale in SCALES:
            folder = Path(name, str(scale))
            folder.mkdir()
            words = write_text(folder / "text.txt", args.words * scale)
            costs = costs_of(words, rates, vocab_size=PIECES)
            for part in PARTS:
                command = [sys.executable, __file__, "--part", part, str(folder)]
                took = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
                rows.append({"part": part, "scale": scale, "words": words, **took})
                if part != "epoch":
                    rows[-1]["predicted_seconds"] = round(getattr(costs, f"{part}_seconds"), 6)
            disk = sum(file.stat().st_size for file in (folder / "corpus").glob("shard-*/*.bin"))
            rows[-2] |= {"disk": disk, "predicted_disk": round(costs.corpus_bytes)}
    record |= {"rates": rates._asdict(), "results": rows}
    print(corpus_scale(record))
    if not args.smoke:
        write_json(RECORD, record)


if __name__ == "__main__":
    main()
