"""The flags of `bert-repro app`."""

from dataclasses import MISSING, dataclass

from bert_training.inputs.flags.checks import Flags
from bert_training.inputs.flags.natures import flag


@dataclass
class AppArguments(Flags):
    """The flags of `bert-repro app`.

    Attributes:
        model: The folder of a model, as a script of this project or transformers saved it.
        port: Port of the page on 127.0.0.1; 0 takes one that is free.
        space: Write the page and the model as a Space for the Hub into this new folder, instead of showing it.
    """

    model: str = flag(MISSING)
    port: int = flag(7860, at_least=0, at_most=65535)
    space: str | None = flag(None)
