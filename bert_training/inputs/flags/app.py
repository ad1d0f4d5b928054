"""The flags of `bert-repro app`."""

from dataclasses import MISSING, dataclass

from bert_training.inputs.flags.checks import Flags
from bert_training.inputs.flags.natures import flag


@dataclass
class AppArguments(Flags):
    """The flags of `bert-repro app`."""

    model: str = flag(MISSING, "The folder of a model, as a script of this project or transformers saved it.")
    port: int = flag(7860, "Port of the page on 127.0.0.1; 0 takes one that is free.", at_least=0, at_most=65535)
    space: str | None = flag(
        None, "Write the page and the model as a Space for the Hub into this new folder, instead of showing it."
    )
