"""Copies of texts behind URLs (``s3://``, ``hf://``, ``https://`` and all others that ``fsspec`` knows), in a cache.

A file is fetched once, as a whole, and then read like any other: it can be hashed, read several times and resumed. Its
folder in the cache is named after its address and what the server says of the content (``_MARKS``), so that a file
that has changed there is fetched again under another name, and a run that resumes notices it by the hash of its data.

    <assets folder of Hugging Face's cache>/bert_repro/texts/default/<hash>/<name of the file>

A copy is complete or absent. It stays until you delete it.
"""

import contextlib
import functools
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bert_training.files.atomic import DiskError, make_folder, whole_file, written
from bert_training.files.locks import hold, release
from bert_training.files.text_paths import LEFT_OUT, Entry, check_kinds, is_pattern
from tokenization.errors import UserError

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

# What servers call the identity of a content: object stores, the Hub, HTTP, other file systems.
_MARKS = (
    *("ETag", "etag", "md5Hash", "content_md5", "Content-MD5", "crc32c", "checksum", "sha256", "lfs", "blob_id"),
    *("Digest", "sha", "hex", "CRC", "LastModified", "last_modified", "Last-Modified", "mtime", "modified", "modify"),
    *("modificationTime", "created"),
)  # the surest first
_BLOCK = 1 << 22

logger = logging.getLogger(__name__)


def fetch_entry(entry: Entry) -> Entry:
    """``entry``, the URL of a file, a folder or a pattern, with the copies of its files, which are sorted by name.

    A process asks the server once for each entry, so that it reads the same content to its end.

    Raises:
        ValueError: the package for such URLs is missing; there is no such file, none is of a kind that is read, or one
            cannot be fetched.
        OSError: a copy could not be written.
    """
    files, left_out = _fetched(entry.given)
    return Entry(entry.given, [*files], [*left_out])


@functools.cache
def _fetched(url: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    system, place = _file_system(url)
    with _explained(url):
        found, top = _found(system, url, place)
    chosen, left_out = [], []
    for name, info in sorted(found.items(), key=lambda item: item[0].split("/")):
        inner = name.removeprefix(top).strip("/").split("/") if top else []
        if any(LEFT_OUT.fullmatch(part) for part in inner):
            left_out.append(f"{name} (by its name)")
        elif info.get("size") == 0 and top:
            left_out.append(f"{name} (empty)")
        else:
            chosen.append((name, info))
    if not chosen:
        raise UserError(f"{url}: no file of text is there")
    check_kinds(url, [_plain_name(url, name) for name, _ in chosen])
    return tuple(_copy(system, url, name, info) for name, info in chosen), tuple(left_out)


def _file_system(url: str) -> tuple["AbstractFileSystem", str]:
    """The file system of a URL, and the path in it."""
    try:
        import fsspec
        from fsspec.registry import known_implementations
    except ImportError:
        raise UserError(f"{url}: URLs need the package fsspec: pip install fsspec") from None
    protocol = url.partition("://")[0].rpartition("::")[2]
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError:
        package = known_implementations.get(protocol, {}).get("class", "its package").partition(".")[0]
        raise UserError(f"{url}: URLs of {protocol}:// need the package {package}: pip install {package}") from None
    except ValueError as error:
        raise UserError(f"{url}: fsspec does not know {protocol}:// ({_reason(error)}); check the address") from None
    except Exception as error:  # of the library of that protocol, such as missing credentials
        raise UserError(f"{url}: cannot be opened ({_reason(error)}); check the address and your access") from error


def _found(system: "AbstractFileSystem", url: str, place: str) -> tuple[dict[str, dict[str, Any]], str]:
    """({path: what the server says of the file}, the folder that was searched; "" if the URL is that of one file)."""
    if is_pattern(place.replace("?", "") if url.startswith("http") else place):
        matches: dict[str, dict[str, Any]] = system.glob(place, detail=True)
        files = {name: info for name, info in matches.items() if info["type"] == "file"}
        for name, info in matches.items():
            if info["type"] == "directory":
                files |= system.find(name, detail=True)
        fixed = place.split("/")
        return files, "/".join(fixed[: next(number for number, part in enumerate(fixed) if is_pattern(part))])
    info = system.info(place)
    if info["type"] != "directory":
        return {place: info}, ""
    inside = system.find(place, detail=True)
    if any(PurePosixPath(name).name in ("state.json", "dataset_dict.json") for name in inside):
        raise UserError(f"{url}: a data set of save_to_disk is read from a local folder only; copy it first")
    return inside, place


def _plain_name(url: str, name: str) -> Path:
    """The name for the copy of a file; an address of HTTP may have a query behind it."""
    return Path(PurePosixPath(urlsplit(name).path if url.startswith("http") else name).name)


def _copy(system: "AbstractFileSystem", url: str, name: str, info: dict[str, Any]) -> Path:
    """The local copy of one file, which is fetched unless it is there."""
    from huggingface_hub import cached_assets_path

    address = str(system.unstrip_protocol(name))
    if not any(info.get(mark) is not None for mark in _MARKS):  # a list of files may say less than the file itself
        info = info | system.info(name)
    mark = next((mark for mark in _MARKS if info.get(mark) is not None), None)
    value = info[mark] if mark else None  # a list of files may have a time in another form than the file itself
    marks = [mark, str(value.timestamp() if isinstance(value, datetime) else value), info.get("size")]
    # What the address may lack, such as the host or the revision, is among the options.
    identity = json.dumps([system.storage_options, address, marks], sort_keys=True, default=str)
    key = hashlib.sha256(identity.encode()).hexdigest()[:24]
    folder = Path(cached_assets_path("bert_repro", "texts")) / key
    target = folder / _plain_name(url, name)
    if target.is_file():
        if mark is None:
            logger.warning(
                "%s: the server does not say when the file was changed, so the copy in the cache is read; to fetch it "
                "again, delete %s",
                url,
                target,
            )
        return target
    make_folder(folder)
    lock = folder / ".lock"
    hold(lock, f"{target}: another process is fetching it", wait=True)
    try:
        if not target.is_file():  # another process may have fetched it meanwhile
            size = info.get("size")
            logger.warning("fetching %s%s to %s", address, f" ({size:,} bytes)" if size else "", target)
            with whole_file(target) as draft, _explained(address, f"; nothing is kept of it ({target})"):
                count = _download(system, name, draft)
                if size is not None and count != size:
                    raise UserError(f"{address}: expected {size:,} bytes, got {count:,}; start again")
    finally:
        release(lock)
    return target


def _download(system: "AbstractFileSystem", name: str, draft: Path) -> int:
    with system.open(name, "rb") as source, written(draft), open(draft, "wb") as target:
        shutil.copyfileobj(source, target, _BLOCK)
        return target.tell()


@contextlib.contextmanager
def _explained(url: str, more: str = "") -> Iterator[None]:
    try:
        yield
    except (UserError, DiskError):
        raise
    except FileNotFoundError:
        raise UserError(f"{url}: no such file; check the address") from None
    except Exception as error:  # the types are those of the libraries behind fsspec
        raise UserError(
            f"{url}: cannot be fetched ({_reason(error)}); check the address and your access{more}"
        ) from error


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
