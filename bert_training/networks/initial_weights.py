"""Load networks with the weights of a checkpoint, or some of its layers, hash its files, and set how they compute."""

import copy
import re
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import cached_file

from bert_training.files.hashing import sha256
from bert_training.inputs.flags.scripts import opened_by
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.inputs.models import WEIGHT_FILES, check_kept_layers, files_of_index
from tokenization.errors import UserError

LAYER = re.compile(r"((?:.+\.)?encoder\.layer\.)(\d+)(\..+)")
CLASSIFIER = {"classifier.weight", "classifier.bias"}


class NetworkClass(Protocol):
    """A class of networks, or one of transformers' Auto classes."""

    def from_pretrained(self, pretrained_model_name_or_path: str, *args: Any, **kwargs: Any) -> Any:
        """The network, or what else the options ask for."""
        ...


class LoadedNetwork(NamedTuple):
    """A loaded network.

    Attributes:
        new: names of the weights that were newly initialised.
        absent: those of ``new`` that the checkpoint lacks; the rest of ``new`` had another shape.
    """

    model: PreTrainedModel
    new: list[str]
    absent: set[str]


def load_network(cls: NetworkClass, name: str, may_be_new: tuple[str, ...] = (), **options: Any) -> LoadedNetwork:
    """The network ``cls`` with the weights of a checkpoint, in float32.

    transformers initialises at random whatever a checkpoint lacks, and leaves out what the network has no place for.
    Here only heads may be new. Only heads and layers above the network's last may be left out. The classifier of
    another class is not taken: that of a tagger, say, for a network that classifies texts. Whatever names the
    checkpoint has for its tensors, the network is saved with today's.

    Args:
        name: a folder, or a name on the Hub.
        may_be_new: prefixes of the names of weights that may be newly initialised.
        options: passed to ``from_pretrained``.

    Raises:
        ValueError: the checkpoint lacks other weights, holds them in another shape, holds weights of the encoder that
            the network has no place for, cannot be read, or holds a weight that is no finite number.
    """
    options = {"dtype": torch.float32, "ignore_mismatched_sizes": True, "output_loading_info": True} | options
    if Path(name).is_dir():
        _weight_files(name)  # an index names files beside it only
    try:
        model, info = cls.from_pretrained(name, **options)
    except (SafetensorError, ValueError) as error:  # a damaged file, or what the network says of the config
        raise UserError(f"{name}: its weights cannot be loaded ({error})") from error
    absent = set(info["missing_keys"])
    mistaken = _classifier_of_another_class(model, absent)
    new = sorted(absent | mistaken | {key for key, *_shapes in info["mismatched_keys"]})
    strange = [key for key in new if not key.startswith(may_be_new)]
    if strange:
        raise _other_weights(name, model, strange)
    if lost := sorted(key for key in info["unexpected_keys"] if _is_needed(key, model.config.num_hidden_layers)):
        raise UserError(
            f"{name}: it holds {len(lost)} weights of the encoder that this network has no place for, such as "
            f"{lost[0]}; relative positions or adapters, say, compute something else. Give a checkpoint of plain BERT"
        )
    for tensor in (*model.parameters(), *model.buffers()):
        # Out of the file, which is mapped: a network would follow what is written into it, and die if it is cut short.
        tensor.data = tensor.data.clone()
    if broken := [key for key, tensor in model.state_dict().items() if not _is_finite(tensor)]:
        raise UserError(
            f"{name}: {len(broken)} of its weights hold NaN or infinite numbers, such as {broken[0]}, so no loss would "
            "be finite; the run that made it diverged, or the file is damaged. Give another checkpoint"
        )
    # transformers would restore the checkpoint's old names, such as LayerNorm.gamma, in whatever the model is saved to.
    vars(model).pop("_weight_conversions", None)
    return LoadedNetwork(keep_to_segments(model), new, absent)


def _other_weights(name: str, model: PreTrainedModel, strange: list[str]) -> UserError:
    kind, other = class_in(model.config), ""
    if kind and kind != type(model).__name__:
        other = f" By its config.json it is a {kind}, which is opened by {opened_by()[kind]}."
    return UserError(
        f"{name}: expected the weights of a {type(model).__name__}, with transformers' names and the shapes of its "
        f"config.json; {len(strange)} are missing or have another shape, such as {', '.join(strange[:3])}.{other} "
        "Give a checkpoint that holds them; an older one is converted first (bert-repro convert)"
    )


def class_in(config: PretrainedConfig) -> str | None:
    """The class of a fine-tuned network that a config.json names; None if it names none that is known here."""
    names, known = config.architectures, opened_by()
    return next((name for name in names if name in known), None) if isinstance(names, list | tuple) else None


def _classifier_of_another_class(model: PreTrainedModel, absent: set[str]) -> set[str]:
    """Draw the classifier anew if the checkpoint's is that of another class; return the names of its weights.

    Several classes call their heads so. Of the others a checkpoint has no classifier, so that it is new already.
    """
    kind, head = class_in(model.config), getattr(model, "classifier", None)
    if kind in (None, type(model).__name__) or not isinstance(head, torch.nn.Linear) or absent >= CLASSIFIER:
        return set()
    draw_classifier(head, model.config.initializer_range)
    return CLASSIFIER


def draw_classifier(head: torch.nn.Linear, std: float) -> None:
    """New weights for a head, as BERT's initialisation draws them."""
    torch.nn.init.normal_(head.weight, std=std)
    torch.nn.init.zeros_(head.bias)


def _is_finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _is_needed(key: str, num_layers: int) -> bool:
    """Whether the first ``num_layers`` layers would compute something else without this weight."""
    if not re.match(r"(bert\.)?(encoder|embeddings)\.", key):
        return False  # a head or the pooler
    layer = re.search(r"encoder\.layer\.(\d+)\.", key)
    return layer is None or int(layer[1]) < num_layers


def weights_sha256(name: str, **options: Any) -> dict[str, str]:
    """The SHA-256 of each file of weights in a folder, or of a downloaded name on the Hub.

    Args:
        options: for ``cached_file``; with ``local_files_only`` the Hub is not asked for a newer version.

    Raises:
        ValueError: the checkpoint has no file with weights.
    """
    return {file: sha256(path) for file, path in _weight_files(name, **options).items()}


def _weight_files(name: str, **options: Any) -> dict[str, Path]:
    """The files of weights that transformers reads, by name, with arguments and errors of ``weights_sha256``."""
    for file in WEIGHT_FILES:
        try:
            path = _cached(name, file, **options)
        except OSError:  # the checkpoint has no file of this name
            continue
        if file.endswith(".index.json"):
            return {part: _cached(name, part, **options) for part in files_of_index(path)}
        return {file: path}
    raise UserError(f"{name}: expected a checkpoint with weights, found none of {', '.join(WEIGHT_FILES)}")


def _cached(name: str, file: str, **options: Any) -> Path:
    path = cached_file(name, file, **options)
    assert path is not None  # cached_file raises OSError for a missing file
    return Path(path)


def with_layers(model: PreTrainedModel, kept: tuple[int, ...], **class_arguments: Any) -> PreTrainedModel:
    """A network of the same class with copies of these layers, in this order, and of everything else.

    It is built anew instead of losing layers, so that whatever depends on their number is as in any other network.

    Args:
        model: one of this project's networks.
        kept: the numbers of the layers, from 0.
        class_arguments: further arguments of the class.

    Raises:
        ValueError: as ``check_kept_layers``.
    """
    check_kept_layers(kept, model.config)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(kept)
    student = type(model)(config, **class_arguments)
    places = {old: new for new, old in enumerate(kept)}
    weights = {}
    for name, tensor in model.state_dict().items():
        if found := LAYER.fullmatch(name):
            if int(found[2]) not in places:
                continue
            name = f"{found[1]}{places[int(found[2])]}{found[3]}"
        weights[name] = tensor
    student.load_state_dict(weights)
    return student


def as_implementation(model: PreTrainedModel, args: SharedArguments) -> PreTrainedModel:
    """The network that ``--model_impl`` asks for: this project's with its switches set, or transformers' as a control.

    The switches make it faster (lab/notes/performance.md) and are never saved. The control has the same new weights as
    well; transformers would draw others.

    Args:
        model: an instance of one of this project's classes.
    """
    if args.model_impl == "transformers":
        from bert_training.networks.control import control_of

        return keep_to_segments(control_of(model, spans_over_padding=False))
    model.config.update({"unpad_inputs": "auto", "fast_dropout": True})
    return model


def set_dropout(model: PreTrainedModel, rate: float) -> None:
    """Drop this share of all hidden values and attention weights; ``model.config``, which is saved, stays as it is."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = rate


def keep_to_segments(model: PreTrainedModel) -> PreTrainedModel:
    """Let a network that has only one segment read every token as that, whatever the tokenizer says of pairs."""
    if model.config.type_vocab_size == 1:
        for name, module in model.named_modules():
            if name.endswith("token_type_embeddings"):
                module.register_forward_pre_hook(_in_segment_0)
    return model


def _in_segment_0(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (inputs[0].clamp(max=0),)  # not zeros, which would leave token_type_ids out of an exported graph


def prepare_for_training(model: PreTrainedModel, args: SharedArguments) -> None:
    """Apply --gradient_checkpointing and --torch_compile, which change results by rounding at most."""
    keep_to_segments(model)  # new weights have not been through load_network
    if args.gradient_checkpointing:
        # transformers 5.23 deprecates the older name; 5.17 has only that one.
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable()
    if args.torch_compile:
        model.compile()
