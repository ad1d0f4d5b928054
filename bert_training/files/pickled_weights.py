"""What a pickle of PyTorch would take of memory and time, found out before ``torch.load`` reads it.

``torch.load(weights_only=True)`` executes no code, but it does what the pickle says: 200 bytes make a ``bytearray`` of
6 GiB, or a tensor whose stride of 0 shows one number a billion times, or one that is larger than its storage, which
torch then enlarges. A file is therefore read twice. The first time, here, the description of the tensors is unpickled
by Python's own unpickler in Python, in which stand-ins take the place of tensors and storages and add up their bytes;
whatever a state dict has no use for is refused. Accepted are files in which

- the description, without the numbers, has at most 4 MiB (of BERT-Large with its optimiser: 0.2 MiB),
- no part of the zip archive is packed, as torch packs none, and its parts fit into the file,
- the storages fit into the file, every tensor fits into its storage, and all tensors together have at most twice the
  bytes of the storages, because two names may share one (the word embeddings and the decoder).

https://github.com/pytorch/pytorch/blob/main/torch/serialization.py describes both forms: a zip archive, in which
``data.pkl`` is the description, and, before torch 1.6, five pickles in a row with the numbers behind them.
"""

import io
import math
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import torch

from bert_training.files.compressed_files import largest, open_regular
from tokenization.errors import UserError

ZIP = b"PK\x03\x04"  # the first bytes by which torch tells the two forms apart
SLACK = 1 << 16  # bytes that tensors may have beyond their storages in a file of a few numbers
MOST_VALUES = 1_000_000  # in the description, where a list that is named twice counts twice
DEEPEST = 50
# What torch's own reader knows, without what makes sets, whose members could be slow to compare.
OPCODES = (
    *("PROTO", "STOP", "GLOBAL", "NEWOBJ", "REDUCE", "BUILD", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "MARK"),
    *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "NONE", "NEWTRUE", "NEWFALSE"),
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "BINPERSID"),
    *("BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
)
# The bytes of a number in torch's classes of storages; quantised and complex numbers are no weights of BERT.
STORAGES = {"Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1}
STORAGES["Bool"] = 1
_UNPICKLER: Any = pickle._Unpickler  # the one in Python, whose memo is a dict; its types are those of the one in C
CODES = [getattr(pickle, name)[0] for name in OPCODES]


class _Storage(NamedTuple):
    item_size: int
    nbytes: int


class _Tensor:
    """Stands for a tensor. It has no attributes that a pickle could set."""

    __slots__ = ()


def is_zip(path: Path) -> bool:
    """Whether torch reads the file as a zip archive."""
    with open_regular(path) as file:
        return file.read(len(ZIP)) == ZIP


def check_pickle(path: Path) -> None:
    """Check a file that ``torch.load`` is to read.

    Raises:
        ValueError: it holds something other than a state dict may hold, or claims more than the file can hold; the
            caller names the file.
        OSError: it cannot be read.
    """
    most, size = largest() // 4, path.stat().st_size
    with open_regular(path) as file:
        try:
            if file.read(len(ZIP)) == ZIP:
                description = io.BytesIO(_description(file, size, most))
            else:
                file.seek(0)
                description = io.BytesIO(file.read(most))
                for _ in range(3):  # a magic number, the version of the format, and facts about the machine
                    _Reader(description, size).load()
            _count_values(_Reader(description, size).load())
        except (ValueError, OSError):
            raise
        except Exception as error:  # the bytes of a damaged pickle can raise anything
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            raise UserError(f"expected a pickle of tensors, described in {most:,} bytes; got {reason:.80}") from None


def _description(file: IO[bytes], size: int, most: int) -> bytes:
    """The content of data.pkl in a zip archive whose parts are all stored as they are."""
    place = _place_of_directory(file, size)
    if size - place > most:
        raise UserError(f"expected a zip archive that ends in a directory of at most {most:,} bytes")
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        if archive.start_dir != place:
            raise UserError("the directory of the zip archive is not where its end says")
        if any(part.compress_type != zipfile.ZIP_STORED or part.compress_size != part.file_size for part in parts):
            raise UserError("parts of the zip archive are packed, which torch never does")
        if sum(part.file_size for part in parts) > size:
            raise UserError("the parts of the zip archive are larger than the file")
        if len({part.filename.lower() for part in parts}) < len(parts):
            raise UserError("the zip archive has two parts of one name")
        pickles = [part for part in parts if part.filename.lower().endswith("data.pkl")]
        if len(pickles) != 1 or pickles[0].file_size > most:
            raise UserError(f"expected one data.pkl of at most {most:,} bytes in the zip archive")
        return archive.read(pickles[0])


def _place_of_directory(file: IO[bytes], size: int) -> int:
    """Where the end of a zip archive says that its directory is, as torch takes it; -1 if the end is not the last."""
    file.seek(max(0, size - 42))
    end = file.read(42)[-42:]
    if end[20:24] != b"PK\x05\x06":  # a comment may hold another end
        return -1
    place = struct.unpack("<I", end[36:40])[0]
    if end[:4] == b"PK\x06\x07":  # of a large archive: where its longer end is
        file.seek(struct.unpack("<Q", end[8:16])[0])
        longer = file.read(56)
        place = struct.unpack("<Q", longer[48:56])[0] if longer[:4] == b"PK\x06\x06" else -1
    return int(place)


class _Reader(_UNPICKLER):  # type: ignore[misc]
    """Reads a pickle with stand-ins for everything that takes memory."""

    dispatch: ClassVar = {code: _UNPICKLER.dispatch[code] for code in CODES}

    def __init__(self, file: IO[bytes], size: int) -> None:
        super().__init__(file, encoding="utf-8", errors="replace")
        self.size = size
        self.storages: dict[str, int] = {}
        self.stored = self.tensors = 0  # bytes

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of what a state dict refers to; ValueError for anything else."""
        full = f"{module}.{name}"
        known = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor": self.tensor,
            "torch._utils._rebuild_tensor_v2": self.tensor,
            "torch._utils._rebuild_parameter": _parameter,
            "torch.Size": tuple,
            "torch.device": _device,
            "_codecs.encode": _encoded,
        }
        if full in known:
            return known[full]
        dtype = getattr(torch, name, None) if module == "torch" else None
        if isinstance(dtype, torch.dtype):
            return str(dtype)
        kind = name.removesuffix("Storage")
        if module in ("torch", "torch.cuda") and kind != name and kind in STORAGES:
            return STORAGES[kind]
        raise UserError(f"it uses {full:.80}, which a state dict has no use for")

    def load_reduce(self) -> None:
        """Call one of the functions above."""
        args, function = self.stack.pop(), self.stack[-1]
        if function is OrderedDict and args != ():
            raise UserError("it makes a dict of something else than its items")
        self.stack[-1] = function(*args)

    def load_newobj(self) -> None:
        """Make an empty dict; nothing else is made in this way."""
        self.stack.pop()
        if self.stack[-1] is not OrderedDict:
            raise UserError("it makes objects which a state dict has no use for")
        self.stack[-1] = OrderedDict()

    def load_build(self) -> None:
        """Leave out what a dict of torch stores in addition to its items; nothing else has attributes."""
        state = self.stack.pop()
        if type(self.stack[-1]) is not OrderedDict or not isinstance(state, dict):
            raise UserError("it sets attributes, which a state dict has no use for")

    def load_setitem(self) -> None:
        """Set one item, whose name is compared quickly."""
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_key(key)] = value

    def load_setitems(self) -> None:
        """Set the items up to the mark."""
        items = self.pop_mark()
        for key, value in zip(items[::2], items[1::2]):
            self.stack[-1][_key(key)] = value

    dispatch |= {
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
    }

    def persistent_load(self, pid: Any) -> _Storage:
        """The stand-in of a storage, whose bytes must be in the file."""
        kind, item, key, _, count, *view = pid
        numbers = type(item) is int and type(count) is int and count >= 0
        if kind != "storage" or not isinstance(key, str) or not numbers or any(view):
            raise UserError("it refers to something other than a storage of numbers")
        self.stored += max(0, count * item - self.storages.get(key, 0))
        self.storages[key] = max(count * item, self.storages.get(key, 0))
        if self.stored > self.size:
            raise UserError(f"its numbers would have {self.stored:,} bytes, the file has {self.size:,}")
        return _Storage(item, count * item)

    def tensor(self, storage: _Storage, offset: int, size: tuple, stride: tuple, *_: Any) -> _Tensor:
        """The stand-in of a tensor, which must be within its storage."""
        whole = all(type(number) is int and number >= 0 for number in (offset, *size, *stride))
        if not whole or len(size) != len(stride) or len(size) > 64:
            raise UserError("a tensor has no proper size")
        count = math.prod(size)
        last = offset + sum((length - 1) * step for length, step in zip(size, stride)) if count else -1
        if count * storage.item_size > storage.nbytes or last * storage.item_size >= storage.nbytes:
            raise UserError(f"a tensor of size {size} is larger than its {storage.nbytes:,} bytes in the file")
        self.tensors += count * storage.item_size
        if self.tensors > 2 * self.size + SLACK:
            raise UserError(f"its tensors share their numbers, and would have more than {self.tensors:,} bytes")
        return _Tensor()


def _key(key: Any) -> str | int:
    if not isinstance(key, str) and not (type(key) is int and abs(key) < 1 << 32):
        raise UserError("a name in it is no text")
    return key


def _parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


def _device(*_: Any) -> str:
    return "device"


def _encoded(text: str, *_: Any) -> bytes:
    return text.encode()


def _count_values(content: Any) -> None:
    """Raise ValueError for a nest of lists that would take for ever to print or to compare."""
    known: dict[int, int] = {}

    def count(value: Any, depth: int) -> int:
        if not isinstance(value, dict | list | tuple) or isinstance(value, _Storage):
            return 1
        if depth > DEEPEST:
            raise UserError("its lists are nested too deeply")
        if id(value) not in known:
            known[id(value)] = MOST_VALUES + 1  # if it is a part of itself
            inner = value.values() if isinstance(value, dict) else value
            known[id(value)] = 1 + sum(count(one, depth + 1) for one in inner)
            if known[id(value)] > MOST_VALUES:
                raise UserError(f"it has more than {MOST_VALUES:,} values")
        return known[id(value)]

    count(content, 0)
