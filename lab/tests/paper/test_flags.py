"""lab/paper/flags.py: flags that contradict each other are refused."""

from typing import get_type_hints

import pytest

from lab import run_paper
from lab.paper.data import PaperArguments
from lab.paper.experiments import EXPERIMENTS
from lab.paper.scales import SCALES


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--table", "5", "--seeds", "1"], "--seeds must be at least 2; got 1"),
        (["--table", "9"], "invalid choice: '9'"),
        (["--table", "5", "--jobs", "0"], "--jobs must be at least 1"),
        (["--table", "5", "--scale", "small"], "--scale small needs --data_dir"),
        (["--table", "5", "--scale", "paper"], "--scale paper needs --data_dir"),
        (["--table", "5", "--data_dir", "d"], "--data_dir has no effect at the built-in scale"),
        (["--table", "5", "--scale", "small", "--data_dir", "d", "--smoke"], "--smoke tries the built-in scale"),
    ],
)
def test_wrong_flags_are_refused_in_one_line(flags, told, capsys):
    with pytest.raises(SystemExit) as stop:
        run_paper.main([*flags, "--output_dir", "out"])
    assert stop.value.code == 2 and told in capsys.readouterr().err.splitlines()[-1]


def test_the_flags_name_every_experiment_and_every_scale():
    types = get_type_hints(PaperArguments)
    assert types["table"].__args__ == tuple(EXPERIMENTS)
    assert types["scale"].__args__ == tuple(SCALES)
    for experiment in EXPERIMENTS.values():
        assert set(experiment.steps) == set(experiment.tasks) == set(SCALES)
