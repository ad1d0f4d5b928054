"""The flags that a model was fine-tuned with, stored in its config so that later commands feed it in the same way.

They are the flags of nature STORED, for example the length. ``config.fine_tuning`` holds the name of the script and
its flags; others may be added there:

    {"script": "run_glue.py", "max_seq_length": 256, "label_token": "cls", "long_texts": "cut"}

The lengths of ``run_squad.py`` are in ``config.question_answering`` instead.

A command that begins with the weights of such a model takes the stored values as its defaults, if the head is one of
the same script. A flag that is given wins, and a line of the output says what differs.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_training.inputs.flags.fine_tuning import FineTuningArguments, SquadArguments
from bert_training.inputs.flags.parsing import STORED, Dataclass, natures
from bert_training.inputs.flags.pretraining import network_width
from bert_training.inputs.flags.recipes import hub_config, scaled_rate
from bert_training.inputs.flags.scripts import heads_of, script_of
from bert_training.inputs.reading import read_object
from bert_training.record import Record

if TYPE_CHECKING:  # the command line is read before torch and transformers are loaded
    from transformers import BertConfig, PretrainedConfig

    from bert_training.engine.run import Run

FIELD = "fine_tuning"
FACT = "stored_with_the_model"
QUESTIONS = "question_answering"  # the field of the config with the flags that answer questions
THRESHOLD = "null_score_diff_threshold"  # that of models for questions without an answer (``squad/threshold.py``)
# All are in tokens except n_best_size.
OF_QUESTIONS = ("max_seq_length", "doc_stride", "max_query_length", "max_answer_length", "n_best_size")
DEFAULTS: dict[str, int] = {name: getattr(SquadArguments, name) for name in OF_QUESTIONS}
RUN_OF_SERIES = re.compile(r"seed-\d+|fold-\d+")  # the folder of a run of a series


# --- to the config, and from it ----------------------------------------------------------------------------


def store_flags(config: "PretrainedConfig", args: FineTuningArguments) -> None:
    """Write to ``config`` how its model is fine-tuned, and remove what an earlier fine-tuning has left there."""
    cls = type(args)
    vars(config).pop(QUESTIONS, None)
    elsewhere: tuple[str, ...] = ()
    if isinstance(args, SquadArguments):
        setattr(config, QUESTIONS, {name: getattr(args, name) for name in OF_QUESTIONS})
        elsewhere = OF_QUESTIONS
    else:
        vars(config).pop(THRESHOLD, None)
    named = {name: getattr(args, name) for name in stored_names(cls) if name not in elsewhere}
    named = {name: value for name, value in named.items() if value is not None}
    setattr(config, FIELD, {"script": script_of(cls)} | named)


def stored_flags(cls: type[Dataclass], config: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that a model was fine-tuned with by the script of ``cls``; {} if it has no head of this script.

    Args:
        cls: the flags of the script, such as ``GlueArguments``.
        config: the content of config.json.
    """
    script = script_of(cls)
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not {*map(str, architectures)} & heads_of(script):
        return {}
    found: dict[str, Any] = {}
    if cls is SquadArguments:
        found |= config.get(QUESTIONS, {})
    own = config.get(FIELD) or {}
    if isinstance(own, dict) and own.get("script") == script:
        found |= own
    return {name: found[name] for name in stored_names(cls) if name in found}


def stored_settings(config: "PretrainedConfig") -> dict[str, int]:
    """The flags that answer questions; for a model without them the defaults, reduced to fit its positions."""
    longest = min(DEFAULTS["max_seq_length"], config.max_position_embeddings)
    query = min(DEFAULTS["max_query_length"], longest // 4)
    stride = min(DEFAULTS["doc_stride"], max(1, (longest - query - 3) // 2))
    fitting = {"max_seq_length": longest, "max_query_length": query, "doc_stride": stride}
    return DEFAULTS | fitting | getattr(config, QUESTIONS, {})


def stored_length(config: "PretrainedConfig") -> int | None:
    """The length that a model was fine-tuned with, by whichever script; None if its config does not say."""
    own = getattr(config, FIELD, None) or {}
    length, heads = own.get("max_seq_length"), heads_of(str(own.get("script")))
    return length if type(length) is int and length > 0 and heads & {*(config.architectures or ())} else None


def stored_names(cls: type[Dataclass]) -> tuple[str, ...]:
    """The flags of a script that are stored with its models."""
    return _stored_names(cls)


@functools.cache  # every text that a finished model is asked about comes here
def _stored_names(cls: Any) -> tuple[str, ...]:
    return tuple(name for name, found in natures(cls).items() if found & STORED)


# --- in a command -------------------------------------------------------------------------------------------


def defaults_of_model(cls: type[FineTuningArguments], given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that come with the model, for ``parse_arguments``: the rate for its width, and its stored flags.

    A command that continues a run takes the defaults with which that run began, whatever has become of the model.

    Args:
        given: the flags on the command line.
    """
    is_series = given.get("seeds") is not None or "/" not in (given.get("folds") or "/")
    found = _begun_with(given, is_series) if is_series or given.get("resume_from_checkpoint") else None
    if found is None:
        of_teacher = given.get("teacher") if given.get("keep_layers") and not given.get("config_name") else None
        found = _read_stored(cls, given.get("model_name_or_path") or of_teacher)
        found["learning_rate"] = scaled_rate(cls.learning_rate, network_width(given))
    if given.get("train_file") or not (given.get("validation_file") or given.get("test_file")):
        # Of a training this flag says what the data is: SQuAD 1.1 makes a model of 1.1, whatever it was before.
        found.pop("version_2_with_negative", None)
    names = {*stored_names(cls), "learning_rate"}
    return {name: value for name, value in found.items() if name in names}


def _begun_with(given: Mapping[str, Any], is_series: bool) -> dict[str, Any] | None:
    """The stored flags and the rate in the run.json of the run that a command continues; None if it begins one."""
    asked, folder = given.get("resume_from_checkpoint"), Path(given["output_dir"])
    places = [folder] if asked else []
    if asked and asked != "auto":
        places.append(Path(asked).parent)
    if is_series:  # which continues without being asked
        places += sorted(path.parent for path in folder.glob("*/run.json") if RUN_OF_SERIES.fullmatch(path.parent.name))
    for place in places:
        if (place / "run.json").is_file():
            try:
                run = Record.read(place)
                rate = {name: value for name, value in run.flags.items() if name == "learning_rate"}
                return rate | (run.facts.get(FACT) or {})
            except ValueError:
                continue  # of a damaged run.json nothing else is needed, either
    return None


def _read_stored(cls: type[Dataclass], name: str | None) -> dict[str, Any]:
    """The stored flags of a folder or a name on the Hub; {} where there is no config, which ``load_config`` reports."""
    if name is None:
        return {}
    path = Path(name) / "config.json"
    if path.is_file():
        return stored_flags(cls, read_object(path))
    return {} if Path(name).exists() else stored_flags(cls, hub_config(name))


def report_stored(run: "Run[FineTuningArguments]", config: "BertConfig") -> None:
    """Print which flags are those of the model's fine-tuning and which are not, and record both.

    Args:
        config: the config of the checkpoint.
    """
    stored = stored_flags(type(run.args), config.to_dict())
    instead = {name: getattr(run.args, name) for name in stored if getattr(run.args, name) != stored[name]}
    run.add_facts(**{FACT: stored, "given_instead": instead})
    if same := [_words(name, stored[name]) for name in stored if name not in instead]:
        run.say(f"as the model was fine-tuned: {', '.join(same)}")
    for name, value in instead.items():
        run.say(
            f"warning: {_words(name, value)}, but the model was fine-tuned with {_words('', stored[name])}; "
            f"--{_words(name, stored[name])} feeds it as in its training"
        )


def _words(name: str, value: object) -> str:
    return f"{name} {str(value).lower() if isinstance(value, bool) else value}".strip()
