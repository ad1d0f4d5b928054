"""Open the folder of a model that is to be asked, which may come from somebody else.

No code from it is executed, and nothing is fetched. The network is this project's class of the name in
``config.json``; weights are read from safetensors only.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

import modeling_bert_repro
from bert_deploy.ask import open_network
from bert_deploy.export_record import EXPORT
from bert_deploy.onnx_files import TORCH, load_exported
from bert_training.inputs.flags import objectives
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN
from bert_training.inputs.flags.scripts import (
    ANSWERS,
    CLASSES,
    ENCODER,
    HEADS,
    MASKED,
    NAMES,
    NEXT_PIECE,
    NEXT_SENTENCE,
)
from bert_training.inputs.models import check_fit, check_model_name, checkpoint_config, exported_config
from bert_training.inputs.reading import fields_of, read_object
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.networks.number_types import BFLOAT16, FLOAT32, compute_in_bfloat16
from bert_training.tasks.classification.long_texts import Reading
from bert_training.tasks.classification.trained_for import stored_facts
from bert_training.tasks.classification.verdicts import Verdict, judge_of
from bert_training.tasks.squad.windows import check_lengths
from bert_training.tasks.stored_flags import stored_length, stored_settings
from modeling_bert_repro import lstm_heads
from tokenization.bert_tokenizer import TextEncoder, check_special_tokens
from tokenization.errors import UserError


@dataclass(frozen=True)
class OpenedModel:
    """A model that can be asked.

    Attributes:
        abilities: what its head can do, in the order in which the page shows it.
        at_the_end: the class of a text is read from its last token (``--label_token last``).
        texts: how many texts an example of classification has; None if the folder does not say.
        refuses_long_texts: a text that was cut in the training is refused here.
    """

    folder: Path
    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    abilities: tuple[str, ...]
    at_the_end: bool = False
    texts: int | None = None
    refuses_long_texts: bool = False

    @cached_property
    def encoder(self) -> TextEncoder:
        """What reads texts, and keeps the pieces of words that it has read."""
        return TextEncoder(self.tokenizer)

    @cached_property
    def reading(self) -> Reading:
        """How the texts of a classifier are read."""
        reading = Reading.of_model(self.model.config)
        return replace(reading, label_token="last") if self.at_the_end else reading

    @cached_property
    def judge(self) -> Callable[[np.ndarray], Verdict]:
        """From the logits of a classifier to what it says; see ``judge_of``."""
        return judge_of(self.model.config)

    @cached_property
    def longest(self) -> int:
        """The largest number of pieces that the model reads at once, with the special tokens.

        That is the length that it was fine-tuned with, if its config says so, otherwise the number of its positions.
        """
        positions = int(self.model.config.max_position_embeddings)
        return min(positions, stored_length(self.model.config) or positions)


def open_folder(name: str, backend: str = TORCH, dtype: str = FLOAT32) -> OpenedModel:
    """The model, the tokenizer and the abilities of a folder.

    Args:
        backend: what computes, one of ``BACKENDS``; onnx takes the folder of an export.
        dtype: one of ``DTYPES``; outputs are float32 in any case. An exported file has its own.

    Raises:
        ValueError: it is not a folder with a BERT whose head is known, its config does not fit its tensors or its
            tokenizer, or the weights are not safetensors.
    """
    folder = Path(name)
    if backend == TORCH and (folder / EXPORT).is_file():
        raise UserError(f"{name} is an export without weights for torch; bert-repro serve opens it with --backend onnx")
    if backend == TORCH or not folder.is_dir():
        check_model_name(str(folder.absolute()), "--model")
    architecture = _architecture(folder)
    if backend == TORCH:
        model = _load_model(folder, architecture)
        if dtype == BFLOAT16:
            compute_in_bfloat16(model)
    else:
        model = cast("PreTrainedModel", load_exported(folder, exported_config(name)))
    tokenizer = load_tokenizer(str(folder))
    opened = _told_by_the_run(
        OpenedModel(folder, folder.resolve().name, model, tokenizer, HEADS[architecture].abilities)
    )
    check_special_tokens(tokenizer, masking=MASKED in opened.abilities)
    check_fit(cast("BertConfig", model.config), tokenizer, 4)
    _check_stored(opened)
    return opened


def _architecture(folder: Path) -> str:
    names = read_object(folder / "config.json").get("architectures")
    found = [name for name in names if isinstance(name, str) and name in HEADS] if isinstance(names, list) else []
    if not found:
        raise UserError(
            f"{folder / 'config.json'}: 'architectures' must name the network, one of {', '.join(HEADS)}; got "
            f"{str(names)[:80]}"
        )
    return found[0]


def _load_model(folder: Path, architecture: str) -> PreTrainedModel:
    """The network of a folder in evaluation mode."""
    config = checkpoint_config(str(folder), "--model")
    may_be_new = ("pooler.",) if architecture == ENCODER else ()
    options: dict[str, Any] = {"use_safetensors": True, "local_files_only": True}
    cls = getattr(modeling_bert_repro if HEADS[architecture].exported else lstm_heads, architecture)
    return open_network(cls, str(folder), *may_be_new, config=config, **options).eval()


def _told_by_the_run(opened: OpenedModel) -> OpenedModel:
    """What run.json or, of a folder that has come without it, the config says of the training decides the abilities."""
    run, stored = fields_of(opened.folder / "run.json"), stored_facts(opened.model.config)
    flags, abilities = run.get("flags") or {}, opened.abilities
    texts = run.get("texts_per_example", stored.get("texts_per_example"))
    last = not {flags.get("label_token"), stored.get("label_token")}.isdisjoint(LAST_TOKEN)
    at_the_end = last and abilities == (NAMES,)
    if at_the_end:
        abilities = (CLASSES,)
    objective = objectives.OBJECTIVES[flags.get("objective") or objectives.DEFAULT]
    if objective.pairs not in (None, objectives.NEXT_SENTENCE):  # the head tells something else
        abilities = tuple(ability for ability in abilities if ability != NEXT_SENTENCE)
    if opened.model.config.is_decoder and MASKED in abilities:
        abilities = (NEXT_PIECE,)
    return replace(opened, abilities=abilities, at_the_end=at_the_end, texts=texts if texts in (1, 2) else None)


def _check_stored(opened: OpenedModel) -> None:
    """Refuse what is stored with the model and contradicts itself, before anything is asked."""
    if ANSWERS in opened.abilities:
        lengths = stored_settings(opened.model.config)
        check_lengths(lengths["max_seq_length"], lengths["doc_stride"], lengths["max_query_length"])
    if CLASSES in opened.abilities:
        _ = opened.reading, opened.judge
