"""The scores of an exported network, by the script that trained it: its data, its features, its metric.

A script hands its network, its data and its evaluation to the argument ``tune`` of its ``main``. Here that function
evaluates instead of training, first the network itself. Then the logits of the exported file take the place of torch's
at the network's head, so that all that follows is the script's own: windows, thresholds, answers, spans. They are
compared with what torch computed at that place in the evaluation before, batch by batch, and the answers row by row.
"""

import contextlib
import functools
import importlib.util
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from bert_training.cards.metrics import percent_factor
from bert_training.engine.batches import IGNORED, Features
from bert_training.engine.best import goodness
from bert_training.files.atomic import write_json
from bert_training.files.compressed_files import numbered_lines
from bert_training.files.hashing import sha256
from bert_training.files.json_files import read_object
from bert_training.inputs.flags.scripts import SCRIPTS, path_of
from bert_training.tasks.classification.multi_label_scores import gives, probabilities, stored_thresholds
from bert_training.tasks.classification.scores import value_of
from bert_training.tasks.squad.threshold import FIELD
from bert_training.tools.onnx_files import INPUTS, Batch, OnnxFile
from bert_training.tools.openvino_files import OpenVinoFile
from bert_training.tools.verify_scores import OF_ROWS, evaluation_flags
from tokenization.errors import UserError

HEADS = ("classifier", "qa_outputs")
CALIBRATION_ROWS = 256


class Evaluation(NamedTuple):
    """What one evaluation found.

    Attributes:
        scores: the score of every validation split, in points of 100; None if it is undefined.
        answers: for every row of the data its class, its labels, its tags, the answer to its question or the number of
            its ending; None for scores of a regression.
        difference: the largest one of the logits to torch's; 0 for torch.
        rows: token ids and token types of the rows that the network saw.
    """

    metric: str
    scores: dict[str, float | None]
    answers: list[Any]
    difference: float
    rows: list[tuple[np.ndarray, np.ndarray]]


class _Nothing(torch.nn.Module):
    """In the place of an encoder whose outputs nobody reads."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> BaseModelOutputWithPoolingAndCrossAttentions:
        states = torch.zeros(*input_ids.shape, self.width, device=input_ids.device)
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=cast("torch.FloatTensor", states),
            pooler_output=cast("torch.FloatTensor", states[:, 0]),
        )


class _Done(Exception):
    """The script has done what was wanted of it."""


@dataclass
class _Watch:
    """What happens at the head of the network during an evaluation.

    ``recorded`` holds torch's logits of every batch: without a file they are added to it, with one they are compared.
    """

    file: OnnxFile | OpenVinoFile | None
    expected: Mapping[str, torch.Tensor]
    recorded: list[np.ndarray]
    batches: int = 0
    difference: float = 0.0
    rows: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    batch: Batch = field(default_factory=dict)
    labels: np.ndarray | None = None

    def attach(self, model: PreTrainedModel) -> None:
        """Watch the head. Raises ValueError if the script would not take that of the folder."""
        name = next(name for name in HEADS if hasattr(model, name))
        head = model.get_submodule(name)
        for part, tensor in head.state_dict().items():
            if not torch.equal(tensor.cpu(), self.expected[f"{name}.{part}"]):
                raise UserError("the data has other labels than the model, so that it cannot be scored with them")
        if self.file is not None:
            model.bert = _Nothing(model.config.hidden_size)
        # Before all hooks of the script itself, such as that which pools the logits of windows.
        model.register_forward_pre_hook(self._before, with_kwargs=True, prepend=True)
        head.register_forward_hook(lambda _, __, logits: self._at_head(model, logits), prepend=True)

    def _before(self, _: torch.nn.Module, args: tuple, batch: dict[str, Any]) -> None:
        self.batch = {name: batch[name].cpu().numpy() for name in INPUTS}
        labels = batch.get("labels")
        self.labels = None if labels is None else labels.cpu().numpy()
        ids, types, mask = (self.batch[name] for name in ("input_ids", "token_type_ids", "attention_mask"))
        for row in range(len(ids)):
            length = int(mask[row].sum(-1).max())
            self.rows.append((ids[row][..., :length], types[row][..., :length]))

    def _at_head(self, model: PreTrainedModel, logits: torch.Tensor) -> torch.Tensor:
        if self.file is None:
            self.recorded.append(logits.float().cpu().numpy())
            return logits
        outputs = self.file(self.batch)
        found = np.stack([*outputs.values()], -1) if len(outputs) > 1 else next(iter(outputs.values()))
        theirs = found.reshape(logits.shape)
        self._compare(self.recorded[self.batches], theirs)
        self.batches += 1
        return torch.from_numpy(theirs).to(logits)

    def _compare(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        real = self.batch["attention_mask"].astype(bool)
        per_token = ours.ndim == 3
        real = real if per_token else np.ones(len(ours), dtype=bool)
        if per_token and self.labels is not None and self.labels.ndim == 2:  # the others decide nothing
            real = real & (self.labels != IGNORED)
        self.difference = max(self.difference, float(np.abs(ours - theirs)[real].max(initial=0)))


def answers_of(outcome: Any, config: PretrainedConfig) -> list[Any]:
    """What the evaluation of a script answers, row by row; None in place of a score.

    Args:
        outcome: the answers to questions, the tags of sentences, or logits, which may be those of several splits.
    """
    if hasattr(outcome, "predictions"):
        return [*outcome.predictions.values()]
    if hasattr(outcome, "tags"):
        return outcome.tags
    logits = np.concatenate([*outcome.values()] if isinstance(outcome, Mapping) else [outcome])
    if config.problem_type == "multi_label_classification":
        thresholds = stored_thresholds(config) or [0.5] * logits.shape[-1]
        return gives(probabilities(logits), thresholds).tolist()
    return [None] * len(logits) if logits.shape[-1] == 1 else logits.argmax(-1).tolist()


class Source(NamedTuple):
    """A file of data that a run read: its split, its path in run.json, and where it lies here with its SHA-256."""

    split: str
    name: str
    path: Path | None


def sources(run: Mapping[str, Any], given: Sequence[Path]) -> list[Source]:
    """The files of data that a fine-tuning read. Data of the Hub and built-in data have none."""
    found = []
    for split, facts in ((run.get("data") or {}).get("splits") or {}).items():
        own = run["flags"].get(f"{split.split('_')[0]}_file")
        name = own or (facts.get("source") if run["flags"].get("data_dir") else None)
        digest = facts.get("file_sha256" if "divided" in facts else "sha256")  # of a part, or of all rows of a file
        if name and digest:
            places = [*(path for path in given if path.name == Path(name).name), Path(name)]
            fit = (path.absolute() for path in places if path.is_file() and sha256(path) == digest)
            found.append(Source(split, name, next(fit, None)))
    return found


class Validation:
    """The validation data of a run, as its script reads it.

    Args:
        folder: the folder of the finished run.
        run: its run.json.
        state: the tensors of the network, by name.

    Attributes:
        missing: why there is none; "" if there is.
        lost: whether run.json names some, which is not at hand.
        parts: the files that have it; of a run that divided its training data, that of the training data.
    """

    def __init__(
        self, folder: Path, run: dict[str, Any] | None, state: Mapping[str, torch.Tensor], given: Sequence[Path]
    ):
        self.folder, self.run, self.state, self.missing = folder, run, state, ""
        self.parts: list[Source] = []
        self.train: Source | None = None
        self.builtin = self.divided = self.lost = False
        self.recorded: list[np.ndarray] = []  # torch's logits
        if run is None:
            self.missing = "the folder has no run.json, which names the validation data"
            return
        if SCRIPTS[run["script"]].pretrains:
            self.missing = "of a pre-trained network no validation score is compared"
            return
        flags = run["flags"]
        named = [flags.get(name) for name in ("train_file", "validation_file", "data_dir", "dataset_name")]
        task = str(flags.get("task_name") or "builtin_")
        self.builtin = not any(named) and task.startswith("builtin_")
        found = sources(run, given)
        self.divided = any(flags.get(name) for name in ("validation_split", "folds"))
        self.parts = [one for one in found if one.split.startswith("train" if self.divided else "validation")]
        self.train = next((one for one in found if one.split == "train" and one.path), None)
        if self.divided and "thresholds" in run:
            self.missing = "the script would find other thresholds on the part held out of the training data"
            return
        lost = [f"no {one.name} with the SHA-256 in run.json is at hand" for one in self.parts if one.path is None]
        self.lost = bool(lost)
        if lost or not (self.parts or self.builtin):
            self.missing = lost[0] if lost else "run.json names no file of it"

    @property
    def unknown(self) -> bool:
        """Whether the run fine-tuned a network, but its score cannot be computed again."""
        return bool(self.missing) and self.run is not None and not SCRIPTS[self.run["script"]].pretrains

    @property
    def name(self) -> str:
        """What is scored, for the record."""
        names = "built-in" if self.builtin else ", ".join(Path(one.name).name for one in self.parts)
        return f"the part of {names} that was held out" if self.divided else names

    def evaluate(self, file: OnnxFile | OpenVinoFile | None) -> Evaluation:
        """Score the network of the folder, which comes first, or an exported file in its place."""
        scores: dict[str, float | None] = {}
        if file is None:
            self.recorded.clear()
        watch, metric, answers = _Watch(file, self.state, self.recorded), "", list[Any]()
        for path in [one.path for one in self.parts] or [None]:
            called = self._call({} if path is None else self._data_flags(path), watch)
            metric = self._metric(called["results"], called["metric"])
            value, factor = value_of(called["results"], metric), percent_factor(called["results"])
            scores[path.name if path else "built-in"] = None if value is None else float(value) * factor
            answers += called["answers"]
        return Evaluation(metric, scores, answers, watch.difference, watch.rows)

    def training_rows(self, file: str | None) -> Features:
        """The features of the training data, or of another file that the script reads as training data.

        Raises:
            ValueError: there is no such data, or it is the validation data.
        """
        if file is None and not self.builtin and (self.run is None or self.train is None):
            raise UserError(
                "--quantize static needs text to calibrate with, and the folder's training data is not at hand; give "
                "--calibration FILE with text of the kind that the model was trained on"
            )
        path = Path(file).absolute() if file else self.train.path if self.train else None
        if path is None:
            return self._call({}, None)["train"]
        check_not_validation(path, self.run)
        own = self.train.path if self.train else None
        same = own is not None and path.exists() and path.samefile(own)
        if self.divided and (file is None or same):  # the part of it that was trained on
            return self._call(self._data_flags(path), None)["train"]
        held_out = next((one.path for one in self.parts if one.path), path)
        return self._call({"train_file": str(path), "validation_file": str(held_out)}, None)["train"]

    def _metric(self, results: Mapping[str, Any], usual: str) -> str:
        """The key of the score: that of --metric_for_best_model if higher is better, otherwise the task's usual one.

        In place of SQuAD 2.0's best score of all thresholds stands that with the stored one, which the model applies.
        """
        asked = (self.run or {}).get("flags", {}).get("metric_for_best_model")
        name = f"eval_{str(asked or '').removeprefix('eval_').removeprefix('best_')}"
        known = name in results or value_of(results, name) is not None
        return name if known and goodness(name, 1.0) > 0 else usual

    def _data_flags(self, path: Path) -> dict[str, str]:
        """The flag by which the script finds its validation data in one of the files of it."""
        return {"train_file" if self.divided else "validation_file": str(path)}

    def _evaluation_flags(self) -> dict[str, Any]:
        """The flags of the run's evaluation, with the no-answer threshold that is stored with the model.

        run.json has the one of the training, 0 as a rule; whoever asks the finished model applies the stored one.
        """
        assert self.run is not None
        flags = self.run["flags"]
        if flags.get("version_2_with_negative"):
            flags = flags | {FIELD: read_object(self.folder / "config.json").get(FIELD)}
        return evaluation_flags(self.run | {"flags": flags})

    def _call(self, flags: dict[str, Any], watch: _Watch | None) -> dict[str, Any]:
        """Let the script read its data and, with a watch, evaluate; return what was seen."""
        assert self.run is not None
        recorded, seen = self.run, dict[str, Any]()

        def tune(
            run: Any, model: PreTrainedModel, origin: Any, train: Any, evaluate: Any, metric: str, *_: Any, **__: Any
        ) -> NoReturn:
            seen.update(train=train, metric=metric)
            model.config.update({"unpad_inputs": False})  # as the exported file computes
            if watch:
                if self.builtin and not _same_data(origin.data, recorded):
                    raise UserError("this Python's documentation is another one than the run read")
                watch.attach(model)
                seen["results"], outcome = evaluate(model.to(run.device), 0)
                seen["answers"] = answers_of(outcome, model.config)
            raise _Done

        with tempfile.TemporaryDirectory(prefix="bert-repro-export-") as place, _captured() as said:
            of_run = self._evaluation_flags()
            if "validation_file" in flags:  # no part of the training data is held out then
                of_run = {name: value for name, value in of_run.items() if name not in OF_ROWS}
            flags = of_run | flags | {"mixed_precision": "no"}
            flags |= {"model_name_or_path": str(self.folder), "output_dir": f"{place}/run", "save_steps": 0}
            write_json(Path(place, "flags.json"), flags)
            try:
                script(recorded["script"]).main([f"--config={place}/flags.json"], tune)
            except _Done:
                return seen
            except SystemExit as error:
                lines = said.getvalue().strip().splitlines() or ["no message"]
                raise UserError(f"{self.run['script']} refuses this folder: {lines[-1]}") from error
        raise AssertionError("the script has not evaluated")


def check_not_validation(path: Path, run: dict[str, Any] | None) -> None:
    """Refuse to calibrate with what scores the result; its hash decides, whatever it is called."""
    splits = ((run or {}).get("data") or {}).get("splits", {}) if isinstance((run or {}).get("data"), dict) else {}
    held_out = {part.get("sha256") for split, part in splits.items() if split.startswith(("validation", "test"))}
    trained = {part.get("sha256") for split, part in splits.items() if split == "train"}
    if path.is_file() and sha256(path) in held_out - trained:
        raise UserError(
            f"--calibration {path}: this is the data that scores the result; calibrate with text of the training"
        )


def plain_rows(path: str, tokenizer: Any, length: int) -> Features:
    """The lines of a text file as rows, for networks that no script of fine-tuning has made.

    Raises:
        ValueError: the file has no text.
    """
    lines = [line.strip() for _, line in numbered_lines(path) if line.strip()][: 4 * CALIBRATION_ROWS]
    if not lines:
        raise UserError(f"--calibration {path}: expected text, one or more lines of it; found 0 rows")
    found = tokenizer(lines, truncation=True, max_length=length, return_token_type_ids=True)
    return Features({name: found[name] for name in ("input_ids", "token_type_ids")}, tokenizer.pad_token_id)


def calibration_batches(features: Features, size: int = 8) -> list[Batch]:
    """Batches of at most CALIBRATION_ROWS rows, drawn from all rows with one seed."""
    drawn = np.random.default_rng(0).permutation(len(features))[:CALIBRATION_ROWS]
    parts = (drawn[begin : begin + size] for begin in range(0, len(drawn), size))
    collated = (features.collate(part) for part in parts)
    return [{name: batch[name].numpy().astype(np.int64) for name in INPUTS} for batch in collated]


def padded(rows: Sequence[tuple[np.ndarray, np.ndarray]], pad_token_id: int) -> Batch:
    """Rows (L,) or (C, L) as one batch."""
    longest = max(ids.shape[-1] for ids, _ in rows)
    batch: dict[str, list[np.ndarray]] = {name: [] for name in INPUTS}
    for ids, types in rows:
        room = [(0, 0)] * (ids.ndim - 1) + [(0, longest - ids.shape[-1])]
        batch["input_ids"].append(np.pad(ids, room, constant_values=pad_token_id))
        batch["attention_mask"].append(np.pad((ids != pad_token_id).astype(np.int64), room))
        batch["token_type_ids"].append(np.pad(types, room))
    return {name: np.stack(column).astype(np.int64) for name, column in batch.items()}


def _same_data(data: dict[str, Any], run: dict[str, Any]) -> bool:
    def content(of: dict[str, Any]) -> list[Any]:
        splits = of["splits"].items()
        return [part.get("sha256") for split, part in splits if split.startswith("validation")]

    return content(data) == content(run["data"])


@functools.cache
def script(name: str) -> Any:
    """The module of a script."""
    spec = importlib.util.spec_from_file_location(f"bert_repro_{Path(name).stem}", path_of(name))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _captured() -> Iterator[io.StringIO]:
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        yield said
