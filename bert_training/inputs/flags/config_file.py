"""The file of --config: the flags of a command, flat, as YAML or JSON.

    # run.yaml
    model_name_or_path: runs/first
    train_file: mails.csv
    text_column: [subject, body]
    learning_rate: 5e-5

Its lines count like flags on the command line, where a flag that is typed wins. So whatever looks at the flags that are
given (recipes, the defaults of a model, refusals of idle flags) sees these.

Of YAML, which JSON is a part of, only the texts of the values are taken, and the flags say what they mean: YAML itself
would read 5e-5 as a text, and the "no" of ``mixed_precision: no`` as false.
"""

import difflib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tokenization.errors import UserError

_HASHES: dict[str, str] = {}  # of the files that this process has read, by their paths


class Given(NamedTuple):
    """What is given for a flag.

    Attributes:
        place: the flag as messages name it: "--seed", or with file and line "run.yaml:3: seed".
        texts: its value, or its values if there may be several.
    """

    place: str
    texts: str | list[str]

    @property
    def several(self) -> list[str]:
        """Its values as a list."""
        return self.texts if isinstance(self.texts, list) else [self.texts]


def read_config(path: str, known: Sequence[str]) -> dict[str, Given]:
    """What a file gives, by the names of the flags; its hash is kept for ``config_facts``.

    Args:
        known: the names of the flags that the command has.

    Raises:
        UserError: it cannot be read, is no YAML or JSON, or has lines that are no flags, each of which is named.
    """
    found: dict[str, Given] = {}
    problems = []
    for key, node in _pairs(path):
        written = str(key.value)
        name, place = written.replace("-", "_"), f"{path}:{key.start_mark.line + 1}: {written[:60]}"
        if problem := _problem(name, node, known, found):
            problems.append(f"{place}{problem}")
        else:
            found[name] = Given(place, _texts(node))
    if problems:
        raise UserError("\n".join(problems))
    return found


def _pairs(path: str) -> list[tuple[yaml.Node, yaml.Node]]:
    """The flags of a file and their values, as YAML's parser gives them."""
    try:
        content = Path(path).read_bytes()
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except OSError as error:
        problem = f"--config {path}: cannot be read: {error.strerror}; check the path"
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        problem = f"{path}:{mark.line + 1 if mark else 1}: not valid YAML ({what}); write flag: value"
    else:
        _HASHES[path] = hashlib.sha256(content).hexdigest()
        if root is None or isinstance(root, yaml.MappingNode):
            return root.value if root else []
        problem = f"{path}:{root.start_mark.line + 1}: expected a flag on each line, such as learning_rate: 5e-5"
    raise UserError(problem)


def hint(word: str, known: Sequence[str]) -> str:
    """What to do about a word that is no flag: the nearest one that is."""
    name = word.partition("=")[0].removeprefix("--").replace("-", "_")
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean --{close[0]}?" if close else "--help lists the flags"


def config_facts(path: str | None) -> dict[str, Any]:
    """For run.json, the name and the hash of the file as it was when its flags were read; {} without one."""
    return {"config_file": {"file": Path(path).name, "sha256": _HASHES.get(path)}} if path else {}


def _problem(name: str, node: yaml.Node, known: Sequence[str], found: dict[str, Given]) -> str | None:
    """What is wrong with a line, in words that follow the flag's name; None if nothing is."""
    if name not in known:
        return f" is no flag of this command; {hint(name, known)}"
    if name == "config":
        return " cannot name another file; copy the lines of that file"
    if name in found:
        return f" stands on another line, too ({found[name].place}); delete one of the two"
    parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(part, yaml.ScalarNode) for part in parts):
        return " must be a text, a number, true or false, or a list of these; got a nested value"
    if any(part.tag.endswith(":null") for part in parts):
        return " has no value; write one, or leave the line out for the default"
    return None


def _texts(node: yaml.Node) -> str | list[str]:
    return [part.value for part in node.value] if isinstance(node, yaml.SequenceNode) else str(node.value)
