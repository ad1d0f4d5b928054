"""How many requests the service answers beside a loop over transformers' ``pipeline()``.

    python lab/benchmarks/service.py --model CLASSIFIER --texts glue/SST-2/dev.tsv --export EXPORTED

CLASSIFIER is a folder of run_glue.py, EXPORTED what ``bert-repro export --quantize`` made of it. The
pipeline and the service, started in several ways, take turns with the same texts: the pipeline one text after another,
the service from a number of clients at the same time. Each answer is compared with that of the pipeline.
The record is lab/records/service.json; --record writes another file.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks.idle import add_flag, demand_idle_cores
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "service.json"
EXACT, ROUNDED = 1e-5, 0.05  # by which a probability may differ from that of the pipeline
# Of each way to start the service: flags, whether it serves the export, and that tolerance.
WAYS: dict[str, tuple[list[str], bool, float]] = {
    "one text at a time": (["--batch_size", "1"], False, EXACT),
    "batches": ([], False, EXACT),
    "batches, bfloat16": (["--dtype", "bfloat16"], False, ROUNDED),
    "batches, onnxruntime": (["--backend", "onnx"], True, ROUNDED),
}
START_SECONDS = 300


class Service:
    """A service in a process of its own."""

    def __init__(self, folder: Path, flags: Sequence[str]) -> None:
        command = [sys.executable, "-m", "bert_training", "serve", str(folder), "--port", "0", *flags]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_environment()
        )
        assert self.process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", self.process.stdout.readline())
        if address is None:
            raise SystemExit(f"the service did not start: {' '.join(command)}")
        self.port = int(address[1])
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"the service does not answer: {' '.join(command)}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        address = f"http://127.0.0.1:{self.port}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as response:
            return bool(response.status == 200)
        return False

    def stop(self) -> None:
        """End the service, and wait for its end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def _environment() -> dict[str, str]:
    # The benchmark's own threads are set by the first import of torch; the service finds its cores itself.
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def main(argv: list[str] | None = None) -> None:
    """Measure, and add what was measured to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a finished classifier of single texts")
    parser.add_argument("--texts", type=Path, required=True, help="a file of SST-2: a heading, then text<tab>label")
    parser.add_argument("--export", type=Path, help="what bert-repro export made of the classifier")
    parser.add_argument("--ways", nargs="+", choices=[*WAYS], help="default: all that can be started")
    parser.add_argument("--requests", type=int, default=1500, help="of each turn (1500)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (3)")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--record", type=Path, default=RECORD)
    add_flag(parser)
    args = parser.parse_args(argv)
    facts = demand_idle_cores(args.busy) | provenance("lab/benchmarks/service.py", argv)
    texts = [line.rpartition("\t")[0] for line in args.texts.read_text(encoding="utf-8").splitlines()[1:]]
    with tempfile.TemporaryDirectory() as folder:
        write_json(args.record, facts | speed(args, texts, Path(folder)))


def speed(args: argparse.Namespace, texts: list[str], folder: Path) -> dict[str, Any]:
    """The pipeline and the ways to start the service, in turns."""
    classify, expected = _pipeline(args.model, texts, folder)
    ways = args.ways or [name for name, (_, exported, _) in WAYS.items() if not exported or args.export]
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    loop: list[float] = []
    with contextlib.ExitStack() as stack:
        services = {}
        for name in ways:
            flags, exported, _ = WAYS[name]
            services[name] = service = Service(args.export if exported else args.model, flags)
            stack.callback(service.stop)
            _load(service, folder, 64, args.clients, ROUNDED)  # the first batches are slower
        for number in range(args.rounds):
            began = time.perf_counter()
            for place in range(args.requests):
                classify(texts[place % len(texts)])
            loop.append(args.requests / (time.perf_counter() - began))
            print(f"round {number + 1}: pipeline {loop[-1]:.1f} texts a second", flush=True)
            for name, service in services.items():
                found = _load(service, folder, args.requests, args.clients, WAYS[name][2], expected)
                turns[name].append(found | {"ratio": found["requests_per_s"] / loop[-1]})
                print(f"round {number + 1}: {name}: {turns[name][-1]}", flush=True)
    rows = [{"way": name, "flags": " ".join(WAYS[name][0]), **_middle(found)} for name, found in turns.items()]
    return {
        "model": args.model.name,
        "texts": args.texts.parent.name,
        "clients": args.clients,
        "requests": args.requests,
        "pipeline_per_s": round(statistics.median(loop), 1),
        "pipeline_range": [round(min(loop), 1), round(max(loop), 1)],
        "results": rows,
    }


def _middle(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians over the turns, and the range of the ratio."""
    ratios = [turn["ratio"] for turn in turns]
    names = ("ratio", "requests_per_s", "p50_ms", "p99_ms", "client_share_of_a_core", "client_ms_per_request")
    middle = {name: round(statistics.median(turn[name] for turn in turns), 3) for name in names}
    return middle | {
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "other_answers": sum(turn["wrong"] for turn in turns),
        "answers": sum(turn["requests"] for turn in turns),
    }


def _pipeline(model: Path, texts: list[str], folder: Path) -> tuple[Any, Path]:
    """transformers' pipeline, and a file of what it says of each text, as the service answers."""
    from transformers import pipeline

    classify = pipeline("text-classification", str(model))
    expected = []
    for text in texts:
        shares = {one["label"]: round(one["score"], 6) for one in classify(text, top_k=None)}
        expected.append({"answers": [{"label": max(shares, key=lambda name: shares[name]), "probabilities": shares}]})
    (folder / "bodies.json").write_text(json.dumps([{"text": text} for text in texts]), encoding="utf-8")
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")
    return classify, folder / "expected.json"


def _load(
    service: Service, folder: Path, requests: int, clients: int, tolerance: float, expected: Path | None = None
) -> dict[str, Any]:
    """What ``load.py`` says of a number of requests."""
    words = [sys.executable, ROOT / "lab/benchmarks/load.py", service.port, folder / "bodies.json"]
    words += ["--requests", requests, "--clients", clients, "--tolerance", tolerance]
    words += ["--expected", expected] if expected else []
    found = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"the load ended with {found.returncode}: {found.stderr[-500:]}")
    return dict(json.loads(found.stdout))


if __name__ == "__main__":
    main()
