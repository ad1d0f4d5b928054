"""bert_training/tasks/run_settings.py: which runs count as repetitions of each other, and in which words they
differ.
"""

from bert_training.tasks.run_settings import compared_settings

FACTS = {
    "script": "run_glue.py",
    "flags": {"output_dir": "a", "seed": 1, "learning_rate": 3e-5, "num_train_epochs": 3.0, "task_name": "mrpc"},
    "processes": 2,
    "mixed_precision": "bf16",
    "data": {"splits": {"train": {"sha256": "a" * 64}, "validation": {"sha256": "b" * 64}}},
    "initial_weights": {"model.safetensors": "c" * 64},
}


def with_flags(**flags) -> dict:
    return FACTS | {"flags": FACTS["flags"] | flags}


def test_seed_and_folder_are_no_settings():
    assert compared_settings(FACTS) == compared_settings(with_flags(seed=7, output_dir="b", logging_steps=9))
    for name, value in (("learning_rate", 5e-5), ("num_train_epochs", 4.0), ("warmup_steps", 0.2)):
        assert compared_settings(FACTS) != compared_settings(with_flags(**{name: value}))


def test_epochs_do_not_count_if_the_steps_are_given():
    assert "num_train_epochs" not in compared_settings(with_flags(max_steps=100))
    assert compared_settings(with_flags(max_steps=100)) == compared_settings(
        with_flags(max_steps=100, num_train_epochs=9.0)
    )


def test_a_metric_that_decides_nothing_does_not_count():
    assert compared_settings(FACTS) == compared_settings(with_flags(metric_for_best_model="loss"))
    best = {"load_best_model_at_end": True}
    assert compared_settings(with_flags(**best)) != compared_settings(with_flags(**best, metric_for_best_model="loss"))
