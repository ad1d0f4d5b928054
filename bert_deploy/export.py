"""Export a finished model for programs that only compute, and refuse the result if it has become worse.

    bert-repro export runs/mails --output_dir exported/mails
    bert-repro export runs/mails --quantize --max_drop 1 --output_dir exported/mails8
    bert-repro export runs/first --encoder_alone --output_dir exported/embeddings

The head is that of the folder's config.json. onnx/model.onnx has float32 numbers and, with --quantize,
onnx/model_quantized.onnx has weights in 8 bits, and finds the ranges of activations anew for every batch. config.json
and the tokenizer are beside it, where transformers.js, sentence-transformers and optimum look for them.

torch and every file are scored on the validation data that run.json names, by the script that trained the model. If a
file loses more than --max_drop points, nothing is left in the output folder; --force keeps it and says so. Without
validation data, only the outputs for built-in sentences are compared. Scores, agreement, milliseconds and bytes are
printed and written to export.json. Needs pip install ".[deploy]".
"""

import argparse
import functools
import platform
import statistics
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import transformers
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_deploy.export_record import BATCH, EXPORT, SMALL, WHOLE, card_text, check_labels, sealed, table
from bert_deploy.export_scores import Evaluation, Validation
from bert_deploy.onnx_files import (
    INPUTS,
    OPSET,
    Batch,
    Compute,
    OnnxFile,
    needed_packages,
    quantize,
    write_onnx,
)
from bert_deploy.verify import files_in
from bert_training.engine.launch import device_name, versions
from bert_training.files.atomic import check_free, json_text, make_folder, new_folder, write_json, write_text
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import ENCODER, HEADS, SCRIPTS
from bert_training.inputs.models import check_fit, checkpoint_config
from bert_training.inputs.reading import read_object
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.networks.embedding_modules import LIMITS, MODULE_LIST, embedding_modules, write_files
from bert_training.networks.initial_weights import load_network, weights_sha256
from bert_training.record import RUN, Record
from bert_training.tasks.stored_flags import stored_length
from tokenization.bert_tokenizer import save_tokenizer_files
from tokenization.errors import UserError

SENTENCES = (
    "One short sentence.",
    "The letter came on Monday, and nobody in the house had expected it so early in the year.",
    "Where is the key?",
    "She opened the window, looked at the river for a while, and then she read the second page again.",
)
# The largest difference to torch that a file may have for the built-in sentences, as a share of the span of torch's
# numbers: rounding in float32, and what 8 bits usually change several times over.
MOST_DIFFERENCE = {"none": 1e-3, "8 bits": 0.5}
ROUNDS = 5  # of the timing
Row = tuple[np.ndarray, np.ndarray]  # token ids and types, (L,) or, for multiple choice, (C, L)


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

    def torch_outputs(self, batch: Batch) -> Batch:
        """What torch computes for a batch."""
        with torch.inference_mode():
            found = self.network(**{name: torch.from_numpy(batch[name]) for name in INPUTS})
        return {name: found[name].numpy() for name in self.outputs}

    def rows(self) -> list[Row]:
        """The built-in sentences as inputs."""
        if self.name == "BertForMultipleChoice":
            choices = [self.batch(self._rows([SENTENCES[row]] * 3, list(SENTENCES[:3]))) for row in range(3)]
            return [(one[INPUTS[0]], one[INPUTS[2]]) for one in choices]
        pair = self.name in ("BertForQuestionAnswering", "BertForNextSentencePrediction")
        return self._rows(list(SENTENCES), list(SENTENCES[::-1]) if pair else None)

    def _rows(self, first: list[str], second: list[str] | None) -> list[Row]:
        longest = int(self.network.config.max_position_embeddings)
        found = self.tokenizer(first, second, truncation=True, max_length=longest, return_token_type_ids=True)
        return [(np.array(ids), np.array(types)) for ids, types in zip(found[INPUTS[0]], found[INPUTS[2]])]

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows as one batch (B, L) or (B, C, L)."""
        longest, pad = max(ids.shape[-1] for ids, _ in rows), cast("int", self.tokenizer.pad_token_id)

        def padded(values: np.ndarray, filler: int) -> np.ndarray:
            room = [(0, 0)] * (values.ndim - 1) + [(0, longest - values.shape[-1])]
            return np.pad(values, room, constant_values=filler)

        columns = [[padded(ids, pad), padded((ids != pad) * 1, 0), padded(types, 0)] for ids, types in rows]
        found = {name: np.stack(column).astype(np.int64) for name, column in zip(INPUTS, zip(*columns))}
        return found | {INPUTS[2]: found[INPUTS[2]].clip(max=self.network.config.type_vocab_size - 1)}


# --- what is exported ------------------------------------------------------------------------------------------------


def open_model(folder: Path, encoder_alone: bool) -> Model:
    """The network of a folder, of transformers' class, with every weight from the folder.

    Raises:
        ValueError: it is no folder of a BERT with weights, the class has no counterpart in transformers, the weights
            lack a part of the head, the labels contradict each other, or it holds modules of sentence-transformers that
            do not fit.
    """
    config = checkpoint_config(str(folder), "")
    path, named = folder / "config.json", config.architectures or []
    known = [name for name, head in HEADS.items() if head.exported]
    class_name = next((name for name in named if name in known), None)
    if class_name is None and not (encoder_alone and named):
        raise UserError(
            f"{path}: expected in 'architectures' one of {', '.join(known)}, which transformers has too; got "
            f"{', '.join(named) or 'no name'}. --encoder_alone exports the encoder of any of them"
        )
    name = ENCODER if encoder_alone else str(class_name).replace("PreTraining", "MaskedLM")
    run = Record.read(folder).facts if (folder / RUN).is_file() else None
    run = run if run and run.get("script") in SCRIPTS else None
    check_labels(path, read_object(path), run)
    may_be_new = ("pooler.",) if name == ENCODER else ()
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    network = load_network(getattr(transformers, name), str(folder), may_be_new, config=config, **options).model
    tokenizer = load_tokenizer(str(folder))  # it warns of a tokenizer that is not the one of the run
    check_fit(cast("BertConfig", network.config), tokenizer, 4)
    modules = embedding_modules(str(folder)) if name == ENCODER else {}
    network.eval().set_attn_implementation("sdpa")
    return Model(folder, name, HEADS[name].outputs, network, tokenizer, run, modules)


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


# --- the gate --------------------------------------------------------------------------------------------------------


class Gate(NamedTuple):
    """What decides whether a file may be kept: torch's score, or None to compare outputs alone."""

    model: Model
    validation: Validation
    before: Evaluation | None

    def judge(self, path: Path, max_drop: float) -> tuple[dict[str, Any], str]:
        """What is known of a file, and what is wrong with it, a sentence; "" if nothing is."""
        name, file = f"{path.parent.name}/{path.name}", OnnxFile(path)
        most = MOST_DIFFERENCE["8 bits" if name == SMALL else "none"]
        difference, share = difference_of(self.model, file)
        size = sum(part.stat().st_size for part in path.parent.glob(f"{path.stem}.*"))  # weights may be beside it
        facts: dict[str, Any] = {"bytes": size, "difference": difference, "share_of_span": share}
        if self.before and (name == SMALL or share <= most):
            return self._scored(name, file, facts, max_drop)
        near = f"{name}: its outputs differ from torch's by up to {difference:.2g}, {100 * share:.2g} % of their span"
        return facts, "" if share <= most else f"{near}, more than {100 * most:g} %"

    def _scored(self, name: str, file: Compute, facts: dict[str, Any], max_drop: float) -> tuple[dict[str, Any], str]:
        before, after = cast("Evaluation", self.before), self.validation.evaluate(file)
        # A score that is no longer defined, such as the correlation of constant predictions, has lost all.
        drop = 0.0 if before.score is None else before.score - (after.score or 0.0)
        changed = sum(one != other for one, other in zip(before.answers, after.answers, strict=True))
        facts |= {"score": after.score, "drop": drop, "changed": None if None in before.answers else changed}
        if drop <= max_drop:
            return facts, ""
        return facts, (
            f"{name}: {before.metric} fell from {before.score:.2f} to {after.score or 0:.2f}, {drop:.2f} points, more "
            f"than --max_drop {max_drop:g}; {changed:,} of {len(before.answers):,} rows are answered differently"
        )


def difference_of(model: Model, file: Compute) -> tuple[float, float]:
    """The largest difference to torch for the built-in sentences, and that as a share of the span of torch's numbers.

    Whole batches and single rows are compared, so that a file that is right for one size only is found.
    """
    rows, differences, spans = model.rows(), [0.0], [0.0]
    for part in (rows, rows[:1], rows[1:3]):
        batch = model.batch(part)
        real = batch["attention_mask"].astype(bool)
        found = file(batch)
        for name, ours in model.torch_outputs(batch).items():
            assert ours.shape == found[name].shape
            per_token = ours.shape[: real.ndim] == real.shape
            one, other = (ours[real], found[name][real]) if per_token else (ours, found[name])
            differences.append(float(np.abs(one - other).max()))
            spans.append(max(float(one.max() - one.min()), float(np.abs(one).max())))
    largest, span = float(np.max(differences)), max(spans)  # numpy's maximum, which keeps what is not a number
    return largest, largest / span if span else 0.0


def open_gate(folder: Path, encoder_alone: bool, given: Sequence[Path]) -> Gate:
    """The network of a folder and, if there is validation data, its score. Raises ValueError as ``open_model`` does."""
    model = open_model(folder, encoder_alone)
    same_head = model.run is not None and model.run["script"] in HEADS[model.name].scripts
    validation = Validation(folder, model.run if same_head else None, given)
    return Gate(model, validation, None if validation.missing else validation.evaluate(model.torch_outputs))


def score_files(gate: Gate, folder: Path, record: dict[str, Any], max_drop: float) -> list[str]:
    """Fill in the record with what torch and every file compute; return what is wrong with them, a sentence each."""
    record["torch"], record["files"], problems = {"bytes": 4 * gate.model.network.num_parameters()}, {}, list[str]()
    if gate.before:
        record |= {"metric": gate.before.metric, "rows": len(gate.before.answers)}
        record["torch"]["score"] = gate.before.score
    for name in (name for name in (WHOLE, SMALL) if (folder / name).is_file()):
        record["files"][name], problem = gate.judge(folder / name, max_drop)
        problems += [problem] if problem else []
    return problems


def milliseconds(model: Model, files: Mapping[str, Compute], batches: Sequence[Batch]) -> dict[str, dict[str, float]]:
    """Milliseconds of torch and of every file for one text, and for a batch of 32: the medians of rounds in turn.

    Args:
        batches: what an evaluation read; the texts are drawn from them with one seed.
    """
    rows = [row for batch in batches for row in rows_of(batch)] or model.rows()
    drawn = [rows[number % len(rows)] for number in np.random.default_rng(0).permutation(max(len(rows), BATCH))[:BATCH]]
    asked = {"ms_one": model.batch(drawn[:1]), "ms_batch": model.batch(drawn)}
    found: dict[str, dict[str, list[float]]] = {name: {key: [] for key in asked} for name in ("torch", *files)}
    for _ in range(ROUNDS + 1):  # the first one warms up
        for name, times in found.items():
            compute = files.get(name, model.torch_outputs)
            for key, batch in asked.items():
                times[key].append(1000 * timeit.timeit(functools.partial(compute, batch), number=1))
    return {name: {key: statistics.median(of[1:]) for key, of in times.items()} for name, times in found.items()}


def rows_of(batch: Batch) -> list[Row]:
    """The rows of a batch without the padding on their right."""
    masks = batch[INPUTS[1]]
    lengths = [int(mask.reshape(-1, mask.shape[-1]).any(0).nonzero()[0][-1]) + 1 for mask in masks]
    columns = (batch[INPUTS[0]], batch[INPUTS[2]], lengths)
    return [(ids[..., :length], types[..., :length]) for ids, types, length in zip(*columns)]


# --- the command -----------------------------------------------------------------------------------------------------


def export(args: argparse.Namespace) -> dict[str, Any]:
    """Write the folder, whole or not at all; return what export.json says.

    Raises:
        ValueError: a mistake in the flags or the folder, or the result is worse than --max_drop allows.
    """
    out = Path(args.output_dir)
    check_free(out)
    packages = needed_packages()
    gate = open_gate(Path(args.folder), args.encoder_alone, files_in(args.data))
    missing = gate.validation.missing
    if missing and args.quantize and gate.validation.fine_tuned and not args.force:
        raise UserError(
            f"{args.folder}: the validation data cannot be scored ({missing}); give --data with the folder that has "
            "it, or --force to keep files whose score nobody knows"
        )
    record = facts_of(gate, args) | {"versions": versions() | packages}
    make_folder(out.parent)
    with new_folder(out) as draft:
        write_networks(gate.model, draft, args)
        if missing:
            print(f"no validation data; {missing}: only the outputs for built-in sentences are compared")
        record["forced"] = score_files(gate, draft, record, args.max_drop)
        files = {name: OnnxFile(draft / name) for name in record["files"]}
        for name, times in milliseconds(gate.model, files, gate.before.batches if gate.before else []).items():
            (record["torch"] if name == "torch" else record["files"][name]).update(times)
        seal(draft, record, args.force)
    return record


def facts_of(gate: Gate, args: argparse.Namespace) -> dict[str, Any]:
    """What export.json says of the model and the flags."""
    model, validation = gate.model, gate.validation
    return {
        "format": "onnx",
        "architecture": model.name,
        "inputs": list(INPUTS),
        "outputs": list(model.outputs),
        "opset": OPSET,
        "model": model.folder.resolve().name,
        "weights_sha256": weights_sha256(str(model.folder), local_files_only=True),
        "device": f"{device_name(torch.device('cpu'))}, {platform.processor() or platform.machine()}",
        "validation": None if validation.missing else validation.name,
        "rows": None,
        "metric": None,
        "max_drop": args.max_drop,
    }


def write_networks(model: Model, draft: Path, args: argparse.Namespace) -> None:
    """Write the files of the network, and config.json and the tokenizer beside them."""
    make_folder(draft / "onnx")
    write_onnx(model.network, model.outputs, model.batch(model.rows()[:3]), draft / WHOLE)
    model.network.set_attn_implementation("sdpa")  # as transformers' pipelines compute; the file is written without it
    if args.quantize:
        quantize(draft / WHOLE, draft / SMALL)
    write_beside(model, draft)


def seal(draft: Path, record: dict[str, Any], force: bool) -> None:
    """Print the comparison; write the card and export.json. Raises ValueError if a file is worse, without ``force``."""
    if count := record["rows"]:
        print(f"scored on {count:,} rows; --max_drop {record['max_drop']:g}")
    print(table(record), flush=True)
    problems = "; ".join(record["forced"])
    if problems and not force:
        raise UserError(f"{problems}; nothing was written (--force keeps it, --max_drop allows more)")
    if problems:
        print(f"warning: {problems}; kept because of --force")
    write_text(draft / "README.md", card_text(record))
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    record["sha256"] = {path.relative_to(draft).as_posix(): sha256(path) for path in files}
    write_json(draft / EXPORT, sealed(record))


def main(argv: list[str] | None = None) -> None:
    """Export a folder. Raises ValueError for a mistake in the flags or the folder, or for a result that is worse."""
    parser = command_parser("export", __doc__)
    parser.add_argument("folder", metavar="DIR", help="the folder of a finished model, with weights in float32")
    parser.add_argument("--quantize", action="store_true", help="also write an ONNX file with weights in 8 bits")
    parser.add_argument("--data", nargs="+", default=[], help="files of the run's data, or folders that have them")
    parser.add_argument("--encoder_alone", action="store_true", help="export the encoder without its head")
    parser.add_argument("--max_drop", type=float, default=0.5, help="points of 100 that a score may lose (0.5)")
    parser.add_argument("--force", action="store_true", help="keep a result that is worse, and say so")
    parser.add_argument("--output_dir", required=True, help="the folder to write; it must be new or empty")
    args = parser.parse_args(argv)
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    record = export(args)
    print(f"{args.output_dir}: {record['architecture']}, {', '.join(record['files'])}, export.json")
