"""Continue training with transformers' Trainer: our heads use `num_items_in_batch`, so accumulation is exact.

python examples/transformers_trainer.py DIR NEW_DIR      # DIR: a folder saved by run_pretraining.py
"""

import sys
from pydoc_data.topics import topics

from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

from modeling_bert_repro import BertForMaskedLM


def main(folder: str, new_folder: str) -> None:
    """Train the model in ``folder`` for 8 steps and save it in ``new_folder``."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(list(topics.values())[:64], truncation=True, max_length=64, return_token_type_ids=False)
    arguments = TrainingArguments(
        output_dir=new_folder,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
        max_steps=8,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
    )
    trainer = Trainer(
        BertForMaskedLM.from_pretrained(folder),
        arguments,
        DataCollatorForLanguageModeling(tokenizer),
        [{"input_ids": ids} for ids in encoded["input_ids"]],
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main(*sys.argv[1:])
