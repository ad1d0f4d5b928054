"""The file of --config: the flags of a command, flat, as YAML or JSON.

    # run.yaml
    model_name_or_path: runs/first
    train_file: mails.csv
    text_column: [subject, body]
    learning_rate: 5e-5

Its lines become words of the command line, in front of those that the user typed. So a flag that is typed wins, and
whatever looks at the flags that are given (recipes, the defaults of a model, refusals of idle flags) sees these.

Of YAML only the texts of the values are taken, and the flags say what they mean: YAML itself would read 5e-5 as a text,
and the "no" of ``mixed_precision: no`` as false.
"""

import argparse
import difflib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from bert_training.files.compressed_files import decoded
from bert_training.files.json_files import parse_file
from bert_training.files.small_files import read_small_bytes
from tokenization.errors import UserError

FLAG = "--config"
ENDINGS = (".yaml", ".yml", ".json")
LARGEST = 2**20  # bytes
REMEDY = "write one flag a line, such as 'learning_rate: 5e-5'"
PLAIN_TAG = re.compile(r"tag:yaml\.org,2002:(str|int|float|bool|null|timestamp)")

_HASHES: dict[str, str] = {}  # of the files that this process has read, by their paths


@dataclass(frozen=True)
class Entry:
    """One flag of the file: its name as it is written, its line, and the text of its value or of its values."""

    name: str
    line: int
    values: tuple[str, ...]
    is_list: bool


@dataclass(frozen=True)
class ConfigFile:
    """The content of a file of --config."""

    path: str
    entries: tuple[Entry, ...]

    def words(self, parser: argparse.ArgumentParser) -> list[str]:
        """The flags as words of a command line.

        Raises:
            ValueError: with file and line: the parser does not know a flag, a flag occurs twice, or it takes no such
                value.
        """
        # Of a flag that has a form with no_, the first action is its own.
        known = {action.dest: action for action in reversed(parser._actions) if action.dest != "help"}
        names = {option[2:].replace("-", "_"): name for name, one in known.items() for option in one.option_strings}
        words: list[str] = []
        lines: dict[str, int] = {}
        for entry in self.entries:
            where, name = f"{self.path}:{entry.line}", entry.name.replace("-", "_")
            name = names.get(name, name)  # of a flag with two names, such as lr_scheduler_type
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else "--help lists the flags"
                raise UserError(f"{where}: expected the name of a flag, got {entry.name[:60]!r}; {hint}")
            if f"--{name}" == FLAG:
                raise UserError(f"{where}: a file of {FLAG} cannot name another one; copy the lines of that file")
            if name in lines:
                raise UserError(f"{where}: {name} stands on line {lines[name]}, too; delete one of the two lines")
            lines[name] = entry.line
            _check(entry, known[name], where)
            if entry.is_list:
                words += [f"--{name}", *entry.values]
            else:
                words.append(f"--{name}={entry.values[0]}")
        return words


def _check(entry: Entry, action: argparse.Action, where: str) -> None:
    """Raise ValueError unless a flag takes this value."""
    if entry.is_list and action.nargs not in ("+", "*"):
        raise UserError(f"{where}: {entry.name} takes one value, got a list; write one value")
    if not entry.values and action.nargs != "*":
        raise UserError(f"{where}: {entry.name} needs one value or more, got an empty list; leave the line out")
    for value in entry.values:
        if entry.is_list and value.startswith("-"):
            raise UserError(f"{where}: a value of {entry.name} must not begin with '-', got {value[:60]!r}; change it")
        kind: Any = action.type or str
        try:
            converted = kind(value)
        except (ValueError, TypeError, argparse.ArgumentTypeError):
            what = {"int": "a whole number", "float": "a number", "string_to_bool": "true or false"}
            expected = what.get(kind.__name__, "another value")
            raise UserError(f"{where}: {entry.name} must be {expected}, got {value[:60]!r}; correct it") from None
        if action.choices is not None and converted not in action.choices:
            choices = ", ".join(map(str, action.choices))
            raise UserError(f"{where}: {entry.name} must be one of {choices}; got {value[:60]!r}; correct it")


def config_of(words: list[str]) -> str | None:
    """The value of --config on a command line; None if it is not given, or without a value, which the parser reports.

    Raises:
        ValueError: it is given twice.
    """
    found = [word.partition("=")[2] for word in words if word.startswith(f"{FLAG}=")]
    found += [after for word, after in pairwise(words) if word == FLAG]
    if len(found) > 1:
        raise UserError(f"{FLAG} is given {len(found)} times; give one file with all flags")
    return found[0] if found else None


def read_config(path: str) -> ConfigFile:
    """The content of a file, whose hash is kept for ``config_facts``.

    Raises:
        ValueError: it cannot be read, is neither YAML nor JSON, or is not flat.
    """
    if not path.lower().endswith(ENDINGS):
        raise UserError(f"{FLAG} {path}: expected a file named {', '.join(ENDINGS)}; rename it")
    try:
        content = read_small_bytes(path, LARGEST)
    except OSError as error:
        raise UserError(f"{FLAG} {path}: cannot be read: {error.strerror}; check the path") from None
    text = decoded(path, content)
    read = _from_json if path.lower().endswith(".json") else _from_yaml
    _HASHES[path] = hashlib.sha256(content).hexdigest()
    return ConfigFile(path, tuple(read(path, text)))


def config_facts(path: str | None) -> dict[str, Any]:
    """For run.json, the name and the hash of the file as it was when its flags were read; {} without one."""
    return {"config_file": {"file": Path(path).name, "sha256": _HASHES.get(path)}} if path else {}


def _from_yaml(path: str, text: str) -> Iterator[Entry]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UserError(f"{path}:{mark.line + 1 if mark else 1}: not valid YAML ({error.problem}); {REMEDY}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}:1: not valid YAML ({str(error).splitlines()[0][:80]}); {REMEDY}") from None
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise UserError(f"{path}:{root.start_mark.line + 1}: expected flags with values; {REMEDY}")
    for key, value in root.value if root else ():
        where, line = f"{path}:{key.start_mark.line + 1}", key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise UserError(f"{where}: expected the name of a flag; {REMEDY}")
        is_list = isinstance(value, yaml.SequenceNode) and value.tag == "tag:yaml.org,2002:seq"
        nodes = value.value if is_list else [value]
        for node in nodes:
            _check_plain(where, key.value, bool(PLAIN_TAG.fullmatch(node.tag)))
            _check_not_null(where, key.value, node.tag.endswith(":null"))
        yield Entry(key.value, line, tuple(node.value for node in nodes), is_list)


def _from_json(path: str, text: str) -> Iterator[Entry]:
    content = parse_file(path, text, "correct it")
    if not isinstance(content, dict):
        raise UserError(f'{path}:1: expected an object with flags and values, such as {{"learning_rate": 5e-5}}')
    for name, value in content.items():
        match = re.search(f'"{re.escape(name)}"\\s*:', text)
        line = text.count("\n", 0, match.start()) + 1 if match else 1
        where, parts = f"{path}:{line}", value if isinstance(value, list) else [value]
        for part in parts:
            _check_plain(where, name, not isinstance(part, dict | list))
            _check_not_null(where, name, part is None)
        texts = tuple(str(part).lower() if isinstance(part, bool) else str(part) for part in parts)
        yield Entry(name, line, texts, isinstance(value, list))


def _check_plain(where: str, name: str, is_plain: bool) -> None:
    """Raise ValueError for what is neither a text nor a number: nested values, or those with tags of YAML."""
    if not is_plain:
        raise UserError(
            f"{where}: expected a text, a number, true or false for {name[:60]}, got a nested value; {REMEDY}"
        )


def _check_not_null(where: str, name: str, is_null: bool) -> None:
    if is_null:
        raise UserError(f"{where}: {name[:60]} has no value; write one, or leave the line out for the default")
