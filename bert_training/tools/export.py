"""Export a finished model for programs that only compute, and refuse the result if it has become worse.

    bert-repro export runs/mails --output_dir exported/mails
    bert-repro export runs/mails --quantize dynamic --output_dir exported/mails8
    bert-repro export runs/mails --quantize static --max_drop 1 --output_dir exported/mails8
    bert-repro export runs/first --encoder_alone --output_dir exported/embeddings

The head is that of the folder's config.json. onnx/model.onnx has float32 numbers and, with --quantize,
onnx/model_quantized.onnx has weights in 8 bits: dynamic finds the ranges of activations anew for every batch, static
finds them once, on training text. config.json and the tokenizer are beside it, where transformers.js,
sentence-transformers and optimum look for them.

torch and every file are scored on the validation data that run.json names, by the script that trained the model. If a
file loses more than --max_drop points, nothing is left in the output folder; --force keeps it and says so. Without
validation data, only the outputs for built-in sentences are compared. Scores, agreement, milliseconds and bytes are
printed and written to export.json. Needs pip install ".[train,export]"; --format openvino, which makes
openvino_model.xml from the ONNX file, needs ".[train,export,openvino]".
"""

import argparse
import math
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.versions import device_name, versions
from bert_training.files.atomic import is_occupied, json_text, make_folder, new_folder, write_json, write_text
from bert_training.files.hashing import sha256
from bert_training.files.json_files import read_object
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.inputs.models import check_fit, checkpoint_config
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.networks.embedding_modules import LIMITS, MODULE_LIST, embedding_modules, write_files
from bert_training.networks.initial_weights import load_network, weights_sha256
from bert_training.record import RUN, Record
from bert_training.tasks.stored_flags import stored_length
from bert_training.tools.export_scores import (
    Evaluation,
    Validation,
    calibration_batches,
    check_not_validation,
    padded,
    plain_rows,
)
from bert_training.tools.exported import (
    BATCH,
    EXPORT,
    OPENVINO,
    SMALL,
    WHOLE,
    card_text,
    check_labels,
    sealed,
    table,
)
from bert_training.tools.onnx_files import FIRST_OPSET, INPUTS, Batch, OnnxFile, check_installed, write_onnx
from bert_training.tools.onnx_int8 import most_harmful, names_of_products, quantize
from bert_training.tools.openvino_files import OpenVinoFile, check_openvino, quantize_openvino, write_openvino
from bert_training.tools.verify_scores import files_in
from tokenization.bert_tokenizer import save_tokenizer_files
from tokenization.errors import UserError
from tokenization.special_tokens import check_special_tokens

ENCODER, MASKED = "BertModel", "BertForMaskedLM"
# The class in config.json: the class that is exported, and the names of its outputs in the file.
HEADS = {
    ENCODER: (ENCODER, ("last_hidden_state",)),
    "BertForPreTraining": (MASKED, ("logits",)),
    MASKED: (MASKED, ("logits",)),
    "BertForNextSentencePrediction": ("BertForNextSentencePrediction", ("logits",)),
    "BertForSequenceClassification": ("BertForSequenceClassification", ("logits",)),
    "BertForTokenClassification": ("BertForTokenClassification", ("logits",)),
    "BertForMultipleChoice": ("BertForMultipleChoice", ("logits",)),
    "BertForQuestionAnswering": ("BertForQuestionAnswering", ("start_logits", "end_logits")),
}
# How many of the layers that hurt most are left in float32, one number after the other, if the gate asks for it.
LEFT_IN_FLOAT = (1, 2, 4, 8)
SENTENCES = (
    "One short sentence.",
    "The letter came on Monday, and nobody in the house had expected it so early in the year.",
    "Where is the key?",
    "She opened the window, looked at the river for a while, and then she read the second page again.",
)
# The largest difference to torch that a file may have for the built-in sentences, as a share of the span of torch's
# numbers: rounding in float32, and what 8 bits usually change several times over.
MOST_DIFFERENCE = {"none": 1e-3, "8 bits": 0.5}
ROWS, ROUNDS = 64, 5  # of the timing
IN_POINTS = ("scores", "drop")  # of 100
MEASURED = ("ms_one", "ms_batch", "peak_memory_bytes")  # what is measured once, when the files are written


@dataclass
class Model:
    """What is exported, and what is known of its folder."""

    folder: Path
    name: str
    outputs: tuple[str, ...]
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    run: dict[str, Any] | None
    modules: dict[str, bytes]

    def torch_outputs(self, batch: Batch) -> dict[str, np.ndarray]:
        """What torch computes for a batch."""
        with torch.inference_mode():
            found = self.network(**{name: torch.from_numpy(batch[name]) for name in INPUTS})
        return {name: found[name].numpy() for name in self.outputs}

    def rows(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The built-in sentences as inputs: token ids and types, (L,) or, for multiple choice, (C, L)."""
        if self.name == "BertForMultipleChoice":
            pairs = [self._rows([SENTENCES[row]] * 3, list(SENTENCES[:3])) for row in range(3)]
            return [tuple(padded(choices, self._pad)[name] for name in (INPUTS[0], INPUTS[2])) for choices in pairs]  # type: ignore[misc]
        pair = self.name in ("BertForQuestionAnswering", "BertForNextSentencePrediction")
        return self._rows(list(SENTENCES), list(SENTENCES[::-1]) if pair else None)

    @property
    def _pad(self) -> int:
        return cast("int", self.tokenizer.pad_token_id)

    def _rows(self, first: list[str], second: list[str] | None) -> list[tuple[np.ndarray, np.ndarray]]:
        longest = int(self.network.config.max_position_embeddings)
        found = self.tokenizer(first, second, truncation=True, max_length=longest, return_token_type_ids=True)
        return [(np.array(ids), np.array(types)) for ids, types in zip(found[INPUTS[0]], found[INPUTS[2]])]

    def batch(self, rows: list[tuple[np.ndarray, np.ndarray]]) -> Batch:
        """Rows as one batch."""
        found = padded(rows, self._pad)
        return found | {INPUTS[2]: found[INPUTS[2]].clip(max=self.network.config.type_vocab_size - 1)}


# --- what is exported ------------------------------------------------------------------------------------------------


def open_model(folder: Path, encoder_alone: bool) -> Model:
    """The network of a folder, of transformers' class, with every weight from the folder.

    Raises:
        ValueError: it is no folder of a BERT with weights, it holds an export or quantised weights, the class has no
            counterpart in transformers, the weights lack a part of the head, the labels contradict each other, what is
            copied is a link out of the folder, or it holds modules of sentence-transformers that do not fit.
    """
    path = folder / "config.json"
    if folder.suffix == ".onnx":
        raise UserError(f"{folder}: is exported already; give the folder of the model that it was made of")
    config = checkpoint_config(str(folder), "")
    fields = read_object(path)
    if "quantization_config" in fields:
        raise UserError(
            f"{path}: the weights are quantised already (quantization_config); give the model in float32 that they "
            "were made of"
        )
    named = fields.get("architectures")
    found = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    class_name = next((name for name in found if name in HEADS), None)
    if class_name is None and not (encoder_alone and found):
        raise UserError(
            f"{path}: expected in 'architectures' one of {', '.join(HEADS)}, which transformers has too; got "
            f"{', '.join(found) or 'no name'}. --encoder_alone exports the encoder of any of them"
        )
    name, outputs = HEADS[ENCODER if encoder_alone else str(class_name)]
    run = Record.read(folder).facts if (folder / RUN).is_file() else None
    check_labels(path, fields, run)
    may_be_new = ("pooler.",) if name == ENCODER else ()
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    loaded = load_network(getattr(transformers, name), str(folder), may_be_new, config=config, **options)
    tokenizer = load_tokenizer(str(folder), quiet=True)
    check_special_tokens(tokenizer)
    check_fit(cast("BertConfig", loaded.model.config), tokenizer, 4)
    modules = embedding_modules(str(folder)) if name == ENCODER else {}
    return Model(folder, name, outputs, loaded.model.eval(), tokenizer, run if run and is_known(run) else None, modules)


def is_known(run: dict[str, Any]) -> bool:
    """Whether a run.json is that of a script of this project."""
    return run.get("script") in SCRIPTS and isinstance(run.get("flags"), dict)


def write_beside(model: Model, folder: Path) -> None:
    """Write config.json and the tokenizer, and for an encoder what sentence-transformers reads of its pooling."""
    config = read_object(model.folder / "config.json")
    config.pop("auto_map", None)  # it names code that is not there
    write_json(folder / "config.json", config | {"architectures": [model.name]})
    positions = int(model.network.config.max_position_embeddings)
    save_tokenizer_files(model.tokenizer, folder, positions, model.network.config.type_vocab_size)
    if model.name == ENCODER:
        write_files(folder, model.modules or mean_of_tokens(model, positions))


def mean_of_tokens(model: Model, positions: int) -> dict[str, bytes]:
    """The modules of sentence-transformers by which the vector of a text is the normalised mean of its tokens'."""
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(paths.items())
    ]
    pooling = {"word_embedding_dimension": int(model.network.config.hidden_size), "pooling_mode_mean_tokens": True}
    limits = {"max_seq_length": stored_length(model.network.config) or positions, "do_lower_case": False}
    files = {MODULE_LIST: modules, LIMITS: limits, "1_Pooling/config.json": pooling}
    return {file: json_text(content).encode() for file, content in files.items()}


# --- the comparison --------------------------------------------------------------------------------------------------


def difference_of(model: Model, file: OnnxFile | OpenVinoFile) -> tuple[float, float]:
    """The largest difference to torch for the built-in sentences, and that as a share of the span of torch's numbers.

    Whole batches and single rows are compared, so that a file that is right for one size only is found.
    """
    rows, largest, span = model.rows(), 0.0, 0.0
    for part in (rows, rows[:1], rows[1:3]):
        batch = model.batch(part)
        real = batch["attention_mask"].astype(bool)
        found = file(batch)
        for name, ours in model.torch_outputs(batch).items():
            if ours.shape != found[name].shape:
                raise UserError(f"the file gives {name} the shape {found[name].shape}, and torch {ours.shape}")
            per_token = ours.shape[: real.ndim] == real.shape
            one, other = (ours[real], found[name][real]) if per_token else (ours, found[name])
            if not np.isfinite(other).all():
                raise UserError(f"the file gives {name} that are not finite, which torch's are")
            largest = max(largest, float(np.abs(one - other).max()))
            span = max(span, float(one.max() - one.min()), float(np.abs(one).max()))
    return largest, largest / span if span else 0.0


def embeddings(outputs: np.ndarray, batch: Batch) -> np.ndarray:
    """The normalised mean of the hidden states of real tokens, as sentence-transformers computes it: (B, H)."""
    mask = batch["attention_mask"][..., None]
    mean = (outputs * mask).sum(1) / mask.sum(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def timed_batch(model: Model, rows: list[tuple[np.ndarray, np.ndarray]]) -> Batch:
    """Rows that are drawn with one seed, as one batch."""
    return model.batch([rows[number] for number in _drawn(rows)[:BATCH]])


def _drawn(rows: Sequence[Any]) -> np.ndarray:
    return np.random.default_rng(0).permutation(max(len(rows), ROWS))[:ROWS] % len(rows)


def milliseconds(
    model: Model, files: Mapping[str, OnnxFile | OpenVinoFile], rows: list[tuple[np.ndarray, np.ndarray]]
) -> dict[str, tuple[float, float]]:
    """Milliseconds of torch and of every file for one text, and for a batch of 32: the medians of rounds in turn.

    torch computes as transformers' pipelines do, with the attention that it chooses itself.
    """
    batch = timed_batch(model, rows)
    ones = [model.batch([rows[number]]) for number in _drawn(rows)[:8]]
    model.network.set_attn_implementation("sdpa")
    systems: dict[str, Callable[[Batch], Any]] = {"torch": model.torch_outputs, **files}
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in systems}
    for number in range(ROUNDS + 1):  # the first one warms up
        for name, compute in systems.items():
            times = [_seconds(compute, one) for one in ones], [_seconds(compute, batch)]
            if number:
                for kept, new in zip(found[name], times):
                    kept.extend(new)
    return {name: (1000 * float(np.median(one)), 1000 * float(np.median(many))) for name, (one, many) in found.items()}


def _seconds(compute: Callable[[Batch], Any], batch: Batch) -> float:
    begin = time.perf_counter()
    compute(batch)
    return time.perf_counter() - begin


def drop_of(before: Evaluation, after: Evaluation) -> float:
    """How many points of 100 the score lost; of several validation sets, the largest loss."""
    pairs = [(score, after.scores[name]) for name, score in before.scores.items() if score is not None]
    # A score that is no longer defined, such as the correlation of constant predictions, has lost all.
    return max((score - (other or 0.0) for score, other in pairs), default=0.0)


# --- the command -----------------------------------------------------------------------------------------------------


def export(args: argparse.Namespace) -> dict[str, Any]:
    """Write the folder, whole or not at all; return what export.json says.

    Raises:
        ValueError: a mistake in the flags or the folder, or the result is worse than --max_drop allows.
    """
    out = Path(args.output_dir)
    if is_occupied(out):
        raise UserError(f"--output_dir {out} is not an empty folder; give another")
    if args.calibration and args.quantize != "static":
        raise UserError(f"--calibration has no effect with --quantize {args.quantize}; drop it, or give static")
    if not args.max_drop >= 0:
        raise UserError(f"--max_drop must be 0 or more points of 100; got {args.max_drop}")
    given = files_in(args.data)
    if args.format == "openvino" and args.quantize == "dynamic":
        raise UserError("--quantize dynamic is for --format onnx; OpenVINO's 8 bits need static")
    packages = check_installed(args.opset)
    if args.format == "openvino":
        packages |= check_openvino(args.quantize != "none")
    model, validation = open_with_data(Path(args.folder), args.encoder_alone, given)
    unscored = validation.lost or (args.quantize != "none" and validation.unknown)
    if unscored and not args.force:
        remedy = "give --data with the folder that has it, or " if validation.lost else "give "
        raise UserError(
            f"{args.folder}: the validation data cannot be scored ({validation.missing}); {remedy}--force to keep "
            "files whose score nobody knows"
        )
    batches = calibration(model, validation, args.calibration) if args.quantize == "static" else None
    reason = f"; {validation.missing}" if validation.missing else ""
    record: dict[str, Any] = {
        "format": args.format,
        "architecture": model.name,
        "inputs": list(INPUTS),
        "outputs": list(model.outputs),
        "opset": args.opset,
        "quantize": args.quantize,
        "calibration": _calibration_facts(args.calibration, batches),
        "model": model.folder.resolve().name,
        "weights_sha256": weights_sha256(str(model.folder), local_files_only=True),
        "versions": versions() | packages,
        "device": f"{device_name(torch.device('cpu'))}, {platform.processor() or platform.machine()}",
        "validation": None if validation.missing else validation.name,
        "rows": None,
        "metric": None,
        "max_drop": args.max_drop,
    }
    make_folder(out.parent)
    with new_folder(out) as draft:
        make_folder(draft / "onnx")
        write_onnx(model.network, model.outputs, model.batch(model.rows()[:3]), draft / WHOLE, args.opset)
        if args.format == "openvino":
            make_folder(draft / "openvino")
            write_openvino(draft / WHOLE, draft / OPENVINO[0])
            if batches:
                quantize_openvino(draft / OPENVINO[0], draft / OPENVINO[1], batches)
        elif args.quantize != "none":
            quantize(draft / WHOLE, draft / SMALL, batches)
        write_beside(model, draft)
        if validation.missing:
            print(f"no validation data{reason}: only the outputs for built-in sentences are compared", flush=True)
        problems, rows = score_files(model, validation, draft, record, args.max_drop, batches)
        measure(model, draft, record, rows)
        if count := record["rows"]:
            print(f"scored on {count:,} rows; --max_drop {args.max_drop:g}{beside_a_row(args.max_drop, count)}")
        if args.format == "openvino":
            shutil.rmtree(draft / "onnx")
        print(table(record), flush=True)
        if problems and not args.force:
            raise UserError(f"{'; '.join(problems)}; nothing was written (--force keeps it, --max_drop allows more)")
        record["forced"] = problems
        for problem in problems:
            print(f"warning: {problem}; kept because of --force")
        write_text(draft / "README.md", card_text(record))
        files = sorted(path for path in draft.rglob("*") if path.is_file())
        record["sha256"] = {path.relative_to(draft).as_posix(): sha256(path) for path in files}
        write_json(draft / EXPORT, sealed(record))
    return record


def open_with_data(folder: Path, encoder_alone: bool, given: Sequence[Path]) -> tuple[Model, Validation]:
    """The network of a folder, and the validation data that scores its head. Raises ValueError as ``open_model``."""
    model = open_model(folder, encoder_alone)
    validation = Validation(model.folder, scored_run(model), model.network.state_dict(), given)
    if model.run and validation.run is None:
        validation.missing = f"the run scored another head than {model.name}"
    return model, validation


def scored_again(folder: Path, record: Mapping[str, Any], run: Path, given: Sequence[Path]) -> tuple[Model, dict]:
    """The model of the folder that was exported, and what export.json would say now of the files of an export.

    Raises:
        ValueError: the model or its data is not at hand, or a package is missing that computes the files.
    """
    transformers.logging.disable_progress_bar()
    check_installed(record["opset"])
    if record["format"] == "openvino":
        check_openvino(False)
    model, validation = open_with_data(run, record["architecture"] == ENCODER, given)
    if record["validation"] and validation.missing:
        raise UserError(validation.missing)
    again = {"format": record["format"], "weights_sha256": weights_sha256(str(run), local_files_only=True)}
    score_files(model, validation, folder, again, math.inf)
    return model, again


def scored_run(model: Model) -> dict[str, Any] | None:
    """The run that says how the exported head is scored; None for another head than that of the run."""
    run = model.run
    fine_tuned = run is not None and model.name in SCRIPTS[run["script"]].heads
    return run if fine_tuned or (run is not None and SCRIPTS[run["script"]].pretrains) else None


def calibration(model: Model, validation: Validation, file: str | None) -> list[Batch]:
    """The batches of text that static quantisation is calibrated with."""
    trained = validation.run is not None and not SCRIPTS[validation.run["script"]].pretrains
    if trained and not (file and file.endswith(".txt") and model.name == "BertForSequenceClassification"):
        return calibration_batches(validation.training_rows(file))
    if file is None:
        raise UserError(f"--quantize static of a {model.name} without a run needs --calibration FILE, lines of text")
    if model.name in ("BertForMultipleChoice", "BertForQuestionAnswering"):
        raise UserError(f"--calibration {file}: lines of text are no input of a {model.name}; give the run's folder")
    check_not_validation(Path(file), model.run)
    length = stored_length(model.network.config) or min(128, int(model.network.config.max_position_embeddings))
    return calibration_batches(plain_rows(file, model.tokenizer, length))


def _calibration_facts(file: str | None, batches: list[Batch] | None) -> dict[str, Any] | None:
    if batches is None:
        return None
    rows = sum(len(batch["input_ids"]) for batch in batches)
    of_file = {"file": Path(file).name, "sha256": sha256(Path(file))} if file else {"file": "the training data"}
    return of_file | {"rows": rows}


def judge(
    model: Model, validation: Validation, path: Path, before: Evaluation | None, max_drop: float
) -> tuple[dict[str, Any], str]:
    """What is known of a file, and what is wrong with it, a sentence; "" if nothing is."""
    name, file = f"{path.parent.name}/{path.name}", opened(path)
    facts: dict[str, Any] = {"bytes": size_of(path)}
    facts["difference"], facts["share_of_span"] = difference_of(model, file)
    whole, problem = name in (WHOLE, OPENVINO[0]), ""
    most = MOST_DIFFERENCE["none" if whole else "8 bits"]
    if before and (not whole or facts["share_of_span"] <= most):
        after = validation.evaluate(file)
        drop, rows = drop_of(before, after), len(before.answers)
        changed = sum(one != other for one, other in zip(before.answers, after.answers, strict=True))
        facts |= {"scores": after.scores, "drop": drop}
        facts |= (
            {"changed": None, "agreement": None}
            if None in before.answers
            else {"changed": changed, "agreement": 1 - changed / rows}
        )
        facts["difference"] = max(after.difference, facts["difference"])
        if drop > max_drop:
            scores = (", ".join(f"{one or 0:.2f}" for one in of.scores.values()) for of in (before, after))
            problem = (
                f"{name}: {before.metric} fell from {' to '.join(scores)}, {drop:.2f} points, more than --max_drop "
                f"{max_drop:g}{beside_a_row(max_drop, rows)}; {changed:,} of {rows:,} rows are answered differently"
            )
    elif facts["share_of_span"] > most:
        problem = (
            f"{name}: its outputs differ from torch's by up to {facts['difference']:.2g}, "
            f"{100 * facts['share_of_span']:.2g} % of their span, more than {100 * most:g} %"
        )
    if model.name == ENCODER:
        batch = model.batch(model.rows())
        pair = [embeddings(one(batch)["last_hidden_state"], batch) for one in (model.torch_outputs, file)]
        facts["smallest_cosine"] = float((pair[0] * pair[1]).sum(1).min())
        print(f"{name}: smallest cosine to torch's embedding of a sentence {facts['smallest_cosine']:.4f}")
    return facts, problem


def beside_a_row(max_drop: float, rows: int) -> str:
    """A remark on a gate that no row may pass, because one of them is more points than it allows; "" for others."""
    return f", which is less than one of the {rows:,} rows ({100 / rows:.2f} points)" if max_drop < 100 / rows else ""


def opened(path: Path) -> OnnxFile | OpenVinoFile:
    """A file that is ready to compute."""
    return OpenVinoFile(path) if path.suffix == ".xml" else OnnxFile(path)


def size_of(path: Path) -> int:
    """The bytes of a file, with those of the weights beside it."""
    weights = path.with_suffix(".bin")
    return path.stat().st_size + (weights.stat().st_size if path.suffix == ".xml" and weights.is_file() else 0)


def score_files(
    model: Model,
    validation: Validation,
    folder: Path,
    record: dict[str, Any],
    max_drop: float,
    batches: Sequence[Batch] | None = None,
) -> tuple[list[str], list[tuple[np.ndarray, np.ndarray]]]:
    """Fill in the record with what torch and every file compute.

    Args:
        batches: training text; if 8 bits are too bad, the layers that hurt most are left in float32 by it.

    Returns:
        What is wrong with the files, a sentence each; and the rows of the validation data.
    """
    of_format = (WHOLE, SMALL) if record["format"] == "onnx" else OPENVINO
    names = [name for name in of_format if (folder / name).is_file()]
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.network.parameters())
    record["torch"], record["files"] = {"bytes": weights}, {}
    problems, rows = [], model.rows()
    before = None if validation.missing else validation.evaluate(None)
    if before:
        rows = before.rows
        record |= {"metric": before.metric, "rows": len(before.answers)}
        record["torch"]["scores"] = before.scores
    for name in names:
        facts, problem = judge(model, validation, folder / name, before, max_drop)
        if problem and name in (SMALL, OPENVINO[1]) and batches:
            left, facts, problem = leave_in_float(model, validation, folder / name, batches, before, max_drop)
            record["in_float"] = left
        record["files"][name] = facts
        problems += [problem] if problem else []
    return problems, rows


def measure(model: Model, folder: Path, record: dict[str, Any], rows: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Fill in the record with the time and the memory of torch and every file."""
    batch = timed_batch(model, rows)
    timed = milliseconds(model, {name: opened(folder / name) for name in record["files"]}, rows)
    for name, (one, many) in timed.items():
        facts = record["torch"] if name == "torch" else record["files"][name]
        facts |= {"ms_one": one, "ms_batch": many}
        facts["peak_memory_bytes"] = peak_memory(model, None if name == "torch" else folder / name, batch)


def leave_in_float(
    model: Model,
    validation: Validation,
    small: Path,
    batches: Sequence[Batch],
    before: Evaluation | None,
    max_drop: float,
) -> tuple[list[str], dict[str, Any], str]:
    """Quantise again with the most harmful layers in float32, as few as the gate wants.

    Which layers these are is found with ONNX files, also for OpenVINO.

    Args:
        small: the file in 8 bits; the files that it is made from are in its place in the draft.

    Returns:
        The names of these layers, and what ``judge`` says of the file; of the last one if none is good enough.
    """
    print("8 bits are too bad; looking for the layers that hurt most", flush=True)
    onnx_file = small.parents[1] / WHOLE
    harmful = most_harmful(onnx_file, batches)
    names = names_of_products(onnx_file) if small.suffix == ".xml" else {}
    for count in LEFT_IN_FLOAT:
        left = harmful[:count]
        if names:
            quantize_openvino(small.parents[1] / OPENVINO[0], small, batches, [names[layer] for layer in left])
        else:
            quantize(onnx_file, small, batches, left)
        facts, problem = judge(model, validation, small, before, max_drop)
        print(f"in float32: {', '.join(left)}: {problem or 'good enough'}", flush=True)
        if not problem:
            break
    return left, facts, problem


def peak_memory(model: Model, path: Path | None, batch: Batch) -> int | None:
    """Bytes of memory of a process of its own that computes a batch; None where that cannot be measured."""
    kind = "torch" if path is None else "openvino" if path.suffix == ".xml" else "onnx"
    program = Path(__file__).with_name("export_memory.py")
    with tempfile.TemporaryDirectory(prefix="bert-repro-export-") as place:
        np.savez(f"{place}/batch.npz", **cast("dict[str, Any]", batch))
        words = [sys.executable, str(program), kind, str(path or model.folder.resolve()), model.name]
        done = subprocess.run([*words, f"{place}/batch.npz"], capture_output=True, text=True, cwd=place)
    return int(done.stdout) if done.returncode == 0 else None


def main(argv: list[str] | None = None) -> None:
    """Export a folder. Raises ValueError for a mistake in the flags or the folder, or for a result that is worse."""
    parser = command_parser("export", __doc__)
    parser.add_argument("folder", metavar="DIR", help="the folder of a finished model, with weights in float32")
    parser.add_argument("--format", choices=["onnx", "openvino"], default="onnx", help="the format (default: onnx)")
    parser.add_argument(
        "--quantize", choices=["none", "dynamic", "static"], default="none", help="also write weights in 8 bits"
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="for static: text like that of the training, in a form that the training script reads, or .txt with a "
        "text a line; default: the training data that run.json names",
    )
    parser.add_argument("--data", nargs="+", default=[], help="files of the run's data, or folders that have them")
    parser.add_argument("--encoder_alone", action="store_true", help="export the encoder without its head")
    parser.add_argument(
        "--max_drop", type=float, default=0.5, help="points of 100 that a score may lose (default: 0.5)"
    )
    parser.add_argument("--opset", type=int, default=FIRST_OPSET, help=f"of ONNX (default: {FIRST_OPSET})")
    parser.add_argument("--force", action="store_true", help="keep a result that is worse, and say so")
    parser.add_argument("--output_dir", required=True, help="the folder to write; it must be new or empty")
    args = parser.parse_args(argv)
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    record = export(args)
    print(f"{args.output_dir}: {record['architecture']}, {', '.join(record['files'])}, export.json")
