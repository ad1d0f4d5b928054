"""What may be published of a run: names of files and folders without the folders above them.

The model card and an upload are made of this form, so that they cannot say more, whatever a folder is called
and however a shell, YAML, Python or Markdown would spell it. Of every string in run.json only what follows its last
slash or backslash is published, also of flags and facts that are added later. Kept whole are names on the Hub, which
the run recorded when it began, and what WHOLE lists. The files of the run keep the full paths, by which it is resumed.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from bert_training.inputs.reading import without_query

HUB_NAMES = "hub_names"  # the fact of run.json: which values of flags are names on the Hub
GLUE = "nyu-mll/glue"  # read for --task_name without files, which no flag names
# Flags and facts that are no paths, and in which a slash means something else.
WHOLE = (
    *(HUB_NAMES, "hub_model_id", "dataset_config_name", "text_column", "label_column", "text_columns"),
    *("id_column", "weight_column", "group_column", "divided", "label_separator", "metric_for_best_model"),
    *("labels", "class_names", "weights_of_classes", "tag_names", "device", "versions", "metric"),
)
# The configurations of a model and of a tokenizer, and the names of files that older versions of transformers
# wrote into them.
CONFIGS = ("config.json", "tokenizer_config.json")
PATHS_IN_CONFIGS = ("_name_or_path", "name_or_path", "tokenizer_file", "vocab_file", "special_tokens_map_file")
MODEL_NAME = re.compile(r"^model_name = .*$", re.MULTILINE)  # in the example of a model card


def without_folders(text: str) -> str:
    """What follows the last slash or backslash that does not end the text."""
    kept = text.rstrip("/\\")
    return re.split(r"[/\\]", kept)[-1] if kept else text[:1]


def published(run: dict) -> dict:
    """The content of a run.json as it may be published. To publish it again changes nothing."""
    names = run.get(HUB_NAMES, [])
    return {**_part("", run, names, {f"--{name}" for name in run.get("flags", ())}), HUB_NAMES: names}


def published_name(name: str, names: Iterable[str]) -> str:
    """A name or a path without folders; one of ``names``, or a text whose first word is one, stays whole."""
    name = without_query(name)
    first, space, rest = name.partition(" ")
    return first + space + without_folders(rest) if first in (GLUE, *names) else without_folders(name)


def _part(key: str, value: Any, names: list[str], options: set[str]) -> Any:
    if key in WHOLE:
        return value
    if isinstance(value, str):
        return published_name(value, names)
    if key == "command" and isinstance(value, list):
        return list(_command(map(str, value), names, options))
    if isinstance(value, list):
        return [_part(key, one, names, options) for one in value]
    if isinstance(value, dict):
        return {published_name(name, names): _part(name, one, names, options) for name, one in value.items()}
    return value


def _command(words: Iterable[str], names: list[str], options: set[str]) -> Iterator[str]:
    """The words of a command, in which a value belongs to the flag before it; other programs have other flags."""
    key = ""
    for word in words:
        option, equals, value = word.partition("=")
        name = option.replace("-", "_").replace("__", "--", 1)
        if name in options:
            key = name[2:]
            yield option + equals + _part(key, value, names, options)
        else:
            yield _part(key, word, names, options)


def published_config(content: Any) -> Any:
    """The content of a JSON file of a model or a tokenizer, where PATHS_IN_CONFIGS have lost their folders."""
    if not isinstance(content, dict):
        return content
    paths = {name: content[name] for name in PATHS_IN_CONFIGS if isinstance(content.get(name), str)}
    return content | {name: without_folders(path) for name, path in paths.items()}


def published_card(card: str, repo_id: str) -> str:
    """A model card whose example opens the model by its name on the Hub; the run has written it without folders."""
    return MODEL_NAME.sub(lambda _: f"model_name = {repo_id!r}", card, count=1)
