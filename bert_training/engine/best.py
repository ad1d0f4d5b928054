"""The best evaluation of a run: its weights are kept.

The evaluations are part of the state of the training, which checkpoints preserve. The best weights are in
``checkpoint-best-<step>`` until the run has finished; they are written and checked like checkpoints.
"""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from bert_training.engine.checkpoint import WEIGHTS, newest_checkpoint_named
from bert_training.engine.run import Run
from bert_training.files.atomic import damage, new_folder, remove_folder, sealed_folder
from bert_training.inputs.flags.fine_tuning import FineTuningArguments
from tokenization.errors import UserError

LOWER_IS_BETTER = ("loss", "_ece")
MOST_NAMES = 40  # in the error about an unknown metric; three of them for each class of a classification


class Best:
    """The evaluations of a run so far, and the weights of the best one.

    Args:
        metric: key of the results. Higher values are better, except for a loss.
        evaluations: (step, results) of each evaluation so far; ``add`` appends to it.
    """

    def __init__(self, run: Run[FineTuningArguments], metric: str, evaluations: list[tuple[int, dict[str, Any]]]):
        self.run = run
        self.metric = metric
        self.wanted = run.args.load_best_model_at_end
        self.evaluations = evaluations

    def go_on(self) -> None:
        """Check and fetch the weights of the best evaluation before the checkpoint from which the run resumes.

        All processes call it.

        Raises:
            ValueError: the weights cannot be used.
        """
        if not self.wanted:
            return
        self.run.only_main(self._fetch)
        self._check_weights()

    def add(self, step: int, results: dict, model: torch.nn.Module) -> None:
        """Keep the weights if these results are the best so far. All processes call it."""
        if results:
            self.evaluations.append((step, results))
        if not self.wanted:
            return
        if self.step == step:
            self._save(step, model)

    @property
    def step(self) -> int:
        """Optimiser step of the best evaluation, or of the first of several that are equally good."""
        return self._best_of(self.evaluations)

    def _best_of(self, evaluations: list[tuple[int, dict]]) -> int:
        values = [goodness(self.metric, results[self.metric]) for _, results in evaluations]
        return evaluations[values.index(max(values))][0]

    def restore(self, model: torch.nn.Module) -> dict:
        """Load the best weights into the model; returns their results."""
        self._check_weights()
        weights = load_file(self._folder(self.step) / WEIGHTS)
        self.run.accelerator.unwrap_model(model).load_state_dict(weights)
        results = dict(self.evaluations)[self.step]
        self.run.say(f"the best weights are kept: step {self.step}, {self.metric} {results[self.metric]}")
        return results | {"best_step": self.step}

    def clear(self) -> None:
        """Delete the kept weights; called when the run has finished."""
        if self.run.is_main:
            for step in self._kept():
                remove_folder(self._folder(step))

    def _save(self, step: int, model: torch.nn.Module) -> None:
        self.run.accelerator.wait_for_everyone()
        if self.run.is_main:
            folder = self._folder(step)
            with newest_checkpoint_named(self.run), sealed_folder(folder) as draft:
                self.run.accelerator.unwrap_model(model).save_pretrained(draft)
            needed = {step, *self._needed_by_checkpoints(step)}
            for kept in self._kept():
                if kept not in needed:
                    remove_folder(self._folder(kept))
        self.run.accelerator.wait_for_everyone()

    def _needed_by_checkpoints(self, step: int) -> set[int]:
        """The steps of the best weights that runs need which resume from the checkpoints that are there.

        The records of a checkpoint end before it, and that of the last step is written before the evaluation of that
        step. Folders of steps that are in the records no more may be needed by a checkpoint of those days.
        """
        needed: set[int] = set()
        for start in _numbers(self.run.output_dir, r"checkpoint-(\d+)"):
            if before := [(at, results) for at, results in self.evaluations if at <= start and at != step]:
                needed.add(self._best_of(before))
            needed.add(max((kept for kept in self._kept() if kept <= start), default=step))
        return needed

    def _fetch(self) -> None:
        """Copy the best weights so far from the folder of the run whose checkpoint was named, if only it has them.

        A finished run has deleted them; then the checkpoint may have them, if it is of the same step.
        """
        asked = self.run.args.resume_from_checkpoint
        if not self.evaluations or asked in (None, "auto") or self._folder(self.step).exists():
            return
        theirs = Path(asked).parent / self._folder(self.step).name
        if theirs.is_dir() and not damage(theirs):
            with new_folder(self._folder(self.step)) as draft:
                shutil.copytree(theirs, draft, dirs_exist_ok=True)
        elif Path(asked).name == f"checkpoint-{self.step}":
            with sealed_folder(self._folder(self.step)) as draft:
                for name in ("config.json", "model.safetensors"):
                    shutil.copy(Path(asked, name), draft)

    def _check_weights(self) -> None:
        """Raise ValueError unless the folder with the best weights so far exists and is undamaged."""
        if self.evaluations and (problem := damage(self._folder(self.step))):
            raise UserError(
                f"{self._folder(self.step)}: the weights of the best evaluation so far cannot be used: {problem}; "
                "resume without --load_best_model_at_end, or begin anew in another folder"
            )

    def _folder(self, step: int) -> Path:
        return self.run.output_dir / f"checkpoint-best-{step}"

    def _kept(self) -> list[int]:
        return _numbers(self.run.output_dir, r"checkpoint-best-(\d+)")


def deciding_metric(args: FineTuningArguments, names: list[str], default: str, trained: bool) -> str:
    """The key of the results that decides which evaluation, or which run, is the best.

    Args:
        names: the keys that may be chosen.
        default: the key if --metric_for_best_model is not given.
        trained: whether the run trains at all.

    Raises:
        ValueError: --metric_for_best_model is none of ``names``, or a choice was requested but nothing is trained.
    """
    asked = args.metric_for_best_model
    if not trained:
        if args.load_best_model_at_end or asked or args.many_runs:
            raise UserError("there is nothing from which to choose the best, as nothing is trained: give training data")
        return default
    if not names and asked is None:  # there is nothing to evaluate on; the flags say so
        return default
    name = default if asked is None else "eval_" + asked.removeprefix("eval_")
    if name not in names:
        listed = names if len(names) <= MOST_NAMES else [*names[:MOST_NAMES], f"and {len(names) - MOST_NAMES} more"]
        raise UserError(f"--metric_for_best_model: expected one of {', '.join(listed)}; got {asked!r}")
    return name


def goodness(metric: str, value: float | None) -> float:
    """A number that is highest for the best value: the negative of a loss or of an expected calibration error (ece).

    None, an undefined score, is the worst.
    A metric with a colon is that of a class, such as ``eval_f1:loss``.
    """
    if value is None:
        return -math.inf
    return -value if metric.endswith(LOWER_IS_BETTER) and ":" not in metric else value


def _numbers(folder: Path, pattern: str) -> list[int]:
    return sorted(int(found[1]) for path in folder.iterdir() if (found := re.fullmatch(pattern, path.name)))
