"""The results of all tasks and their names, in one table for the model card, the training curves and the report."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from bert_training.inputs.flags.objectives import OBJECTIVES


@dataclass(frozen=True)
class Metric:
    """A row of ``METRICS``.

    Attributes:
        hub_type: the metric type of the Hub; "" for what says something about the data only.
        card_name: the name in the model card, where ``metrics_of`` says "F1, per cent" for SQuAD.
        table_name: the name in the table of ``bert-repro report``; "" if that table never has it.
        curve_name: the name in ``training_curves.png``; "" if that picture leaves it out.
    """

    hub_type: str
    card_name: str
    table_name: str = ""
    curve_name: str = ""


_PAIR_TASKS = [objective.pairs for objective in OBJECTIVES.values() if objective.pairs]
# Key in all_results.json and metrics.jsonl -> names. The order is that of the rows of a card and of the curves. Results
# that are not here, such as counts, thresholds and the scores of one type of entities, are in none of them.
METRICS = {
    "eval_loss": Metric("loss", "Loss"),
    "eval_mlm_loss": Metric("loss", "Masked-piece loss, nats"),
    "eval_perplexity": Metric("perplexity", "Perplexity of masked pieces"),
    "eval_mlm_accuracy": Metric("accuracy", "Masked-piece accuracy", curve_name="masked pieces"),
    **{
        f"eval_{task.name}_accuracy": Metric(
            "accuracy", f"{task.title.capitalize()} accuracy (chance 0.5)", curve_name=task.title.replace("-", " ")
        )
        for task in _PAIR_TASKS
    },
    "eval_accuracy": Metric("accuracy", "Accuracy", "accuracy", "accuracy"),
    "eval_mnli_m_accuracy": Metric("accuracy", "Accuracy, matched", "accuracy, matched", "matched"),
    "eval_mnli_mm_accuracy": Metric("accuracy", "Accuracy, mismatched", "accuracy, mismatched", "mismatched"),
    "eval_matthews_correlation": Metric(
        "matthews_correlation", "Matthews correlation", "Matthews correlation", "Matthews"
    ),
    "eval_pearson": Metric("pearsonr", "Pearson correlation", "Pearson correlation", "Pearson"),
    "eval_spearmanr": Metric("spearmanr", "Spearman correlation", "Spearman correlation", "Spearman"),
    "eval_exact_match": Metric("exact_match", "Exact match, per cent", "exact match", "exact match"),
    "eval_precision": Metric("precision", "Precision", "precision"),
    "eval_recall": Metric("recall", "Recall", "recall"),
    "eval_f1": Metric("f1", "F1", "F1", "F1"),
    "eval_f1_micro": Metric("f1", "F1, micro average", "F1, micro", "F1, micro"),
    "eval_subset_accuracy": Metric("accuracy", "Accuracy of the whole set of labels", "subset accuracy", "whole sets"),
    "eval_average_precision_micro": Metric(
        "average_precision", "Average precision, micro average", "average precision, micro"
    ),
    "eval_average_precision_macro": Metric(
        "average_precision", "Average precision, macro average", "average precision, macro"
    ),
    "eval_f1_macro": Metric("f1", "Macro F1, the mean over the classes", "macro F1", "macro F1"),
    "eval_precision_macro": Metric("precision", "Macro precision"),
    "eval_recall_macro": Metric("recall", "Macro recall"),
    "eval_ece": Metric("expected_calibration_error", "Expected calibration error (15 bins)"),
    "eval_HasAns_f1": Metric("f1", "F1 of questions that have an answer, per cent"),
    "eval_NoAns_f1": Metric("f1", "F1 of questions that have none, per cent"),
    "eval_best_f1": Metric("f1", "F1 at the best no-answer threshold, per cent"),
}


_OF_FILE = ("mlm_loss", "mlm_accuracy")


def metrics_of(keys: Iterable[str]) -> dict[str, Metric]:
    """The rows for these results, in the order of METRICS; behind them, those of single held-out files.

    Args:
        keys: the keys of the results of a run.
    """
    keys = list(keys)
    found = {key: metric for key, metric in METRICS.items() if key in keys}
    if "eval_f1" in found and percent_factor(keys) == 1:
        found["eval_f1"] = replace(METRICS["eval_f1"], card_name="F1, per cent")
    for name in held_out_files(keys):
        for end in _OF_FILE:
            if (key := f"eval_{name}_{end}") in keys:
                found[key] = replace(METRICS[f"eval_{end}"], card_name=f"{METRICS[f'eval_{end}'].card_name}: {name}")
    return found


def held_out_files(keys: Iterable[str]) -> list[str]:
    """The held-out files that have results of their own, as their keys name them."""
    found = (re.fullmatch(r"eval_(.+)_mlm_loss", key) for key in keys)
    return list(dict.fromkeys(match[1] for match in found if match))


def percent_factor(keys: Iterable[str]) -> int:
    """The factor that turns scores into per cent: 1 for SQuAD, which records per cent, and 100 for other tasks.

    Args:
        keys: the keys of the results or of the events of a run.
    """
    return 1 if "eval_exact_match" in keys else 100
