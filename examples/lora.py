"""LoRA with peft: train a small adapter for our classifier instead of all weights, save it, and open it again.

python examples/lora.py DIR TEXTS.csv ADAPTER_DIR [STEPS]      # TEXTS.csv has the columns text, label (0, 1, ...)
"""

import csv
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoTokenizer

from modeling_bert_repro import BertForSequenceClassification


def main(folder: str, texts: str, adapter: str, steps: str = "100") -> None:
    """Train the adapter on all texts in every step, and print what the opened one gets right."""
    with open(texts, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    labels = torch.tensor([int(row["label"]) for row in rows])
    batch = AutoTokenizer.from_pretrained(folder)([row["text"] for row in rows], padding=True, return_tensors="pt")
    base = BertForSequenceClassification.from_pretrained(folder, num_labels=int(labels.max()) + 1)
    settings = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value"])
    model = get_peft_model(base, settings)  # the new head is trained and saved with the adapter
    model.print_trainable_parameters()
    optimizer = torch.optim.AdamW((weight for weight in model.parameters() if weight.requires_grad), lr=1e-3)
    for _ in range(int(steps)):
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(adapter)
    base = BertForSequenceClassification.from_pretrained(folder, num_labels=base.config.num_labels)
    logits = PeftModel.from_pretrained(base, adapter).eval()(**batch).logits
    print(f"{adapter}: {int((logits.argmax(-1) == labels).sum())} of {len(rows)} texts right")


if __name__ == "__main__":
    main(*sys.argv[1:])
