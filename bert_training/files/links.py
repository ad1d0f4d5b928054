"""Nothing is written through a link that somebody else may have put into an output folder.

A run may be resumed, or its curves drawn, in a folder that came from elsewhere, in which every name may be a link to a
file or a folder of yours. The output folder itself and what is above it are named by the user, and may be links.
"""

import os
import stat
from pathlib import Path

from tokenization.errors import UserError

_guarded: dict[Path, None] = {}  # the output folders of this process, in their order


def guard(folder: str | Path) -> None:
    """Note that the user has named this output folder: from now on, nothing is written through a link below it."""
    _guarded[Path(folder).absolute()] = None


def refuse_links(path: Path) -> None:
    """Raise ValueError if ``path``, or a folder between it and an output folder above it, is a link."""
    path = path.absolute()
    for folder in _guarded:
        if folder in path.parents:
            place = folder
            for part in path.relative_to(folder).parts:
                place = place / part
                refuse_link(place)


def refuse_link(path: Path) -> None:
    """Raise ValueError if ``path`` is a link, or neither a file nor a folder (a pipe, at which a writer would wait)."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:  # it is not there, or whoever opens it gets the same error
        return
    if stat.S_ISLNK(mode):
        raise UserError(
            f"{path}: is a link to {os.readlink(path)}, and nothing is written through links, which in a folder from "
            "somebody else may lead anywhere; put a real file or folder in its place, or give another folder"
        )
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{path}: is neither a file nor a folder; remove it, or give another folder")


def leads_out(folder: Path, path: Path) -> bool:
    """Whether a path in a folder leads out of it; in the Hub's cache, files are links to the folder ../../blobs."""
    root, real = folder.resolve(), Path(os.path.realpath(path))
    return not real.is_relative_to(root) and real.parent != root.parent.parent / "blobs"


def check_read(folder: Path, *paths: Path) -> None:
    """Raise ValueError if one of these paths in a folder leads out of it."""
    for path in paths:
        if leads_out(folder, path):
            raise UserError(
                f"{path}: is a link out of {folder}, and nothing outside it is read; if you know what is there, copy "
                "the folder with cp -rL, or give the folder that the link leads to"
            )


def no_follow(path: str, flags: int) -> int:
    """An ``opener`` for ``open`` that does not follow a link."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
