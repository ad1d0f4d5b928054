"""Printing text of unknown origin: labels, questions, names of files and error messages that quote them.

A terminal obeys some characters instead of showing them. They could clear the screen, overwrite a line that was
printed before, write to the clipboard, or show text in another order than it is stored. Everything that the scripts and
commands print therefore passes ``HarmlessStream``, which shows such characters as ``\\x1b``, ``\\u202e`` and so on,
as Python does in the text of a string. All other characters, in all scripts, stay as they are.
"""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

# C0 controls but tab and line feed, delete, C1 controls; line and paragraph separators; characters that change the
# direction of text; and lone surrogates, which stand for the bytes of a file name that are not UTF-8, and which a
# stream could not encode. The marks U+200E, U+200F and U+061C, which Hebrew and Arabic need, cannot reorder other text.
OBEYED = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
# What a progress bar writes: a return before its text, and the sequence that moves the cursor up.
BAR = re.compile("\\r?(\\x1b\\[A)*")


def harmless(text: str) -> str:
    """The text with characters that a terminal obeys spelled out."""
    return OBEYED.sub(lambda match: ascii(match[0])[1:-1], text)


def say(text: str) -> None:
    """Print a line once, whatever the number of processes."""
    if os.environ.get("RANK", "0") == "0":
        print(text, flush=True)


class HarmlessStream:
    """A stream that shows the characters that a terminal obeys, and is the given stream in all other respects.

    Attributes:
        stream: the given stream.
        bars: progress bars are drawn there, so a text may begin with what moves the cursor to the beginning of a line.
    """

    def __init__(self, stream: Any, bars: bool = False):
        self.stream, self.bars = stream, bars

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write the text, and return its length; what the encoding of the stream lacks is spelled out as well."""
        bar = BAR.match(text) if self.bars else None
        start = bar.end() if bar else 0
        shown = text[:start] + harmless(text[start:])
        try:
            self.stream.write(shown)
        except UnicodeEncodeError as error:
            self.stream.write(shown.encode(error.encoding, "backslashreplace").decode(error.encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each of the lines."""
        for line in lines:
            self.write(line)


@contextlib.contextmanager
def harmless_output() -> Iterator[None]:
    """Make standard output, standard error and what is logged there harmless, as long as the context lasts.

    If an error other than SystemExit leaves the context, they stay harmless, because Python will print the error.
    """
    before = sys.stdout, sys.stderr
    if any(isinstance(stream, HarmlessStream) for stream in before):
        yield
        return
    # Python has no stream for a file that was closed before it began, as `>&-` does; then nothing is shown.
    shown = [open(os.devnull, "w", encoding="utf-8") if stream is None else stream for stream in before]  # noqa: SIM115
    sys.stdout, sys.stderr = HarmlessStream(shown[0]), HarmlessStream(shown[1], bars=True)
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", [])]
    changed = []
    for handler in handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream in before:
            changed.append((handler, handler.stream))
            handler.stream = sys.stdout if handler.stream is before[0] else sys.stderr
    ends = False
    try:
        yield
    except SystemExit:
        raise
    except BaseException:
        ends = True
        raise
    finally:
        if not ends:
            for stream in shown:
                if stream not in before:
                    stream.close()
            sys.stdout, sys.stderr = before
            for handler, stream in changed:
                handler.stream = stream
