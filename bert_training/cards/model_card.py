"""The model card (README.md) of a finished folder: metadata for the Hub, use, origin and limits of the model.

All facts are read from the run (`run.json`, `metrics.jsonl`, the results), so that a card claims only what was measured
and says how small the run was. They are read from what may be published of it (`bert_training/cards/publishing.py`), so
that no card names a folder of the machine.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from bert_training.cards.classes import calibration_section, class_sections
from bert_training.cards.curves import CURVES, MARGIN, counted_start
from bert_training.cards.labels_table import labels_table
from bert_training.cards.long_texts import how_texts_were_read
from bert_training.cards.markdown import code, one_line, plain
from bert_training.cards.metrics import METRICS, card_name_of, metrics_of, percent_factor
from bert_training.cards.model_usage import PLAIN_TAGS, tag_scheme, usage
from bert_training.cards.publishing import GLUE, HUB_NAMES, published, published_name, without_folders
from bert_training.cards.teachers import teacher_lines
from bert_training.files.atomic import write_text
from bert_training.inputs.flags.fine_tuning import LAST_TOKEN
from bert_training.inputs.flags.natures import CARD
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.phases import phases_of, with_steps
from bert_training.inputs.flags.scripts import SCRIPTS, Script, flags_with
from bert_training.inputs.json_files import read_object
from bert_training.inputs.records import read_events
from bert_training.record import Record
from tokenization.errors import UserError

BUILTIN = "documentation carried by this Python installation"
BUILTIN_TASKS = ("builtin_", "embedded_")  # how their names begin; the second is the former spelling
OWN_DATA = ("train_file", "validation_file", "test_file", "data_dir", "dataset_name")
PICTURE = f"\n\n![training curves]({CURVES})"
PAPER = "Devlin et al. 2018"
TEST = "test_"  # how the names of results of test data begin
NO_TEST = " Nothing was measured on a test set."
EVALUATION_FLAGS = ("model_name_or_path", "task_name", "version_2_with_negative", "max_seq_length")


@dataclass
class Card:
    """What a card is written from; whatever is given, the card keeps of it what may be published.

    Attributes:
        run: the contents of run.json.
        datasets: the training data, in words.
        metrics: the contents of all_results.json.
        title: the name of the folder.
        model: the name that opens the model.
        held_out: the data that the metrics were measured on, in words; by default the held-out part of `datasets`.
    """

    folder: Path
    run: dict[str, Any]
    datasets: list[str]
    metrics: dict[str, Any]
    title: str
    model: str
    held_out: str | None = None

    def __post_init__(self) -> None:
        self.run = published(self.run)
        self.title = without_folders(self.title)
        self.datasets = [published_name(name, self.run[HUB_NAMES]) for name in self.datasets]
        self.held_out = self.held_out and published_name(self.held_out, self.run[HUB_NAMES])

    @property
    def script(self) -> Script:
        """The script of the run."""
        return SCRIPTS[self.run["script"]]

    @property
    def flags(self) -> dict[str, Any]:
        """The flags of the run."""
        return self.run["flags"]

    @property
    def builtin(self) -> bool:
        """Whether one of the data sets is the built-in corpus or one of its tasks."""
        prefixes = () if any(self.flags.get(name) for name in OWN_DATA) else BUILTIN_TASKS  # files may be called so
        return any(BUILTIN in name or name.startswith(prefixes) for name in self.datasets)

    @property
    def not_evaluated(self) -> bool:
        """Whether a fine-tuning was given no validation data, by --validation_split 0."""
        return not self.script.pretrains and self.flags.get("validation_split") == 0

    @property
    def only_evaluated(self) -> bool:
        """Whether the run trained nothing, because it was given no training data."""
        return self.metrics.get("train_steps") == 0


def write_model_card(
    folder: str | Path, *, datasets: list[str], metrics: dict[str, float], held_out: str | None = None
) -> Path:
    """Write README.md into a finished folder, from its run.json and its results; return the path.

    The example in it opens the folder from the folder above, or the model on the Hub if the run uploads it. For the
    arguments see `Card`.

    Raises:
        ValueError: the folder has no run.json, or one of another script than SCRIPTS has.
    """
    folder = Path(folder)
    run, name = Record.read(folder).facts, folder.resolve().name
    if run["script"] not in SCRIPTS:
        raise UserError(f"{folder / 'run.json'}: expected a run of {', '.join(SCRIPTS)}; got {run['script']!r:.60}")
    model = run["flags"]["hub_model_id"] if run["flags"].get("push_to_hub") else f"./{without_folders(name)}"
    text = card_text(Card(folder, run, datasets, metrics, name, model, held_out))
    write_text(folder / "README.md", text)
    return folder / "README.md"


def card_text(card: Card) -> str:
    """The text of the card."""
    results = f"## Results\n\n{results_table(card)}"
    if by_label := labels_table(card.metrics, card.run.get("thresholds")):
        results += f"\n\n{by_label}"
    if (card.folder / CURVES).exists():
        results += PICTURE
    if "thresholds" not in card.run:  # of several labels a text, labels_table says more
        results = "\n\n".join([results, *class_sections(card.folder, card.metrics), *calibrated(card)])
    work = "Evaluation" if card.only_evaluated else "Training"
    sections = [
        f"# {plain(card.title)}\n\n{what_it_is(card)}",
        f"## Use\n\n```python\n{usage(card.model, card.run, card.datasets, card.builtin)}```",
        f"## {work} data\n\n{data_used(card)}",
        results,
        f"## {work}\n\n{command_and_settings(card)}",
        f"## Limits\n\n{limits(card)}",
        f"## Versions\n\n{versions(card.run)}",
    ]
    return str(ModelCard(f"---\n{metadata(card).to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n"))


def calibrated(card: Card) -> list[str]:
    """The passage about the temperature of the probabilities; [] if the model has none."""
    if card.script.pretrains:  # its config may still have that of the classifier which it began from
        return []
    path = card.folder / "config.json"
    stored = read_object(path).get("fine_tuning") if path.is_file() else None
    temperature = stored.get("temperature") if isinstance(stored, dict) else None
    if not isinstance(temperature, int | float):
        return []
    return [calibration_section(card.metrics, card.run, temperature)]


def metadata(card: Card) -> ModelCardData:
    """The metadata of the card, which the Hub reads.

    The pipeline tag of a left-to-right model is None, because no pipeline of transformers can use it.
    """
    flags, metrics, script, on_hub = card.flags, card.metrics, card.script, card.run[HUB_NAMES]
    tag: str | None = script.pipeline
    tags = ["bert", script.pipeline, *(["pre-training"] if script.pretrains else [])]
    if flags.get("label_token") in LAST_TOKEN:  # the folder is a token classifier's
        tag, tags = None, ["bert", "text-classification"]
    if objective_of(flags).left_to_right:
        tag, tags = None, ["bert", "left-to-right"]
    task_name, own_files = flags.get("task_name"), flags.get("data_dir") or flags.get("train_file")
    dataset = flags["dataset_name"] if flags.get("dataset_name") in on_hub else None
    if not dataset and task_name and not task_name.startswith(BUILTIN_TASKS) and not own_files:
        dataset = GLUE
    name = card.held_out or ", ".join(card.datasets)
    results = [
        EvalResult(
            task_type=script.pipeline,
            task_name=script.hub_task,
            dataset_type=dataset or re.sub(r"[^\w.-]+", "-", name).strip("-").lower()[:60],
            dataset_name=name,
            dataset_config=task_name if dataset == GLUE else flags.get("dataset_config_name"),
            dataset_split="validation",
            metric_type=metric.hub_type,
            metric_name=metric.card_name,
            metric_value=metrics[key],
        )
        for key, metric in METRICS.items()
        if metric.hub_type and isinstance(metrics.get(key), int | float) and math.isfinite(metrics[key])
    ]
    return ModelCardData(
        model_name=card.title,
        language="en" if card.builtin or task_name else None,
        library_name="transformers",
        pipeline_tag=tag,
        tags=tags,
        base_model=flags["model_name_or_path"] if flags.get("model_name_or_path") in on_hub else None,
        datasets=[dataset] if dataset else None,
        metrics=sorted({result.metric_type for result in results} - {"loss"}) or None,
        eval_results=results or None,
    )


def what_it_is(card: Card) -> str:
    """The first sentence of the card: the kind of model, its size and its origin."""
    flags, sentence = card.flags, card.script.sentence
    size = f"{card.run['parameters']:,} parameters" if card.run.get("parameters") else "BERT"
    start = flags.get("model_name_or_path")
    counted = flags.get("initial_weights") == "counted"
    new = "starting from weights that were counted in the text" if counted else "starting from random weights"
    origin = f"starting from {code(start)}" if start else new
    if card.script.pretrains:
        origin = f"{objective_of(flags).learns_by}, {origin}"
    if card.only_evaluated:
        sentence = sentence.replace(" fine-tuned", "")
        origin = f"with the weights of {code(start)}; nothing was trained here"
    return sentence.format(size=size, origin=origin)


def data_used(card: Card) -> str:
    """The list of the data and its size, as far as run.json records it."""
    run = card.run
    lines = [f"{'Evaluated' if card.only_evaluated else 'Trained'} on: {plain(', '.join(card.datasets))}."]
    for part, name in (("corpus", "Training text"), ("held_out", "Held-out text")):
        if counts := run.get(part):
            lines.append(f"{name}: {counts['documents']:,} documents, {counts['tokens']:,} word pieces.")
    if counts := run.get("questions"):
        lines.append(f"Questions: {counts['train']:,} for training, {counts['validation']:,} for validation.")
    for split, facts in (run["data"].get("splits", {}) if isinstance(run.get("data"), dict) else {}).items():
        divided = f" ({plain(facts['divided'])})" if split != "train" and facts.get("divided") else ""
        lines.append(f"Examples, {plain(split)}: {facts['examples']:,}{divided}.")
    if card.not_evaluated:
        lines.append("No data was kept for validation (`--validation_split 0`).")
    if weights := run["data"].get("weights_of_classes") if isinstance(run.get("data"), dict) else None:
        named = ", ".join(f"{plain(name)} {weight:.4g}" for name, weight in weights["weights"].items())
        lines.append(f"Weights of the classes in the training loss: {named}.")
    if scheme := tag_scheme(run):
        lines.append(tags_explained(scheme))
        if cut := run["data"]["splits"].get("train", {}).get("words_with_punctuation"):
            lines.append(
                f"Of the training words, {cut:,} hold punctuation or Chinese characters, where pipelines cut them and "
                "may find other names; `bert-repro serve`, its page and `run_ner.py --test_file` leave them whole."
            )
    lines += how_texts_were_read(card.run)
    lines += teacher_lines(card.run)
    if card.builtin:
        lines.append(
            "This is the documentation of the Python installation that it ran on "
            "(`bert_training/builtin_data/documentation.py`). Labels, where there are any, follow from the layout of "
            "that documentation; nobody annotated them."
        )
    lines.append("Sources and checksums are in `run.json`.")
    return "\n".join(f"- {line}" for line in lines)


def tags_explained(scheme: str) -> str:
    """What the labels of a tagger are, and which of a pipeline's strategies joins its pieces."""
    if scheme == PLAIN_TAGS:
        return (
            "Tags: plain, one class for every word, which is read at its first piece. A pipeline's "
            '`aggregation_strategy` is for names: it would join words in a row that have one tag, so use "none".'
        )
    return (
        f"Tags: {plain(scheme)} in the data; the labels of the model are BIO: `B-TYPE` begins a name, `I-TYPE` "
        'continues it, `O` is outside. `aggregation_strategy="first"` joins the pieces to names, as in the example.'
    )


def results_table(card: Card) -> str:
    """The table of those results that METRICS names, or a sentence if there are none; the last rows are of test data.

    "not defined" stands for results that are not finite.
    """
    metrics = card.metrics
    tested = {"eval_" + name.removeprefix(TEST): value for name, value in metrics.items() if name.startswith(TEST)}
    rows = [*_rows(metrics), *_rows(tested, ", test data")]
    if not rows:
        why = "it was trained without validation data" if card.not_evaluated else "nothing was scored"
        return f"None: {why}."
    best, last = metrics.get("best_step"), metrics.get("train_steps")
    when = "" if card.only_evaluated else ", last step" if best in (None, last) else f", step {best} of {last}"
    return "\n".join([f"| on held-out data{when} | |", "|---|---|", *rows])


def _rows(results: Mapping[str, Any], of: str = "") -> Iterator[str]:
    """Yield the row of each result that METRICS names; ``of`` follows its name."""
    for key, metric in metrics_of(results).items():
        value = results[key]
        name = card_name_of(key, percent_factor(results)) if key in METRICS else plain(metric.card_name)
        finite = isinstance(value, int | float) and math.isfinite(value)
        yield f"| {name}{of} | {value:.4g} |" if finite else f"| {name}{of} | not defined |"


def sequences_seen(run: dict) -> int | None:
    """Number of sequences in all optimiser steps of a run, given by its run.json; None if that lacks the steps."""
    if not run.get("total_steps"):
        return None
    phases = with_steps(phases_of({"max_seq_length": 0} | run["flags"]), run["total_steps"])
    per_process = sum((phase.stop - phase.start) * phase.size * phase.accumulation for phase in phases)
    return per_process * run.get("processes", 1)


def command_and_settings(card: Card) -> str:
    """The command and the table of hyperparameters."""
    lines, run, flags = [], card.run, card.flags
    if run.get("command"):
        lines += ["```bash", shlex.join(["python", *map(one_line, run["command"])]), "```", ""]
    lines += ["| hyperparameter | value |", "|---|---|"]
    names = [name for name in flags_with(CARD) if flags.get(name) is not None]
    if card.only_evaluated:  # the others are about training
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


def limits(card: Card) -> str:
    """The list of what readers must not expect of the model."""
    lines, metrics = [], card.metrics
    if card.script.pretrains:
        if seen := sequences_seen(card.run):
            length, start = card.flags["max_seq_length"], card.flags.get("model_name_or_path")
            share = format(100 * seen / 256e6, ".2g" if seen < 25e6 else ".0f")
            lines.append(
                f"Scale: this run has seen {seen:,} sequences of up to {length} pieces. What the weights had seen "
                f"before is said on the card of {code(start)}."
                if start
                else f"Scale: it has seen {seen:,} sequences of up to {length} pieces, {share} % of the 256 million "
                f"sequences of up to 512 that the published models have seen ({PAPER}). Do not expect their quality."
            )
        lines += unigram_comparison(card)
    elif card.only_evaluated:
        lines.append("How the weights were trained, and on what: see the card of the source model.")
    else:
        lines.append("It was trained once, with one seed; on small data sets, results vary by points between seeds.")
        tested = any(name.startswith(TEST) for name in metrics)
        best = metrics.get("best_step")
        when = "after the last step"
        if best is not None:
            when = f"after step {best}, which was chosen as the best on the same data, so they are slightly too good"
        if card.not_evaluated and tested:
            lines.append(f"It was trained without validation data. The results were measured on test data, {when}.")
        elif card.not_evaluated:
            lines.append(f"Nobody knows how good it is: it was trained without validation data.{NO_TEST}")
        else:
            which, end = ("Apart from those of test data, the", "") if tested else ("The", NO_TEST)
            lines.append(f"{which} results were measured on validation data, {when}.{end}")
        if not card.flags.get("model_name_or_path"):
            lines.append("The encoder was not pre-trained: this is a baseline, not a model to use.")
    lines.append(
        "It has not been tested on other text or in other languages, nor for biases that it learnt from the data."
    )
    return "\n".join(f"- {line}" for line in lines)


def _events(card: Card) -> list[dict]:
    records = card.folder / "metrics.jsonl"
    return read_events(records) if records.exists() else []


def unigram_comparison(card: Card) -> list[str]:
    """A line that says whether the model predicts masked tokens better than their frequencies; [] if unknown.

    Counted initial weights already do so. For them it says whether the model has learnt more.
    """
    events = _events(card)
    entropy = next((event["unigram_entropy"] for event in events if event.get("unigram_entropy")), None)
    loss = card.metrics.get("eval_mlm_loss")
    if entropy is None or loss is None:
        return []
    compared = f"Masked-piece loss {loss:.2f} nats; guessing by frequency alone gives about {entropy:.2f}"
    start = counted_start(card.flags, events)
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
