"""Histograms of the lengths of fine-tuning data in tokens, from which benchmarks draw: results/lengths.json.

    BERT_REPRO_DATA=DIR python lab/benchmarks/lengths.py

DIR contains glue/MRPC, glue/SST-2, squad/*.json.xz and assets/uncased_vocab.txt. Lengths include [CLS] and [SEP]. GLUE
is cut at 128 tokens; SQuAD is read in windows of 384 tokens with a stride of 128. Only counts are stored, no text.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.tasks.classification.glue import GLUE_TASKS
from bert_training.tasks.classification.sources import official_files, read_examples
from bert_training.tasks.squad.questions import read_squad
from bert_training.tasks.squad.windows import build_windows
from lab.benchmarks.measuring import data_folder
from lab.benchmarks.provenance import provenance, sha256
from tokenization import build_tokenizer

RESULTS = Path(__file__).parents[1] / "records" / "lengths.json"
VOCAB = "assets/uncased_vocab.txt"
GLUE = {"mrpc": "MRPC", "sst2": "SST-2"}  # task: folder
SQUAD = {"train": "squad/train-v1.1.reconstructed.json.xz", "dev": "squad/dev-v1.1.json.xz"}


def histogram(lengths: Iterable[int], limit: int, source: Path) -> dict[str, Any]:
    """The counts of the lengths, and the share of real tokens if every row is padded to ``limit``.

    Args:
        source: the file that the lengths are of.
    """
    counts = Counter(lengths)
    total = sum(length * count for length, count in counts.items())
    return {
        "file": source.name,
        "sha256": sha256(source),
        "padded_to": limit,
        "share_of_real_tokens": round(total / (limit * sum(counts.values())), 4),
        "counts": {str(length): counts[length] for length in sorted(counts)},
    }


def glue_lengths(folder: Path, tokenizer: PreTrainedTokenizerBase, task: str, split: str) -> dict[str, Any]:
    """The histogram of a split of a GLUE task."""
    path = official_files(GLUE_TASKS[task], folder / "glue" / GLUE[task], with_test=False)[split]
    texts = read_examples(GLUE_TASKS[task], path, labelled=True).texts
    encoded = tokenizer(*texts, truncation="longest_first", max_length=128, return_attention_mask=False)
    return histogram((len(row) for row in encoded["input_ids"]), 128, path)


def squad_lengths(folder: Path, tokenizer: PreTrainedTokenizerBase, split: str) -> dict[str, Any]:
    """The histogram of the windows of a split of SQuAD 1.1."""
    path = folder / SQUAD[split]
    windows = build_windows(read_squad(path), tokenizer)
    return histogram((len(row) for row in windows.input_ids), 384, path)


def main() -> None:
    """The command."""
    folder = data_folder()
    record = provenance("lab/benchmarks/lengths.py") | {"vocabulary": VOCAB}
    tokenizer = build_tokenizer(folder / VOCAB)
    lengths = {
        "mrpc train": glue_lengths(folder, tokenizer, "mrpc", "train"),
        "mrpc dev": glue_lengths(folder, tokenizer, "mrpc", "validation"),
        "sst2 train": glue_lengths(folder, tokenizer, "sst2", "train"),
        "squad train": squad_lengths(folder, tokenizer, "train"),
        "squad dev": squad_lengths(folder, tokenizer, "dev"),
    }
    record["lengths"] = lengths
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, row in lengths.items():
        print(f"{name}: {sum(row['counts'].values())} rows, {row['share_of_real_tokens']:.1%} real tokens")


if __name__ == "__main__":
    main()
