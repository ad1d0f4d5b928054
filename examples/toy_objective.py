"""An objective of one's own: does the second half of a passage belong to the first, or to a passage far away?

python examples/toy_objective.py --output_dir runs/toy --max_steps 100      # takes all flags of run_pretraining.py
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the checkout is found without being installed

import run_pretraining
from bert_training.inputs.flags.objectives import OBJECTIVES, Objective, PairTask
from bert_training.pretraining.segments import PLANNERS, EpochPlan, plan_packed


def halves(corpus, seed: int, variants: int, capacity: int, short_seq_prob: float):
    def plan(variant: int) -> EpochPlan:
        whole = plan_packed(corpus, seed, variant, capacity, short_seq_prob)
        far = np.arange(len(whole)) % 2  # every second instance gets the second half of a passage far away
        first, second = whole.a_length - whole.a_length // 2, whole.a_length // 2
        spans = (np.where(far, np.roll(x, len(x) // 2), x) for x in (whole.a_start + first, second))
        return replace(whole, a_length=first, b_start=next(spans), b_length=next(spans), label=far.astype(np.int8))

    return plan


PLANNERS["halves"] = halves
OBJECTIVES["mlm_half"] = Objective(
    help="masked LM, and whether the second half belongs to the first",
    learns_by="predicting masked word pieces and whether two halves belong together",
    network="BertForPreTraining",
    segments="halves",
    pairs=PairTask(name="half", title="second-half", classes=("Own", "Far"), random_second=True),
)
if __name__ == "__main__":
    run_pretraining.main(["--objective", "mlm_half", *sys.argv[1:]])
