"""Names in texts with spans and in tagged words: run_ner.py beside transformers' class and Trainer, over five seeds.

    BERT_REPRO_DATA=DIR python lab/benchmarks/names.py --model MODEL

Restaurant8k has texts with spans of characters, WNUT 2017 has words with tags. Both sides begin with the same weights,
read the same words, and have the same batches, epochs, learning rate and warm-up. The other side is what a user of
transformers writes: each word in pieces, labels at first pieces, rows padded to the longest of a batch. seqeval scores
the test data of both. Few training examples and epochs keep it short on a processor; the record says how many.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks.ner.sources import NerData, load_data
from bert_training.tasks.ner.tagged_text import Split
from lab.benchmarks.provenance import ROOT, provenance
from lab.benchmarks.whole_run_programs import make_trainer

RECORD = ROOT / "lab" / "records" / "names.json"
NEVER = "1000000000"  # steps between two evaluations, so that there is one, after the training
EXAMPLES, TESTED, EPOCHS, BATCH, RATE, LENGTH = 800, 1000, 3, 32, 3e-4, 128


def restaurant8k(source: Path, target: Path, count: int) -> str:
    """Write texts of a file of Restaurant8k, drawn at random, as JSON lines with spans.

    The few texts with overlapping spans are left out.
    """
    rows = json.loads(source.read_text(encoding="utf-8"))
    rows = random.Random(0).sample(rows, min(count, len(rows)))
    with open(target, "w", encoding="utf-8") as file:
        for row in rows:
            found = [(one["valueSpan"], one["slot"]) for one in row.get("labels", ())]
            spans = sorted([place.get("startIndex", 0), place["endIndex"], slot] for place, slot in found)
            if all(one[1] <= other[0] for one, other in pairwise(spans)):
                file.write(json.dumps({"text": row["userInput"]["text"], "label": spans}) + "\n")
    return str(target)


def wnut17(source: Path, target: Path, count: int) -> str:
    """Write sentences of a file of WNUT 2017, drawn at random: to train on, of those with a name.

    Some words of the test data have several tags, of which the first counts.
    """
    found = source.read_text(encoding="utf-8").replace("\n\t\n", "\n\n").strip().split("\n\n")
    found = [sentence for sentence in found if "train" not in source.name or "\tB-" in sentence]
    lines = "\n\n".join(random.Random(0).sample(found, min(count, len(found)))).splitlines()
    target.write_text("".join(line.partition(",B-")[0].partition(",I-")[0] + "\n" for line in lines), "utf-8")
    return str(target)


def sources(data: Path, folder: Path, count: int) -> dict[str, tuple[str, str]]:
    """The files to train on and to be scored on, of both data sets."""
    train, test = folder / "train.jsonl", folder / "test.jsonl"
    spans = restaurant8k(data / "restaurant8k_train_0.json", train, count)
    words = wnut17(data / "wnut17train.conll", folder / "train.conll", count)
    return {
        "Restaurant8k": (spans, restaurant8k(data / "restaurant8k_test.json", test, TESTED)),
        "WNUT 2017": (words, wnut17(data / "emerging.test.conll", folder / "test.conll", TESTED)),
    }


def ours(flags: list[str], folder: Path, seeds: int) -> "subprocess.Popen[bytes]":
    """run_ner.py for every seed, started."""
    command = [sys.executable, str(ROOT / "run_ner.py"), *flags, "--seeds", str(seeds), "--output_dir", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def scores_of(run: "subprocess.Popen[bytes]", folder: Path) -> list[float]:
    """F1 of every seed of a series, when it is done."""
    if run.wait():
        raise SystemExit(f"run_ner.py ended with status {run.returncode}")
    results = sorted(folder.glob("seed-*/all_results.json"))
    return [json.loads(path.read_text(encoding="utf-8"))["eval_f1"] for path in results]


def control(data: NerData, model: str, folder: Path, seed: int) -> float:
    """F1 of transformers' own class and Trainer on the words of ``data``."""
    from seqeval.metrics import f1_score
    from transformers import (
        AutoTokenizer,
        BertForTokenClassification,
        DataCollatorForTokenClassification,
        set_seed,
    )

    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = {name: rows_of(part, tokenizer, data.label_names) for name, part in data.splits.items()}
    set_seed(seed)
    network = BertForTokenClassification.from_pretrained(model, num_labels=len(data.label_names))
    run = {"output": str(folder), "epochs": EPOCHS, "batch": BATCH, "learning_rate": RATE, "max_steps": -1}
    run |= {"seed": seed, "bf16": True, "marked": True}
    trainer = make_trainer(run, network, tokenizer, rows, DataCollatorForTokenClassification(tokenizer), None)
    trainer.train()
    outcome, test = trainer.predict(rows["validation"]), data.splits["validation"]
    guessed = []
    for scores, labels, sentence in zip(outcome.predictions, outcome.label_ids, test.sentences):
        found = [data.label_names[number] for number in scores[labels != -100].argmax(-1)]
        guessed.append(found + ["O"] * (len(sentence.words) - len(found)))  # words beyond the length
    return float(f1_score([sentence.known_tags for sentence in test.sentences], guessed))


def rows_of(part: Split, tokenizer: Any, names: tuple[str, ...]) -> list[dict[str, list[int]]]:
    """A row for every sentence, with labels at the first pieces of its words."""
    rows = []
    for sentence in part.sentences:
        coded = tokenizer(sentence.words, is_split_into_words=True, truncation=True, max_length=LENGTH)
        words = coded.word_ids()
        first = [word is not None and word != before for before, word in zip([None, *words], words)]
        labels = [names.index(sentence.known_tags[word]) if begins else -100 for word, begins in zip(words, first)]
        rows.append({**coded, "labels": labels})
    return rows


def main() -> None:
    """Train and score both sides on both data sets, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the folder of a pre-trained BERT")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="training examples of each data set, drawn")
    parser.add_argument("--only", help="one of the data sets; the other keeps its part of the record")
    args = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    settings = {"epochs": EPOCHS, "batch": BATCH, "learning_rate": RATE, "max_seq_length": LENGTH}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        files = sources(Path(os.environ["BERT_REPRO_DATA"]) / "spans", folder, args.examples)
        for name, (train, test) in files.items():
            if args.only not in (None, name):
                continue
            flags = ["--model_name_or_path", args.model, "--train_file", train, "--validation_file", test]
            flags += ["--max_seq_length", str(LENGTH), "--num_train_epochs", str(EPOCHS), "--learning_rate", str(RATE)]
            flags += ["--per_device_train_batch_size", str(BATCH), "--mixed_precision", "bf16", "--context", "sentence"]
            flags += ["--eval_steps", NEVER, "--save_steps", "0", "--mixed_tags"]  # a few tags of WNUT break the scheme
            data = load_data(parse_arguments(NerArguments, [*flags, "--output_dir", place]))
            own = folder / name / "ours"
            run = ours(flags, own, args.seeds)  # at the same time as the other side, because scores are no times
            folders = [folder / name / f"control-{number}" for number in range(args.seeds)]
            others = [control(data, args.model, one, 42 + number) for number, one in enumerate(folders)]
            found = {"ours": scores_of(run, own), "transformers": others}
            counts = {split: len(part) for split, part in data.splits.items()}
            cut = {split: part.facts.get("cut_words", 0) for split, part in data.splits.items()}
            facts = {"examples": counts, "cut_words": cut, "settings": settings, "f1": found}
            record[name] = provenance("lab/benchmarks/names.py") | facts
            print(name, {side: f"{statistics.mean(scores):.4f}" for side, scores in found.items()}, flush=True)
            write_json(RECORD, record)


if __name__ == "__main__":
    main()
