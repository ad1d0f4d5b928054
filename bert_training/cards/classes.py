"""What a model card says of the classes: their scores, who is taken for whom, and whether to believe probabilities.

Everything is read from all_results.json and ``confusion.json``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_training.cards.confusion import most_confused, picture_of, read_confusion
from bert_training.cards.markdown import plain
from bert_training.cards.model_usage import cuts_long_pairs, reads_long_texts
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN

BY_CLASS = "_by_class"
MOST_ROWS = 30  # of the table; of more classes those with the lowest F1
NAMES = {"eval": "validation", "test": "test"}
TEMPERATURE = """The probabilities are calibrated: before the softmax, `bert-repro` divides the logits by a temperature,
{temperature:.4g}, which was found on validation data. A plain pipeline does not divide them. Its labels are the same,
and this continues the program above with the same probabilities{short}:

```python
{program}
```"""
WITH_PIPELINE = """import torch

scores = classify({text}, truncation=True, max_length={length}, top_k=None, function_to_apply="none")
logits = torch.tensor([score["score"] for score in scores])
shares = torch.softmax(logits / {temperature!r}, dim=0)
print({{score["label"]: float(share) for score, share in zip(scores, shares)}})"""
OF_LONG_TEXTS = """shares = logits.div({temperature!r}).softmax(dim=-1)
print({{name: float(shares[number]) for number, name in model.config.id2label.items()}})"""
AT_THE_END = """shares = model(**inputs).logits[0, -1].div({temperature!r}).softmax(dim=0)
print({{name: float(shares[number]) for number, name in model.config.id2label.items()}})"""


def link_to(split: str) -> str:
    """The passage of a card that shows the picture of a split."""
    return f"\n\n![{split}: true and predicted classes]({picture_of(split)})"


def class_sections(folder: Path, metrics: Mapping[str, Any]) -> Iterator[str]:
    """For every split that was scored by class, its table and its picture or, of many classes, the worst confusions."""
    counts = read_confusion(folder)
    for kind, split in NAMES.items():
        if classes := metrics.get(kind + BY_CLASS):
            text = f"### By class, on {split} data\n\n{scores_table(classes)}"
            if (folder / picture_of(split)).exists():
                text += link_to(split)
            if pairs := most_confused(counts.get(split, {})):
                text += "\n\n| true class | taken for | rows | of |\n|---|---|---:|---:|"
                text += "".join(
                    f"\n| {plain(pair.name)} | {plain(pair.taken_for)} | {pair.wrong:,} | {pair.rows:,} |"
                    for pair in pairs
                )
            yield text


def scores_table(classes: Mapping[str, Mapping[str, float]]) -> str:
    """The scores by class in Markdown."""
    listed = list(classes.items())
    if len(listed) > MOST_ROWS:
        listed = sorted(listed, key=lambda one: one[1]["f1"])[:MOST_ROWS]
    lines = ["| class | precision | recall | F1 | rows |", "|---|---:|---:|---:|---:|"]
    lines += [
        f"| {plain(name)} | {one['precision']:.3f} | {one['recall']:.3f} | {one['f1']:.3f} | {one['support']:,} |"
        for name, one in listed
    ]
    if len(listed) < len(classes):
        lines.append(f"\nThese are {len(listed)} of {len(classes)} classes, those with the lowest F1.")
    return "\n".join(lines)


def calibration_section(metrics: Mapping[str, Any], run: Mapping[str, Any], temperature: float) -> str:
    """What the card says of a temperature. Its program continues the one that shows how the model is used.

    Args:
        run: the content of run.json.
    """
    flags, pair = run["flags"], run.get("texts_per_example") == 2
    text = repr({"text": "a text", "text_pair": "another"} if pair else "a text")
    program = AT_THE_END if flags.get("label_token") in LAST_TOKEN else WITH_PIPELINE
    if reads_long_texts(run):
        program = OF_LONG_TEXTS
    program = program.format(text=text, length=flags.get("max_seq_length"), temperature=temperature)
    short = ", if the pair is not cut" if cuts_long_pairs(run) else ""
    section = f"### Probabilities\n\n{TEMPERATURE.format(temperature=temperature, short=short, program=program)}"
    before, after = metrics.get("eval_ece_uncalibrated"), metrics.get("eval_ece")
    if isinstance(before, float) and isinstance(after, float):
        section += f"\n\nExpected calibration error on validation data: {after:.4f}; without it, {before:.4f}."
    return section
