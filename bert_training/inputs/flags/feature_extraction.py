"""The flags of extract_features.py."""

from dataclasses import MISSING, dataclass
from typing import Literal

from bert_training.inputs.flags.parsing import Flags, flag


@dataclass
class FeatureArguments(Flags):
    """The flags of extract_features.py.

    Attributes:
        model_name_or_path: A checkpoint: folder or Hub name; also an old one.
        input_file: Text file (also .gz, .xz, .bz2, .zst), one input per line; ' ||| ' separates the texts of a pair. Or
            a table, JSON or Parquet with the column text, or sentence1 and sentence2.
        output_file: File to write: .jsonl, or .npz for NumPy.
        config: YAML or JSON file with flags, flat: 'pooling: mean'. Flags on the command line win.
        tokenizer_name: The tokenizer's folder, Hub name or vocab.txt; default: the model's.
        layers: Layers to write: -1 is the last of 12, -12 the first, -13 the embeddings.
        pooling: Vectors to write: of all tokens, of [CLS], or their mean.
        max_seq_length: Largest number of tokens in one input of the model.
        long_lines: What to do with longer lines: refuse them, split them into windows, or cut them as
            google-research/bert does.
        batch_size: Number of inputs in one forward pass.
        model_impl: The network: that of this project, or that of transformers.
    """

    model_name_or_path: str = flag(MISSING)
    input_file: str = flag(MISSING)
    output_file: str = flag(MISSING)
    config: str | None = flag(None)
    tokenizer_name: str | None = flag(None)
    layers: str = flag("-1,-2,-3,-4")
    pooling: Literal["none", "cls", "mean"] = flag("none")
    max_seq_length: int = flag(128, at_least=4)
    long_lines: Literal["error", "window", "cut"] = flag("error")
    batch_size: int = flag(32, at_least=1)
    model_impl: Literal["repro", "transformers"] = flag("repro")
