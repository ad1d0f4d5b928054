"""Ten steps of pre-training on a fixed text have the recorded losses.

A change of the data order, the masks, the network, the loss, the optimiser or the schedule changes these numbers. If
the change is intended, record new numbers, and explain them in the commit message:

    python -m tests.pretraining.test_golden_losses

The learning rate is 0 in step 1 and half of its peak in step 2, so the weights first change after step 2. Where the
numbers first differ therefore tells where to look (``likely_cause``):

- a loss in step 1 or 2: the data, the masks, the forward pass or the loss
- only grad_norm in step 1 or 2: the backward pass
- nothing before step 3: the optimiser, the schedule or the clipping
- one objective only: its head, or the plan of its instances

No random number here depends on the machine or on versions, because order, masks and weights come from hashes.
torch's own initialisation is not used because it changed between 2.11 and 2.13, nor its dropout, because torch draws
the masks with MKL where MKL is installed.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bert_training.engine.batches import step_batches
from bert_training.engine.checkpoint import UNKNOWN, TrainingState
from bert_training.engine.loop import training_steps
from bert_training.engine.optimizer import create_optimizer, linear_schedule
from bert_training.engine.run import Run
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.hashed_random import random_bits, uniform
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from modeling_bert_repro import BertForMaskedLM, BertForPreTraining
from tests.helpers.small_networks import NO_DROPOUT, small_config
from tokenization import build_tokenizer

GOLDEN = Path(__file__).with_name("golden_losses.json")
STEPS = 10
# This allows for rounding. The same steps in float64, with eager attention, on two threads or in other micro-batches
# differ from the recorded ones by at most 3.0e-7 of the value, which are the last digits of float32; torch 2.11 with
# transformers 5.17 gives exactly the recorded ones. Another BLAS changes only the order of additions, so it stays
# within the same rounding. Mistakes make larger differences. LayerNorm's eps 1e-5 instead of 1e-12 made the smallest
# one of those that were tried: a gradient norm changed by 3.6e-5 of its value. The others were no weight decay
# (1.5e-4), decayed biases (1.5e-4), tanh GELU (1.5e-4), Adam's eps 1e-8 (1.9e-4), a learning rate that is 1 % wrong
# (4.2e-3), and a schedule that is one step too long (4.9e-2).
TOLERANCE = 3e-6

OBJECTIVES = {
    "mlm_nsp": (BertForPreTraining, {}),
    "mlm": (BertForMaskedLM, {"whole_word_mask": True, "short_seq_prob": 0.5}),
    "ltr": (BertForMaskedLM, {}),
    "mlm_sop": (BertForPreTraining, {}),
}
SUBJECTS = ("the baker", "a sailor", "my sister", "the old judge", "every teacher", "one farmer")
VERBS = ("opened", "repaired", "painted", "remembered", "carried", "counted")
OBJECTS = ("the windows", "two boats", "an empty house", "his letters", "the apples", "a garden")
TIMES = ("in the morning .", "after the storm .", "before winter .", "at the end of the day .", "again .")


def documents() -> list[list[str]]:
    """24 documents of 3 to 7 sentences."""
    lines, n = [], 0
    for number in range(24):
        count = 3 + number % 5
        parts = ((SUBJECTS, 1), (VERBS, 5), (OBJECTS, 7), (TIMES, 11))
        lines.append([" ".join(w[(n + i) * step // 3 % len(w)] for w, step in parts) for i in range(count)])
        n += count
    return lines


def vocabulary() -> list[str]:
    """Words of up to 6 letters are one piece, longer ones are two."""
    words = sorted({word for phrases in (SUBJECTS, VERBS, OBJECTS, TIMES) for p in phrases for word in p.split()})
    pieces = [piece for word in words for piece in ([word] if len(word) < 7 else [word[:4], "##" + word[4:]])]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(pieces)]


@torch.no_grad()
def with_fixed_weights(model):
    """Uniform weights with a standard deviation of 0.1. With the 0.02 of BERT, so narrow a network is nearly linear."""
    for number, (name, weight) in enumerate(sorted(model.named_parameters())):
        values = uniform(random_bits(number, np.arange(weight.numel()))).reshape(weight.shape)
        weight.copy_(torch.from_numpy((values - 0.5) * 0.35 + name.endswith("LayerNorm.weight")))
    return model


def losses(objective: str, folder: Path, **changes) -> list[dict[str, float]]:
    """The loss, its parts and the gradient norm of every step."""
    from accelerate import Accelerator

    flags = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "seed": 7} | changes
    run = Run(SharedArguments(output_dir=str(folder), **flags), Accelerator(cpu=True))
    tokenizer = build_tokenizer(vocabulary())
    corpus = build_corpus(documents(), tokenizer, folder / "corpus")
    cls, settings = OBJECTIVES[objective]
    settings = InstanceSettings(seed=7, max_seq_length=40, objective=objective, **settings)
    source = PretrainingInstances(corpus, tokenizer, settings)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 48, "intermediate_size": 96, "max_position_embeddings": 40}
    model = with_fixed_weights(cls(small_config(**sizes, **NO_DROPOUT, is_decoder=objective == "ltr")))
    optimizer = create_optimizer(model, learning_rate=2e-3, weight_decay=0.01)
    scheduler = linear_schedule(optimizer, 0.2, STEPS)
    batches = step_batches(source, run, 0, STEPS)
    state = TrainingState(model, optimizer, scheduler, STEPS, UNKNOWN)
    steps = training_steps(run, state, batches, max_grad_norm=1.0)
    return [{"loss": s.loss, **({} if len(s.parts) < 2 else s.parts), "grad_norm": s.grad_norm} for s in steps]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_losses_are_the_recorded_ones(objective, tmp_path):
    recorded = json.loads(GOLDEN.read_text())["losses"][objective]
    computed = losses(objective, tmp_path)
    for number, (now, then) in enumerate(zip(computed, recorded, strict=True), 1):
        assert now == pytest.approx(then, rel=TOLERANCE), f"step {number} differs: {likely_cause(number, now, then)}"


def likely_cause(step: int, now: dict[str, float], then: dict[str, float]) -> str:
    """Where to look if this step is the first that differs; the header of this file explains it."""
    if step > 2:
        return "the weights changed wrongly after step 2: look at the optimiser, the schedule and the clipping"
    if all(now[name] == pytest.approx(then[name], rel=TOLERANCE) for name in then if name != "grad_norm"):
        return "the loss is right and its gradient is not: look at the backward pass"
    return "the weights are still the first ones: look at the data, the masks, the forward pass and the loss"


@pytest.mark.parametrize(("peak", "decay"), [(4e-3, 0.01), (2e-3, 0.5)])
def test_the_optimiser_shows_from_step_3_on(tmp_path, monkeypatch, peak, decay):
    """``likely_cause`` relies on this: another learning rate or weight decay leaves steps 1 and 2 as they are."""
    create = create_optimizer
    monkeypatch.setitem(globals(), "create_optimizer", lambda model, **_: create(model, peak, decay))
    recorded = json.loads(GOLDEN.read_text())["losses"]["mlm"]
    same = [now == pytest.approx(then, rel=TOLERANCE) for now, then in zip(losses("mlm", tmp_path), recorded)]
    assert same[:3] == [True, True, False]


if __name__ == "__main__":
    import tempfile

    import transformers

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        golden = {objective: losses(objective, Path(scratch) / objective) for objective in OBJECTIVES}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    GOLDEN.write_text(json.dumps({"versions": versions, "losses": golden}, indent=1) + "\n")
    print(f"wrote {GOLDEN}")
