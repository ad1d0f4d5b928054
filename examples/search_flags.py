"""Search for good values of flags with Optuna: every trial is a run of run_glue.py in a folder of its own.

python examples/search_flags.py 20 --model_name_or_path runs/base --train_file a.csv --validation_file b.csv \
    --output_dir runs/search
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the checkout is found without being installed

import optuna

import run_glue

METRIC = "eval_accuracy"


def objective(trial: optuna.Trial, flags: list[str], folder: Path) -> float:
    """Train with the values that a trial proposes; return the score on the validation data."""
    values = {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-3, log=True),
        "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 4),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [8, 16, 32]),
    }
    output = folder / f"trial-{trial.number}"
    run_glue.main([*flags, *(f"--{name}={value}" for name, value in values.items()), "--output_dir", str(output)])
    return json.loads((output / "all_results.json").read_text(encoding="utf-8"))[METRIC]


if __name__ == "__main__":
    trials, *flags = sys.argv[1:]
    at = flags.index("--output_dir")
    folder, flags = Path(flags[at + 1]), [*flags[:at], *flags[at + 2 :]]
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=42))
    study.optimize(lambda trial: objective(trial, flags, folder), n_trials=int(trials))
    print(f"best {METRIC} {study.best_value:.4f} in {folder}/trial-{study.best_trial.number}: {study.best_params}")
