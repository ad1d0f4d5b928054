"""Asking a finished classifier: ``bert-repro ask`` beside transformers' ``pipeline()``, and what each imports first.

    python lab/benchmarks/inference.py --model CLASSIFIER --texts glue/SST-2/dev.tsv

The ways take turns in one process, with 1 text at a time and with 1,000 texts at once, of real lengths; the imports
take turns in processes of their own. The record is lab/records/inference.json; --record writes another file.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks.idle import add_flag, demand_idle_cores
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "inference.json"
IMPORTS = {
    "transformers' pipeline": "from transformers import pipeline, AutoTokenizer, BertForSequenceClassification",
    "bert-repro ask": "import bert_deploy.ask",
    "bert-repro serve": "import bert_deploy.serve",
}
Ask = Callable[[list[str]], list[dict[str, float]]]


def main(argv: list[str] | None = None) -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a finished classifier of single texts")
    parser.add_argument("--texts", type=Path, required=True, help="a file of SST-2: a heading, then text<tab>label")
    parser.add_argument("--count", type=int, default=1000, help="texts that are asked at once (1000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path, default=RECORD)
    add_flag(parser)
    args = parser.parse_args(argv)
    facts = demand_idle_cores(args.busy) | provenance("lab/benchmarks/inference.py", argv, "cpu")
    lines = args.texts.read_text(encoding="utf-8").splitlines()[1:]
    texts = [lines[number % len(lines)].rpartition("\t")[0] for number in range(args.count)]
    write_json(args.record, facts | {"imports": imports(args.rounds)} | measured(args, texts))


def imports(rounds: int) -> list[dict[str, Any]]:
    """Seconds and modules of each import, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in IMPORTS}
    modules: dict[str, int] = {}
    for _ in range(rounds):
        for name, statement in IMPORTS.items():
            began = time.perf_counter()
            code = f"{statement}; import sys; print(len(sys.modules))"
            found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
            seconds[name].append(time.perf_counter() - began)
            modules[name] = int(found.stdout)
    return [
        {"what": name, "seconds": round(statistics.median(times), 2), "modules": modules[name]}
        for name, times in seconds.items()
    ]


def measured(args: argparse.Namespace, texts: list[str]) -> dict[str, Any]:
    """Texts a second of every way, in turns, and the largest difference of a probability from the first way."""
    ways = _ways(args.model)
    singly = texts[:100]
    speeds: dict[tuple[str, str], list[float]] = {}
    said: dict[str, list[dict[str, float]]] = {}
    for ask in ways.values():
        ask(texts[:20])
    for _ in range(args.rounds):
        for name, ask in ways.items():
            began = time.perf_counter()
            for text in singly:
                ask([text])
            middle = time.perf_counter()
            said[name] = ask(texts)
            speeds.setdefault((name, "1"), []).append(len(singly) / (middle - began))
            speeds.setdefault((name, str(len(texts))), []).append(len(texts) / (time.perf_counter() - middle))
    first, batched, *_ = ways
    rows = []
    for (name, count), found in speeds.items():
        ratios, batches = ([one / other for one, other in zip(found, speeds[way, count])] for way in (first, batched))
        pairs = [(one[label], other[label]) for one, other in zip(said[name], said[first]) for label in other]
        rows.append(
            {
                "way": name,
                "texts": int(count),
                "texts_per_s": round(statistics.median(found), 1),
                "ratio": round(statistics.median(ratios), 3),
                "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
                "ratio_to_batches": round(statistics.median(batches), 3),
                "ratio_to_batches_range": [round(min(batches), 3), round(max(batches), 3)],
                "largest_difference": float(f"{max(abs(one - other) for one, other in pairs):.1e}"),
                "same_class": sum(_best(one) == _best(other) for one, other in zip(said[name], said[first])),
                "compared": len(texts),
            }
        )
    return {"model": Path(args.model).name, "results": rows}


def _ways(model: str) -> dict[str, Ask]:
    from transformers import pipeline

    from bert_deploy import ask as command
    from bert_training.networks.number_types import compute_in_bfloat16

    classify = pipeline("text-classification", model)

    def piped(texts: list[str], **options: Any) -> list[dict[str, float]]:
        return [{one["label"]: one["score"] for one in found} for found in classify(texts, top_k=None, **options)]

    def own(opened: tuple[Any, Any]) -> Ask:
        return lambda texts: [record["probabilities"] for record in command.verdicts(*opened, texts)]

    rounded = command.load(model, command.BertForSequenceClassification)
    compute_in_bfloat16(rounded[0])
    return {
        "pipeline()": piped,
        "pipeline(), batches of 32": lambda texts: piped(texts, batch_size=32),
        "ours": own(command.load(model, command.BertForSequenceClassification)),
        "ours, bfloat16": own(rounded),
    }


def _best(shares: dict[str, float]) -> str:
    return max(shares, key=lambda name: shares[name])


if __name__ == "__main__":
    main()
