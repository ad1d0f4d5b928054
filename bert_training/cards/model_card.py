"""The model card (README.md) of a finished folder: metadata for the Hub, use, data, results, settings and limits.

What it says stands in ``model_card.md.jinja``, and the program that uses the model in ``use.jinja``. All facts are
read from the record, so that a card claims only what was measured, and from what may be published of it
(``publishing.py``), so that no card names a folder of the machine.
"""

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from markupsafe import Markup

from bert_training.cards.curves import CURVES, MARGIN, counted_start, unigram_entropy
from bert_training.cards.markdown import code, one_line, plain
from bert_training.cards.metrics import METRICS, metrics_of
from bert_training.cards.publishing import GLUE, HUB_NAMES, published, published_name, without_folders
from bert_training.files.atomic import write_text
from bert_training.inputs.flags import fine_tuning
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN, SPECIAL_TOKENS, head_of, stride_of, way_and_windows
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.parsing import CARD
from bert_training.inputs.flags.phases import phases_of, with_steps
from bert_training.inputs.flags.scripts import SCRIPTS, flags_with
from bert_training.inputs.reading import fields_of, read_events
from bert_training.record import Record

BUILTIN = "documentation carried by this Python installation"
BUILTIN_TASKS = "builtin_"  # how their names begin
OWN_DATA = ("train_file", "validation_file", "test_file", "data_dir", "dataset_name")
EVALUATION_FLAGS = ("model_name_or_path", "task_name", "version_2_with_negative", "max_seq_length")
TEST = "test_"  # how the names of results of test data begin
MOST_CLASSES = 30  # in the table of a split; of more, those with the lowest F1
MOST_PAIRS = 10  # of classes that are taken for each other
CONFUSION = "confusion.json"


def write_model_card(
    folder: str | Path, *, datasets: list[str], metrics: Mapping[str, Any], held_out: str | None = None
) -> Path:
    """Write README.md into a finished folder, from its run.json and its results; return the path.

    Its program opens the folder from the folder above, or the model on the Hub if the run uploads it.

    Args:
        datasets: the training data, in words.
        metrics: the results, as all_results.json will have them.
        held_out: the data that they were measured on, in words; by default the held-out part of ``datasets``.
    """
    folder = Path(folder)
    run, title = published(Record.read(folder).facts), without_folders(folder.resolve().name)
    on_hub = run[HUB_NAMES]
    datasets = [published_name(name, on_hub) for name in datasets]
    measured_on = published_name(held_out, on_hub) if held_out else ", ".join(datasets)
    flags = run["flags"]
    facts = {
        **{"run": run, "flags": flags, "metrics": metrics, "datasets": datasets, "title": title},
        **_of_the_run(run, metrics),
        **_of_the_data(run, datasets),
        **_of_the_use(run),
        **_of_the_folder(folder, run, metrics),
        "model": flags["hub_model_id"] if flags.get("push_to_hub") else f"./{title}",
        "rows": [*_rows(metrics), *_rows(_of_test_data(metrics), ", test data")],
    }
    facts["metadata"] = _metadata(facts, measured_on)
    text = _templates().get_template("model_card.md.jinja").render(facts)
    write_text(folder / "README.md", str(ModelCard(re.sub(r"\n{3,}", "\n\n", text))))
    return folder / "README.md"


def _templates() -> jinja2.Environment:
    """The templates, in which whatever stands in {{ }} is escaped for Markdown if it is not marked as safe."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.ChainableUndefined,  # a fact that the record lacks
        finalize=lambda value: value if isinstance(value, Markup) else plain(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "code": lambda value: Markup(code(value)),
        "python": lambda value: Markup(repr(value)),
        "count": lambda number: f"{number:,}",
        "short": lambda number: f"{number:.4g}",
        "score": lambda value: f"{value:.3f}" if isinstance(value, float) else "not defined",
    }
    return templates


def _of_the_run(run: dict[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What was trained, from what, for how long."""
    flags, script = run["flags"], SCRIPTS[run["script"]]
    start, only_evaluated = flags.get("model_name_or_path"), metrics.get("train_steps") == 0
    hyperparameters = [name for name in flags_with(CARD) if flags.get(name) is not None]
    if only_evaluated:  # the others are about training
        hyperparameters = [name for name in hyperparameters if name in EVALUATION_FLAGS]
    overridden = {"num_train_epochs" if flags.get("max_steps", -1) > 0 else "max_steps"}
    phases = [phase.partition("@")[0] for phase in (flags.get("phases") or "").split(",")]  # 32:0.5:4x2, or shorter
    overridden |= {"per_device_train_batch_size"} if all(phase.count(":") == 2 for phase in phases) else set()
    overridden |= {"gradient_accumulation_steps"} if all("x" in phase for phase in phases) else set()
    return {
        "start": start,
        "only_evaluated": only_evaluated,
        "pretrains": script.pretrains,
        "sentence": _first_sentence(run, only_evaluated),
        "work": "Evaluation" if only_evaluated else "Training",
        "not_evaluated": not script.pretrains and flags.get("validation_split") == 0,
        "tested": any(name.startswith(TEST) for name in metrics),
        "best": metrics.get("best_step"),
        "last": metrics.get("train_steps"),
        "command": shlex.join(["python", *map(one_line, run["command"])]) if run.get("command") else "",
        "hyperparameters": [name for name in hyperparameters if name not in overridden],
        "sequences": sequences_seen(run),
    }


def _first_sentence(run: dict[str, Any], only_evaluated: bool) -> str:
    """The kind of model, its size and its origin, in Markdown."""
    flags, script = run["flags"], SCRIPTS[run["script"]]
    start, sentence = flags.get("model_name_or_path"), script.sentence
    origin = f"starting from {code(start)}" if start else "starting from random weights"
    if not start and flags.get("initial_weights") == "counted":
        origin = "starting from weights that were counted in the text"
    if script.pretrains:
        origin = f"{objective_of(flags).learns_by}, {origin}"
    if only_evaluated:
        sentence = sentence.replace(" fine-tuned", "")
        origin = f"with the weights of {code(start)}; nothing was trained here"
    return sentence.format(size=f"{run['parameters']:,} parameters" if run.get("parameters") else "BERT", origin=origin)


def sequences_seen(run: dict[str, Any]) -> int | None:
    """Number of sequences in all optimiser steps of a run, given by its run.json; None if that lacks the steps."""
    if not run.get("total_steps"):
        return None
    phases = with_steps(phases_of({"max_seq_length": 0} | run["flags"]), run["total_steps"])
    per_process = sum((phase.stop - phase.start) * phase.size * phase.accumulation for phase in phases)
    return per_process * run.get("processes", 1)


def _of_the_data(run: dict[str, Any], datasets: list[str]) -> dict[str, Any]:
    """The splits, the scheme of their tags, and whether they are built in."""
    data: dict[str, Any] = run["data"] if isinstance(run.get("data"), dict) else {}
    splits = data.get("splits", {})
    own = any(run["flags"].get(name) for name in OWN_DATA)  # files may be called like a built-in task
    return {
        "splits": splits,
        "tags": next((facts["tag_scheme"] for facts in splits.values() if facts.get("tag_scheme")), None),
        "several_labels": "thresholds" in run or data.get("several_labels"),
        "regression": run["flags"].get("task_name") == "stsb" or data.get("labels", ()) is None,
        "builtin": any(BUILTIN in name or (not own and name.startswith(BUILTIN_TASKS)) for name in datasets),
    }


def _of_the_use(run: dict[str, Any]) -> dict[str, Any]:
    """What the program that uses the model depends on."""
    flags = run["flags"]
    length = flags.get("max_seq_length") or fine_tuning.GlueArguments.max_seq_length
    own_class = flags.get("feature_based") or flags.get("bilstm_on_top") or flags.get("label_token") == "bilstm"
    how, most = way_and_windows(flags.get("long_texts") or "")
    return {
        "pipeline": SCRIPTS[run["script"]].pipeline,
        "masks": objective_of(flags).masks,
        "own_class": ", trust_remote_code=True" if own_class else "",
        "last_token": flags.get("label_token") in LAST_TOKEN,
        **{"long_texts": how, "max_windows": most},
        "reads_long_texts": how == "windows" or (how == "head_tail" and run.get("texts_per_example") == 1),
        "length": length,
        "room": length - SPECIAL_TOKENS,
        **{"head_of": head_of, "stride_of": stride_of},
        "longest_answer": flags.get("max_answer_length") or fine_tuning.SquadArguments.max_answer_length,
    }


def _of_the_folder(folder: Path, run: dict[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What the card says from other files of the folder: curves, classes, temperature."""
    events = read_events(folder / "metrics.jsonl") if (folder / "metrics.jsonl").exists() else []
    classes, confused = {}, fields_of(folder / CONFUSION)
    for split, kind in (("validation", "eval"), ("test", "test")):
        if (by_class := metrics.get(f"{kind}_by_class")) and "thresholds" not in run:
            worst = sorted(by_class.items(), key=lambda one: one[1]["f1"])[:MOST_CLASSES]
            shown = worst if len(by_class) > MOST_CLASSES else list(by_class.items())
            pairs = most_confused(confused.get(split, {}))
            classes[split] = {"rows": shown, "of": len(by_class), "pairs": pairs}
    stored: dict[str, Any] = {}
    if "thresholds" not in run and not SCRIPTS[run["script"]].pretrains:  # its start may have been calibrated
        stored = fields_of(folder / "config.json").get("fine_tuning") or {}
    abstained = metrics.get("test_abstention") or metrics.get("eval_abstention")
    return {
        "curves": (folder / CURVES).exists(),
        "entropy": unigram_entropy(events),
        "counted_start": counted_start(run["flags"], events),
        "margin": MARGIN,
        "classes": classes,
        "temperature": stored.get("temperature"),
        "abstain_below": stored.get("abstain_below"),
        "abstentions": [abstained, *abstained["risk_coverage"]] if abstained else [],
    }


def most_confused(counts: Mapping[str, Mapping[str, int]]) -> list[tuple[int, str, str, int]]:
    """(rows, class, class that they were taken for, all rows of the first), for the pairs with the most rows.

    Args:
        counts: class -> the class that its rows were taken for -> the number of rows.
    """
    pairs = [
        (count, name, other, sum(row.values()))
        for name, row in counts.items()
        for other, count in row.items()
        if other != name
    ]
    return sorted(pairs, key=lambda pair: -pair[0])[:MOST_PAIRS]


def _of_test_data(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {"eval_" + name.removeprefix(TEST): value for name, value in metrics.items() if name.startswith(TEST)}


def _rows(results: Mapping[str, Any], of: str = "") -> list[tuple[str, str]]:
    """The name and the value of each result that METRICS names; ``of`` follows its name."""
    return [
        (f"{metric.card_name}{of}", f"{results[key]:.4g}" if _is_finite(results[key]) else "not defined")
        for key, metric in metrics_of(results).items()
    ]


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _metadata(facts: Mapping[str, Any], measured_on: str) -> ModelCardData:
    """The metadata of the card, which the Hub reads.

    The pipeline tag is None for a left-to-right model and for a classifier that reads its last token, because no
    pipeline of transformers can use them.
    """
    flags, metrics, script, on_hub = (
        facts["flags"],
        facts["metrics"],
        SCRIPTS[facts["run"]["script"]],
        facts["run"][HUB_NAMES],
    )
    left_to_right = objective_of(flags).left_to_right
    task_name, own_files = flags.get("task_name"), flags.get("data_dir") or flags.get("train_file")
    dataset = flags["dataset_name"] if flags.get("dataset_name") in on_hub else None
    if not dataset and task_name and not task_name.startswith(BUILTIN_TASKS) and not own_files:
        dataset = GLUE
    results = [
        EvalResult(
            task_type=script.pipeline,
            task_name=script.hub_task,
            dataset_type=dataset or re.sub(r"[^\w.-]+", "-", measured_on).strip("-").lower()[:60],
            dataset_name=measured_on,
            dataset_config=task_name if dataset == GLUE else flags.get("dataset_config_name"),
            dataset_split="validation",
            metric_type=metric.hub_type,
            metric_name=metric.card_name,
            metric_value=metrics[key],
        )
        for key, metric in METRICS.items()
        if metric.hub_type and _is_finite(metrics.get(key))
    ]
    return ModelCardData(
        model_name=facts["title"],
        language="en" if facts["builtin"] or task_name else None,
        library_name="transformers",
        pipeline_tag=None if left_to_right or facts["last_token"] else script.pipeline,
        tags=["bert", "left-to-right" if left_to_right else script.pipeline, *["pre-training"] * script.pretrains],
        base_model=facts["start"] if facts["start"] in on_hub else None,
        datasets=[dataset] if dataset else None,
        metrics=sorted({result.metric_type for result in results} - {"loss"}) or None,
        eval_results=results or None,
    )
