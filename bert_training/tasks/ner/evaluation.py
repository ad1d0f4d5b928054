"""One run that tags words: its data and rows, what is evaluated at a step, and the files of tags."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.inputs.flags.fine_tuning import NerArguments
from bert_training.inputs.models import config_labels
from bert_training.tasks.classification.trained_for import store_facts
from bert_training.tasks.fine_tuning import FineTuningTask
from bert_training.tasks.ner import tagged_text
from bert_training.tasks.ner.raw_text import stored_cutting, write_spans
from bert_training.tasks.ner.schemes import with_types
from bert_training.tasks.ner.sources import NerData, load_data
from bert_training.tasks.task_data import class_weights_of, count_labels, with_labels, with_loss_weights, write_rows
from bert_training.tasks.teachers import find_teacher


class Tagged(NamedTuple):
    """For every sentence the predicted tags of its words; the probabilities of all tags (words, labels)."""

    tags: list[list[str]]
    probabilities: np.ndarray


class Tagger(FineTuningTask[Tagged]):
    """Names in sentences, or other classes of words.

    Attributes:
        rows: of every split, the rows of its sentences.
    """

    args: NerArguments
    data: NerData
    may_be_new = ("classifier.", "lstm.", "weights")
    per_token = True
    shown = ("accuracy", "precision", "recall", "f1", "f1_macro")

    def __init__(
        self,
        args: NerArguments,
        config: BertConfig,
        tokenizer: PreTrainedTokenizerBase,
        network: type[PreTrainedModel],
    ):
        if names := config_labels(config):
            config = with_labels(config, with_types(names))
        data = load_data(args, config_labels(config), stored_cutting(config))
        super().__init__(args, config, tokenizer, network, data)
        if args.teacher:
            self.teacher = find_teacher(args, network, tokenizer, data.label_names, "single_label_classification")
        self.rows = {
            split: tagged_text.build_rows(part, tokenizer, args.max_seq_length, args.context)
            for split, part in data.splits.items()
        }
        self.features = {
            split: self.rows[split].features(part, data.label_names, tokenizer.pad_token_id)
            for split, part in data.splits.items()
        }
        if args.class_weights is not None and self.training:
            train = self.features["train"]
            counts = count_labels(train.columns["labels"], len(data.label_names))
            data.class_weights = class_weights_of(args, data.label_names, counts, "word", may_be_absent=True)
            self.features["train"] = with_loss_weights(train, data.class_weights)

    def prepare(self, network: PreTrainedModel) -> None:
        """Freeze the encoder whose features a BiLSTM reads."""
        if freeze := getattr(network, "freeze", None):
            freeze()

    def describe(self, run: Run[NerArguments], model: PreTrainedModel) -> None:
        """Record and print the rows and what is longer than one; store how texts become words."""
        if self.training:
            store_facts(model.config, words=vars(self.data.cutting))
        run.add_facts(words=vars(self.data.cutting))
        run.add_facts(rows={split: len(part) for split, part in self.features.items()})
        run.add_facts(cut_at_max_seq_length={split: part.cut_facts() for split, part in self.rows.items()})
        for line in tagged_text.remarks(self.rows, self.data.splits, self.tokenizer, self.args.max_seq_length):
            run.say(line)

    def judge(self, run: Run[NerArguments], model: torch.nn.Module, split: str) -> tuple[dict[str, Any], Tagged]:
        """The scores of the entities, {} of words without tags, and the tags with their probabilities."""
        part, rows, outputs = self.data.splits[split], self.rows[split], self.predict(run, model, split)
        predicted = tagged_text.find_tags(part, rows, outputs["logits"], self.data.label_names)
        tagged = Tagged(predicted, tagged_text.tag_probabilities(part, rows, outputs["logits"]))
        values = tagged_text.score(part, predicted) | {"loss": outputs["loss"]} if part.tagged else {}
        return values, tagged

    def write(self, folder: Path, split: str, outcome: Tagged) -> None:
        """Write the tags, their probabilities, and of texts the spans with their places."""
        part, names = self.data.splits[split], self.data.label_names
        tagged_text.write_predictions(folder / f"{split}_predictions.txt", part, outcome.tags)
        tagged_text.write_probabilities(folder / f"{split}_predictions.jsonl", part, *outcome, names)
        if part.tagged:
            write_rows(folder, split, tagged_text.scored_rows(part, outcome.tags))
        if part.of_texts:
            write_spans(folder / f"{split}_spans.jsonl", part, outcome.tags, names)
