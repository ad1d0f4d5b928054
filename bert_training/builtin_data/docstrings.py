"""Read docstrings from Python source files as plain English: summary, prose and parameters.

Files are parsed with ``ast`` and never imported, so there are no side effects, and packages that are broken or slow to
import can be read too. ``bert_training.builtin_data.source_files`` divides the work among child processes that run this
file. It uses the standard library only, so that a child starts in 50 ms; a fork or spawn of a script that has loaded
torch takes longer.

A language model of English should be trained on sentences. Therefore doctests, literal and code blocks, formulas,
tables, references and signatures are removed, and of the mark-up (roles, back-quotes, asterisks, links) only the words
are kept. Lists of parameters have one form for all styles (numpydoc, Google, Sphinx):
``axis (int, optional): Axis along which the sum is taken.``

Where the mark-up says that words are code (``axis``, `axis`, :func:`sum`), ``tagged_words`` gives the words and, apart
from them, the marks.
"""

from __future__ import annotations

import ast
import gc
import io
import json
import re
import sys
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path

MIN_CHARACTERS = 200
# Functions with which numpy and torch document their functions that are written in C.
DOCUMENTING_CALLS = {"add_newdoc", "add_docstr", "add_docstr_all"}

PARAMETER_SECTIONS = {"parameters", "other parameters", "args", "arguments", "keyword args", "keyword arguments"}
DROPPED_SECTIONS = {"example", "examples", "references", "see also", "shape", "usage", "attributes", "methods"}
PROSE_SECTIONS = {"returns", "return", "yields", "raises", "notes", "note", "warnings", "warning", "tip"}
PROSE_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "attention", "hint"}

_LONG_STRING = re.compile(rb"(?:\"\"\"|''').{%d}" % MIN_CHARACTERS, re.DOTALL)
_RULE = re.compile(r"^\s*([-=~^\"'*#+_.`])\1{2,}[-=~ ]*$")
_DIRECTIVE = re.compile(r"^\.\. +([\w-]+)::(.*)$")
_SIGNATURE = re.compile(r"^[\w.]+\(.*\)(\s*->.*)?$", re.DOTALL)
_NUMPY_ENTRY = re.compile(r"^(?P<name>[*`]*[A-Za-z_]\w*`*(?:, *[*`]*\w+`*)*)(?: ?: ?(?P<type>.*))?$")
_GOOGLE_ENTRY = re.compile(
    r"^(?:[-*] +)?[`*]*(?P<name>[A-Za-z_]\w*)[`*]* *(?:\((?P<type>(?:[^()]|\([^()]*\))*)\))? *(?::|--) *(?P<text>.*)$"
)
_SPHINX_ENTRY = re.compile(r"^:(?:param|parameter|arg) +(?:(?P<type>[^:]+?) +)?(?P<name>\w+): *(?P<text>.*)$")
_MARKED = re.compile(r"[`*\\<\[|{]|://")
# A parameter outside a section: Sphinx's form, or that of transformers.
_UNTITLED_ENTRY = re.compile(r"^ *(?::[a-z]+ ?[\w ]*:|\w+ \(.*\):$)")
_INLINE = [
    (re.compile(r":[\w:.+-]+:`[~!]?([^`<]*?)(?: *<[^`>]*>)?`"), r"\1"),  # :class:`~torch.Tensor`
    (re.compile(r"`([^`<>]+?) *<[^`>]*>`_{0,2}"), r"\1"),  # `text <link>`_
    (re.compile(r"\[([^\]]+)\]\([^)\s]*\)"), r"\1"),  # [text](link)
    (re.compile(r"`+~?([^`]*)`+_{0,2}"), r"\1"),
    (re.compile(r"\[[\w#*-]+\]_|</?\w+ */?>|https?://[^\s)>]+|\{\w+\}"), ""),
    (re.compile(r"(?<![\w*])\*{1,2}([^*\s](?:[^*]*[^*\s])?)\*{1,2}(?![\w*])"), r"\1"),
    (re.compile(r"\|(\w+)\|"), r"\1"),
    (re.compile(r"\\(?=[*_`|])"), ""),
    (re.compile(r"\s+"), " "),
]


# Two characters of Unicode's private use area stand for the marks until the other mark-up is removed.
_OPEN, _CLOSE = "\ue000", "\ue001"
_CODE = re.compile(r"(?::[\w:.+-]+:)?(?<![`\w\\])(`{1,2})(?![`\s])[~!]?([^`<>]*[^`<>\s])\1(?![`\w])(?!_)")


@dataclass
class Parameter:
    """One documented parameter."""

    name: str
    type: str  # empty if the docstring names none
    description: str

    def __str__(self) -> str:
        kind = f" ({self.type})" if self.type else ""
        return f"{self.name}{kind}: {self.description}"


@dataclass
class Docstring:
    """The documentation of one module, class, function or topic.

    Attributes:
        module: dotted name of the module.
        name: dotted name within the module; empty for the module itself.
        kind: "module", "class", "function" or "topic".
        summary: the first paragraph.
        prose: the paragraphs after the summary, in order, without the parameters.
        parameters: the documented parameters, in order.
        fingerprint: hashes of about a quarter of its five-word sequences (see the function ``fingerprint``), by which
            near-duplicates are found.
        marked: those paragraphs of the prose in which words are marked as code, with their mark-up.
    """

    module: str
    name: str
    kind: str
    summary: str
    prose: list[str]
    parameters: list[Parameter] = field(default_factory=list)
    fingerprint: list[int] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)

    def paragraphs(self) -> list[str]:
        """The summary, the prose, then one paragraph for each parameter."""
        return [self.summary, *self.prose, *map(str, self.parameters)]


def plain(text: str) -> str:
    """The text without mark-up, with every run of white space replaced by one space."""
    if not _MARKED.search(text):  # true for most texts, and ten times faster than the substitutions
        return " ".join(text.split())
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text.strip()


def tagged_words(text: str) -> list[tuple[str, str]]:
    """The words and punctuation marks of a text without its mark-up, each with a tag.

    The tag is "B" for the first word of what is marked as code, "I" for the others of it, and "O" for all other words.
    All text is cut by one rule, so that the cuts do not tell what was marked.
    """
    words, tag = [], "O"
    for part in re.findall(rf"[{_OPEN}{_CLOSE}]|\w+|[^\w\s]", plain(_CODE.sub(rf" {_OPEN}\2{_CLOSE} ", text))):
        if part in (_OPEN, _CLOSE):
            tag = "B" if part == _OPEN else "O"
        else:
            words.append((part, tag))
            tag = "I" if tag == "B" else tag
    return words


def is_prose(text: str) -> bool:
    """Whether a text has at least four words, and letters and spaces are at least four fifths of its characters."""
    letters = sum(map(len, re.findall(r"[A-Za-z ]+", text)))
    return letters >= 0.8 * len(text) and len(re.findall(r"[A-Za-z]{2,}", text)) >= 4


def indent(line: str) -> int:
    """The number of white space characters at the start of the line."""
    return len(line) - len(line.lstrip())


def without_code(lines: list[str]) -> list[str]:
    """The lines without doctests, fenced and literal blocks, directives and tables."""
    kept: list[str] = []
    fenced = doctest = False
    block = None  # while a block is skipped, the indentation of the line above it; the block's lines are indented more
    for line in lines:
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced, doctest = not fenced, False
            continue
        if block is not None and stripped and indent(line) <= block:
            block = None
        doctest = bool(stripped) and (doctest or stripped.startswith((">>>", "In [")))
        if fenced or doctest or (block is not None and stripped):
            continue
        directive = _DIRECTIVE.match(stripped)
        name, text = directive.groups() if directive else ("", "")
        if name.lower() in PROSE_DIRECTIVES:
            kept += ["", " " * indent(line) + text.strip()]
        elif stripped.startswith(".. ") or stripped == "..":
            block = indent(line)
            kept.append("")
        elif stripped.startswith(("|", "+-", "+=", "@")) or re.match(r"^=+( +=+)+$", stripped):
            kept.append("")
        elif stripped.endswith("::"):
            block = indent(line)
            kept.append(line.rstrip()[:-1] if stripped != "::" else "")
        else:
            kept.append(line)
    return kept


def sections(lines: list[str]) -> Iterator[tuple[str, bool, list[str]]]:
    """Yield (lower-case title or "", whether it is underlined as in numpydoc, lines) of the sections in order."""
    title, underlined = "", False
    body: list[str] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        following = lines[position + 1] if position + 1 < len(lines) else ""
        heading = line.strip().rstrip(":").lower()
        known = heading in PARAMETER_SECTIONS | DROPPED_SECTIONS | PROSE_SECTIONS
        ruled = bool(line.strip()) and bool(_RULE.match(following))
        if ruled or (known and line.rstrip().endswith(":") and indent(line) == 0):
            yield title, underlined, body
            title, underlined, body = heading, ruled, []
            position += 2 if ruled else 1
            continue
        if not _RULE.match(line):
            body.append(line)
        position += 1
    yield title, underlined, body


def paragraphs(lines: list[str]) -> list[tuple[str, str]]:
    """The blocks between blank lines and the list items, if they are prose: in one line, without and with mark-up."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        stripped = line.strip()
        if not stripped:
            blocks.append([])
            continue
        if re.match(r"^([-*+•]|\d+[.)]|#\.) +", stripped):
            blocks.append([])
            stripped = re.sub(r"^([-*+•]|#\.) +", "", stripped)
        blocks[-1].append(stripped)
    raw = [" ".join(block) for block in blocks]
    texts = ((plain(text), text) for text in raw)
    return [both for both in texts if is_prose(both[0]) and not _SIGNATURE.match(both[0])]


def parameter(lines: list[str], underlined: bool) -> Parameter | None:
    """One entry of a section of parameters; None unless it has a name and a description in prose.

    Args:
        lines: the lines of the entry.
        underlined: whether the section is in the style of numpydoc.
    """
    pattern = _NUMPY_ENTRY if underlined else _GOOGLE_ENTRY
    match = _SPHINX_ENTRY.match(lines[0].strip()) or pattern.match(lines[0].strip())
    if not match:
        return None
    first = match.groupdict().get("text") or ""
    rest: list[str] = []
    for line in lines[1:]:  # only the first paragraph is the description; lists of choices may follow
        if not line.strip():
            if rest or first:
                break
            continue
        rest.append(line.strip())
    description = plain(" ".join([first, *rest]))
    name, kind = plain(match["name"]).lstrip("*"), plain(match["type"] or "")
    if not is_prose(description) or not re.fullmatch(r"\w+", name) or len(kind) > 60:
        return None
    return Parameter(name, kind, description)


def parameters(lines: list[str], underlined: bool) -> list[Parameter]:
    """The entries of a section of parameters; each begins with a line of the smallest indentation."""
    margin = min((indent(line) for line in lines if line.strip()), default=0)
    entries: list[list[str]] = []
    for line in lines:
        if line.strip() and indent(line) == margin:
            entries.append([line])
        elif entries:
            entries[-1].append(line)
    parsed = (parameter(entry, underlined) for entry in entries)
    return [entry for entry in parsed if entry]


def fingerprint(text: str) -> list[int]:
    """The CRC-32 checksums of the five-word sequences, sorted; only those that are divisible by 4.

    Whether a sequence is kept does not depend on the text around it, so fingerprints of different texts are comparable.
    """
    words = re.findall(r"[a-z]{2,}", text.lower())
    hashes = {zlib.crc32(" ".join(words[first : first + 5]).encode()) for first in range(len(words) - 4)}
    return sorted(value for value in hashes if value % 4 == 0)


def read_docstring(text: str, module: str, name: str, kind: str) -> Docstring | None:
    """Parse a raw docstring; None if less than ``MIN_CHARACTERS`` characters of English remain."""
    prose: list[tuple[str, str]] = []
    entries: list[Parameter] = []
    for title, underlined, lines in sections(without_code(cleandoc(text).splitlines())):
        if title in PARAMETER_SECTIONS:
            entries += parameters(lines, underlined)
        elif title not in DROPPED_SECTIONS:
            entry_lines = (number for number, line in enumerate(lines) if _UNTITLED_ENTRY.match(line))
            first = next(entry_lines, len(lines))
            prose += paragraphs(lines[:first])
            entries += parameters(lines[first:], underlined=False)
    texts = [plain_text for plain_text, _ in prose]
    if not prose or sum(map(len, texts)) + sum(len(str(entry)) for entry in entries) < MIN_CHARACTERS:
        return None
    marked = [with_marks for _, with_marks in prose if _CODE.search(with_marks)]
    document = Docstring(module, name, kind, texts[0], texts[1:], entries, marked=marked)
    document.fingerprint = fingerprint(" ".join(document.paragraphs()))
    return document


def raw_docstrings(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield (name, kind, text) for a module, its classes, functions and methods, but not for nested functions."""
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                waiting.append((f"{prefix}{child.name}.", child))
            elif isinstance(child, ast.If | ast.Try):
                waiting.append((prefix, child))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + child.name, "function", ast.get_docstring(child, clean=False) or ""
            elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
                yield from documenting_call(child.value)
        if isinstance(node, ast.Module | ast.ClassDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "module"
            yield prefix.rstrip("."), kind, ast.get_docstring(node, clean=False) or ""


def documenting_call(call: ast.Call) -> Iterator[tuple[str, str, str]]:
    """Yield (name, kind, text) of a call such as numpy's add_newdoc("numpy", "abs", text).

    torch's form is add_docstr(torch.abs, text). Other calls yield nothing.
    """
    if getattr(call.func, "id", getattr(call.func, "attr", "")) not in DOCUMENTING_CALLS or len(call.args) < 2:
        return
    *_, target, text = call.args
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute):  # "...".format(**common_args)
        text = text.func.value
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        yield getattr(target, "attr", str(getattr(target, "value", ""))), "function", text.value


def raw_topics(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield (title, "topic", text) of pydoc_data/topics.py, a dictionary of chapters of the language reference."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from ((name, "topic", text) for name, text in ast.literal_eval(node.value).items())


def read_file(path: str, module: str) -> list[Docstring]:
    """The docstrings of one source file, sorted by name.

    The result is empty for a file that this Python cannot parse (a template, or the syntax of another version).
    """
    source = Path(path).read_bytes()
    if not _LONG_STRING.search(source) and not module.startswith("pydoc_data"):
        return []
    try:
        with warnings.catch_warnings():  # for invalid escapes in the strings of other projects
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    raw = raw_topics(tree) if module == "pydoc_data.topics" else raw_docstrings(tree)
    long = sorted({(name, kind, text) for name, kind, text in raw if len(text) >= MIN_CHARACTERS})
    return [document for name, kind, text in long if (document := read_docstring(text, module, name, kind))]


def main() -> None:
    """The main function of a child process: (path, module) pairs on stdin, docstrings on stdout, both as JSON."""
    # Without garbage collection this takes half the time: syntax trees consist of many objects, all still in use.
    gc.disable()
    assert isinstance(sys.stdin, io.TextIOWrapper) and isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    documents = [document for path, module in json.load(sys.stdin) for document in read_file(path, module)]
    sys.stdout.write(json.dumps(documents, default=vars))


if __name__ == "__main__":
    main()
