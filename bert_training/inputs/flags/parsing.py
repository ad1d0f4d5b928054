"""Parsing of a script's flags into its dataclass, and of a command's; every mistake is one line and status 2."""

import argparse
import difflib
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from transformers import HfArgumentParser
from transformers.hf_argparser import DataClassType

from bert_training.inputs.flags.config_file import config_of, read_config
from bert_training.inputs.flags.natures import Dataclass

Flags = TypeVar("Flags", bound=Dataclass)


class _Parser(HfArgumentParser):
    """A parser that accepts the metadata of a flag, of which some are not options of argparse.

    These are "nature", and "may_be_empty" for a list that may have no values, which HfArgumentParser does not know.
    """

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        options.pop("nature", None)
        if options.pop("may_be_empty", False):
            options["nargs"] = "*"
        return super().add_argument(*names, **options)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help that shows every default but None, which says nothing; where another value takes its place, the help of the
    flag names it.
    """

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


class HasOwnDefaults(ABC):
    """A dataclass of flags of which some decide on the defaults of others."""

    @classmethod
    @abstractmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that differ from those of the fields.

        Args:
            given: the flags on the command line and in the file of --config, by name.
        """


def command_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of a command of ``bert-repro``, whose help begins with the docstring of its module."""
    return argparse.ArgumentParser(
        prog=f"bert-repro {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse_arguments(
    cls: type[Flags],
    argv: list[str] | None = None,
    defaults_for: Callable[[type[Flags], Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> Flags:
    """Parse ``argv`` (default: the command line) into ``cls``.

    Exits with status 2 and one line for an unknown flag or a value out of range.

    Args:
        defaults_for: returns defaults that differ from those of the fields, from ``cls`` and the flags that are given;
            what it raises is passed on.
    """
    needed = " ".join(f"--{one.name} {one.name.split('_')[-1].upper()}" for one in fields(cls) if _required(one))
    usage = f"%(prog)s {needed} [flags]; --help lists the flags"
    parser = _Parser(DataClassType(cls), allow_abbrev=False, usage=usage, formatter_class=_Help)
    words = _joined(sys.argv[1:] if argv is None else argv)
    if "config" in cls.__dataclass_fields__:
        words = _with_config(parser, words)
    if defaults_for:
        parser.set_defaults(**defaults_for(cls, _given(cls, parser, words)))
    try:
        if issubclass(cls, HasOwnDefaults):
            parser.set_defaults(**cls.defaults_for(_given(cls, parser, words)))
        args, unknown = parser.parse_args_into_dataclasses(
            words, return_remaining_strings=True, look_for_args_file=False
        )
    except ValueError as error:
        parser.error(str(error))
    if unknown:
        parser.error(_unknown_flags(cls, unknown))
    return args


def _with_config(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """The words of a command line, after the flags in the file of --config; of a flag in both, the later one wins."""
    try:
        path = config_of(words)
        return [*read_config(path).words(parser), *words] if path is not None else words
    except ValueError as error:
        parser.error(str(error))


def _given(cls: type[Dataclass], parser: argparse.ArgumentParser, words: list[str]) -> dict[str, Any]:
    """The flags that the command line names, with their values; the defaults of the others are left out."""
    absent = object()
    namespace = argparse.Namespace(**{one.name: absent for one in fields(cls)})
    found = vars(parser.parse_known_args(words, namespace)[0])
    return {name: value for name, value in found.items() if value is not absent}


def _required(one: Field) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _joined(argv: list[str]) -> list[str]:
    """Join ``--layers -1,-2`` to ``--layers=-1,-2``, because argparse would take the value for another flag."""
    words: list[str] = []
    for word in argv:
        if words and words[-1].startswith("--") and re.fullmatch(r"-\d+(,-?\d+)+", word):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _unknown_flags(cls: type[Dataclass], unknown: list[str]) -> str:
    known = [f"--{one.name}" for one in fields(cls)]
    name = unknown[0].split("=")[0]
    close = difflib.get_close_matches(name.replace("-", "_").replace("__", "--", 1), known, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; --help lists the flags"
    return f"unknown argument {' '.join(unknown)}{hint}"
