"""Recipes: named sets of defaults of run_pretraining.py, chosen with ``--recipe``. Every flag that is given wins.

``paper`` is the default. Its values are the defaults of the flags: those of the paper and of google-research/bert.

``fast`` is for hours instead of days, with small networks that read little text and hardly any text twice. The paper's
values were chosen for 768 units and 40 epochs. The trials behind this recipe are in lab/notes/log.md (2026-11-22, "What
lets a small network leave the plateau", and 2026-11-23); most of them had 2 layers of 128 units. The formulas carry
their values to other sizes:

- No dropout, because little text is read often enough to be learnt by heart. Only the training leaves it out: the saved
  config.json keeps 0.1 for fine-tuning.
- New weights have an initializer_range of 0.02 * sqrt(768 / hidden_size), so that the outputs of a layer have the
  variance that they have in BERT-Base: 0.02 at 768 units, 0.049 at 128. The saved config.json says what was used.
- The peak learning rate is 0.512 / (hidden_size * layers), at least the paper's 0.0001 and at most 0.002. With Adam, a
  rate in inverse proportion to the width suits all widths (Yang et al. 2022, "Tensor Programs V"). The formula meets
  two trials: 0.002 with 2 layers of 128 units, where twice as much was worse, and 0.0005 with 4 layers of 256 units,
  where twice as much was worse, too.
- Word embeddings and the first attention heads are calculated from counts of the training text
  (``--initial_weights counted``).
- Short sequences come first (``short_to_long``). Two fifths of the steps have 32 tokens, as in the trials.
- 64 sequences a batch and a warm-up of a tenth of the steps, as in the trials.

The formulas and the counts are for new weights. With ``--model_name_or_path``, the rate stays the paper's.

``adapt`` continues the pre-training of a published model on text of a domain, gently:

- ``--objective mlm``, as in Gururangan et al. 2020 ("Don't Stop Pretraining"), whose adapted models were better at
  tasks of the domain: its texts are often single sentences, which next sentence prediction cannot use.
- The rate is warmed up again, in 6 % of the steps (Gururangan et al.), and falls to 0. Ibrahim et al. 2024 ("Simple and
  Scalable Strategies to Continually Pre-train Large Language Models") found that warming up and decaying again adapts
  better than a constant low rate, and that the length of the warm-up hardly matters.
- The peak is 5e-5 * 768 / hidden_size, from 2e-5 to 2e-4: google-research/bert advises a smaller rate than the 1e-4 of
  pre-training (it names 2e-5), Gururangan et al. took 1e-4 for small domains; and the narrower, the higher, as above.
- Whole words are masked (google-research/bert, 2019): a word of the domain is often several pieces, and the others
  would give a masked one away.
- Dropout is that of the config: a domain's text is small and read several times.
- ``--mixture`` without numbers takes a tenth of the instances from the files behind the first, which are general text:
  Ibrahim et al. found that replaying 5 % of the old data keeps most of what was known, and more where the domain is
  farther away.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import Phase, is_mixed, with_steps

FAST: dict[str, Any] = {"dropout": 0.0, "per_device_train_batch_size": 64, "warmup_steps": 0.1}
ADAPT: dict[str, Any] = {"objective": "mlm", "whole_word_mask": True, "warmup_steps": 0.06}
GENERAL_SHARE = 0.1
ADAPT_RATE, LOWEST_ADAPT_RATE, HIGHEST_ADAPT_RATE = 5e-5, 2e-5, 2e-4  # the first at the width of BERT-Base
BASE_LAYERS, BASE_WIDTH, BASE_RANGE = 12, 768, 0.02  # num_hidden_layers, hidden_size, initializer_range of BERT-Base
SMALLEST_RATE, LARGEST_RATE = 1e-4, 2e-3
SHORT_LENGTHS = (32, 64, 128)
# The number of phases -> the shares of the steps, from the shortest length to the longest.
SHARES = {1: (1.0,), 2: (0.4, 0.6), 3: (0.4, 0.4, 0.2), 4: (0.4, 0.3, 0.2, 0.1)}


def recipe_defaults(given: Mapping[str, Any], sizes: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """The defaults of the flags that the recipe changes; empty for the paper's.

    Args:
        given: the flags that were given.
        sizes: the published sizes, as in ``CONFIG_SIZES``: name -> (layers, hidden size).
    """
    recipe = given.get("recipe", "paper")
    weights = given.get("model_name_or_path") or (given.get("keep_layers") and given.get("teacher"))
    if recipe == "adapt":
        defaults = ADAPT | {"learning_rate": adapt_rate(width_of(weights or None))}
        if not objective_of({**ADAPT, **given}).masks:
            del defaults["whole_word_mask"]
        return defaults
    if recipe != "fast":
        return {}
    defaults = dict(FAST)
    if phases := short_to_long(given.get("max_seq_length", 128), given.get("max_steps", -1)):
        defaults["phases"] = phases
    if not weights:
        defaults |= _for_new_weights(given.get("config_name") or "mini", sizes)
        if is_mixed(given):
            del defaults["initial_weights"]  # which are counted in one text
    return defaults


def initial_range(hidden_size: int) -> float:
    """The ``initializer_range`` at this width: the deviation of new weights before the distribution is truncated."""
    return _three_digits(BASE_RANGE * math.sqrt(BASE_WIDTH / hidden_size))


def peak_rate(num_hidden_layers: int, hidden_size: int) -> float:
    """The peak learning rate of this size."""
    return _three_digits(min(LARGEST_RATE, max(SMALLEST_RATE, 0.512 / (hidden_size * num_hidden_layers))))


def adapt_rate(hidden_size: int) -> float:
    """The peak learning rate with which weights of this width are trained further."""
    rate = ADAPT_RATE * BASE_WIDTH / hidden_size
    return _three_digits(min(HIGHEST_ADAPT_RATE, max(LOWEST_ADAPT_RATE, rate)))


def scaled_rate(rate: float, hidden_size: int) -> float:
    """A peak learning rate of fine-tuning for the width of BERT-Base, scaled to this width.

    The exponent is measured (lab/notes/results.md, "The learning rate of fine-tuning"). The limits are the lowest rate
    of the paper and, for networks too narrow to be measured, one that is good for 128 units.
    """
    return _three_digits(rate * min(20.0, max(0.4, (BASE_WIDTH / hidden_size) ** 2)))


def width_of(checkpoint: str | None) -> int:
    """The hidden size of a checkpoint, also of one in Google's layout or on the Hub; without one, that of BERT-Base."""
    path = Path(checkpoint or "")
    is_file = path.is_file() or bool(path.name and path.with_name(f"{path.name}.index").is_file())
    folder = path.parent if is_file else path
    config = _config(folder / "config.json") or _config(folder / "bert_config.json") if checkpoint else {}
    if checkpoint and not config and not path.exists():
        config = hub_config(checkpoint)
    return _size(config.get("hidden_size"), BASE_WIDTH)


def hub_config(name: str) -> dict[str, Any]:
    """The content of the config.json of a name on the Hub; {} without one, which ``load_config`` reports."""
    from transformers import PretrainedConfig  # it takes half a second, for names on the Hub only

    try:
        return PretrainedConfig.get_config_dict(name)[0]
    except (OSError, ValueError):
        return {}


def short_to_long(max_seq_length: int, max_steps: int) -> str | None:
    """Phases of rising length, as ``--phases`` takes them; None if there is only one.

    The lengths are 32, 64 and 128, as far as they are at most half of the largest, and the largest. Where there are so
    few steps that a phase would have none, the shortest lengths are left out.

    Args:
        max_steps: optimiser steps of the run; below 0 if epochs decide.
    """
    lengths = [*(length for length in SHORT_LENGTHS if 2 * length <= max_seq_length), max_seq_length]
    while len(lengths) > 1:
        phases = [Phase(length, share, 1, 1) for length, share in zip(lengths, SHARES[len(lengths)])]
        try:
            with_steps(phases, max_steps if max_steps > 0 else 1000)
        except ValueError:
            lengths = lengths[1:]
        else:
            return ",".join(f"{phase.length}:{phase.share:g}" for phase in phases)
    return None


def recipe_text(chosen: Mapping[str, Any], flags: Mapping[str, Any]) -> str:
    """The choices of a recipe and the flags that were given instead: "dropout 0.0, ...; given: warmup_steps 0.2"."""
    kept = [f"{name} {value}" for name, value in chosen.items() if flags[name] == value]
    instead = [f"{name} {flags[name]}" for name, value in chosen.items() if flags[name] != value]
    return ", ".join(kept) + (f"; given instead: {', '.join(instead)}" if instead else "")


def _for_new_weights(config_name: str, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """The learning rate and what new weights are; a config.json with another range than BERT's 0.02 keeps its own."""
    if config_name in sizes:
        (layers, hidden_size), own_range = sizes[config_name], BASE_RANGE
    else:
        config = _config(Path(config_name) / "config.json")
        layers = _size(config.get("num_hidden_layers"), BASE_LAYERS)
        hidden_size = _size(config.get("hidden_size"), BASE_WIDTH)
        own_range = config.get("initializer_range", BASE_RANGE)
    defaults = {"learning_rate": peak_rate(layers, hidden_size), "initial_weights": "counted"}
    return defaults | ({"initializer_range": initial_range(hidden_size)} if own_range == BASE_RANGE else {})


def _config(path: Path) -> dict[str, Any]:
    """The content of a config.json; empty if it cannot be read, which the script reports when it makes the network."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _size(value: Any, default: int) -> int:
    """The value, or the default if it is no size, which the script reports when it makes the network."""
    return value if type(value) is int and value > 0 else default


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")
