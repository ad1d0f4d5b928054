"""Classify texts from about eight examples a class: fine-tune embeddings with sentence-transformers, then a line fits.

The embeddings learn that texts of one class are near each other (the idea of SetFit, Tunstall et al. 2022), and
scikit-learn's logistic regression reads the class from them.

python examples/few_examples.py DIR TRAIN.csv TEST.csv [EPOCHS]         # both tables have the columns text, label
"""

import sys

from datasets import load_dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import BatchHardSoftMarginTripletLoss
from sklearn.linear_model import LogisticRegression


def main(folder: str, train: str, test: str, epochs: str = "10") -> None:
    """Train on the first table, and print the accuracy on the second."""
    tables = load_dataset("csv", data_files={"train": train, "test": test}, keep_default_na=False)
    model = SentenceTransformer(folder, trust_remote_code=True)  # the vector of a text is the mean over its pieces
    arguments = SentenceTransformerTrainingArguments(
        output_dir=f"{train}.training",
        num_train_epochs=float(epochs),
        per_device_train_batch_size=64,
        learning_rate=1e-4,
        warmup_steps=0.1,
        batch_sampler="group_by_label",
        save_strategy="no",
    )
    loss = BatchHardSoftMarginTripletLoss(model)
    numbered = tables["train"].class_encode_column("label")
    SentenceTransformerTrainer(model, arguments, train_dataset=numbered, loss=loss).train()
    vectors = {name: model.encode(list(tables[name]["text"])) for name in tables}
    classes = LogisticRegression(max_iter=1000, C=10).fit(vectors["train"], list(tables["train"]["label"]))
    print(f"accuracy {classes.score(vectors['test'], list(tables['test']['label'])):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
