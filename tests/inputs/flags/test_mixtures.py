"""bert_training/inputs/flags/phases.py: what a mixture is, and which are refused."""

import pytest

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.phases import mean_shares, phases_of
from bert_training.inputs.flags.pretraining import PretrainingArguments

FILES = "--train_file a.txt b.txt"


def parsed(flags: str) -> PretrainingArguments:
    return parse_arguments(PretrainingArguments, f"--output_dir x {flags}".split())


def test_phases_have_their_own_mixtures_or_the_common_one():
    args = parsed(f"{FILES} --mixture 7 3 --phases 64:0.5@1:1,64:0.25:8x2,128:0.25")
    assert [phase.mixture for phase in phases_of(vars(args))] == [(1, 1), (7, 3), (7, 3)]
    assert mean_shares(vars(args)) == pytest.approx([0.6, 0.4])
    assert mean_shares(vars(parsed(FILES))) == [1.0]
    assert parsed(f"{FILES} --mixture 7 3 --recipe fast").initial_weights == "random"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (f"{FILES} --mixture 1", "the mixture 1 has 1 weights; expected 2, one for each entry"),
        (f"{FILES} --mixture 0.7 -0.3", "negative or not finite"),
        (f"{FILES} --mixture nan 1", "negative or not finite"),
        (f"{FILES} --mixture 1 inf", "negative or not finite"),
        (f"{FILES} --mixture 0 0", "only weights of 0"),
        (f"{FILES} --mixture 1 0.00001", "a share below 1 in 10,000"),
        ("--mixture 1 1", "expected a file of --train_file for each weight of a mixture, got none"),
        ("--dataset_name wiki --streaming true --mixture 1 1", "expected a file of --train_file for each weight"),
        (f"{FILES} --mixture 1 1 --max_train_documents 9", "--max_train_documents is for one text"),
        (f"{FILES} --mixture 1 1 --initial_weights counted", "--initial_weights counted counts one text"),
        (f"{FILES} --phases 64:0.5@1:1,128:0.5", "the phase of length 128 has no mixture"),
        (f"{FILES} --phases 64:1@1:x", "'64:1@1:x' is not a phase"),
        (f"{FILES} --phases 64:0.5@1:1:1,128:0.5@1:1", "--phases: the mixture 1:1:1 has 3 weights"),
        (f"{FILES} --phases 64:0.5@1:1,64:0.5@1:1", "a length occurs twice with the same mixture"),
    ],
)
def test_a_mixture_that_does_not_fit_is_refused_in_one_line(flags, message, capsys):
    with pytest.raises(SystemExit):
        parsed(flags)
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
