"""bert_training/pretraining/plateau.py: when a plateau is diagnosed, which causes are named, and how often it is
said.
"""

import json

import pytest

from bert_training.inputs.flags.pretraining import CONFIG_SIZES
from bert_training.inputs.flags.recipes import peak_rate
from bert_training.pretraining.corpus import unigram_entropy
from bert_training.pretraining.plateau import (
    RATES,
    check_causes,
    diagnosis,
    find_plateau,
    held_out_key,
    log_diagnosis,
)
from tests.helpers.plateau_runs import FACTS, FLAGS, LINE, random_corpus, run_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return random_corpus(tmp_path_factory.mktemp("c") / "c")


@pytest.mark.parametrize(
    ("loss", "stop", "held_out", "speaks"),
    [
        (LINE, 1000, LINE, True),
        (LINE, 1000, None, True),
        (LINE + 2.0, 1000, LINE + 2.0, True),  # Not even the frequencies of the tokens are learnt.
        (LINE - 0.2, 1000, LINE - 0.2, True),
        (LINE - 0.3, 1000, LINE - 0.3, False),  # The margin is 0.25.
        (LINE, 1000, LINE - 0.3, False),  # The training loss is noisy, so the held-out loss decides.
        (LINE, 380, LINE, False),  # There are only 4 records since the warm-up.
        (LINE, 250, LINE, False),  # The warm-up is not over.
    ],
)
def test_when_a_run_sits_on_the_line(loss, stop, held_out, speaks):
    assert (find_plateau(run_of(lambda step: loss, stop, held_out=held_out), LINE, 300) is not None) == speaks


def test_of_several_held_out_files_the_first_decides():
    new = [{"event": "eval", "step": 900, "eval_mlm_loss": LINE, "eval_law_mlm_loss": LINE - 1}]
    assert held_out_key({"validation_file": ["in/law.txt", "wiki.txt"]}) == "eval_law_mlm_loss"
    assert held_out_key({"validation_file": ["law.txt"]}) == "eval_mlm_loss"
    events = [*run_of(lambda step: LINE, 1000), *new]
    assert find_plateau(events, LINE, 300) and not find_plateau(events, LINE, 300, "eval_law_mlm_loss")


def test_the_window_is_the_last_tenth():
    falling = run_of(lambda step: LINE + 1 if step <= 900 else LINE - 1, 1000)
    assert find_plateau(falling, LINE, 300) is None
    last, window, mean = find_plateau(run_of(lambda step: LINE + (step > 900), 1000), LINE, 300)
    assert (last, window, mean) == (981, 81, pytest.approx(LINE + 1))


def test_runs_without_pairs_log_one_loss_only():
    events = [{"event": "train", "step": step, "loss": LINE} for step in range(1, 1000, 20)]
    assert find_plateau(events, LINE, 300) is not None


@pytest.mark.parametrize(
    ("changes", "step", "repeated", "named"),
    [
        ({}, 9000, (0.0, 0.0), set()),
        ({}, 9000, (0.02, 0.0), {"duplicates"}),
        ({}, 9000, (0.0, 0.06), {"duplicates"}),
        ({"mlm_probability": 0.05}, 9000, (0.0, 0.0), {"mask rate"}),
        ({"mlm_probability": 0.6}, 9000, (0.0, 0.0), {"mask rate"}),
        ({"learning_rate": 1e-5}, 9000, (0.0, 0.0), {"learning rate"}),
        ({"learning_rate": 1e-2}, 9000, (0.0, 0.0), {"learning rate"}),
        ({"warmup_steps": 0}, 9000, (0.0, 0.0), {"warm-up"}),
        ({"warmup_steps": 0.005}, 9000, (0.0, 0.0), {"warm-up"}),
        ({"per_device_train_batch_size": 8}, 9999, (0.0, 0.0), {"batch"}),
        ({"phases": "64:0.9:16,128:0.1:32"}, 8000, (0.0, 0.0), {"batch"}),
        ({}, 400, (0.0, 0.0), {"too few steps"}),
    ],
)
def test_the_causes_that_the_flags_and_the_data_show(changes, step, repeated, named):
    facts = FACTS | {"flags": FLAGS | changes}
    assert {line.name for line in check_causes(facts, step, repeated) if not line.good} == named


def test_large_networks_want_smaller_rates():
    facts = FACTS | {"parameters": 110_000_000}
    assert {line.name for line in check_causes(facts, 9000, (0.0, 0.0)) if not line.good} == {"learning rate"}
    facts["flags"] = FLAGS | {"learning_rate": 1e-4}
    assert all(line.good for line in check_causes(facts, 9000, (0.0, 0.0)))


def test_the_diagnosis_names_the_line_and_the_likely_causes(corpus):
    assert unigram_entropy([corpus], [1.0]) == pytest.approx(LINE, abs=0.05)
    stuck = run_of(lambda step: LINE, 9000, held_out=LINE)
    assert diagnosis(FACTS, run_of(lambda step: 1.0, 9000), corpus) is None
    text = diagnosis(FACTS | {"flags": FLAGS | {"learning_rate": 1e-6}}, stuck, corpus)
    assert "stays at 3.90" in text and "gives 3.9" in text and "--learning_rate 1e-06 is outside" in text
    assert "checked and fine: duplicates, mask rate, warm-up, batch, too few steps" in text
    assert "none of the usual causes applies" in diagnosis(FACTS, stuck, corpus)


def test_counted_weights_are_compared_with_their_own_start(corpus):
    facts, start = FACTS | {"flags": FLAGS | {"initial_weights": "counted"}}, LINE - 0.6
    stuck = run_of(lambda step: start, 9000, held_out=start)
    assert diagnosis(FACTS, stuck, corpus) is None
    text = diagnosis(facts, stuck, corpus)
    assert "the counted initial weights began at 3.30: the model has not learnt more than the counts yet" in text
    assert diagnosis(facts, run_of(lambda step: start - 0.3 * (step > 1), 9000), corpus) is None
    # A start above the entropy of the unigrams is no excuse.
    assert "frequency alone" in diagnosis(facts, run_of(lambda step: LINE + (step == 1), 9000), corpus)
    # Of a run whose first record is lost the start is unknown.
    assert diagnosis(facts, [event for event in stuck if event["step"] > 1], corpus) is None


@pytest.mark.parametrize(("name", "size"), CONFIG_SIZES.items())
def test_the_rates_of_the_recipe_suit_the_doctor(name, size):
    low, high = RATES["large" if name in ("base", "large") else "small"]
    assert low <= peak_rate(*size) <= high


def test_the_diagnosis_is_repeated_only_when_the_run_is_twice_as_old(corpus, make_run, capsys):
    run = make_run()
    run.facts |= FACTS
    metrics = run.output_dir / "metrics.jsonl"
    spoken = []
    for stop in range(1000, 5001, 500):
        lines = sorted([*spoken, *run_of(lambda step: LINE, stop, held_out=LINE)], key=lambda line: line["step"])
        metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        log_diagnosis(run, corpus)
        spoken = [line for line in map(json.loads, metrics.read_text().splitlines()) if line["event"] == "doctor"]
    assert [line["step"] for line in spoken] == [1000, 2000, 4000]
    assert capsys.readouterr().out.count("doctor: the masked-LM loss stays at") == 3
