"""bert_training/inputs/flags/phases.py: the flag --phases, the steps of each phase, and the batches that they see."""

import itertools
from types import SimpleNamespace

import pytest

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.phases import Phase, phase_at, phases_of, with_steps
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.data import phase_batches, planned_phases

FLAGS = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 2, "max_seq_length": 128}


def phases(text):
    return phases_of(FLAGS | {"phases": text})


def test_what_a_phase_leaves_out_comes_from_the_other_flags():
    assert phases_of(FLAGS) == [Phase(128, 1.0, 16, 2)]
    assert phases("128:0.9,512:0.1") == [Phase(128, 0.9, 16, 2), Phase(512, 0.1, 16, 2)]
    assert phases("128:0.9:32, 512:0.1:8x4") == [Phase(128, 0.9, 32, 2), Phase(512, 0.1, 8, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a phase; expected LENGTH:SHARE"),
        ("128", "'128' is not a phase"),
        ("128:0.9,", "'' is not a phase"),
        ("128:0.9;512:0.1", "is not a phase"),
        ("128:1:x4", "is not a phase"),
        ("128:0.9.1,512:0.1", "'128:0.9.1' is not a phase"),
        ("-128:1", "is not a phase"),
        ("4:1", "out of range; lengths are at least 8"),
        ("128:1:0", "out of range"),
        ("128:1:8x0", "out of range"),
        ("128:0,512:1", "out of range; lengths are at least 8, shares above 0"),
        ("128:0.9,512:0.2", "the shares add up to 1.1; expected 1"),
        ("128:0.5,128:0.5", "a length occurs twice"),
    ],
)
def test_mistakes_in_the_flag_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        phases(text)


def test_the_longest_length_is_what_the_network_must_hold():
    assert parse_arguments(PretrainingArguments, ["--output_dir", "x"]).max_seq_length == 128
    args = parse_arguments(PretrainingArguments, ["--output_dir", "x", "--phases", "512:0.1,128:0.9"])
    assert args.max_seq_length == 512


@pytest.mark.parametrize("total", [10, 11, 999, 1_000_000])
def test_every_step_belongs_to_one_phase(total):
    planned = with_steps(phases("64:0.5,128:0.4,512:0.1"), total)
    assert planned[0].start == 0 and planned[-1].stop == total
    for one, two in itertools.pairwise(planned):
        assert one.stop == two.start
    for phase in planned:
        assert abs(phase.stop - phase.start - phase.share * total) <= 1
        assert phase_at(planned, phase.start + 1) == phase_at(planned, phase.stop) == phase


def test_a_phase_without_a_step_is_refused():
    with pytest.raises(ValueError, match=r"a share of 0\.1 of 4 steps leaves none of length 512"):
        with_steps(phases("128:0.9,512:0.1"), 4)


class Positions:
    """A source of data whose batches contain nothing but their positions."""

    def __init__(self, size):
        self.size = size

    def epoch_size(self, epoch):
        return self.size

    def batch(self, start, stop):
        return {"positions": list(range(start, stop))}


def planned_of(**flags):
    args = SimpleNamespace(
        **(FLAGS | {"phases": "16:0.5:2x2,32:0.5:3", "num_train_epochs": 1.0, "max_steps": -1} | flags)
    )
    return args, planned_phases(args, {16: [Positions(1000)], 32: [Positions(480)]}, 1)


def test_epochs_count_what_each_phase_reads():
    _, planned = planned_of()
    # In one half of the steps a step reads 4 of 1,000 instances, in the other half 3 x 2 of 480.
    steps = planned[-1].stop
    assert steps == pytest.approx(1 / (0.5 * 4 / 1000 + 0.5 * 6 / 480), abs=1)
    assert planned_of(num_train_epochs=2.5)[1][-1].stop == pytest.approx(2.5 * steps, abs=2)
    assert planned_of(max_steps=9)[1][-1].stop == 9
    _, single = planned_of(phases=None, max_seq_length=16)
    assert single[-1].stop == 32  # 1,000 instances make 32 steps of 16 x 2.


@pytest.mark.parametrize("done", [0, 3, 4, 7])
def test_batches_of_each_phase_wherever_one_begins(done):
    args, planned = planned_of(max_steps=8)
    args.dataloader_num_workers = 0
    seen = []
    for rank in range(2):
        run = SimpleNamespace(args=args, rank=rank, world_size=2, device=SimpleNamespace(type="cpu"))
        windows = list(phase_batches(run, planned, [Positions(0), Positions(0)], done))
        assert [len(window) for window in windows] == [2] * (8 - done)
        seen.append([[p for micro in window for p in micro["positions"]] for window in windows])
    together = [sorted(a + b) for a, b in zip(*seen)]
    short = [list(range(8 * step, 8 * step + 8)) for step in range(4)]
    long = [list(range(12 * step, 12 * step + 12)) for step in range(4)]
    assert together == (short + long)[done:]
