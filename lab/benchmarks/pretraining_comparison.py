"""Compare pre-training runs of one vocabulary: masked-LM loss on the same held-out instances.

    python lab/benchmarks/pretraining_comparison.py runs/base runs/mlm runs/wwm runs/phases runs/long

A run evaluates instances of its own kind: pairs or packed text, single pieces or whole words masked, 128 or 512 tokens.
The losses of different kinds cannot be compared. Here every network predicts all kinds, in float32 without dropout, on
the held-out corpus of the first run. The record is written to results/pretraining_comparison.json.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch.nn import functional as F
from transformers import AutoTokenizer, logging

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.engine.batches import IGNORED
from bert_training.files.atomic import write_json
from bert_training.networks.initial_weights import load_network
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from lab.benchmarks.provenance import provenance
from modeling_bert_repro import BertForMaskedLM

RESULTS = Path(__file__).parents[1] / "records" / "pretraining_comparison.json"
KINDS = {
    "pairs of 128": InstanceSettings(seed=0, fixed=True, objective="mlm_nsp", max_seq_length=128),
    "packed, 128": InstanceSettings(seed=0, fixed=True, objective="mlm", max_seq_length=128),
    "packed, 128, whole words": InstanceSettings(
        seed=0, fixed=True, objective="mlm", max_seq_length=128, whole_word_mask=True
    ),
    "packed, 512": InstanceSettings(seed=0, fixed=True, objective="mlm", max_seq_length=512),
}


@torch.inference_mode()
def masked_loss(model: BertForMaskedLM, batches: Iterable[dict[str, torch.Tensor]]) -> tuple[float, int]:
    """The mean loss per prediction in nats, and the number of predictions."""
    total, count = 0.0, 0
    for batch in batches:
        labels = batch["labels"]
        inputs = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
        logits = model(**inputs).logits[labels != IGNORED]
        total += float(F.cross_entropy(logits, labels[labels != IGNORED], reduction="sum"))
        count += len(logits)
    return total / count, count


def batches(instances: PretrainingInstances, positions: int) -> Iterable[dict[str, torch.Tensor]]:
    """Yield as many instances as contain `positions` tokens, at most one epoch."""
    count = min(positions // instances.settings.max_seq_length, instances.epoch_size(0))
    for start in range(0, count, 16):
        yield instances.batch(start, min(start + 16, count))


def settings_of(folder: Path) -> dict:
    """The settings of a run that the record contains."""
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    names = ("objective", "whole_word_mask", "phases", "max_seq_length", "per_device_train_batch_size", "seed")
    return {"commit": facts["commit"], "total_steps": facts["total_steps"]} | {
        name: facts["flags"][name] for name in names
    }


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="output folders of run_pretraining.py with the same tokenizer"
    )
    parser.add_argument("--positions", type=int, default=2048 * 128, help="held-out tokens of each kind")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the record to write")
    args = parser.parse_args(argv)
    logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(args.runs[0])
    corpus = Corpus.open(args.runs[0] / "corpus" / "validation", tokenizer)
    kinds = {name: PretrainingInstances(corpus, tokenizer, settings) for name, settings in KINDS.items()}
    record = {
        **provenance("lab/benchmarks/pretraining_comparison.py", [run.name for run in args.runs]),
        "threads": torch.get_num_threads(),
        "positions": args.positions,
        "unigram_entropy": Corpus.open(args.runs[0] / "corpus" / "train", tokenizer).unigram_entropy(),
        "runs": {},
    }
    print(f"| run | {' | '.join(KINDS)} |\n|---|{'---:|' * len(KINDS)}")
    for folder in args.runs:
        model = load_network(BertForMaskedLM, str(folder)).model.eval()
        losses, counts = {}, {}
        for kind, instances in kinds.items():
            losses[kind], counts[kind] = masked_loss(model, batches(instances, args.positions))
        record["runs"][folder.name] = settings_of(folder) | {"masked_loss": losses}
        record["predictions"] = counts
        print(f"| {folder.name} | {' | '.join(f'{loss:.3f}' for loss in losses.values())} |", flush=True)
        write_json(args.output, record)


if __name__ == "__main__":
    main()
