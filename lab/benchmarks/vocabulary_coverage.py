"""Measure how well vocabularies fit a text that they were not learned from: pieces per word, unknown and whole words.

    python lab/benchmarks/vocabulary_coverage.py --vocab ours=vocab-30522/vocab.txt google=uncased_vocab.txt \
        --text_file wiki_heldout.txt books_heldout.txt --output lab/records/vocabulary_coverage.json

Words are separated as in BERT, at spaces and punctuation; each punctuation mark is a word.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.hashing import sha256
from bert_training.files.text_files import read_texts
from lab.benchmarks.provenance import provenance
from tokenization import build_tokenizer


def coverage(tokenizer: transformers.BertTokenizer, texts: Iterable[str]) -> dict[str, float | int]:
    """Counts over all texts, and their ratios.

    Returns:
        words, pieces, pieces_per_word, unknown_share and whole_share (from 0 to 1, of the words) and rows_used (how
        many pieces of the vocabulary occur).
    """
    words = pieces = unknown = whole = 0
    used: set[int] = set()
    for text in texts:
        encoded = tokenizer(text, add_special_tokens=False, verbose=False)
        pieces_of_word = Counter(encoded.word_ids())
        words += len(pieces_of_word)
        pieces += len(encoded["input_ids"])
        unknown += encoded["input_ids"].count(tokenizer.unk_token_id)
        for token, word in zip(encoded["input_ids"], encoded.word_ids(), strict=True):
            whole += pieces_of_word[word] == 1 and token != tokenizer.unk_token_id
        used.update(encoded["input_ids"])
    return {
        "words": words,
        "pieces": pieces,
        "pieces_per_word": round(pieces / words, 4),
        "unknown_share": round(unknown / words, 6),
        "whole_share": round(whole / words, 4),
        "rows_used": len(used),
    }


def parse_arguments() -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--vocab", nargs="+", required=True, metavar="NAME=VOCAB.TXT", help="a name for the table, and the file"
    )
    parser.add_argument("--text_file", nargs="+", required=True, help="the texts, plain or packed")
    parser.add_argument("--cased", action="store_true", help="keep case and accents")
    parser.add_argument("--output", help="JSON file to write")
    args = parser.parse_args()
    if not all("=" in vocab for vocab in args.vocab):
        parser.error(f"--vocab: expected NAME=VOCAB.TXT, got {args.vocab}")
    return args


def main() -> None:
    """The command."""
    args = parse_arguments()
    vocabs = dict(vocab.split("=", 1) for vocab in args.vocab)
    rows = []
    for name, path in vocabs.items():
        tokenizer = build_tokenizer(path, do_lower_case=not args.cased)
        for file in args.text_file:
            row = {"vocab": name, "rows": len(tokenizer), "text": Path(file).name}
            rows.append(row | coverage(tokenizer, read_texts([file])))
            print(rows[-1])
    if args.output:
        checksums = {Path(file).name: sha256(Path(file)) for file in args.text_file}
        checksums |= {name: sha256(Path(path)) for name, path in vocabs.items()}
        record = provenance("lab/benchmarks/vocabulary_coverage.py") | {"sha256": checksums, "results": rows}
        Path(args.output).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
