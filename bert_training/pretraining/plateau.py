"""Diagnose a plateau: find out why the loss of a pre-training run does not fall.

run_pretraining.py calls ``log_diagnosis`` after each evaluation; ``bert-repro inspect`` makes the same diagnosis
of a folder.

``bert-repro inspect --help`` (bert_tools/inspect_run.py) says what the line is, and when a run is on it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_training.cards.curves import MARGIN, counted_start, curve_of, training_losses
from bert_training.engine.run import Run
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import Phase, mean_shares, phase_at, phases_of, with_steps
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.json_files import read_events
from bert_training.pretraining.corpus import Corpus, unigram_entropy
from bert_training.pretraining.measurements import Measurement, repeated_documents, repeated_sentences
from bert_training.pretraining.text import names_of_results

FEWEST_RECORDS = 5
LARGE = 60_000_000  # parameters; base has 110 million, medium 41 million
# The range of peak learning rates that work: for small models in this project's runs and the fast recipe; for large
# models around the paper's 1e-4, up to the 7e-4 of RoBERTa.
RATES = {"small": (1e-4, 3e-3), "large": (5e-5, 7e-4)}
MASK_RATES = (0.1, 0.4)  # the upper bound is from Wettig et al. 2022
FEWEST_TOKENS_A_STEP = 2048
SHORTEST_WARMUP = 50  # steps; and at least 1 % of all steps, as in the paper
PATIENCE = 2.0  # as a multiple of the tokens that the reference run needed
# (--config_name, --initial_weights) -> the tokens after which a run of this project was clearly below the line; other
# sizes are compared with mini.
TOKENS_TO_LEAVE = {
    ("mini", "random"): 3_072_000,
    ("tiny", "random"): 4_096_000,
    ("mini", "counted"): 1_024_000,
    ("tiny", "counted"): 1_024_000,
}


def find_plateau(
    events: list[dict], line: float, warmup: int, held_out_key: str = "eval_mlm_loss"
) -> tuple[int, int, float] | None:
    """(last step, steps of the window, mean training loss) of a run that is on the line; None for any other run.

    Args:
        events: the records of metrics.jsonl.
        line: in nats.
        warmup: the optimiser steps of the warm-up.
        held_out_key: of the held-out loss that counts.
    """
    steps, losses = training_losses(events)
    after = [(step, loss) for step, loss in zip(steps, losses) if step > warmup]
    if len(after) < FEWEST_RECORDS:
        return None
    last = after[-1][0]
    window = [(step, loss) for step, loss in after if step > 0.9 * last]
    window = after[-FEWEST_RECORDS:] if len(window) < FEWEST_RECORDS else window
    mean = sum(loss for _, loss in window) / len(window)
    held_out = [loss for step, loss in zip(*curve_of(events, "eval", held_out_key)) if step > warmup]
    if min([mean, *held_out[-1:]]) <= line - MARGIN:
        return None
    return last, last - window[0][0] + 1, mean


def line_of(flags: Mapping[str, Any], events: list[dict], entropy: float) -> float:
    """The line of a run: the unigram entropy of its text or, below it, where its counted initial weights began."""
    start = counted_start(flags, events)
    return entropy if start is None else min(start, entropy)


def held_out_key(flags: Mapping[str, Any]) -> str:
    """The held-out loss that counts: of several files that of the first, which is the domain's."""
    files = flags.get("validation_file") or []
    return f"eval_{names_of_results(files)[0]}_mlm_loss" if len(files) > 1 else "eval_mlm_loss"


def check_causes(facts: Mapping[str, Any], step: int, repeated: tuple[float, float]) -> list[Measurement]:
    """A check of each usual cause of a plateau; its text says what is wrong if it is not good.

    Args:
        facts: the content of run.json.
        step: the last optimiser step.
        repeated: the shares of repeated documents and of repeated sentences.
    """
    flags, total_steps = facts["flags"], facts["total_steps"]
    phases = with_steps(phases_of(flags), total_steps)
    tokens_per_step, tokens_seen = _tokens(phases, facts["processes"], step)
    copied_documents, copied_sentences = repeated
    warmup = warmup_of(flags, total_steps)
    learning_rate = flags["learning_rate"]
    lowest_rate, highest_rate = RATES["large" if facts["parameters"] > LARGE else "small"]
    mask_rate = flags["mlm_probability"]
    lowest_mask_rate, highest_mask_rate = MASK_RATES
    weights = flags.get("initial_weights") or "random"
    size = flags["config_name"] if (flags["config_name"], weights) in TOKENS_TO_LEAVE else "mini"
    tokens_needed = TOKENS_TO_LEAVE[size, weights]
    return [
        Measurement(
            "duplicates",
            f"{copied_documents:.1%} of the documents and {copied_sentences:.1%} of the sentences are repeated",
            copied_documents < 0.01 and copied_sentences < 0.05,
        ),
        Measurement(
            "mask rate",
            f"--mlm_probability {mask_rate:g} is outside {lowest_mask_rate} to {highest_mask_rate}",
            not objective_of(flags).masks or lowest_mask_rate <= mask_rate <= highest_mask_rate,
        ),
        Measurement(
            "learning rate",
            f"--learning_rate {learning_rate:g} is outside {lowest_rate:g} to {highest_rate:g}, which suit this size",
            lowest_rate <= learning_rate <= highest_rate,
        ),
        Measurement(
            "warm-up",
            f"the warm-up has {warmup} steps (take at least {SHORTEST_WARMUP}, and 1 % of all)",
            warmup >= max(SHORTEST_WARMUP, 0.01 * total_steps),
        ),
        Measurement(
            "batch",
            f"an optimiser step sees only {tokens_per_step:,} tokens (raise --gradient_accumulation_steps)",
            tokens_per_step >= FEWEST_TOKENS_A_STEP,
        ),
        Measurement(
            "too few steps",
            f"{tokens_seen:,} tokens so far, and a run of size {size} left the line after {tokens_needed:,}",
            tokens_seen >= PATIENCE * tokens_needed,
        ),
    ]


def _tokens(phases: Sequence[Phase], processes: int, step: int) -> tuple[int, int]:
    """The tokens of an optimiser step, with padding, and those of all steps up to it."""
    seen = 0
    for phase in phases:
        if phase.start < step:
            sequences_per_step = phase.size * phase.accumulation * processes
            seen += (min(step, phase.stop) - phase.start) * sequences_per_step * phase.length
    phase = phase_at(phases, step)
    return phase.size * phase.accumulation * processes * phase.length, seen


def warmup_of(flags: Mapping[str, Any], total_steps: int) -> int:
    """Optimiser steps of the warm-up, as `linear_schedule` counts them: a number below 1 is a share of all steps."""
    return round(flags["warmup_steps"] * (total_steps if flags["warmup_steps"] < 1 else 1))


def diagnosis(facts: Mapping[str, Any], events: list[dict], *corpora: Corpus) -> str | None:
    """A sentence with the likely causes for a run that is on the line; None for any other run.

    Args:
        facts: the content of run.json.
        events: the records of metrics.jsonl.
        corpora: the training corpus; with a mixture, that of each source.
    """
    shares = mean_shares(facts["flags"])
    entropy = unigram_entropy(corpora, shares)
    line = line_of(facts["flags"], events, entropy)
    plateau = find_plateau(events, line, warmup_of(facts["flags"], facts["total_steps"]), held_out_key(facts["flags"]))
    if plateau is None:
        return None
    step, window, mean = plateau
    documents, sentences = (
        sum(share * measure(corpus) for share, corpus in zip(shares, corpora, strict=True))
        for measure in (repeated_documents, repeated_sentences)
    )
    checked = check_causes(facts, step, (documents, sentences))
    likely = "; ".join(cause.text for cause in checked if not cause.good)
    fine = ", ".join(cause.name for cause in checked if cause.good)
    text = f"the masked-LM loss stays at {mean:.2f} (last {window:,} steps), and "
    if line < entropy:
        text += f"the counted initial weights began at {line:.2f}: the model has not learnt more than the counts yet; "
    else:
        text += f"guessing by frequency alone gives {entropy:.2f}: the model does not use context yet; "
    text += f"likely causes: {likely}" if likely else "none of the usual causes applies: inspect the data with audit"
    return text + (f" (checked and fine: {fine})" if fine else "")


def log_diagnosis(run: Run[PretrainingArguments], *corpora: Corpus) -> None:
    """Print and record the diagnosis of a running training, if there is one; called after each evaluation."""
    if not run.is_main:
        return
    events = read_events(run.output_dir / "metrics.jsonl")
    step = events[-1]["step"]
    before = max((event["step"] for event in events if event["event"] == "doctor"), default=0)
    if step < 2 * before:  # a diagnosis is repeated only when the run has twice as many steps
        return
    if text := diagnosis(run.facts, events, *corpora):
        run.log(event="doctor", step=step, text=text)
        run.say(f"doctor: {text}")
