"""One run of a classification: its data and inputs, what is evaluated at a step, and what is predicted at the end.

A network that attends left to right reads the label from the last token (``--label_token``). BERT reads the label from
[CLS], which comes first; in a left-to-right network it would see no other token. The last token, the final [SEP], sees
the whole text; OpenAI's GPT reads its labels there as well. The network is then one for token classification in which
only this token has a label:

    tokens   [CLS] the king walked [SEP] he went home [SEP]
    labels    -100 -100 -100  -100  -100 -100 -100 -100   1

The saved folder is that of a token classifier, which every tool opens as such.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED, Features
from bert_training.engine.run import Run
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN, GlueArguments
from bert_training.inputs.models import config_labels
from bert_training.tasks.classification import calibration, labelled_texts, scores
from bert_training.tasks.classification.abstention import OTHER, abstention, find_threshold, stored_abstention
from bert_training.tasks.classification.long_texts import Reading, pool_windows
from bert_training.tasks.classification.multi_label_scores import (
    Thresholds,
    origin_of_thresholds,
    say_thresholds,
    score_several,
    store_thresholds,
)
from bert_training.tasks.classification.predictions import write_predictions
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.splits import divided
from bert_training.tasks.classification.trained_for import (
    ABSTAIN_BELOW,
    TEMPERATURE,
    store_facts,
    stored_temperature,
    trained_for,
)
from bert_training.tasks.cut_texts import longer_inputs, report_cut
from bert_training.tasks.fine_tuning import FineTuningTask, Tuned
from bert_training.tasks.task_data import loss_arguments
from bert_training.tasks.teachers import find_teacher


def with_labels_at_the_end(rows: Features) -> Features:
    """The same rows with a label for every token: that of the row at its last token, and -100 at all others.

    The weights of rows move with their labels.
    """
    columns = dict(rows.columns)
    for name, elsewhere, kind in (("labels", IGNORED, np.int64), ("loss_weights", 0, np.float64)):
        if name in columns:
            columns[name] = []
            for length, value in zip(rows.lengths, rows.columns[name], strict=True):
                values = np.full(length, elsewhere, dtype=kind)
                values[-1] = value
                columns[name].append(values)
    return Features(columns, rows.pad_token_id)


Logits = np.ndarray
"""(rows, classes) of a split."""


class Classifier(FineTuningTask[Logits]):
    """A classification of texts, or a regression.

    Args:
        data: a task of one's own, such as that of examples/toy_task.py, instead of the one that the flags name.

    Attributes:
        per_token: whether the label is read from the last token.

    Raises:
        ValueError: the data cannot be read, or does not fit the flags or the model.
    """

    args: GlueArguments
    data: labelled_texts.ClassificationData
    may_be_new = ("classifier.", "bert.pooler.", "lstm.")

    def __init__(
        self,
        args: GlueArguments,
        config: BertConfig,
        tokenizer: PreTrainedTokenizerBase,
        network: type[PreTrainedModel],
        data: labelled_texts.ClassificationData | None = None,
    ):
        trained = trained_for(config, args.model_name_or_path, network.__name__)
        data = divided(data or load_data(args, config_labels(config), trained), args)
        super().__init__(args, config, tokenizer, network, data)
        labelled_texts.check_flags(args, data)
        labelled_texts.weigh(args, data)
        self.problem_type, self.per_token = data.problem_type, args.label_token in LAST_TOKEN
        if args.teacher:
            self.teacher = find_teacher(args, network, tokenizer, data.label_names, data.problem_type)
        self.reading = Reading.of_flags(args)
        self.features = labelled_texts.features(data, tokenizer, args.max_seq_length, self.reading)
        if self.training:
            self.features["train"] = labelled_texts.weighted(data, self.features["train"])
        if self.per_token:
            self.features = {split: with_labels_at_the_end(rows) for split, rows in self.features.items()}
        self.stored_temperature = None if self.training else stored_temperature(config)
        self.stored_abstention = None if self.training else stored_abstention(config)

    @property
    def loss_arguments(self) -> dict[str, Any]:
        """The weights of several labels."""
        return loss_arguments(self.data.class_weights, self.data.task.several_labels)

    def prepare(self, network: PreTrainedModel) -> None:
        """Let a network, also a teacher, read texts as ``--long_texts`` says."""
        if self.reading.in_windows:
            pool_windows(network)

    def describe(self, run: Run[GlueArguments], model: PreTrainedModel) -> None:
        """Record and print what is read of the texts; store in the model's config what later commands need."""
        facts = self.data.stored_facts()
        if self.training:
            store_facts(model.config, **facts)
        run.add_facts(**facts)
        if self.data.task.several_labels:
            run.add_facts(thresholds=origin_of_thresholds(self.config, self.training))
        cut = {split: examples.cut for split, examples in self.data.splits.items()}
        length, positions = self.args.max_seq_length, self.config.max_position_embeddings
        other = [] if self.reading.in_windows else longer_inputs(length, positions)
        instead = [f"give {ways}"] if (ways := self.reading.instead(self.data.texts_per_example)) else []
        report_cut(run, cut, self.reading.limit, [*other, *instead, "split the texts"])

    def predict(self, run: Run[GlueArguments], model: torch.nn.Module, split: str) -> dict[str, Any]:
        """The logits (rows, classes) and, if the rows have labels, the mean loss."""
        outputs = super().predict(run, model, split)
        return outputs | {"logits": np.stack([row[-1] for row in outputs["logits"]])} if self.per_token else outputs

    def evaluate(
        self, run: Run[GlueArguments], model: torch.nn.Module, step: int, kind: str = "validation"
    ) -> tuple[dict[str, Any], dict[str, Logits]]:
        """The metrics and the loss on every validation split; temperature and thresholds are found on all together."""
        outputs = {split: self.predict(run, model, split) for split in self.features if split.startswith(kind)}
        logits = {split: found["logits"] for split, found in outputs.items()}
        temperature = self.data.temperature(logits) if self.args.calibrate else self.stored_temperature
        thresholds = self.data.thresholds(run.accelerator.unwrap_model(model).config, logits)
        results: dict[str, Any] = {}
        for split, found in outputs.items():
            results |= scores_of(self.data, split, found, temperature, thresholds)
        if results:
            results |= {} if temperature is None else {f"eval_{TEMPERATURE}": temperature}
            run.say(f"step {step}: {scores.shown(results)}")
        return scores.with_chosen(results, self.metric), logits

    def abstention(
        self, run: Run[GlueArguments], tuned: Tuned[Logits], logits: Mapping[str, Logits], temperature: float | None
    ) -> float | None:
        """The probability below which a text gets no class, found, given or stored; its effects become results.

        Args:
            logits: of all splits that are predicted.
        """
        args, splits = self.args, self.data.splits
        below = args.abstain_below if args.calibrate else self.stored_abstention

        def of(names: list[str]) -> tuple[np.ndarray, list[int]]:
            labels = [label for split in names for label in splits[split].labels or []]
            return calibration.probabilities(np.concatenate([logits[split] for split in names]), temperature), labels

        for kind, other in (("validation", OTHER), ("test", f"test_{OTHER}")):
            scored = [split for split in logits if split.startswith(kind) and splits[split].labels is not None]
            if not scored or not (args.abstains or self.stored_abstention is not None):
                continue
            shares, labels = of(scored)
            others = of([other])[0] if other in splits else None
            if below is None:
                below = find_threshold(shares, labels, others)
            found = abstention(shares, labels, below, others)
            tuned.results[f"{scores.metric_prefix(kind)}abstention"] = found
            effects = {name: value for name, value in found.items() if not isinstance(value, list)}
            run.say(f"{kind}, a text below this probability gets none of the classes: {scores.shown(effects)}")
        return below

    def finish(self, run: Run[GlueArguments], model: PreTrainedModel, tuned: Tuned[Logits]) -> None:
        """Store temperature and thresholds with the model, predict the test data, and write all predictions."""
        data, logits = self.data, dict(tuned.outcome)
        temperature = tuned.results.get(f"eval_{TEMPERATURE}", self.stored_temperature)
        # In a run that is resumed, the best evaluation may be one of before the flag was given, or left out.
        if self.args.calibrate or (temperature and not self.stored_temperature):
            temperature = temperature or data.temperature(tuned.outcome)
            store_facts(model.config, temperature=temperature)
            run.say(calibration.remark(temperature))
        thresholds = data.thresholds(model.config, tuned.outcome)
        for split in data.to_predict:
            outputs = self.predict(run, tuned.model, split)
            logits[split] = outputs["logits"]
            if split.startswith("test") and data.splits[split].labels is not None:
                tested = scores_of(data, split, outputs, temperature, thresholds)
                run.say(scores.shown(tested))
                tuned.results.update(tested)
        if OTHER in data.splits:
            logits[OTHER] = self.predict(run, tuned.model, OTHER)["logits"]
        below = self.abstention(run, tuned, logits, temperature)
        if self.args.abstains or (self.args.calibrate and self.stored_abstention is not None):  # of another temperature
            store_facts(model.config, **{ABSTAIN_BELOW: below})
        if run.is_main:
            for path in write_predictions(run.output_dir, data, logits, temperature, thresholds, below):
                run.say(f"predictions: {path}")
        if thresholds and tuned.trained:
            store_thresholds(model.config, thresholds)
        if thresholds:
            say_thresholds(run.say, tuned.results, run.facts["thresholds"])


def scores_of(
    data: labelled_texts.ClassificationData,
    split: str,
    outputs: dict,
    temperature: float | None,
    thresholds: Thresholds,
) -> dict[str, Any]:
    """The results of a labelled split, with their names in all_results.json.

    Args:
        outputs: the logits (rows, classes) and the mean loss.
        temperature: of the model's probabilities.
    """
    examples, logits = data.splits[split], outputs["logits"]
    assert examples.labels is not None
    values: dict[str, Any]
    if thresholds:
        values = score_several(logits, examples.labels, thresholds, data.label_names)
    else:
        values = scores.score(data.task, logits, examples.labels)
    if data.task.labels and not thresholds and (data.own or temperature is not None):
        values |= scores.detailed_scores(data.task.labels, logits, examples.labels, temperature)
    values |= {"loss": outputs["loss"]}
    return {scores.metric_prefix(split) + name: value for name, value in values.items()}
