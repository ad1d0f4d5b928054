"""How a flag is declared, parsed and checked; mistakes are one line each, and status 2.

A flag has a type, a default, what limits it, and a nature, by which the rest of the project treats it. Nothing here
imports torch or transformers, so that a mistake is said before they are loaded, which takes seconds.

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
import enum
import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import yaml

from bert_training.files.hashing import sha256
from tokenization.errors import UserError

# --- declarations ----------------------------------------------------------------------------------------------------

ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


class Nature(enum.Flag):
    """Natures of a flag; they are combined with ``|``.

    A flag that is neither FIXED nor FREE may change while the run is unfinished, unless that changes the number of
    steps or the global batch, which the checkpoint compares; a finished run refuses the change.

    Attributes:
        FIXED: must not change between a checkpoint and the run that resumes from it, because the data, the learning
            rate or the dropout masks of a step depend on it.
        FREE: may differ between two starts of a run, because the finished model does not depend on it.
        CARD: is listed among the hyperparameters of the model card.
        EVALUATION: decides, besides the data, how finished weights are evaluated; ``verify`` gives these flags when it
            evaluates a folder again.
        STORED: says how the texts reach a fine-tuned model and which network reads them. It is stored in the config of
            the model and is the default of later commands that start from it (``tasks/stored_flags.py``).
        APART: says where a run starts, where its data is, with which seed it runs, or what is done with the finished
            model. Reports tell runs apart by hashes and columns instead, and average those that differ in nothing else.
    """

    NONE = 0
    FIXED = enum.auto()
    FREE = enum.auto()
    CARD = enum.auto()
    EVALUATION = enum.auto()
    STORED = enum.auto()
    APART = enum.auto()


# Imported one by one, so that the list of flags stays readable.
FIXED, FREE, CARD = Nature.FIXED, Nature.FREE, Nature.CARD
EVALUATION, STORED, APART = Nature.EVALUATION, Nature.STORED, Nature.APART


class Dataclass(Protocol):
    """Any dataclass, such as the flags of a script."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def flag(default: Any, nature: Nature = Nature.NONE, **limits: Any) -> Any:
    """A field of a dataclass of flags; without a default (MISSING) it must be given. Its help is in the docstring.

    Args:
        nature: what the flag means for the rest of the project. A class that redefines a flag of its base class, for
            example with another default, need not repeat it, nor what it declares.
        limits: what ``check`` looks at in a value that is not the default.
            ``at_least``, ``above``, ``at_most``, ``below``: its bounds.
            ``choices``: the texts that it may be, where the type is no Literal.
            ``needs``: other flags without which it has no effect, such as ``("train_file or dataset_name",)``; all of
            the entries must be given. With a value, that value: ``("long_texts windows",)``.
            ``excludes``: flags, in the same form, with which it has no effect or that contradict it.
            ``may_be_empty``: of a list, whether it may be given without a value.
            ``alone``: the value of a flag that is given without one.
    """
    metadata = {"nature": nature, **limits}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class Kind(NamedTuple):
    """What the values of a flag are: texts, numbers or truth values, one or several, perhaps out of a few."""

    type: type
    is_list: bool
    choices: tuple[str, ...]


def kinds(cls: type[Dataclass]) -> dict[str, Kind]:
    """The kinds of all flags of a dataclass, by their annotations."""
    hints = _hints(cls)
    return {one.name: _kind(hints[one.name], tuple(one.metadata.get("choices", ()))) for one in fields(cls)}


_hints = functools.cache(get_type_hints)


def _kind(hint: Any, choices: tuple[str, ...]) -> Kind:
    if get_origin(hint) in (Union, UnionType):
        hint = next(part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is list:
        return Kind(get_args(hint)[0], True, choices)
    return Kind(str, False, get_args(hint)) if get_origin(hint) is Literal else Kind(hint, False, choices)


def helps(cls: type[Dataclass]) -> dict[str, str]:
    """The help of the flags, from the section "Attributes" in the docstrings of a class and of its base classes."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        # Python 3.13 takes the indentation out of docstrings by itself.
        attributes = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        found |= {name: " ".join(text.split()) for name, text in ATTRIBUTE.findall(attributes)}
    for one in fields(cls):
        if isinstance(rows := one.metadata.get("choices"), Mapping):
            found[one.name] += "".join(f" {name}: {row.help}." for name, row in rows.items())
    return found


def default_of(one: Field[Any]) -> Any:
    """The default of a field; MISSING if it has none."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def declared(cls: type[Dataclass]) -> dict[str, dict[str, Any]]:
    """What every flag of a dataclass declares, with what a base class declares of a flag of the same name."""
    found: dict[str, dict[str, Any]] = {one.name: {"nature": Nature.NONE} for one in fields(cls)}
    for base in reversed(cls.__mro__):
        own = vars(base).get("__dataclass_fields__", {})
        for name, one in ((name, one) for name, one in own.items() if name in found):  # FIRST is a field of the class
            nature = found[name]["nature"] | one.metadata.get("nature", Nature.NONE)
            found[name] |= {**one.metadata, "nature": nature}
    return found


def natures(cls: type[Dataclass]) -> dict[str, Nature]:
    """The natures of every flag of a dataclass, including those that a base class gives to a flag of the same name."""
    return {name: one["nature"] for name, one in declared(cls).items()}


BOUNDS = {
    "at_least": ("at least", lambda value, bound: value >= bound),
    "above": ("above", lambda value, bound: value > bound),
    "at_most": ("at most", lambda value, bound: value <= bound),
    "below": ("below", lambda value, bound: value < bound),
}


@dataclass
class Flags:
    """The base of all classes of flags: they are checked as soon as they have values, also those of a copy.

    Attributes of the class:
        FIRST: the flags that --help shows first.
    """

    FIRST: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check(self)
        self.settle()

    def problems(self) -> Iterator[str]:
        """What is wrong beside what the flags declare one by one (``flag``), each in a sentence."""
        yield from ()

    def settle(self) -> None:
        """Fill in the defaults that depend on other flags, so that run.json says what was done."""

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that differ from those of the fields, for the flags that are given, by name."""
        return {}


def check(args: Flags) -> None:
    """Raise UserError, with one line for each problem of the flags, unless there is none."""
    limits, found = declared(type(args)), list[str]()
    for name, value in _given(args).items():
        found += [*problems_of_value(type(args), name, value), *_problems_beside(args, name, limits[name])]
    refuse(dict.fromkeys([*found, *args.problems()], True))


def refuse(problems: Mapping[str, object]) -> None:
    """Raise one UserError with a line for each sentence whose value is true, unless there is none."""
    if told := [problem for problem, there in problems.items() if there]:
        raise UserError("\n".join(told))


def problems_of_value(cls: type[Flags], name: str, value: Any) -> Iterator[str]:
    """What is wrong with the value of a flag, whatever the others are."""
    choices, limits = kinds(cls)[name].choices, declared(cls)[name]
    bounds = [(*BOUNDS[word], limits[word]) for word in BOUNDS if word in limits]
    if choices and value not in choices:
        yield f"--{name} must be one of {', '.join(map(str, choices))}; got {value!r}"
    if isinstance(value, float) and not math.isfinite(value):
        yield f"--{name} must be a finite number; got {value}"
    elif not all(fits(value, bound) for _, fits, bound in bounds):
        yield f"--{name} must be {' and '.join(f'{words} {bound}' for words, _, bound in bounds)}; got {value}"


def holds(args: object, wanted: str) -> bool:
    """Whether a flag is given ("train_file"), or has a value ("long_texts windows"); or one of several ("a or b")."""
    for one in wanted.split(" or "):
        name, _, value = one.partition(" ")
        if str(getattr(args, name, None)).partition(":")[0] == value if value else name in _given(args):
            return True
    return False


def flags_text(args: Any, wanted: str) -> str:
    """What ``holds`` is asked, as words of a command: "--a or --b", of the flags that the script has."""
    names = [one.name for one in fields(args)]
    return " or ".join(f"--{one}" for one in wanted.split(" or ") if one.partition(" ")[0] in names)


def _given(args: Any) -> dict[str, Any]:
    """The flags that differ from their defaults, by name; those that are empty count as left out."""
    values = {one.name: (getattr(args, one.name), default_of(one)) for one in fields(args)}
    return {name: value for name, (value, usual) in values.items() if value != usual and value not in (None, "", [])}


def _problems_beside(args: Any, name: str, limits: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a flag beside the others."""
    for wanted in limits.get("needs", ()):
        if not holds(args, wanted):
            yield f"--{name} needs {flags_text(args, wanted)}; give that, or leave --{name} out"
    for other in limits.get("excludes", ()):
        if holds(args, other):
            yield f"--{name} and {flags_text(args, other)} exclude each other; leave one of them out"


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
        given = _converted(cls, vars(namespace), _unknown(cls, others) if others else ())
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
