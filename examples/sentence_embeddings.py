"""Train embeddings of sentences with sentence-transformers, from a folder of ours and pairs of similar texts.

python examples/sentence_embeddings.py DIR PAIRS.csv NEW_DIR [EPOCHS]      # PAIRS.csv has the columns anchor, positive
"""

import sys

from datasets import load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss


def main(folder: str, pairs: str, new_folder: str, epochs: str = "1") -> None:
    """Train on the pairs, save the model in ``new_folder``, and print how similar the first pair is."""
    data = load_dataset("csv", data_files=pairs, split="train")
    # A folder of ours opens by its name; the vector of a text is the mean over its pieces.
    model = SentenceTransformer(folder, trust_remote_code=True)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=new_folder,
        num_train_epochs=float(epochs),
        per_device_train_batch_size=32,
        learning_rate=5e-5,
        warmup_steps=0.1,
        save_strategy="no",
        report_to=[],
    )
    # The other texts of a batch are the wrong answers; so a batch should not have a text twice.
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=loss).train()
    model.save(new_folder)
    anchor, positive = model.encode([data[0]["anchor"], data[0]["positive"]])
    print(f"{new_folder}: similarity of the first pair {float(model.similarity(anchor, positive)):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
