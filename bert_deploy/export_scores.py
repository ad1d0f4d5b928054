"""The scores of an exported network, by the script that trained it: its data, its features, its metric.

A script hands its network, its data and its evaluation to the argument ``tune`` of its ``main``. Here that function
keeps them and ends the script. The evaluation is then given ``Answering`` in place of the network, which answers with
the numbers of torch or of an exported file; all that follows is the script's own: windows, thresholds, answers, spans.
"""

import contextlib
import io
import runpy
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

from bert_deploy.onnx_files import INPUTS, Batch, Compute, quiet
from bert_deploy.verify import OF_ROWS, data_flags, evaluation_flags
from bert_training.cards.metrics import percent_factor
from bert_training.files.atomic import write_json
from bert_training.files.hashing import checksums
from bert_training.inputs.flags.scripts import SCRIPTS, path_of
from bert_training.inputs.reading import read_object
from bert_training.tasks.classification.long_texts import pooled
from bert_training.tasks.classification.multi_label_scores import gives, probabilities, stored_thresholds
from bert_training.tasks.classification.scores import value_of
from bert_training.tasks.fine_tuning import goodness
from bert_training.tasks.squad.threshold import FIELD
from tokenization.errors import UserError


class Evaluation(NamedTuple):
    """What one evaluation found.

    Attributes:
        score: in points of 100; None if it is undefined.
        answers: for every row of the data its class, its labels, its tags, the answer to its question or the number of
            its ending; None for scores of a regression.
        batches: what the network was given.
    """

    metric: str
    score: float | None
    answers: list[Any]
    batches: list[Batch]


class Answering(torch.nn.Module):
    """What computes a batch, called as the network of a script is.

    Attributes:
        batches: those that it was given, as far as they are read.
    """

    def __init__(self, compute: Compute, config: PretrainedConfig):
        super().__init__()
        self.compute, self.config, self.batches = compute, config, list[Batch]()

    def forward(
        self, labels: torch.Tensor | None = None, num_windows: torch.Tensor | None = None, **batch: torch.Tensor
    ) -> ModelOutput:
        """The outputs by name; a loss, which a file does not have, is not a number."""
        self.batches.append({name: batch[name].cpu().numpy() for name in INPUTS})
        outputs = {name: torch.from_numpy(found) for name, found in self.compute(self.batches[-1]).items()}
        if num_windows is not None:
            outputs["logits"] = pooled(outputs["logits"], num_windows.tolist())
        return ModelOutput({} if labels is None else {"loss": torch.tensor(torch.nan)}, **outputs)


class Opened(NamedTuple):
    """What a script hands to ``tune``, and what run.json says of its data."""

    config: PretrainedConfig
    evaluate: Callable[[torch.nn.Module, int], tuple[dict, Any]]
    metric: str
    data: dict[str, Any]


class _Done(Exception):
    """The script has done what was wanted of it."""


def open_script(script: str, flags: dict[str, Any]) -> Opened:
    """Let a script read its data. Raises ValueError if it refuses the flags or the data."""
    found: list[Opened] = []

    def tune(run: Any, model: PreTrainedModel, origin: Any, task: Any) -> NoReturn:
        found.append(Opened(model.config, partial(task.evaluate, run), task.metric, origin.data))
        raise _Done

    main, said = runpy.run_path(path_of(script))["main"], io.StringIO()
    with tempfile.TemporaryDirectory(prefix="bert-repro-export-") as place, quiet(), contextlib.redirect_stderr(said):
        write_json(Path(place, "flags.json"), flags | {"output_dir": f"{place}/run", "save_steps": 0})
        try:
            with contextlib.suppress(_Done):
                main([f"--config={place}/flags.json"], tune)
        except SystemExit as error:
            lines = said.getvalue().strip().splitlines() or ["no message"]
            raise UserError(f"{script} refuses this folder: {lines[-1]}") from error
    return found[0]


class Validation:
    """The validation data of a run, as its script reads it.

    Args:
        folder: the folder of the finished run.
        run: its run.json; None if there is none, or another head is exported than that of the run.
        given: files that may be its data, besides those in their places.

    Attributes:
        missing: why there is none; "" if there is.
        name: what is scored, for the record.
    """

    def __init__(self, folder: Path, run: dict[str, Any] | None, given: Sequence[Path]):
        self.folder, self.run, self.name = folder, run or {}, ""
        self.fine_tuned = run is not None and not SCRIPTS[run["script"]].pretrains
        try:
            self.missing = self._why_missing() or self._open(given)
        except UserError as error:
            self.missing = str(error)

    def _why_missing(self) -> str:
        if not self.fine_tuned:
            return "no run of this head was fine-tuned in the folder"
        flags, splits = self.run["flags"], (self.run.get("data") or {}).get("splits", {})
        named = [flags.get(name) for name in ("validation_file", "data_dir", "train_file") if flags.get(name)]
        builtin = not flags.get("dataset_name") and str(flags.get("task_name") or "builtin_").startswith("builtin_")
        if not (named or builtin) or not any(split.startswith("validation") for split in splits):
            return "run.json names no file of it"
        divided = any(flags.get(name) for name in ("validation_split", "folds"))
        self.name = Path(named[0]).name if named else "built-in"
        self.name = f"the part of {self.name} that was held out" if divided else self.name
        found = divided and "thresholds" in self.run
        return "the script would find other thresholds on the part held out of the training data" if found else ""

    def _open(self, given: Sequence[Path]) -> str:
        flags, usual = dict(self.run["flags"]), evaluation_flags(self.run)
        if flags.get("validation_file"):  # without training data, the script applies the thresholds that are stored
            del flags["train_file"]
            usual = {name: value for name, value in usual.items() if name not in OF_ROWS}
        # run.json has the no-answer threshold of the training, 0 as a rule; the model applies the one that it stores.
        if (threshold := read_object(self.folder / "config.json").get(FIELD)) is not None:
            usual[FIELD] = threshold
        own = {"mixed_precision": "no", "model_name_or_path": str(self.folder)}
        located = data_flags(self.run | {"flags": flags}, {}, given)
        self.opened = open_script(self.run["script"], usual | located | own)
        other = {*checksums(self.opened.data)} - {*checksums(self.run["data"])}
        return "the data at hand is not that in run.json" if other else ""

    def evaluate(self, compute: Compute) -> Evaluation:
        """Score what computes batches: torch's network, or an exported file."""
        model = Answering(compute, self.opened.config)
        with quiet():
            results, outcome = self.opened.evaluate(model, 0)
        metric = self._metric(results)
        value = value_of(results, metric)
        score = None if value is None else float(value) * percent_factor(results)
        return Evaluation(metric, score, answers_of(outcome, self.opened.config), model.batches)

    def _metric(self, results: Mapping[str, Any]) -> str:
        """The key of the score: that of --metric_for_best_model if higher is better, otherwise the task's usual one.

        In place of SQuAD 2.0's best score of all thresholds stands that with the stored one, which the model applies.
        """
        asked = str(self.run["flags"].get("metric_for_best_model") or "")
        name = f"eval_{asked.removeprefix('eval_').removeprefix('best_')}"
        known = name in results or value_of(results, name) is not None
        return name if known and goodness(name, 1.0) > 0 else self.opened.metric


def answers_of(outcome: Mapping[str, Any], config: PretrainedConfig) -> list[Any]:
    """What the evaluation of a script answers, row by row; None in place of a score.

    Args:
        outcome: of each split the answers to questions, the tags of sentences, or logits.
    """
    first = next(iter(outcome.values()))
    if hasattr(first, "predictions"):
        return [*first.predictions.values()]
    if hasattr(first, "tags"):
        return first.tags
    logits = np.concatenate([*outcome.values()])
    if config.problem_type == "multi_label_classification":
        thresholds = stored_thresholds(config) or [0.5] * logits.shape[-1]
        return gives(probabilities(logits), thresholds).tolist()
    return [None] * len(logits) if logits.shape[-1] == 1 else logits.argmax(-1).tolist()
