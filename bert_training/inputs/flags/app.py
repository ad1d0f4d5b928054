"""The flags of `bert-repro app`."""

from dataclasses import dataclass, field

from bert_training.inputs.flags.natures import flag
from tokenization.errors import UserError


@dataclass
class AppArguments:
    """The flags of `bert-repro app`."""

    model: str = field(
        metadata={"help": "The folder of a model, as a script of this project or transformers saved it."}
    )
    port: int = flag(7860, "Port of the page on 127.0.0.1; 0 takes one that is free.")
    space: str | None = flag(
        None, "Write the page and the model as a Space for the Hub into this new folder, instead of showing it."
    )

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UserError(f"--port {self.port}: expected a number from 0 to 65535")
