"""Open a saved folder in three ways and compare the hidden states.

python examples/load_anywhere.py DIR      # DIR: the --output_dir of a finished run
"""

import sys

import torch
from transformers import AutoModel, AutoTokenizer

from modeling_bert_repro import BertModel


def main(folder: str) -> None:
    """Print, for each way to open the folder, the largest difference from the first one."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["One short sentence.", "A longer one, so that the first is padded."]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    models = {
        "plain transformers": AutoModel.from_pretrained(folder),
        "the folder's own code": AutoModel.from_pretrained(folder, trust_remote_code=True),
        "the installed package": BertModel.from_pretrained(folder),
    }
    first = None
    for name, model in models.items():
        with torch.no_grad():
            states = model.eval()(**batch).last_hidden_state
        first = states if first is None else first
        difference = (states - first).abs().max().item()
        print(f"{name:22} {type(model).__module__:45.45} largest difference {difference:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
