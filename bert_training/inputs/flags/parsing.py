"""Parsing of a script's flags into its dataclass, and of a command's; mistakes are one line each, and status 2.

Nothing here imports torch or transformers, so that a mistake is said before they are loaded, which takes seconds.

The file of --config has the flags of a command, flat, as YAML or JSON:

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

import argparse
import difflib
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import yaml

from bert_training.files.harmless_output import harmless_output
from bert_training.inputs.flags.natures import Flags, Kind, declared, default_of, helps, kinds, problems_of_value
from tokenization.errors import UserError

# --- the file of --config --------------------------------------------------------------------------------------------


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
        if problem := _problem_of_line(name, node, known, found):
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


def _problem_of_line(name: str, node: yaml.Node, known: Sequence[str], found: dict[str, Given]) -> str | None:
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


# --- parsing ---------------------------------------------------------------------------------------------------------


Args = TypeVar("Args", bound=Flags)
DefaultsFor = Callable[[type[Args], Mapping[str, Any]], Mapping[str, Any]]
TRUTH = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
TYPES: dict[type, tuple[Callable[[str], Any], str]] = {
    int: (int, "a whole number"),
    float: (float, "a number"),
    bool: (lambda text: TRUTH[text.lower()], "true or false"),
    str: (str, "a text"),
}


class _Parser(argparse.ArgumentParser):
    """A parser that leaves the values as texts, and out of the result what is not given."""

    def __init__(self, cls: type[Flags]) -> None:
        needed = " ".join(f"--{name} {name.rpartition('_')[2].upper()}" for name in _required(cls))
        usage = f"%(prog)s {needed} [flags]; --help lists the flags"
        super().__init__(
            description=(cls.__doc__ or "").partition("\n")[0],
            usage=usage,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        self._negative_number_matcher = re.compile(r"-\d")  # also of --layers -1,-2
        limits, help_of = declared(cls), helps(cls)
        for title, names in _groups(cls).items():
            group = self.add_argument_group(title)
            for name in names:
                options = _options(kinds(cls)[name], name, limits[name].get("may_be_empty", False))
                usual = default_of(cls.__dataclass_fields__[name])
                text = help_of.get(name, "") + ("" if usual in (None, MISSING) else f" (default: {_shown(usual)})")
                group.add_argument(f"--{name}", dest=name, help=text.replace("%", "%%"), **options)

    def error(self, message: str) -> NoReturn:
        """Print a line for each problem, and exit."""
        self.print_usage(sys.stderr)
        self.exit(2, "".join(f"{self.prog}: error: {line}\n" for line in message.splitlines()))


def _groups(cls: type[Flags]) -> dict[str, list[str]]:
    """The titles of the help -> flags: those that most commands need, then those of each class from the script up."""
    left, groups = [one.name for one in fields(cls)], {"what most commands need": [*cls.FIRST]}
    for base in cls.__mro__:
        own = [name for name in left if name in vars(base).get("__annotations__", {}) and name not in cls.FIRST]
        if own:
            groups[(base.__doc__ or "").partition("\n")[0].lower().rstrip(".")] = own
            left = [name for name in left if name not in own]
    return groups


def _options(kind: Kind, name: str, may_be_empty: bool) -> dict[str, Any]:
    """How argparse reads and shows the words of a flag."""
    options: dict[str, Any] = {"metavar": name.rpartition("_")[2].upper()}
    if kind.is_list:
        options["nargs"] = "*" if may_be_empty else "+"
    elif kind.type is bool:
        options |= {"nargs": "?", "const": "true"}
    if kind.choices or kind.type is bool:
        options["metavar"] = f"{{{','.join(map(str, kind.choices or ('true', 'false')))}}}"
    return options


def _with_underscores(cls: type[Flags], word: str) -> str:
    """A flag with dashes, in the spelling of its field; any other word as it is."""
    flag, equals, value = word.partition("=")
    name = flag.removeprefix("--").replace("-", "_")
    return f"--{name}{equals}{value}" if flag.startswith("--") and name in cls.__dataclass_fields__ else word


def command_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of a command of ``bert-repro``, whose help begins with the docstring of its module."""
    return argparse.ArgumentParser(
        prog=f"bert-repro {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse_arguments(
    cls: type[Args], argv: list[str] | None = None, defaults_for: DefaultsFor[Args] | None = None
) -> Args:
    """Parse ``argv`` (default: the command line) into ``cls``.

    Exits with status 2 and one line for each mistake: first those in the words, then those in what they say.

    Args:
        defaults_for: returns defaults that differ from those of the fields, from ``cls`` and the flags that are given;
            what it raises is passed on.
    """
    parser = _Parser(cls)
    words = [_with_underscores(cls, word) for word in (sys.argv[1:] if argv is None else argv)]
    namespace, others = parser.parse_known_args(words)
    typed = {name: Given(f"--{name}", texts) for name, texts in vars(namespace).items()}
    try:
        path = typed["config"].texts if "config" in typed else None
        typed = (read_config(str(path), [one.name for one in fields(cls)]) if path else {}) | typed
        given = _converted(cls, typed, _unknown(cls, others))
        defaults = cls.defaults_for(given)
    except UserError as error:
        parser.error(str(error))
    defaults |= defaults_for(cls, given) if defaults_for else {}
    try:
        return cls(**defaults | given)
    except UserError as error:
        parser.error(str(error))


def check_command_line(
    cls: type[Args],
    defaults_for: DefaultsFor[Args] | None = None,
    look: Callable[[Args], None] = lambda args: None,
) -> None:
    """Exit if the flags of the command line are mistaken. Scripts call it before they import torch.

    Args:
        look: looks at the files of a new run, and raises UserError if one is missing, or lacks a column.
    """
    with harmless_output():
        try:
            args = parse_arguments(cls, None, defaults_for)
        except (OSError, UserError):  # of the model, which the script itself reports
            return
        try:
            if not Path(getattr(args, "output_dir", ""), "run.json").exists():  # a finished run needs no files
                look(args)
        except UserError as error:
            print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
            sys.exit(2)


def _converted(cls: type[Flags], words: Mapping[str, Given], unknown: Iterable[str]) -> dict[str, Any]:
    """The values of the flags that are given. Raises UserError with everything that is wrong with the words."""
    found, problems, limits = dict[str, Any](), [*unknown], declared(cls)
    for name, given in words.items():
        values = [_convert(kinds(cls)[name].type, text) for text in given.several]
        if problem := _problem(given, values, kinds(cls)[name], limits[name].get("may_be_empty", False)):
            problems.append(f"{given.place} {problem}")
            continue
        found[name] = values if kinds(cls)[name].is_list else values[0]
        if found[name] != default_of(cls.__dataclass_fields__[name]):  # which may be out of bounds, as -1 steps are
            problems += problems_of_value(cls, name, found[name])
    problems += [f"--{name} is required; give it" for name in _required(cls) if name not in words]
    if problems:
        raise UserError("\n".join(problems))
    return found


def _convert(kind: type, text: str) -> Any:
    """The value that a text stands for; None if it stands for none of this type."""
    try:
        return TYPES[kind][0](text)
    except (ValueError, KeyError):
        return None


def _problem(given: Given, values: list[Any], kind: Kind, may_be_empty: bool) -> str | None:
    """What is wrong with the words of a flag, in words that follow its name; None if nothing is."""
    if isinstance(given.texts, list) and not kind.is_list:
        return "takes one value, got a list; write one value"
    if not values and not may_be_empty:
        return "needs one value or more, got an empty list; leave it out"
    if None in values:
        return f"must be {TYPES[kind.type][1]}, got {given.several[values.index(None)][:60]!r}; correct it"
    return None


def _unknown(cls: type[Flags], words: list[str]) -> list[str]:
    """A sentence for each flag that does not exist, with the words behind it."""
    known, groups = [one.name for one in fields(cls)], list[list[str]]()
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return [f"unknown argument {' '.join(group)}; {hint(group[0], known)}" for group in groups]


def _required(cls: type[Flags]) -> list[str]:
    return [one.name for one in fields(cls) if default_of(one) is MISSING]


def _shown(default: Any) -> str:
    if isinstance(default, list):
        return " ".join(map(str, default)) or "none"
    return str(default).lower() if isinstance(default, bool) else str(default)
