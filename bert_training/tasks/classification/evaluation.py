"""One run of a classification: its data and inputs, what is evaluated at a step, and what is predicted at the end.

A network that attends left to right reads the label from the last token (``--label_token``). BERT reads the label from
[CLS], which comes first; in a left-to-right network it would see no other token. The last token, the final [SEP], sees
the whole text; OpenAI's GPT reads its labels there as well. The network is then one for token classification in which
only this token has a label:

    tokens   [CLS] the king walked [SEP] he went home [SEP]
    labels    -100 -100 -100  -100  -100 -100 -100 -100   1

The saved folder is that of a token classifier, which every tool opens as such.
"""

from typing import Any

import numpy as np
import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED, Features
from bert_training.engine.predict import predict
from bert_training.engine.run import Run
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN, GlueArguments
from bert_training.inputs.models import config_labels
from bert_training.tasks.classification import calibration, labelled_texts, scores, submission
from bert_training.tasks.classification.long_texts import Reading, pool_windows
from bert_training.tasks.classification.multi_label_scores import (
    Thresholds,
    origin_of_thresholds,
    say_thresholds,
    score_several,
    store_thresholds,
)
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.splits import divided
from bert_training.tasks.classification.trained_for import TEMPERATURE, store_facts, stored_temperature, trained_for
from bert_training.tasks.cut_texts import report_cut
from bert_training.tasks.fine_tuning import Tuned
from bert_training.tasks.loss_weights import loss_arguments
from bert_training.tasks.task_data import check_vocabulary, metric_of, write_rows

# --- the last token --------------------------------------------------------------------------------------------------


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


def with_logits_at_the_end(outputs: dict[str, Any]) -> dict[str, Any]:
    """The outputs of ``predict`` with the logits of each row's last token only: (rows, classes).

    Args:
        outputs: "logits" holds an array (length, classes) for each row, without padding.
    """
    return outputs | {"logits": np.stack([row[-1] for row in outputs["logits"]])}


# --- evaluation ------------------------------------------------------------------------------------------------------


Logits = dict[str, np.ndarray]
"""(rows, classes) of each split."""


class Classifier:
    """The data of a run and what is computed with it.

    Args:
        args: the flags.
        config: of the checkpoint.
        tokenizer: the one of the run.
        network: the name of the class of the network.
        data: a task of one's own, such as that of examples/toy_task.py, instead of the one that the flags name.

    Attributes:
        data: the rows of every split, with labels.
        features: the inputs of every split.
        metric: the key of the results by which the best evaluation is chosen.
        training: whether there is training data.
        at_the_end: whether the label is read from the last token.

    Raises:
        ValueError: the data cannot be read, or does not fit the flags or the model.
    """

    def __init__(
        self,
        args: GlueArguments,
        config: BertConfig,
        tokenizer: PreTrainedTokenizerBase,
        network: str,
        data: labelled_texts.ClassificationData | None = None,
    ):
        self.args, self.config = args, config
        data = data or load_data(args, config_labels(config), trained_for(config, args.model_name_or_path, network))
        check_vocabulary(data, tokenizer)
        self.data = divided(data, args)
        labelled_texts.check_flags(args, self.data)
        labelled_texts.weigh(args, self.data)
        self.metric, self.training = metric_of(args, self.data), "train" in self.data.splits
        self.reading, self.at_the_end = Reading.of_flags(args), args.label_token in LAST_TOKEN
        self.features = labelled_texts.features(self.data, tokenizer, args.max_seq_length, self.reading)
        self.stored_temperature = None if self.training else stored_temperature(config)

    @property
    def loss_arguments(self) -> dict[str, Any]:
        """Further arguments of the network in training."""
        return loss_arguments(self.data.class_weights, self.data.task.several_labels)

    def train_features(self) -> Features | None:
        """The inputs to train on, with their weights; None without training data."""
        train = labelled_texts.weighted_features(self.data, self.features)
        return with_labels_at_the_end(train) if train and self.at_the_end else train

    def prepare(self, network: PreTrainedModel) -> None:
        """Let a network, also a teacher, read texts as ``--long_texts`` says."""
        if self.args.long_texts == "windows":
            pool_windows(network)

    def describe(self, run: Run[GlueArguments], model: PreTrainedModel) -> None:
        """Record and print what is read of the texts; store in the model's config what later commands need."""
        self.prepare(model)
        facts = self.data.stored_facts()
        if self.training:
            store_facts(model.config, **facts)
        run.add_facts(**facts, **origin_of_thresholds(self.data.task, self.config, self.training))
        cut = {split: examples.cut for split, examples in self.data.splits.items()}
        instead = self.reading.instead(self.data.texts_per_example)
        report_cut(run, cut, self.config.max_position_embeddings, instead)

    def evaluate(self, run: Run[GlueArguments], model: torch.nn.Module, step: int) -> tuple[dict[str, Any], Logits]:
        """The task's metrics and the loss on every validation split; the names of MNLI's two validation sets differ.

        Returns:
            The results, and the logits of every validation split.
        """
        validation = {split: rows for split, rows in self.features.items() if split.startswith("validation")}
        outputs = {split: self._predict(run, model, rows) for split, rows in validation.items()}
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

    def finish(self, run: Run[GlueArguments], model: PreTrainedModel, tuned: Tuned[Logits]) -> None:
        """Store temperature and thresholds with the model, and write the predictions.

        Args:
            model: the network, whose config is saved.
            tuned: its results get those of the test splits.
        """
        temperature = tuned.results.get(f"eval_{TEMPERATURE}", self.stored_temperature)
        # In a run that is resumed, the best evaluation may be one of before the flag was given, or left out.
        if self.args.calibrate or (temperature and not self.stored_temperature):
            temperature = temperature or self.data.temperature(tuned.outcome)
            store_facts(model.config, temperature=temperature)
            run.say(calibration.remark(temperature))
        thresholds = self.data.thresholds(model.config, tuned.outcome)
        self._write_predictions(run, tuned, temperature, thresholds)
        if thresholds and tuned.trained:
            store_thresholds(model.config, thresholds)
        rate = self.args.learning_rate
        for line in self.data.second_look(tuned.results, tuned.outcome, rate) if tuned.trained else ():
            run.say(line)

    def _predict(self, run: Run[GlueArguments], model: torch.nn.Module, rows: Features) -> dict:
        """The logits (rows, classes) and, if the rows have labels, the mean loss."""
        size = self.args.per_device_eval_batch_size
        if self.at_the_end:
            return with_logits_at_the_end(predict(run, model, with_labels_at_the_end(rows), size, per_token=True))
        return predict(run, model, rows, size)

    def _write_predictions(
        self, run: Run[GlueArguments], tuned: Tuned[Logits], temperature: float | None, thresholds: Thresholds
    ) -> None:
        """Write a file for every split to predict; for a submission, print why if the GLUE server would refuse it.

        Of the user's own data, the files with probabilities are written as well, also for the validation data.
        """
        data, results, logits = self.data, dict[str, Any](), dict(tuned.outcome)
        for split in data.to_predict:
            outputs = self._predict(run, tuned.model, self.features[split])
            logits[split] = outputs["logits"]
            if split.startswith("test") and data.splits[split].labels is not None:
                results |= scores_of(data, split, outputs, temperature, thresholds)
            if run.is_main:
                path = labelled_texts.write_predictions(run.output_dir, data, split, outputs["logits"], thresholds)
                checked = path.name in submission.TEST_ROWS
                wrong = submission.problem(path.name, path.read_text("utf-8")) if checked else None
                run.say(f"the GLUE server would refuse this: {wrong}" if wrong else f"predictions: {path}")
        if results:
            run.say(scores.shown(results))
        if data.own and run.is_main:
            for path in labelled_texts.write_own(run.output_dir, data, logits, temperature, thresholds):
                run.say(f"predictions with {'probabilities' if data.task.labels else 'scores'}: {path} and .jsonl")
        for split, found in logits.items():
            if run.is_main and data.splits[split].labels is not None:
                write_rows(run.output_dir, split, labelled_texts.scored_rows(data, split, found, thresholds))
        tuned.results.update(results)
        if thresholds:
            say_thresholds(run.say, tuned.results, run.facts["thresholds"])
            return
        for name, classes in tuned.results.items():
            if name.endswith(scores.BY_CLASS):
                run.say(f"{name}:\n{scores.table(classes)}")


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
    values |= scores.score_by_category(data.task, logits, examples.labels, examples.categories)
    if data.task.labels and not thresholds and (data.own or temperature is not None):
        values |= scores.detailed_scores(data.task.labels, logits, examples.labels, temperature)
    values |= {"loss": outputs["loss"]}
    return {scores.metric_prefix(split) + name: value for name, value in values.items()}
