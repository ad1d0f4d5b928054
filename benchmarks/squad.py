"""How fast are SQuAD's windows, their cache and the post-processing? The results are written as JSON.

    BERT_REPRO_DATA=DIR python benchmarks/squad.py

DIR contains squad/{train-v1.1.reconstructed,dev-v1.1}.json.xz and assets/uncased_vocab.txt. The post-processing
searches random logits, which take longer than those of a trained model, because the n best spans are anywhere.

windows     reading the training file, tokenising it and cutting it at 384/128/64; peak memory of the process
cache       writing the same windows and reading them back
answers     n-best spans of the development questions, with both alignments; and the official score

Wall times depend on the load of the machine; CPU times, of the process and its threads, hardly do.
"""

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.provenance import provenance
from tokenization import build_tokenizer
from training.tasks.squad.answers import aligner, find_answers
from training.tasks.squad.questions import read_squad
from training.tasks.squad.window_cache import cached_windows, fingerprint
from training.tasks.squad.windows import build_windows

RESULTS = Path(__file__).parent / "results" / "squad.json"
LENGTHS = (384, 128, 64)


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of `work`, and the wall and CPU seconds of this process."""
    wall, used = time.perf_counter(), time.process_time()
    result = work()
    return result, {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(time.process_time() - used, 2)}


def peak_mb() -> int:
    """The peak resident memory of this process in megabytes."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def bench_windows(path: Path, tokenizer: PreTrainedTokenizerBase, scratch: Path) -> dict[str, Any]:
    """Reading, cutting and caching the questions of a file."""
    before = peak_mb()
    questions, reading = measured(lambda: read_squad(path))
    windows, building = measured(lambda: build_windows(questions, tokenizer, *LENGTHS, with_answers=True))
    results = {"questions": len(questions), "windows": len(windows), "read": reading, "build": building}
    results["peak_rss_mb"] = {"before": before, "after": peak_mb()}
    del windows
    _, hashing = measured(lambda: fingerprint(questions, tokenizer, LENGTHS, True))
    cached_windows(scratch, questions, tokenizer, *LENGTHS, with_answers=True)
    (windows, origin), loading = measured(
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
    logits = [[rng.normal(size=len(ids)).astype(np.float32) for ids in windows.input_ids] for _ in ("start", "end")]
    results: dict[str, Any] = {"questions": len(questions), "windows": len(windows)}
    for name in ("offsets", "google"):
        realign = aligner(name, tokenizer)
        answers, results[name] = measured(lambda r=realign: find_answers(questions, windows, *logits, realign=r))
    _, results["score"] = measured(lambda: answers.score(questions))
    return results


def main() -> None:
    """The command."""
    folder = os.environ.get("BERT_REPRO_DATA")
    if not folder:
        raise SystemExit("BERT_REPRO_DATA is not set: expected the folder of the data sets")
    squad = Path(folder) / "squad"
    tokenizer = build_tokenizer(Path(folder) / "assets" / "uncased_vocab.txt")
    results: dict[str, Any] = provenance("benchmarks/squad.py")
    with tempfile.TemporaryDirectory() as scratch:
        path = squad / "train-v1.1.reconstructed.json.xz"
        results["train"] = bench_windows(path, tokenizer, Path(scratch))
    results["dev"] = bench_answers(squad / "dev-v1.1.json.xz", tokenizer)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
