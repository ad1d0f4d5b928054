"""Text with words that the small vocabulary lacks, and short runs on it that extend the vocabulary."""

from pathlib import Path

import torch
from safetensors.torch import load_file

WORDS = ["bevacizumab", "nivolumab", "angiotensin", "hepatitis"]
SHORT = "--objective mlm --max_seq_length 16 --per_device_train_batch_size 4 --validation_split 0.2 --save_steps 2"


def write_domain(folder: Path) -> tuple[Path, Path]:
    """A text with all the words, and a list of the first three."""
    lines = [f"the doctor found {WORDS[n % 4]} in the old {WORDS[n % 3]} house .\n" for n in range(80)]
    (folder / "domain.txt").write_text("\n".join(lines))
    (folder / "words.txt").write_text("\n".join(WORDS[:3]))
    return folder / "domain.txt", folder / "words.txt"


def flags(folder: Path, weights: Path, domain: Path | str, *more: object, steps: int = 4) -> list[str]:
    own = f"--output_dir {folder} --model_name_or_path {weights} --train_file {domain} --max_steps {steps} {SHORT}"
    return [*own.split(), *map(str, more)]


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def equal(one: Path, other: Path) -> bool:
    first, second = weights_of(one), weights_of(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
