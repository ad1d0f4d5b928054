"""bert_training/cards/reference_curves.py: the curves that runs are compared with."""

from bert_training.cards.reference_curves import comparable, references
from tests.helpers.plateau_runs import FACTS, FLAGS


def test_a_run_is_compared_only_with_a_reference_of_the_same_settings():
    settings = references()["mini"]["settings"]
    entropy = settings["unigram_entropy"]
    assert comparable(FACTS, entropy)[0] == "mini"
    assert comparable(FACTS, entropy - 0.31) is None
    assert comparable(FACTS | {"processes": 2}, entropy) is None
    for changes in ({"config_name": "base"}, {"max_seq_length": 64}, {"mlm_probability": 0.4}, {"objective": "mlm"}):
        assert comparable(FACTS | {"flags": FLAGS | changes}, entropy) is None
    assert comparable({"flags": {"task_name": "rte"}}, entropy) is None
    tiny = FACTS | {"flags": FLAGS | {"config_name": "tiny"}}
    assert comparable(tiny, entropy)[0] == "tiny"
    assert comparable(tiny, entropy + 0.31) is None


def test_runs_with_phases_are_compared_in_their_first_phase():
    settings = references()["mini-fast"]["settings"]
    assert (settings["comparable_steps"], settings["total_steps"]) == (2000, 5000)
    flags = FLAGS | {"initial_weights": "counted", "per_device_train_batch_size": 64}
    entropy = settings["unigram_entropy"]

    def last_step(phases: str, total_steps: int) -> int | None:
        found = comparable(FACTS | {"flags": flags | {"phases": phases}, "total_steps": total_steps}, entropy)
        if found is None:
            return None
        name, curve = found
        assert name == "mini-fast" and len(curve["steps"]) == len(curve["mlm_loss"])
        return curve["steps"][-1]

    assert last_step("32:0.4,64:0.4,128:0.2", 5000) == 2000
    assert last_step("32:0.4,64:0.4,128:0.2", 2400) == 950  # The first phase has 960 steps.
    assert last_step("32:0.9,128:0.1", 50_000) == 2000
    assert last_step("64:0.4,32:0.6", 5000) is None
    assert last_step("32:0.4:32,64:0.6", 5000) is None
    flags["initial_weights"] = "random"
    assert last_step("32:0.4,64:0.4,128:0.2", 5000) is None
