"""Measure how fast SQuAD's windows, their cache and the post-processing are, and write the results as JSON.

    BERT_REPRO_DATA=DIR python lab/benchmarks/squad.py

DIR contains squad/{train-v1.1.reconstructed,dev-v1.1}.json.xz and assets/uncased_vocab.txt. The post-processing
searches random logits, which take longer than those of a trained model, because the n best spans are anywhere.

windows     reading the training file, tokenising it and cutting it at 384/128/64; peak memory of the process
cache       writing the same windows and reading them back
answers     n-best spans of the development questions, with both alignments; and the official score

Wall times depend on the load of the machine; CPU times, which are those of the process and its threads, hardly do.
"""

import functools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.tasks.squad.answers import aligner, find_answers
from bert_training.tasks.squad.questions import read_squad
from bert_training.tasks.squad.window_cache import cached_windows, fingerprint
from bert_training.tasks.squad.windows import build_windows
from lab.benchmarks.measuring import data_folder, measure, peak_megabytes
from lab.benchmarks.provenance import provenance
from tokenization import build_tokenizer

RESULTS = Path(__file__).parents[1] / "records" / "squad.json"
LENGTHS = (384, 128, 64)  # max_seq_length, doc_stride, max_query_length: the paper's and google-research/bert's


def bench_windows(path: Path, tokenizer: PreTrainedTokenizerBase, scratch: Path) -> dict[str, Any]:
    """Reading, cutting and caching the questions of a file."""
    before = peak_megabytes()
    questions, reading = measure(lambda: read_squad(path))
    windows, building = measure(lambda: build_windows(questions, tokenizer, *LENGTHS, with_answers=True))
    results = {"questions": len(questions), "windows": len(windows), "read": reading, "build": building}
    results["peak_rss_mb"] = {"before": before, "after": peak_megabytes()}
    del windows
    _, hashing = measure(lambda: fingerprint(questions, tokenizer, LENGTHS, True))
    cached_windows(scratch, questions, tokenizer, *LENGTHS, with_answers=True)
    (windows, origin), loading = measure(
        lambda: cached_windows(scratch, questions, tokenizer, *LENGTHS, with_answers=True)
    )
    assert origin == "read" and len(windows) == results["windows"]
    size = round(sum(file.stat().st_size for file in scratch.iterdir()) / 1e6)
    return results | {"cache": {"fingerprint": hashing, "read_with_fingerprint": loading, "megabytes": size}}


def bench_answers(path: Path, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Searching and scoring the answers to the questions of a file, from random logits."""
    questions = read_squad(path)
    windows = build_windows(questions, tokenizer, *LENGTHS)
    rng = np.random.default_rng(0)
    start_logits = [rng.normal(size=len(ids)).astype(np.float32) for ids in windows.input_ids]
    end_logits = [rng.normal(size=len(ids)).astype(np.float32) for ids in windows.input_ids]
    results: dict[str, Any] = {"questions": len(questions), "windows": len(windows)}
    for name in ("offsets", "google"):
        realign = aligner(name, tokenizer)
        search = functools.partial(find_answers, questions, windows, start_logits, end_logits, realign=realign)
        answers, results[name] = measure(search)
    _, results["score"] = measure(lambda: answers.score(questions))
    return results


def main() -> None:
    """The command."""
    folder = data_folder()
    squad = folder / "squad"
    tokenizer = build_tokenizer(folder / "assets" / "uncased_vocab.txt")
    results: dict[str, Any] = provenance("lab/benchmarks/squad.py")
    with tempfile.TemporaryDirectory() as scratch:
        path = squad / "train-v1.1.reconstructed.json.xz"
        results["train"] = bench_windows(path, tokenizer, Path(scratch))
    results["dev"] = bench_answers(squad / "dev-v1.1.json.xz", tokenizer)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
