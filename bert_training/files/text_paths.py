"""The files that the entries of ``--train_file`` and the like stand for.

| entry | its files |
|---|---|
| the path of a file | that file, whatever characters its name has |
| a pattern with ``*``, ``?``, ``[...]`` or ``**`` | those that match; of a folder that matches, those in it |
| a folder | all in it and below it |
| a folder that ``save_to_disk`` of ``datasets`` wrote | its Arrow files, in the order that it gives them |
| a URL, which may be a pattern or a folder | copies of them in a cache (``bert_training/files/fetched_texts.py``) |

The files of an entry are sorted by their names, folder by folder, character by character (``part-10`` before
``part-2``); the entries keep their order.

No text is passed over in silence. Of a folder or a pattern, hidden files, the marks of Hadoop and Spark (``LEFT_OUT``)
and empty files are left out, and a message says so; a file of another kind is an error. A link to a file that is read
anyway, or to a folder, is left out with a message.
"""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bert_training.files.hub_datasets import is_saved_data_set
from bert_training.files.json_files import is_plain_name, read_object
from bert_training.files.text_kinds import EXPECTED, has_text
from tokenization.errors import UserError

LEFT_OUT = re.compile(r"\..*|_(SUCCESS|metadata|common_metadata|(started|committed)_\d+)|README\.md")
_SHOWN = 3  # names in a message


@dataclass
class Entry:
    """An entry and what it stands for.

    Attributes:
        given: the entry.
        files: its files.
        left_out: files that are not read, each with the reason.
    """

    given: str
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The last part of the entry and, if it stands for several files, their number."""
        last = Path(without_query(self.given)).name or self.given
        is_itself = len(self.files) == 1 and self.files[0].name == last
        return last if is_itself else f"{last} ({len(self.files):,} file{'s' if len(self.files) > 1 else ''})"

    def remarks(self) -> list[str]:
        """What is to be said about files that are left out: at most one sentence."""
        if not self.left_out:
            return []
        more = f" and {len(self.left_out) - _SHOWN:,} more" if len(self.left_out) > _SHOWN else ""
        return [f"{self.given}: not read: {', '.join(self.left_out[:_SHOWN])}{more}"]


def entries_of(given: Iterable[str | os.PathLike[str]]) -> list[Entry]:
    """What each entry stands for, in order.

    Raises:
        ValueError: an entry stands for nothing, for a file that cannot be read, or for a file that another entry
            stands for as well.
    """
    entries = [expand(entry) for entry in given]
    seen: dict[str, Entry] = {}
    for entry in entries:
        for path in entry.files:
            real = os.path.realpath(path)
            if real in seen:
                raise UserError(
                    f"{path}: the same file twice, from {seen[real].given} and from {entry.given}; name each file "
                    "once, and give a text more weight with --mixture"
                )
            seen[real] = entry
    return entries


def files_of(given: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """The files of all entries. Raises as ``entries_of`` does."""
    return [path for entry in entries_of(given) for path in entry.files]


def check_apart(given: Iterable[str | os.PathLike[str]], output_dir: str | os.PathLike[str]) -> None:
    """Refuse an output folder below a folder of text: what is written there would be text for the next start."""
    target = Path(os.path.realpath(output_dir))
    for entry in [str(one) for one in given if not is_url(one)]:
        parts = Path(entry).parts
        if is_pattern(entry) and not os.path.lexists(entry):
            if "**" not in parts:
                continue
            parts = parts[: next(number for number, part in enumerate(parts) if is_pattern(part))]
        top = Path(os.path.realpath(Path(*parts)))
        below = target.relative_to(top).parts if target.is_relative_to(top) else ()
        if top.is_dir() and below and not any(map(LEFT_OUT.fullmatch, below)):
            raise UserError(
                f"--output_dir {output_dir} lies within {entry}, where all files are read as text, also those that "
                "are written there; give a folder elsewhere"
            )


def without_query(entry: str) -> str:
    """An entry without the query and the fragment of an address of HTTP, which may hold a signature or a token."""
    return re.split(r"[?#]", entry, maxsplit=1)[0] if re.search(r"(^|::)https?://", entry) else entry


def is_url(entry: str | os.PathLike[str]) -> bool:
    """Whether an entry is an address such as ``s3://bucket/a.txt``."""
    return "://" in os.fspath(entry)


def expand(given: str | os.PathLike[str]) -> Entry:
    """What one entry stands for. Raises as ``entries_of`` does."""
    entry = Entry(os.fspath(given))
    if is_url(given):
        from bert_training.files.fetched_texts import fetch_entry  # which most runs do not need

        return fetch_entry(entry)
    given = entry.given
    path = Path(given)
    if entry.given and os.path.isdir(path):  # which raises no error for a name that is too long
        _add_folder(path, entry)
    elif entry.given and os.path.lexists(path):
        entry.files.append(path)
        return entry
    elif is_pattern(entry.given):
        _add_matches(entry)
    else:
        other = "" if has_text(path) else "; expected the path of a file of text or of a folder, a pattern or a URL"
        raise UserError(f"{entry.given[:200] or repr(entry.given)}: no such file{other}")
    check_kinds(entry.given, entry.files)
    _leave_out_doubles(entry)
    if not entry.files:
        reason = f" ({entry.remarks()[0]})" if entry.left_out else ""
        raise UserError(f"{given}: no file {'matches' if is_pattern(entry.given) else 'of text is in it'}{reason}")
    return entry


def is_pattern(text: str) -> bool:
    """Whether a text has a character that is special in a pattern."""
    return any(character in text for character in "*?[")


def check_kinds(given: str, files: Iterable[Path]) -> None:
    """Raise ValueError if a file is of a kind that is not read."""
    if others := [path for path in files if not has_text(path)]:
        more = f" and {len(others) - _SHOWN:,} more" if len(others) > _SHOWN else ""
        raise UserError(
            f"{given}: expected files named {EXPECTED}, got {', '.join(map(str, others[:_SHOWN]))}{more}; choose the "
            "files of text with a pattern, such as 'folder/**/*.txt', or move the others away"
        )


def saved_files(folder: Path) -> list[Path]:
    """The Arrow files of a data set that ``save_to_disk`` wrote, in its order.

    Raises:
        ValueError: the folder has several splits, or its list of files cannot be read.
    """
    if (folder / "dataset_dict.json").is_file():
        splits = read_object(folder / "dataset_dict.json").get("splits")
        names = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
        example = f", such as {folder / names[0]}" if names else ""
        raise UserError(
            f"{folder}: expected one data set, got the splits {', '.join(names) or '(none)'}; name one{example}"
        )
    try:
        names = [one["filename"] for one in read_object(folder / "state.json")["_data_files"]]
    except (KeyError, TypeError):
        names = []
    if not names or not all(map(is_plain_name, names)):
        raise UserError(f"{folder / 'state.json'}: expected the names of the Arrow files beside it; save it again")
    files = [folder / name for name in names]
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: no such file, but {folder / 'state.json'} names it; copy the folder again")
    return files


def _add_folder(folder: Path, entry: Entry) -> None:
    """Add the files in and below ``folder``."""
    if is_saved_data_set(folder):
        entry.files += saved_files(folder)
        return
    for path in _listed(folder):
        if LEFT_OUT.fullmatch(path.name):
            entry.left_out.append(f"{path} (by its name)")
        elif path.is_symlink() and path.is_dir():
            entry.left_out.append(f"{path} (a link to a folder)")
        elif path.is_dir():
            _add_folder(path, entry)
        else:
            _add_file(path, entry)


def _add_file(path: Path, entry: Entry) -> None:
    if path.is_file() and path.stat().st_size == 0:
        entry.left_out.append(f"{path} (empty)")
    else:
        entry.files.append(path)


def _add_matches(entry: Entry) -> None:
    parts = Path(entry.given).parts
    fixed = next(number for number, part in enumerate(parts) if is_pattern(part))
    top = Path(*parts[:fixed])
    passed: dict[Path, str] = {}
    matches = sorted(set(_matches(top, parts[fixed:], passed)), key=lambda path: path.parts)
    for path in matches:
        if LEFT_OUT.fullmatch(path.name) and path != top:
            entry.left_out.append(f"{path} (by its name)")
        elif not path.is_dir():
            _add_file(path, entry)
        elif not any(other in path.parents for other in matches if other.is_dir()):  # it is read with that folder
            _add_folder(path, entry)
    entry.files = sorted(dict.fromkeys(entry.files), key=lambda path: path.parts)
    read = {folder for path in entry.files for folder in path.parents}  # the rest of the pattern may name a folder
    entry.left_out += [f"{path} ({reason})" for path, reason in passed.items() if path not in read]
    entry.left_out = list(dict.fromkeys(entry.left_out))


def _matches(folder: Path, parts: tuple[str, ...], passed: dict[Path, str]) -> Iterator[Path]:
    """What matches a pattern below a folder. (``glob`` follows links to folders without end.)

    The folders that ** passes over are added to ``passed``, with the reason.
    """
    if not parts:
        yield folder
        return
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield from _matches(folder, rest, passed)
        for path in filter(Path.is_dir, _listed(folder)):
            if path.name.startswith("."):
                passed[path] = "by its name"
            elif path.is_symlink():
                passed[path] = "a link to a folder"
            else:
                yield from _matches(path, parts, passed)
    elif not is_pattern(first):
        if os.path.lexists(folder / first):
            yield from _matches(folder / first, rest, passed)
    elif folder.is_dir():
        for path in _listed(folder):
            hidden = path.name.startswith(".") and not first.startswith(".")
            if fnmatch.fnmatchcase(path.name, first) and not hidden and (not rest or path.is_dir()):
                yield from _matches(path, rest, passed)


def _leave_out_doubles(entry: Entry) -> None:
    """Leave out links to files that are read in their own place, and files that two links lead to but once."""
    real = {path: os.path.realpath(path) for path in entry.files}
    chosen: dict[str, Path] = {}
    for path in sorted(entry.files, key=lambda path: Path(os.path.abspath(path)) != Path(real[path])):
        chosen.setdefault(real[path], path)
    entry.left_out += [f"{path} (a link to {real[path]})" for path in entry.files if chosen[real[path]] != path]
    entry.files = [path for path in entry.files if chosen[real[path]] == path]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda path: path.name)
    except NotADirectoryError:
        return []
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror}; check the path") from None
