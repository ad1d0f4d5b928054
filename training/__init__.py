"""What the scripts call: data, loop, metrics. Plain functions; models only through the Hugging Face interface."""

import importlib.util
from importlib.metadata import PackageNotFoundError, version

# Asked here because every script and every `python -m training.*` comes through here before it does any work: fcntl
# locks a corpus while one process builds it, resource measures memory.
for _name in ("fcntl", "resource"):
    if importlib.util.find_spec(_name) is None:
        raise SystemExit(f"training runs on Linux and macOS: this Python has no module {_name}; on Windows, use WSL 2")

try:
    # From the installed distribution: this package does not import the network's, where the number is written.
    __version__ = version("modeling-bert-repro")
except PackageNotFoundError:
    __version__ = "not installed"
