"""Measure how fast the pre-training data is: the builder, the plan and the batches. The results are written as JSON.

    python lab/benchmarks/pretraining_data.py --train_file wiki.txt.xz books.txt.xz --vocab uncased_vocab.txt
    python lab/benchmarks/pretraining_data.py ... --part memory --repeat 10     # a corpus ten times as large

builder  build_corpus, end to end, against the bare `encode_batch_fast` of the same text on the same cores
plan     time and bytes of an epoch's plan per million sentences
batches  finished batches per core, against transformers' DataCollatorForLanguageModeling, which only masks
memory   peak resident memory of the builder and of the plan for a text that is repeated

Wall times depend on the load of the machine; CPU times, of the process and its workers, hardly do.
"""

import argparse
import functools
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
import torch
from transformers import BertTokenizer, DataCollatorForLanguageModeling

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.pretraining.build_corpus import Corpus, build_corpus
from bert_training.pretraining.documents import read_documents
from bert_training.pretraining.encoding import load_backend
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from lab.benchmarks.measuring import measure, peak_megabytes
from lab.benchmarks.provenance import provenance
from tokenization.fingerprint import tokenizer_json

PARTS = ("builder", "plan", "batches", "memory")


def bare_encoding(lines: list[str], tokenizer: BertTokenizer) -> int:
    """Encode `lines` with the tokenizers library alone, on all cores, and return the number of tokens."""
    backend = load_backend(tokenizer_json(tokenizer))
    count = 0
    for start in range(0, len(lines), 2000):
        encodings = backend.encode_batch_fast(lines[start : start + 2000], add_special_tokens=False)
        count += sum(map(len, encodings))
    return count


def bench_builder(files: list[Path], tokenizer: BertTokenizer, workers: int, folder: Path) -> dict[str, Any]:
    """The time to build the corpus, compared with that of the bare tokenizer."""
    lines = [line for document in read_documents(files) for line in document]
    tokens, bare = measure(lambda: bare_encoding(lines, tokenizer))
    corpus, ours = measure(lambda: build_corpus(files, tokenizer, folder / "corpus", workers))
    return {
        "workers": workers,
        "text": corpus.manifest["counts"],
        "bare_encode_batch": bare | {"tokens_per_s": round(tokens / bare["wall_s"])},
        "build_corpus": ours | {"tokens_per_s": round(corpus.num_tokens / ours["wall_s"])},
        "ratio_wall": round(bare["wall_s"] / ours["wall_s"], 3),
        "ratio_cpu": round(bare["cpu_s"] / ours["cpu_s"], 3),
    }


def bench_plan(corpus: Corpus, tokenizer: BertTokenizer) -> dict[str, Any]:
    """Time and bytes of the plan of an epoch."""
    millions = corpus.num_sentences / 1e6
    results: dict[str, Any] = {"sentences": corpus.num_sentences}
    for objective in ("mlm_nsp", "mlm"):
        for length in (128, 512):
            settings = InstanceSettings(seed=0, max_seq_length=length, objective=objective)
            instances, opening = measure(functools.partial(PretrainingInstances, corpus, tokenizer, settings))
            plan, planning = measure(functools.partial(instances.plan, 0))
            order, ordering = measure(functools.partial(instances.order, 0))
            columns = (plan.a_start, plan.a_length, plan.b_start, plan.b_length, plan.label, order)
            results[f"{objective}_{length}"] = {
                "instances": len(plan),
                "is_next": round(1 - float(plan.label.mean()), 4),
                "open_cpu_s": opening["cpu_s"],
                "plan_cpu_s_per_million": round((planning["cpu_s"] + ordering["cpu_s"]) / millions, 3),
                "plan_mb_per_million": round(sum(column.nbytes for column in columns) / 1e6 / millions, 2),
            }
    return results


BATCH_SIZE = 256
KINDS = {
    "mlm_nsp": {},
    "mlm_nsp_whole_word": {"whole_word_mask": True},
    "mlm": {"objective": "mlm"},
    "ltr": {"objective": "ltr"},
}


def bench_batches(corpus: Corpus, tokenizer: BertTokenizer) -> dict[str, Any]:
    """Million tokens per second and core in finished batches."""
    results: dict[str, Any] = {"batch_size": BATCH_SIZE}
    for length in (128, 512):
        for name, changes in KINDS.items():
            settings = InstanceSettings(seed=0, max_seq_length=length, **changes)
            instances = PretrainingInstances(corpus, tokenizer, settings)
            instances.order(0)  # otherwise the first batch would compute it
            results[f"{name}_{length}"] = token_rate(functools.partial(batch_of, instances), length)
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
        rows = [
            {"input_ids": row, "special_tokens_mask": np.isin(row, tokenizer.all_special_ids).astype(np.int64)}
            for row in np.random.default_rng(0).integers(5, len(tokenizer), (BATCH_SIZE, length))
        ]
        collate = functools.partial(collate_rows, collator, rows)
        results[f"transformers_collator_masks_only_{length}"] = token_rate(collate, length)
    return {"million_tokens_per_s_and_core": results}


def batch_of(instances: PretrainingInstances, number: int) -> dict[str, torch.Tensor]:
    """A batch of the first epoch by its number; after the last whole batch follows the first one again."""
    start = number % (instances.epoch_size(0) // BATCH_SIZE) * BATCH_SIZE
    return instances.batch(start, start + BATCH_SIZE)


def collate_rows(collator: DataCollatorForLanguageModeling, rows: list[dict], number: int) -> dict[str, torch.Tensor]:
    """The rows with new masks, whatever the number of the batch."""
    return collator(rows)


def token_rate(make_batch: Callable[[int], dict[str, torch.Tensor]], length: int) -> float:
    """Million tokens per CPU second in batches of `BATCH_SIZE` rows of `length` tokens; the first batch is not counted.

    Args:
        make_batch: makes a batch from its number.
    """
    make_batch(0)
    count, start = 40, time.process_time()
    for number in range(count):
        make_batch(number)
    return round(count * BATCH_SIZE * length / (time.process_time() - start) / 1e6, 2)


def bench_memory(
    files: list[Path], tokenizer: BertTokenizer, workers: int, repeat: int, folder: Path
) -> dict[str, Any]:
    """Peak memory of building and planning a text that is repeated ``repeat`` times."""
    before = peak_megabytes()
    corpus, building = measure(lambda: build_corpus(files * repeat, tokenizer, folder / "large", workers))
    after_build, largest_child = peak_megabytes(), peak_megabytes(resource.RUSAGE_CHILDREN)
    settings = InstanceSettings(seed=0, max_seq_length=128)
    order, planning = measure(lambda: PretrainingInstances(corpus, tokenizer, settings).order(0))
    return {
        "repeat": repeat,
        "text": corpus.manifest["counts"],
        "build": building,
        "plan": planning | {"instances": len(order)},
        "peak_rss_mb": {
            "before": before,
            "after_build": after_build,
            "largest_child": largest_child,
            "after_plan": peak_megabytes(),
        },
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", type=Path, nargs="+", required=True)
    parser.add_argument("--vocab", type=str, required=True, help="the file vocab.txt")
    parser.add_argument("--part", choices=PARTS, nargs="+", default=PARTS[:3], help="default: all but memory")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that build the corpus")
    parser.add_argument("--repeat", type=int, default=10, help="for the part memory: how often the text is repeated")
    parser.add_argument("--output", type=Path, default=Path("lab/records/pretraining_data.json"))
    args = parser.parse_args()

    torch.set_num_threads(1)
    tokenizer = BertTokenizer(vocab=args.vocab)
    results = json.loads(args.output.read_text(encoding="utf-8")) if args.output.exists() else {}
    origin = provenance("lab/benchmarks/pretraining_data.py")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if "memory" in args.part:  # measured first, because the peak of a process never falls
            results["memory"] = origin | bench_memory(args.train_file, tokenizer, args.workers, args.repeat, folder)
        if "builder" in args.part:
            results["builder"] = origin | bench_builder(args.train_file, tokenizer, args.workers, folder)
        if {"plan", "batches"} & set(args.part):
            corpus = build_corpus(args.train_file, tokenizer, folder / "corpus", args.workers)
            for name, bench in (("plan", bench_plan), ("batches", bench_batches)):
                if name in args.part:
                    results[name] = origin | bench(corpus, tokenizer)
    if all("sources" in part for name, part in results.items() if name != "machine"):
        results.pop("machine", None)  # older records name the machine once for all parts; now each part names its own
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
