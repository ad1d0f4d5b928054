#!/usr/bin/env python3
"""A task of long texts for run_glue.py --long_texts: which of six novels is a passage from?

    BERT_REPRO_DATA=data python lab/long_texts.py --output runs/novels
    python run_glue.py --model_name_or_path runs/base --train_file runs/novels/train.csv \
        --validation_file runs/novels/dev.csv --long_texts windows --output_dir runs/novels_windows

The file text/books.txt.xz has novels one after the other, in documents of about a chapter, without their titles. Of
each sixth of the file, the three documents in a row with the most words stand for a novel. A passage is a run of
--words words, so that names and style, the evidence, are anywhere in it. Passages do not overlap. The first of a novel
are for training and its last ones for validation, with a gap between them, so that no page is in both.
"""

import argparse
import csv
import lzma
import os
from collections.abc import Iterator
from pathlib import Path

NOVELS, DOCUMENTS = 6, 3


def novels(path: Path) -> Iterator[list[str]]:
    """The words of each novel's documents."""
    text = lzma.decompress(path.read_bytes()).decode()
    documents = [part.split() for part in text.split("\n\n") if part.strip()]
    distance = len(documents) // NOVELS
    for first in range(0, NOVELS * distance, distance):
        stretches = [documents[start : start + DOCUMENTS] for start in range(first, first + distance - DOCUMENTS)]
        yield [word for document in max(stretches, key=lambda stretch: sum(map(len, stretch))) for word in document]


def passages(words: list[str], size: int, train: int, dev: int) -> dict[str, list[str]]:
    """The first and the last passages of a novel. Raises SystemExit if they would meet."""
    every = [" ".join(words[start : start + size]) for start in range(0, len(words) - size + 1, size)]
    if len(every) <= train + dev:
        raise SystemExit(f"expected more than {train + dev} passages in every novel, got {len(every)}; lower --words")
    return {"train": every[:train], "dev": every[-dev:]}


def main() -> None:
    """Write train.csv and dev.csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="The folder to write to.")
    parser.add_argument("--words", type=int, default=700, help="Words of a passage.")
    parser.add_argument("--train", type=int, default=20, help="Passages of each novel for training.")
    parser.add_argument("--dev", type=int, default=10, help="Passages of each novel for validation.")
    args = parser.parse_args()
    books = Path(os.environ.get("BERT_REPRO_DATA", ""), "text", "books.txt.xz")
    if not books.is_file():
        raise SystemExit(f"expected the novels in {books}; set BERT_REPRO_DATA")
    args.output.mkdir(parents=True, exist_ok=True)
    found = [passages(words, args.words, args.train, args.dev) for words in novels(books)]
    for split in ("train", "dev"):
        with open(args.output / f"{split}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows((text, f"novel{n}") for n, texts in enumerate(found, 1) for text in texts[split])


if __name__ == "__main__":
    main()
