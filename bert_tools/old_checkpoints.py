"""BERT checkpoints in older forms, read into transformers' names: TensorFlow 1, and pickled files of PyTorch.

Every tensor of a source is used exactly once or is known to be no weight of the network; any other tensor is an error.
``bert-repro convert`` writes them as a folder of today.
"""

import glob
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from transformers import BertConfig

from bert_tools.tensorflow_checkpoint import TensorFlowCheckpoint
from bert_training.files.hashing import is_plain_name
from bert_training.inputs.models import check_fields, lacks_weights
from bert_training.inputs.reading import read_json, read_object
from tokenization.errors import UserError

# google-research/bert -> transformers, for the whole name. `kernel` is stored as (inputs, outputs) and is transposed.
LAYER = r"bert/encoder/layer_(\d+)"
TENSORFLOW_NAMES = (
    (r"bert/embeddings/(word|position|token_type)_embeddings", r"bert.embeddings.\1_embeddings.weight"),
    (r"bert/embeddings/LayerNorm/(\w+)", r"bert.embeddings.LayerNorm.\1"),
    (LAYER + r"/attention/self/(query|key|value)/(\w+)", r"bert.encoder.layer.\1.attention.self.\2.\3"),
    (LAYER + r"/attention/output/(dense|LayerNorm)/(\w+)", r"bert.encoder.layer.\1.attention.output.\2.\3"),
    (LAYER + r"/intermediate/dense/(\w+)", r"bert.encoder.layer.\1.intermediate.dense.\2"),
    (LAYER + r"/output/(dense|LayerNorm)/(\w+)", r"bert.encoder.layer.\1.output.\2.\3"),
    (r"bert/pooler/dense/(\w+)", r"bert.pooler.dense.\1"),
    (r"cls/predictions/transform/(dense|LayerNorm)/(\w+)", r"cls.predictions.transform.\1.\2"),
    (r"cls/predictions/output_bias", r"cls.predictions.bias"),
    (r"cls/seq_relationship/output_(weights|bias)", r"cls.seq_relationship.\1"),
    (r"cls/squad/output_(weights|bias)", r"qa_outputs.\1"),
    (r"output_(weights|bias)", r"classifier.\1"),
)
LAST_PART = {"kernel": "weight", "weights": "weight", "gamma": "weight", "beta": "bias"}
# The optimiser's variables: AdamWeightDecayOptimizer of google-research/bert, and the step.
TENSORFLOW_OTHERS = r".*/adam_[mv]|output_(weights|bias)/adam_[mv]|global_step"

# Older PyTorch -> transformers, for parts of a name.
PYTORCH_NAMES = (
    (r"^(module\.)+", ""),  # DataParallel
    (r"\.gamma$", ".weight"),  # pytorch-pretrained-bert
    (r"\.beta$", ".bias"),
    (r"\.dense_act\.", ".dense."),  # NVIDIA's DeepLearningExamples
)
PYTORCH_OTHERS = r"(bert\.)?embeddings\.position_ids"  # a buffer of older versions of transformers
CONFIG_NAMES = ("config.json", "bert_config.json")
PICKLES = (".bin", ".pt", ".pth")
FIRST_VERSION = (
    "A single .ckpt file without an .index is of the first version of TensorFlow's format, which is not supported"
)


class OldCheckpoint(NamedTuple):
    """What a source contains.

    Attributes:
        tensors: transformers' names -> float32 tensors, with the prefix ``bert.`` for the encoder.
        config: that of the source, with as many pieces as the tensors have rows; ``architectures`` is None if the
            source does not name a class.
        vocabulary: the folder with the vocabulary or the tokenizer; None if there is none.
        weights: the files that hold the weights; for TensorFlow, the index is the last one.
        left_out: the names of tensors that are no weights of the network, such as those of the optimiser.
        notes: what the user should read, one sentence each.
    """

    tensors: dict[str, torch.Tensor]
    config: BertConfig
    vocabulary: Path | None
    left_out: list[str]
    weights: list[Path]
    notes: list[str]


def read_old_checkpoint(source: str | Path, config_file: str | Path | None = None) -> OldCheckpoint:
    """Read the weights and the config of a checkpoint.

    Args:
        source: a folder with ``bert_config.json`` and the files of a TensorFlow checkpoint; the prefix of such files
            (``.../bert_model.ckpt``); a folder with ``pytorch_model.bin`` or ``model.safetensors``; a folder of
            sentence-transformers; or a file ``.bin``, ``.pt`` or ``.pth``.
        config_file: the config, if it is not beside the weights.

    Raises:
        ValueError: the source is none of these or not complete, a file is damaged, or a tensor has an unknown name.
        OSError: a file cannot be read.
    """
    source = Path(source)
    weights = _find_weights(source)
    folder, files = weights.parent, [weights]
    config = _read_config(source, folder, config_file)
    if weights.suffix == ".index":
        files = [*sorted(folder.glob(f"{glob.escape(weights.stem)}.data-*")), weights]
        tensors, left_out = _read_tensorflow(weights)
    else:
        tensors, left_out = _read_pytorch(weights)
    notes = []
    rows = tensors.get("bert.embeddings.word_embeddings.weight")
    # Some programs pad the rows of the embeddings to a multiple of 8 and keep the smaller number in the config.
    if rows is not None and 0 < len(rows) - config.vocab_size < 128:
        notes.append(f"vocab_size is {len(rows)}, the rows of the embeddings; the config said {config.vocab_size}")
        config.vocab_size = len(rows)
    has_vocabulary = any((folder / name).is_file() for name in ("vocab.txt", "tokenizer.json"))
    return OldCheckpoint(tensors, config, folder if has_vocabulary else None, left_out, files, notes)


def _find_weights(source: Path) -> Path:
    """The file with the weights; for TensorFlow, the index."""
    if source.is_file() and source.suffix in (*PICKLES, ".safetensors"):
        return source
    index = source if source.suffix == ".index" or not source.name else source.with_name(f"{source.name}.index")
    if index.is_file():
        return index
    if not source.is_dir():
        raise UserError(
            f"{source}: expected a folder, a TensorFlow checkpoint with an .index file, or a file that ends in "
            f"{', '.join(PICKLES)}. {FIRST_VERSION}"
        )
    folder = _transformer_folder(source)
    weights = [folder / name for name in ("model.safetensors", "pytorch_model.bin") if (folder / name).is_file()][:1]
    weights += sorted(folder.glob("*.index"))
    if len(weights) == 1:
        return weights[0]
    if weights:
        paths = [path.with_suffix("") if path.suffix == ".index" else path for path in weights]
        names = ", ".join(path.name for path in paths)
        found = f"{len(paths)}: {names}; give the path of one of them, such as {paths[0]}"
    else:
        found = f"none. {FIRST_VERSION}" if list(folder.glob("*.ckpt")) else f"none: {lacks_weights(folder)}"
    raise UserError(
        f"{folder}: expected model.safetensors, pytorch_model.bin or one TensorFlow checkpoint (*.index), found {found}"
    )


def _transformer_folder(folder: Path) -> Path:
    """The folder of the network in a folder of sentence-transformers; other folders are returned as they are."""
    if not (folder / "modules.json").is_file():
        return folder
    modules = read_json(folder / "modules.json")
    paths = [module["path"] for module in modules if str(module["type"]).endswith(".Transformer")]
    if len(paths) != 1 or not (paths[0] == "" or is_plain_name(paths[0])):
        raise UserError(f"{folder}/modules.json: expected one Transformer in a folder beside it, got {paths}")
    return folder / paths[0]


def _read_config(source: Path, folder: Path, config_file: str | Path | None) -> BertConfig:
    """The config in a file or, without one, in ``folder``. Raises ValueError if it is missing or not one of BERT."""
    given = [Path(config_file)] if config_file is not None else [folder / name for name in CONFIG_NAMES]
    path = next((path for path in given if path.is_file()), None)
    if path is None:
        expected = " or ".join(map(str, given))
        raise UserError(f"{source}: expected {expected}, found none; give --config_file FILE")
    fields = read_object(path)
    check_fields(path, fields)
    fields.pop("model_type", None)
    # Others, such as the number of heads, would silently be those of BERT-Base.
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    if missing := [name for name in sizes if fields.get(name) is None]:
        raise UserError(f"{path}: expected the sizes of a BERT, it lacks {', '.join(missing)}")
    known = BertConfig().to_dict() | dict.fromkeys(("num_labels", "id2label", "label2id", "architectures"))
    kept = {name: value for name, value in fields.items() if name in known and name != "dtype"}
    config = BertConfig(**kept)
    config.dtype = None  # everything becomes float32
    return config


def _read_tensorflow(index: Path) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The tensors of a TensorFlow checkpoint by transformers' names, and the names of the variables that are left out.

    Raises:
        ValueError: the checkpoint is damaged, or a variable has an unknown name.
    """
    checkpoint = TensorFlowCheckpoint(index.with_suffix(""))
    targets, left_out, unknown = {}, [], []
    for name in checkpoint.variables:
        if re.fullmatch(TENSORFLOW_OTHERS, name):
            left_out.append(name)
        elif target := _tensorflow_target(name):
            targets[name] = target
        else:
            unknown.append(name)
    if unknown:
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        raise UserError(
            f"{index}: expected variables of google-research/bert, found {len(unknown)} others: "
            f"{', '.join(unknown[:5])}{more}"
        )
    tensors = {}
    for name, target in targets.items():
        array = checkpoint.read(name)
        tensors[target] = torch.tensor(array.T if name.endswith("/kernel") else array, dtype=torch.float32)
    return tensors, left_out


def _tensorflow_target(name: str) -> str | None:
    """The name in transformers of a variable of google-research/bert; None if it is not known."""
    for pattern, replacement in TENSORFLOW_NAMES:
        if match := re.fullmatch(pattern, name):
            *path, last = match.expand(replacement).split(".")
            return ".".join([*path, LAST_PART.get(last, last)])
    return None


def _read_pytorch(path: Path) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The tensors of a file of PyTorch by transformers' names, and the names of the tensors that are left out.

    Raises:
        ValueError: the file cannot be read, holds something other than tensors, or has two tensors of one meaning.
    """
    stored = _load(path)
    tensors: dict[str, torch.Tensor] = {}
    left_out = []
    for name, tensor in stored.items():
        target = name
        for pattern, replacement in PYTORCH_NAMES:
            target = re.sub(pattern, replacement, target)
        if re.fullmatch(PYTORCH_OTHERS, target):
            left_out.append(name)
            continue
        if target.startswith(("embeddings.", "encoder.", "pooler.")):  # a BertModel alone
            target = f"bert.{target}"
        if target in tensors:
            raise UserError(f"{path}: two tensors have the same meaning: {target}, the second as {name}")
        tensors[target] = tensor.to(torch.float32, copy=True)  # not a view of the file, which may change
    return tensors, left_out


def _load(path: Path) -> Mapping[str, Any]:
    """The tensors of a file by name. A pickle is read with ``weights_only``: it cannot execute code."""
    try:
        if path.suffix == ".safetensors":
            stored: Any = load_file(path)
        else:  # files of before torch 1.6 are no zip files
            if packed := zipfile.is_zipfile(path):  # torch.load compares no checksums
                with zipfile.ZipFile(path) as parts:
                    damaged = parts.testzip()
                assert damaged is None, f"the checksum of its part {damaged!r:.80} differs"
            stored = torch.load(path, "cpu", weights_only=True, mmap=packed)
        stored = stored.get("model", stored)  # NVIDIA: model, optimizer, ...
        others = [name for name, tensor in stored.items() if not isinstance(tensor, torch.Tensor)]
        assert not others, f"it also holds {others[:3]}"
    except Exception as error:  # the bytes of a damaged pickle can raise anything
        if isinstance(error, OSError) and error.filename is not None:  # it is not there, or must not be read
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path}: expected a file with nothing but tensors; it cannot be read ({reason})") from None
    return stored
