"""Label texts with an exported classifier; onnxruntime, tokenizers and numpy are enough, and nothing of this project.

It reads models of one label a text that were trained with --long_texts cut, the default.

python examples/labels_from_onnx.py EXPORTED "A first text." "A second one."       # a folder of bert-repro export
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def main(folder: str, *texts: str) -> None:
    """Print the label of each text, from the file in 8 bits if there is one."""
    config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    length = config.get("fine_tuning", {}).get("max_seq_length", 128)
    tokenizer.enable_truncation(min(length, config["max_position_embeddings"]))
    tokenizer.encode_special_tokens = True  # a [SEP] in a text is text
    tokenizer.enable_padding(pad_id=config["pad_token_id"])
    file = max(Path(folder, "onnx").glob("model*.onnx"), key=lambda path: "quantized" in path.name)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for begin in range(0, len(texts), 8):
        part = texts[begin : begin + 8]
        rows = tokenizer.encode_batch(part)
        names = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        inputs = {name: np.array([getattr(row, ours) for row in rows], dtype=np.int64) for name, ours in names.items()}
        (logits,) = session.run(["logits"], inputs)
        for text, row in zip(part, logits):
            print(f"{config['id2label'][str(row.argmax())]}: {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
