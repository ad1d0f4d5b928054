"""What the scripts call: data, loop, metrics. Plain functions; models only through the Hugging Face interface."""

from importlib.metadata import PackageNotFoundError, version

try:
    # From the installed distribution: this package does not import the network's, where the number is written.
    __version__ = version("modeling-bert-repro")
except PackageNotFoundError:
    __version__ = "not installed"
