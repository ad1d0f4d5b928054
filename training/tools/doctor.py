"""Find out why the loss of a pre-training run does not fall.

    python -m training doctor RUN_FOLDER                         # run_pretraining.py also does this after evaluations
    python -m training doctor RUN_FOLDER --make_reference mini   # add its curve to reference_curves.json

A model that knows only how often each piece occurs has a loss equal to the unigram entropy of the text, called the line
here. A run is on the line if, after the warm-up, neither its last held-out loss nor the mean of its training losses
(masked-LM part) over a window is at least 0.25 nats below the line. The window is the last tenth of the steps, with at
least 5 records. The margin is needed because a model also learns from positions and lengths: models that do not use
context yet reach about 0.25 nats below the line.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.engine.run import Run
from training.files.atomic import write_json
from training.flags.phases import phase_at, phases_of, scheduled
from training.flags.pretraining import PretrainingArguments
from training.pretraining.corpus import Corpus
from training.records.curves import read_events, series
from training.records.reference_curves import FILE, references, settings_of
from training.tools.audit import Finding, read_run, repeated_share

MARGIN = 0.25  # nats
FEWEST_RECORDS = 5
LARGE = 60_000_000  # parameters; base has 110 million, medium 41 million
# The range of peak learning rates that work: for small models in this project's runs; for large models around the
# paper's 1e-4, up to the 7e-4 of RoBERTa.
RATES = {"small": (2e-4, 3e-3), "large": (5e-5, 7e-4)}
MASK_RATES = (0.1, 0.4)  # the upper bound is from Wettig et al. 2022
FEWEST_TOKENS_A_STEP = 2048
SHORTEST_WARMUP = 50  # steps; and at least 1 % of all steps, as in the paper
PATIENCE = 2.0  # as a multiple of the tokens that the reference run needed


def level(events: list[dict], entropy: float, warmup: int) -> tuple[int, int, float] | None:
    """(last step, steps of the window, mean training loss) of a run that is on the line; None for any other run."""
    name = "mlm_loss" if any("mlm_loss" in event for event in events) else "loss"
    steps, losses = series(events, "train", name)
    after = [(step, loss) for step, loss in zip(steps, losses) if step > warmup]
    if len(after) < FEWEST_RECORDS:
        return None
    last = after[-1][0]
    window = [(step, loss) for step, loss in after if step > 0.9 * last]
    window = after[-FEWEST_RECORDS:] if len(window) < FEWEST_RECORDS else window
    mean = sum(loss for _, loss in window) / len(window)
    held_out = [loss for step, loss in zip(*series(events, "eval", "eval_mlm_loss")) if step > warmup]
    if min([mean, *held_out[-1:]]) <= entropy - MARGIN:
        return None
    return last, last - window[0][0] + 1, mean


def causes(facts: Mapping[str, Any], step: int, repeated: tuple[float, float]) -> list[Finding]:
    """A check of each usual cause of a plateau.

    Args:
        facts: the content of run.json.
        step: the last optimiser step.
        repeated: the shares of repeated documents and of repeated sentences.
    """
    flags, total = facts["flags"], facts["total_steps"]
    phases = scheduled(phases_of(flags), total)
    tokens = {phase: phase.size * phase.accumulation * facts["processes"] * phase.length for phase in phases}
    per_step = tokens[phase_at(phases, step)]
    seen = sum((min(step, phase.stop) - phase.start) * tokens[phase] for phase in phases if phase.start < step)
    repeated_documents, repeated_sentences = repeated
    warmup = warmup_of(flags, total)
    rate, (low, high) = flags["learning_rate"], RATES["large" if facts["parameters"] > LARGE else "small"]
    masks, (fewest, most) = flags["mlm_probability"], MASK_RATES
    name, needed = tokens_to_leave(flags["config_name"] or "mini")
    return [
        Finding(
            "duplicates",
            f"{repeated_documents:.1%} of the documents and {repeated_sentences:.1%} of the sentences are repeated",
            repeated_documents < 0.01 and repeated_sentences < 0.05,
        ),
        Finding(
            "mask rate",
            f"--mlm_probability {masks:g} is outside {fewest} to {most}",
            flags["objective"] == "ltr" or fewest <= masks <= most,
        ),
        Finding(
            "learning rate",
            f"--learning_rate {rate:g} is outside {low:g} to {high:g}, which suit this size",
            low <= rate <= high,
        ),
        Finding(
            "warm-up",
            f"the warm-up has {warmup} steps (take at least {SHORTEST_WARMUP}, and 1 % of all)",
            warmup >= max(SHORTEST_WARMUP, 0.01 * total),
        ),
        Finding(
            "batch",
            f"an optimiser step sees only {per_step:,} tokens (raise --gradient_accumulation_steps)",
            per_step >= FEWEST_TOKENS_A_STEP,
        ),
        Finding(
            "too few steps",
            f"{seen:,} tokens so far, and the reference run {name} left the line after {needed:,}",
            seen >= PATIENCE * needed,
        ),
    ]


def warmup_of(flags: Mapping[str, Any], total_steps: int) -> int:
    """Optimiser steps of the warm-up, as `linear_schedule` counts them."""
    return round(flags["warmup_steps"] * (total_steps if flags["warmup_steps"] < 1 else 1))


def tokens_to_leave(config_name: str) -> tuple[str, int]:
    """(name of a reference run, number of tokens that it needed to leave the line).

    The run has the same size if there is such a reference, otherwise another size.
    """
    known = references()
    name = config_name if config_name in known else next(iter(known))
    settings, held_out = known[name]["settings"], known[name]["held_out"]
    left = next(
        step
        for step, loss in zip(held_out["steps"], held_out["mlm_loss"])
        if loss <= settings["unigram_entropy"] - MARGIN
    )
    return name, left * settings["sequences_per_step"] * settings["max_seq_length"]


def diagnosis(facts: Mapping[str, Any], events: list[dict], corpus: Corpus) -> str | None:
    """A sentence with the likely causes for a run that is on the line; None for any other run."""
    entropy = corpus.unigram_entropy()
    found = level(events, entropy, warmup_of(facts["flags"], facts["total_steps"]))
    if found is None:
        return None
    step, window, mean = found
    documents, sentences = (repeated_share(corpus.tokens, *spans) for spans in corpus_spans(corpus))
    checked = causes(facts, step, (documents, sentences))
    likely = "; ".join(line.text for line in checked if not line.good)
    fine = ", ".join(line.name for line in checked if line.good)
    return (
        f"the masked-LM loss stays at {mean:.2f} (last {window:,} steps), and guessing by frequency alone gives "
        f"{entropy:.2f}: the model does not use context yet; "
        + (f"likely causes: {likely}" if likely else "none of the usual causes applies: inspect the data with audit")
        + (f" (checked and fine: {fine})" if fine else "")
    )


def corpus_spans(corpus: Corpus) -> list[tuple[Any, int]]:
    """(offsets, shortest) of documents and of sentences for `repeated_share`, as the audit counts them."""
    return [(corpus.sentences[corpus.documents], 1), (corpus.sentences, 8)]


def consult(run: Run[PretrainingArguments], corpus: Corpus) -> None:
    """After an evaluation of a running training: print and record the diagnosis, if there is one."""
    if not run.is_main:
        return
    events = read_events(run.output_dir / "metrics.jsonl")
    step = events[-1]["step"]
    before = max((event["step"] for event in events if event["event"] == "doctor"), default=0)
    if step < 2 * before:  # a diagnosis is repeated only when the run has twice as many steps
        return
    if text := diagnosis(run.facts, events, corpus):
        run.log(event="doctor", step=step, text=text)
        run.say(f"doctor: {text}")


def make_reference(folder: Path, name: str) -> None:
    """Put the curve of the run in `folder` into reference_curves.json as `name`."""
    facts = read_run(folder)
    events = read_events(folder / "metrics.jsonl")
    entropy = next(event["unigram_entropy"] for event in events if event["event"] == "corpus")
    steps, losses = series(events, "train", "mlm_loss")
    # A centred mean, because a mean over the past alone would lag behind where the curve is steep.
    windows = (losses[max(0, place - 2) : place + 3] for place in range(len(losses)))
    smooth = [sum(window) / len(window) for window in windows]
    every = max(1, len(steps) // 100)
    held_out_steps, held_out_losses = series(events, "eval", "eval_mlm_loss")
    made = {"started": facts["started"], "device": facts["device"], "versions": facts["versions"]}
    text = {"train_file": [Path(file).name for file in facts["flags"]["train_file"]], **facts["corpus"]}
    reference = {
        "settings": settings_of(facts, entropy) | {"text": text, "parameters": facts["parameters"], "made": made},
        "train": {"steps": steps[::every], "mlm_loss": [round(loss, 3) for loss in smooth[::every]]},
        "held_out": {"steps": held_out_steps, "mlm_loss": [round(loss, 3) for loss in held_out_losses]},
    }
    write_json(FILE, (references() if FILE.exists() else {}) | {name: reference})


def main(argv: list[str] | None = None) -> None:
    """Print the diagnosis; a folder that is not a pre-training run ends it with status 2 and one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m training doctor", allow_abbrev=False, description=__doc__)
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--make_reference", metavar="NAME", help="keep the curve of this run as a reference")
    arguments = parser.parse_args(argv)
    folder = arguments.folder
    try:
        facts = read_run(folder)
        if arguments.make_reference:
            make_reference(folder, arguments.make_reference)
            return
        corpus = Corpus.open(folder / "corpus" / "train", verify=False)
        found = diagnosis(facts, read_events(folder / "metrics.jsonl"), corpus)
        print(found or "the loss is below the unigram entropy, or there are too few steps yet to tell")
    except (ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
