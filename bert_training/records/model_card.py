"""The model card (README.md) of a finished folder: metadata for the Hub, use, origin and limits of the model.

All facts are read from the run (`run.json`, `metrics.jsonl`, the results), so that a card claims only what was measured
and says how small the run was.
"""

import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from bert_training.files.atomic import write_text
from bert_training.files.json_files import read_object
from bert_training.files.records import read_events
from bert_training.flags.natures import CARD
from bert_training.flags.phases import phases_of, with_steps
from bert_training.flags.scripts import flags_with
from bert_training.records.curves import CURVES, MARGIN, counted_start
from bert_training.records.markdown import code, one_line, plain
from bert_training.records.metrics import METRICS, card_name_of, percent_factor
from bert_training.records.model_usage import usage

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
BUILTIN = "documentation carried by this Python installation"
BUILTIN_TASKS = ("builtin_", "embedded_")  # how their names begin; the second is the former spelling
PICTURE = f"\n\n![training curves]({CURVES})"
PAPER = "Devlin et al. 2018"
EVALUATION_FLAGS = ("model_name_or_path", "task_name", "version_2_with_negative", "max_seq_length")

TASKS = {  # kind: (pipeline_tag, name of the task on the Hub, tags)
    "pretraining": ("fill-mask", "Masked language modelling", ["bert", "fill-mask", "pre-training"]),
    "glue": ("text-classification", "Text classification", ["bert", "text-classification"]),
    "squad": ("question-answering", "Extractive question answering", ["bert", "question-answering"]),
    "ner": ("token-classification", "Named entities", ["bert", "token-classification"]),
    "swag": ("multiple-choice", "Multiple choice", ["bert", "multiple-choice"]),
}
WHAT_IT_IS = {  # kind of fine-tuned model: the first sentence of its card
    "glue": "A BERT text classifier ({size}) fine-tuned {origin}.",
    "squad": "A BERT model ({size}) that marks the answer to a question in a text, fine-tuned {origin}.",
    "ner": "A BERT tagger ({size}) that marks names and other spans in sentences, fine-tuned {origin}.",
    "swag": "A BERT model ({size}) that chooses how a text goes on, fine-tuned {origin}.",
}


def write_model_card(
    folder: str | Path,
    *,
    kind: str,
    datasets: list[str],
    metrics: dict[str, float],
    title: str | None = None,
    language: str | None = None,
    license: str | None = None,
    held_out: str | None = None,
) -> Path:
    """Write README.md into a finished folder, from its run.json and its results; return the path.

    Args:
        kind: a key of TASKS: "pretraining", "glue", "squad", "ner" or "swag".
        datasets: the training data, in words.
        metrics: the contents of all_results.json.
        title: by default the folder's name.
        language: by default English for the built-in data and for GLUE, otherwise none.
        license: by default none, because only the owner of the data and the weights can choose one.
        held_out: the data that the metrics were measured on, in words; by default the held-out part of `datasets`.

    Raises:
        ValueError: `kind` is not a key of TASKS, or the folder has no run.json.
    """
    folder = Path(folder)
    if kind not in TASKS:
        raise ValueError(f"expected kind {', '.join(TASKS)}; got {kind!r}")
    if not (folder / "run.json").is_file():
        raise ValueError(
            f"expected run.json in {folder}, found none: a model card is written from the records of a run"
        )
    run = read_object(folder / "run.json")
    flags = run["flags"]
    model = flags.get("hub_model_id") if flags.get("push_to_hub") else str(folder)
    title = title or folder.resolve().name
    data = metadata(kind, run, datasets, metrics, title, language, license, held_out)
    path = folder / "README.md"
    write_text(path, card_text(folder, kind, run, datasets, metrics, title, model, data))
    return path


def card_text(
    folder: Path,
    kind: str,
    run: dict,
    datasets: list[str],
    metrics: dict[str, float],
    title: str,
    model: str,
    data: ModelCardData,
) -> str:
    """The text of the card; `run` is run.json, `model` the name that opens the model, `data` the metadata."""
    results = f"## Results\n\n{results_table(metrics)}"
    if (folder / CURVES).exists():
        results += PICTURE
    sections = [
        f"# {plain(title)}\n\n{what_it_is(kind, run, metrics)}",
        f"## Use\n\n```python\n{usage(model, kind, run, datasets, is_builtin(datasets))}```",
        f"## {'Evaluation' if only_evaluated(metrics) else 'Training'} data\n\n{data_used(run, datasets, metrics)}",
        results,
        f"## {'Evaluation' if only_evaluated(metrics) else 'Training'}\n\n{command_and_settings(run, metrics)}",
        f"## Limits\n\n{limits(folder, kind, run, metrics)}",
        f"## Versions\n\n{versions(run)}",
    ]
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n"))


def hub_name(name: str | None) -> str | None:
    """The name if it may be one on the Hub, that is, neither a path nor a local folder; otherwise None."""
    return name if name and HUB_NAME.fullmatch(name) and not Path(name).exists() else None


def is_builtin(datasets: list[str]) -> bool:
    """Whether one of the data sets, given in words, is the built-in corpus or one of its tasks."""
    return any(BUILTIN in name or name.startswith(BUILTIN_TASKS) for name in datasets)


def is_glue_of_the_hub(run: dict) -> bool:
    """Whether a run, given by its run.json, read a GLUE task from the Hub rather than from files."""
    flags = run["flags"]
    task = flags.get("task_name")
    return bool(task) and not task.startswith(BUILTIN_TASKS) and not (flags.get("data_dir") or flags.get("train_file"))


def metadata(
    kind: str,
    run: dict,
    datasets: list[str],
    metrics: dict[str, float],
    title: str,
    language: str | None,
    license: str | None,
    held_out: str | None,
    on_hub: Callable[[str | None], str | None] | None = None,
) -> ModelCardData:
    """The metadata of the card, which the Hub reads; the arguments are those of `write_model_card`, `run` is run.json.

    The pipeline tag of a left-to-right model is None, because no pipeline of transformers can use it.

    Args:
        on_hub: returns the name of a model or a data set if it is one on the Hub, otherwise None; default: `hub_name`.
    """
    on_hub = on_hub or hub_name
    flags = run["flags"]
    task, task_name, tags = TASKS[kind]
    tag: str | None = task
    if flags.get("label_token") == "last":  # the folder is a token classifier's
        tag, tags = None, ["bert", "text-classification"]
    if flags.get("objective") == "ltr":
        tag, tags = None, ["bert", "left-to-right"]
    dataset = on_hub(flags.get("dataset_name")) or ("nyu-mll/glue" if is_glue_of_the_hub(run) else None)
    english = is_builtin(datasets) or bool(flags.get("task_name"))
    name = held_out or ", ".join(datasets)
    results = [
        EvalResult(
            task_type=task,
            task_name=task_name,
            dataset_type=dataset or re.sub(r"[^\w.-]+", "-", name).strip("-").lower()[:60],
            dataset_name=name,
            dataset_config=flags.get("task_name") if dataset == "nyu-mll/glue" else flags.get("dataset_config_name"),
            dataset_split="validation",
            metric_type=metric.hub_type,
            metric_name=metric.card_name,
            metric_value=metrics[key],
        )
        for key, metric in METRICS.items()
        if isinstance(metrics.get(key), int | float) and math.isfinite(metrics[key])
    ]
    return ModelCardData(
        model_name=title,
        language=language or ("en" if english else None),
        license=license,
        library_name="transformers",
        pipeline_tag=tag,
        tags=tags,
        base_model=on_hub(flags.get("model_name_or_path")),
        datasets=[dataset] if dataset else None,
        metrics=sorted({result.metric_type for result in results} - {"loss"}) or None,
        eval_results=results or None,
    )


def only_evaluated(metrics: dict) -> bool:
    """Whether the run trained nothing, because it was given no training data."""
    return metrics.get("train_steps") == 0


def what_it_is(kind: str, run: dict, metrics: dict) -> str:
    """The first sentence of the card: the kind of model, its size and its origin."""
    flags = run["flags"]
    size = f"{run['parameters']:,} parameters" if run.get("parameters") else "BERT"
    start = flags.get("model_name_or_path")
    counted = flags.get("initial_weights") == "counted"
    new = "starting from weights that were counted in the text" if counted else "starting from random weights"
    origin = f"starting from {code(start)}" if start else new
    if kind == "pretraining":
        objectives = {
            "mlm_nsp": "predicting masked word pieces and whether one passage follows another",
            "mlm": "predicting masked word pieces",
            "ltr": "predicting word pieces from left to right",
        }
        return f"A BERT encoder ({size}) trained by {objectives[flags.get('objective', 'mlm_nsp')]}, {origin}."
    if only_evaluated(metrics):
        origin = f"with the weights of {code(start)}; nothing was trained here"
        return WHAT_IT_IS[kind].replace(" fine-tuned", "").format(size=size, origin=origin)
    return WHAT_IT_IS[kind].format(size=size, origin=origin)


def data_used(run: dict, datasets: list[str], metrics: dict) -> str:
    """The list of the data and its size, as far as run.json records it."""
    lines = [f"{'Evaluated' if only_evaluated(metrics) else 'Trained'} on: {plain(', '.join(datasets))}."]
    for part, name in (("corpus", "Training text"), ("held_out", "Held-out text")):
        if counts := run.get(part):
            lines.append(f"{name}: {counts['documents']:,} documents, {counts['tokens']:,} word pieces.")
    if counts := run.get("questions"):
        lines.append(f"Questions: {counts['train']:,} for training, {counts['validation']:,} for validation.")
    for split, facts in (run["data"].get("splits", {}) if isinstance(run.get("data"), dict) else {}).items():
        lines.append(f"Examples, {plain(split)}: {facts['examples']:,}.")
    if is_builtin(datasets):
        lines.append(
            "This is the documentation of the Python installation that it ran on "
            "(`bert_training/builtin_data/documentation.py`). Labels, where there are any, follow from the layout of "
            "that documentation; nobody annotated them."
        )
    lines.append("Sources and checksums are in `run.json`.")
    return "\n".join(f"- {line}" for line in lines)


def results_table(metrics: dict) -> str:
    """The table of those results that METRICS names; "not defined" stands for results that are not finite."""
    best, last = metrics.get("best_step"), metrics.get("train_steps")
    when = "" if only_evaluated(metrics) else ", last step" if best in (None, last) else f", step {best} of {last}"
    rows = [f"| on held-out data{when} | |", "|---|---|"]
    for key in METRICS:
        if key not in metrics:
            continue
        value, name = metrics[key], card_name_of(key, percent_factor(metrics))
        finite = isinstance(value, int | float) and math.isfinite(value)
        rows.append(f"| {name} | {value:.4g} |" if finite else f"| {name} | not defined |")
    return "\n".join(rows)


def sequences_seen(run: dict) -> int | None:
    """Number of sequences in all optimiser steps of a run, given by its run.json; None if that lacks the steps."""
    if not run.get("total_steps"):
        return None
    phases = with_steps(phases_of({"max_seq_length": 0} | run["flags"]), run["total_steps"])
    per_process = sum((phase.stop - phase.start) * phase.size * phase.accumulation for phase in phases)
    return per_process * run.get("processes", 1)


def command_and_settings(run: dict, metrics: dict) -> str:
    """The command and the table of hyperparameters."""
    lines, flags = [], run["flags"]
    if run.get("command"):
        lines += ["```bash", shlex.join(["python", *map(one_line, run["command"])]), "```", ""]
    lines += ["| hyperparameter | value |", "|---|---|"]
    names = [name for name in flags_with(CARD) if flags.get(name) is not None]
    if only_evaluated(metrics):  # the others are about training
        names = [name for name in names if name in EVALUATION_FLAGS]
    by_steps = flags.get("max_steps", -1) > 0
    for name in names:
        if name != ("num_train_epochs" if by_steps else "max_steps"):  # the one that the other overrides
            lines.append(f"| `{name}` | {plain(flags[name])} |")
    lines += [
        f"| {name} | {plain(run[name])} |"
        for name in ("total_steps", "phases", "processes", "mixed_precision")
        if run.get(name)
    ]
    return "\n".join(lines)


def limits(folder: Path, kind: str, run: dict, metrics: dict) -> str:
    """The list of what readers must not expect of the model."""
    lines = []
    seen = sequences_seen(run)
    if kind == "pretraining":
        if seen:
            length = run["flags"]["max_seq_length"]
            share = format(100 * seen / 256e6, ".2g" if seen < 25e6 else ".0f")
            lines.append(
                f"Scale: it has seen {seen:,} sequences of up to {length} pieces, {share} % of the 256 million "
                f"sequences of up to 512 that the published models have seen ({PAPER}). Do not expect their quality."
            )
        lines += unigram_comparison(folder, run["flags"], metrics)
    elif only_evaluated(metrics):
        lines.append("How the weights were trained, and on what: see the card of the source model.")
    else:
        lines.append("It was trained once, with one seed; on small data sets, results vary by points between seeds.")
        untested = "" if any(name.startswith("test_") for name in metrics) else " Nothing was measured on a test set."
        best = metrics.get("best_step")
        when = "after the last step"
        if best is not None:
            when = f"after step {best}, which was chosen as the best on the same data, so they are slightly too good"
        lines.append(f"The results were measured on validation data, {when}.{untested}")
        if not run["flags"].get("model_name_or_path"):
            lines.append("The encoder was not pre-trained: this is a baseline, not a model to use.")
    lines.append(
        "It has not been tested on other text or in other languages, nor for biases that it learnt from the data."
    )
    return "\n".join(f"- {line}" for line in lines)


def unigram_comparison(folder: Path, flags: dict, metrics: dict) -> list[str]:
    """A line that says whether the model predicts masked tokens better than their frequencies; [] if unknown.

    Counted initial weights already do so. For them it says whether the model has learnt more.
    """
    records = folder / "metrics.jsonl"
    events = read_events(records) if records.exists() else []
    entropy = next((event["unigram_entropy"] for event in events if event.get("unigram_entropy")), None)
    loss = metrics.get("eval_mlm_loss")
    if entropy is None or loss is None:
        return []
    compared = f"Masked-piece loss {loss:.2f} nats; guessing by frequency alone gives about {entropy:.2f}"
    start = counted_start(flags, events)
    if start is not None and start < entropy:
        verdict = "has learnt" if loss <= start - MARGIN else "has hardly learnt"
        return [f"{compared}, and the counted initial weights began at {start:.2f}: it {verdict} more than the counts."]
    verdict = "it has learnt from context" if loss < entropy else "it has not learnt anything from context"
    return [f"{compared}: {verdict}."]


def versions(run: dict) -> str:
    """Versions of packages, device, commit and start of the run."""
    names = [f"{name} {version}" for name, version in run.get("versions", {}).items() if version != "not installed"]
    lines = [
        plain(", ".join(names)),
        f"Device: {plain(run.get('device', 'not recorded'))}. Commit: {plain(run.get('commit', 'not recorded'))}.",
    ]
    lines.append(f"Started {plain(run.get('started', 'at a time not recorded'))}.")
    lines.append("`bert-repro verify FOLDER` compares this folder with its records and recomputes its scores.")
    return "\n\n".join(lines)
