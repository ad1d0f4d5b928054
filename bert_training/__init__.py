"""The functions that the scripts call: data, loop, metrics. They use models only through Hugging Face's interface."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version

# Checked here because every script and every command of `bert-repro` imports this file before it does any work.
# fcntl locks a corpus while one process builds it; resource measures memory.
for _name in ("fcntl", "resource"):
    if importlib.util.find_spec(_name) is None:
        raise SystemExit(f"training runs on Linux and macOS: this Python has no module {_name}; on Windows, use WSL 2")

try:
    # Read from the installed distribution, because this package does not import the network's, which defines it.
    __version__ = version("modeling-bert-repro")
except PackageNotFoundError:
    __version__ = "not installed"
