"""Open the folder of a model for the page, which may come from somebody else.

Nothing outside the folder is read, no code from it is executed, and nothing is fetched. The network is transformers'
class or one of this project's own, chosen by the name in ``config.json``; weights are read from safetensors only.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import transformers
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from bert_training.app.exported import TORCH, load_exported
from bert_training.files.json_files import read_object
from bert_training.inputs.flags import objectives
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN
from bert_training.networks.configuration import check_fit
from bert_training.networks.initial_weights import NetworkClass, load_network
from bert_training.networks.number_types import BFLOAT16, FLOAT32, compute_in_bfloat16
from bert_training.networks.other_formats import check_holds_weights, found_instead
from bert_training.networks.pretrained import checkpoint_config, exported_config, load_tokenizer
from bert_training.networks.tokenizer_files import fields_of, is_vocabulary_alone, open_tokenizer
from bert_training.tasks.classification.long_texts import Reading
from bert_training.tasks.classification.multi_label_scores import stored_thresholds
from bert_training.tasks.classification.trained_for import stored_facts, stored_temperature
from bert_training.tasks.classification.verdicts import Verdict, judge_of
from bert_training.tasks.squad.settings import stored_settings
from bert_training.tasks.squad.threshold import stored_threshold
from bert_training.tasks.squad.windows import check_lengths
from bert_training.tasks.stored_flags import stored_length
from modeling_bert_repro.lstm_heads import (
    BertBiLSTMForQuestionAnswering,
    BertBiLSTMForTokenClassification,
    BertFeatureTagger,
)
from tokenization.errors import UserError
from tokenization.special_tokens import check_special_tokens, text_tokenizer

MASKED, NEXT_PIECE, NEXT_SENTENCE = "masked words", "next piece", "next sentence"
CLASSES, ANSWERS, NAMES, CHOICE = "classification", "question answering", "names", "multiple choice"
# The name in config.json: the class, and what its head can do.
HEADS: dict[str, tuple[NetworkClass, tuple[str, ...]]] = {
    "BertModel": (transformers.BertModel, ()),
    "BertForPreTraining": (transformers.BertForPreTraining, (MASKED, NEXT_SENTENCE)),
    "BertForMaskedLM": (transformers.BertForMaskedLM, (MASKED,)),
    "BertForNextSentencePrediction": (transformers.BertForNextSentencePrediction, (NEXT_SENTENCE,)),
    "BertForSequenceClassification": (transformers.BertForSequenceClassification, (CLASSES,)),
    "BertForQuestionAnswering": (transformers.BertForQuestionAnswering, (ANSWERS,)),
    "BertForTokenClassification": (transformers.BertForTokenClassification, (NAMES,)),
    "BertForMultipleChoice": (transformers.BertForMultipleChoice, (CHOICE,)),
    "BertFeatureTagger": (BertFeatureTagger, (NAMES,)),
    "BertBiLSTMForTokenClassification": (BertBiLSTMForTokenClassification, (NAMES,)),
    "BertBiLSTMForQuestionAnswering": (BertBiLSTMForQuestionAnswering, (ANSWERS,)),
}
CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")


@dataclass(frozen=True)
class OpenedModel:
    """A model that can be tried.

    Attributes:
        abilities: what its head can do, in the order in which the page shows it.
        at_the_end: the class of a text is read from its last token (``--label_token last``).
        texts: how many texts an example of classification has; None if the folder does not say.
        checkpoints: (step, folder) of every checkpoint of its pre-training that the folder still has, in order.
        builtin: it was trained on the documentation that Python installations carry.
        objective: of its pre-training, a key of ``OBJECTIVES``; the usual one if the folder does not say.
        refuses_long_texts: a text that was cut in the training is refused here.
    """

    folder: Path
    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase = field(repr=False)
    abilities: tuple[str, ...]
    at_the_end: bool = False
    texts: int | None = None
    checkpoints: tuple[tuple[int, Path], ...] = ()
    builtin: bool = False
    objective: str = objectives.DEFAULT
    refuses_long_texts: bool = False

    @cached_property
    def text_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer for texts, in which a "[SEP]" is ordinary text; tokens that a user added stay whole."""
        return text_tokenizer(self.tokenizer)

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
        backend: what computes, one of ``BACKENDS``; all but torch take the folder of an export.
        dtype: one of ``DTYPES``; outputs are float32 in any case. An exported file has its own.

    Raises:
        ValueError: it is not a folder with a BERT whose head the page knows, its config does not fit its tensors or
            its tokenizer, a file leads out of the folder, or the weights are not safetensors.
    """
    folder = Path(name)
    if not (folder / "config.json").is_file():
        found = "there is no such folder"
        if folder.is_dir():
            found = found_instead(folder) or "it has no config.json"
        raise UserError(f"--model {name}: expected the folder of a model, with config.json and weights; {found}")
    check_links(folder)
    architecture = _architecture(folder)
    if backend == TORCH:
        check_holds_weights(folder, f"--model {name}")
        model = load_model(folder, architecture)
        if dtype == BFLOAT16:
            compute_in_bfloat16(model)
    else:
        if dtype != FLOAT32:
            raise UserError(
                f"--dtype {dtype}: the numbers of an exported file are those it was written with; leave the flag out"
            )
        config = _checked_config(folder, architecture, exported_config(folder))
        model = cast("PreTrainedModel", load_exported(folder, architecture, config, backend))
    stored_temperature(model.config)  # what it is divided by is checked before anything is shown
    abilities, run = HEADS[architecture][1], _run(folder)
    if CLASSES in abilities:
        judge_of(model.config)  # refuses several scores
    stored = stored_facts(model.config)  # a folder may have come without run.json
    last = not {run["flags"].get("label_token"), stored.get("label_token")}.isdisjoint(LAST_TOKEN)
    texts = run.get("texts_per_example", stored.get("texts_per_example"))
    at_the_end = last and abilities == (NAMES,)
    if at_the_end:
        abilities = (CLASSES,)
    said = str(run["flags"].get("objective"))
    objective = said if said in objectives.OBJECTIVES else objectives.DEFAULT
    if objectives.OBJECTIVES[objective].pairs not in (None, objectives.NEXT_SENTENCE):  # the head tells something else
        abilities = tuple(ability for ability in abilities if ability != NEXT_SENTENCE)
    if model.config.is_decoder and MASKED in abilities:
        abilities = (NEXT_PIECE,)
    tokenizer = _tokenizer(folder)
    check_special_tokens(tokenizer, masking=MASKED in abilities)
    check_fit(cast("BertConfig", model.config), tokenizer, 4)
    return OpenedModel(
        folder,
        folder.resolve().name,
        model,
        tokenizer,
        abilities,
        at_the_end=at_the_end,
        texts=texts if texts in (1, 2) else None,
        checkpoints=tuple(_checkpoints(folder, run)) if {MASKED, NEXT_PIECE} & set(abilities) else (),
        builtin=_is_builtin(run),
        objective=objective,
    )


def load_model(folder: Path, architecture: str | None = None) -> PreTrainedModel:
    """The network of a folder in evaluation mode, with the weights of the attention among its outputs on demand.

    Raises:
        ValueError: as for ``open_folder``.
    """
    architecture = architecture or _architecture(folder)
    if not any((folder / name).is_file() for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)):
        raise UserError(
            f"{folder}: expected weights in {SAFE_WEIGHTS_NAME}, found none; bert-repro convert makes such a folder of "
            "older files"
        )
    config = _checked_config(folder, architecture, checkpoint_config(str(folder), quiet=True))
    may_be_new = ("pooler.",) if architecture == "BertModel" else ()
    # "eager" also keeps a name in config.json from choosing a kernel of the Hub.
    options: dict[str, Any] = {"attn_implementation": "eager", "use_safetensors": True, "local_files_only": True}
    try:
        model = load_network(HEADS[architecture][0], str(folder), may_be_new, config=config, **options).model
    except (OSError, TypeError, KeyError, RuntimeError) as error:
        raise UserError(f"{folder}: {architecture} cannot be made of config.json and weights ({error})") from error
    return model.eval()


def _checked_config(folder: Path, architecture: str, config: BertConfig) -> BertConfig:
    """The config itself, when everything that is stored about texts has been checked."""
    if ANSWERS in HEADS[architecture][1]:
        _check_questions(folder, config)
    Reading.of_model(config)
    if CLASSES in HEADS[architecture][1]:
        stored_thresholds(config)
    return config


def check_links(folder: Path) -> None:
    """Raise ValueError if a link below the folder leads out of it, whatever its name.

    Which files the libraries look for depends on their versions and on other files. Only checkpoints as a whole may be
    links, as they are when they have been moved to another disk; the page leaves these out.
    """
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() and not (path.parent == folder and CHECKPOINT.fullmatch(name)):
                check_inside(folder, path)


def check_inside(folder: Path, path: Path) -> None:
    """Raise ValueError if the path, when links are followed, leads out of the folder."""
    # Not Path.resolve, which raises errors for a loop of links; whoever opens such a file says what is wrong.
    if not Path(os.path.realpath(path)).is_relative_to(folder.resolve()):
        raise UserError(
            f"{path}: is a link out of the model's folder, and nothing outside it is read; remove the link, or copy "
            "the folder with cp -rL"
        )


def _architecture(folder: Path) -> str:
    path = folder / "config.json"
    config = read_object(path)
    if config.get("model_type") != "bert":
        raise UserError(f"{path}: expected model_type 'bert', got {str(config.get('model_type'))[:60]!r}")
    names = config.get("architectures")
    names = names if isinstance(names, list) else []
    found = next((name for name in names if isinstance(name, str) and name in HEADS), None)
    if found is None:
        raise UserError(
            f"{path}: 'architectures' must name the network, one of {', '.join(HEADS)}; got {str(names)[:80]}"
        )
    return found


def _check_questions(folder: Path, config: BertConfig) -> None:
    """Check the settings of question answering, which ``run_squad.py`` stores in the config."""
    threshold = stored_threshold(config)
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
        raise UserError(f"{folder / 'config.json'}: the threshold must be a number, got {str(threshold)[:60]!r}")
    lengths = stored_settings(config)
    check_lengths(lengths["max_seq_length"], lengths["doc_stride"], lengths["max_query_length"])


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    # Given by name, so that a path in tokenizer_config.json has no effect, whatever the library's version makes of it.
    files = {"tokenizer_file": folder / "tokenizer.json", "vocab_file": folder / "vocab.txt"}
    given: dict[str, Any] = {name: str(path) if path.is_file() else None for name, path in files.items()}
    if not any(given.values()):
        raise UserError(f"{folder}: expected tokenizer.json or vocab.txt, found neither")
    if is_vocabulary_alone(folder):
        return load_tokenizer(str(folder))
    try:
        tokenizer = open_tokenizer(str(folder), local_files_only=True, use_fast=True, **given)
    except OSError as error:
        raise UserError(f"{folder}: its tokenizer cannot be opened ({str(error)[:300]})") from error
    if not tokenizer.is_fast:
        raise UserError(f"{folder}: expected a fast tokenizer, for its character offsets; got {type(tokenizer)}")
    return tokenizer


def _run(folder: Path) -> dict[str, Any]:
    run = fields_of(folder / "run.json")
    return run | {"flags": run["flags"] if isinstance(run.get("flags"), dict) else {}}


def _is_builtin(facts: dict[str, Any]) -> bool:
    """Whether a run of this project was trained on the documentation that Python installations carry."""
    flags = facts["flags"]
    given = [flags.get(name) for name in ("train_file", "data_dir", "dataset_name", "task_name")]
    found = bool(flags) and all(not value or str(value).startswith("builtin_") for value in given)
    return bool(facts.get("builtin_data", found))


def _checkpoints(folder: Path, facts: dict[str, Any]) -> Iterator[tuple[int, Path]]:
    """Every complete checkpoint before the final step; those that are links out of the folder are left out."""
    steps = sorted((int(match[1]), path) for path in folder.iterdir() if (match := CHECKPOINT.fullmatch(path.name)))
    for step, path in steps:
        inside = path.resolve().is_relative_to(folder.resolve()) and step != facts.get("total_steps")
        if inside and (path / "config.json").is_file() and (path / SAFE_WEIGHTS_NAME).is_file():
            yield step, path
