"""Parsing of a script's flags into its dataclass, and of a command's; mistakes are one line each, and status 2.

Nothing here imports torch or transformers, so that a mistake is said before they are loaded, which takes seconds.

The file of --config has the flags of a command, flat, as YAML or JSON:

    # run.yaml
    model_name_or_path: runs/first
    train_file: mails.csv
    text_column: [subject, body]
    learning_rate: 5e-5

Its lines become the first words of the command line, where a flag that is typed wins. Of YAML, which JSON is a part of,
only the texts of the values are taken, and the flags say what they mean: YAML itself would read 5e-5 as a text, and the
"no" of ``mixed_precision: no`` as false.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from bert_training.files.hashing import sha256
from bert_training.inputs.flags.natures import Flags, Kind, declared, default_of, helps, kinds, problems_of_value
from tokenization.errors import UserError


def words_of_config(path: str) -> list[str]:
    """The flags in a file, as words of the command line. Raises UserError if it is no file of flags."""
    try:
        content = dict(yaml.load(Path(path).read_bytes(), yaml.BaseLoader) or {})
    except (OSError, yaml.YAMLError, ValueError, TypeError) as error:
        told = " ".join(str(error).split())
        raise UserError(
            f"--config {path}: expected a flag on each line, such as learning_rate: 5e-5; got {told}"
        ) from None
    words: list[str] = []
    for name, value in content.items():
        words += [f"--{name}", *map(str, value)] if isinstance(value, list) else [f"--{name}={value}"]
    return words


def config_facts(path: str | None) -> dict[str, Any]:
    """For run.json, the name and the hash of the file; {} without one."""
    return {"config_file": {"file": Path(path).name, "sha256": sha256(Path(path))}} if path else {}


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
                options = _options(kinds(cls)[name], name, limits[name])
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


def _options(kind: Kind, name: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """How argparse reads and shows the words of a flag."""
    options: dict[str, Any] = {"metavar": name.rpartition("_")[2].upper()}
    if kind.is_list:
        options["nargs"] = "*" if limits.get("may_be_empty") else "+"
    elif kind.type is bool or "alone" in limits:
        options |= {"nargs": "?", "const": limits.get("alone", "true")}
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
    typed = sys.argv[1:] if argv is None else argv
    namespace, others = parser.parse_known_args([_with_underscores(cls, word) for word in typed])
    try:
        if path := getattr(namespace, "config", None):
            words = [_with_underscores(cls, word) for word in [*words_of_config(path), *typed]]
            namespace, others = parser.parse_known_args(words)
        given = _converted(cls, vars(namespace), _unknown(cls, others))
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
    try:
        args = parse_arguments(cls, None, defaults_for)
    except (OSError, UserError):  # of the model, which the script itself reports
        return
    try:
        if not Path(getattr(args, "output_dir", ""), "run.json").exists():  # a finished run needs no files
            look(args)
    except (OSError, UserError) as error:
        print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
        sys.exit(2)


def _converted(cls: type[Flags], words: Mapping[str, str | list[str]], unknown: Iterable[str]) -> dict[str, Any]:
    """The values of the flags that are given. Raises UserError with everything that is wrong with the words."""
    found, problems = dict[str, Any](), [*unknown]
    for name, texts in words.items():
        kind = kinds(cls)[name]
        convert, wanted = TYPES[kind.type]
        try:
            found[name] = [convert(text) for text in texts] if isinstance(texts, list) else convert(texts)
        except (ValueError, KeyError):
            problems.append(f"--{name} must be {wanted}, got {texts!r:.60}; correct it")
            continue
        if found[name] != default_of(cls.__dataclass_fields__[name]):  # which may be out of bounds, as -1 steps are
            problems += problems_of_value(cls, name, found[name])
    problems += [f"--{name} is required; give it" for name in _required(cls) if name not in words]
    if problems:
        raise UserError("\n".join(problems))
    return found


def _unknown(cls: type[Flags], words: list[str]) -> list[str]:
    """A sentence for each flag that does not exist, with the words behind it, and the nearest one that does."""
    known, groups = [one.name for one in fields(cls)], list[list[str]]()
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    told = []
    for group in groups:
        name = group[0].partition("=")[0].removeprefix("--").replace("-", "_")
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean --{close[0]}?" if close else "--help lists the flags"
        told.append(f"unknown argument {' '.join(group)}; {hint}")
    return told


def _required(cls: type[Flags]) -> list[str]:
    return [one.name for one in fields(cls) if default_of(one) is MISSING]


def _shown(default: Any) -> str:
    if isinstance(default, list):
        return " ".join(map(str, default)) or "none"
    return str(default).lower() if isinstance(default, bool) else str(default)
