"""Probes: what a frozen encoder is worth for labelled texts, measured while it is pre-trained.

A falling loss does not say whether a model becomes more useful. A probe does, for minutes instead of a fine-tuning: the
encoder, as it is, turns the texts of a labelled table into vectors, and a logistic regression (scikit-learn's) learns
the labels from four fifths of them. Its accuracy on the other fifth is the score. There are two scores for each probe,
because a text has two usual vectors: the last hidden state of [CLS], and the mean of those of all its tokens.

The division and the regression are always the same, the encoder has no dropout here, and no random number is drawn:
with and without probes, a training gives the same weights.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType
from transformers import PreTrainedTokenizerBase

from bert_training.cards.metrics import VIEWS, probe_key, probes_of, standard_error
from bert_training.engine.batches import Features
from bert_training.engine.predict import outputs_by_length
from bert_training.engine.run import Run, broadcast_object_list, gather_object
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.shared import SharedArguments
from bert_training.tasks.classification.glue import BUILTIN_TASKS
from bert_training.tasks.classification.labelled_texts import ClassificationData, Examples, features
from bert_training.tasks.classification.sources import load_data
from bert_training.tasks.classification.splits import divided
from tokenization.errors import UserError

BUILTIN = "builtin"
# Of a probe: an evaluation must not take longer than the training between two of them.
MOST_ROWS, MOST_HELD_OUT = 1000, 300
MOST_TOKENS = 128  # of a text
HELD_OUT = 0.2
Tables = list[tuple[str, ClassificationData]]


@dataclass(frozen=True)
class Probe:
    """A labelled table, tokenised.

    Attributes:
        name: in the results, ``eval_probe_NAME_cls`` and ``eval_probe_NAME_mean``.
        rows: the inputs of the encoder; first those to learn from, then those held out.
        labels: (rows,) class numbers.
        train_rows: the number of rows to learn from.
        facts: where the table is from and how large it is, for run.json.
    """

    name: str
    rows: Features
    labels: np.ndarray
    train_rows: int
    facts: dict

    @property
    def majority(self) -> float:
        """The accuracy of always answering with the most frequent class of the rows to learn from."""
        most_frequent = np.bincount(self.labels[: self.train_rows]).argmax()
        return float(np.mean(self.labels[self.train_rows :] == most_frequent))


# --- the tables -----------------------------------------------------------------------------------------------


def read_tables(names: Sequence[str]) -> Tables:
    """The tables that ``--probe`` names: files as run_glue.py reads them, or ``builtin``.

    Raises:
        ValueError: a file cannot be read, its labels are no classes, or it has too few rows to hold some of each out.
    """
    tables: Tables = []
    for name in names:
        if name == BUILTIN:
            tables += [(task, _read(task_name=task)) for task in BUILTIN_TASKS]
        else:
            tables.append((_short_name(name), _read_own(name)))
    twice = [name for name, count in Counter(name for name, _ in tables).items() if count > 1]
    if twice:
        raise UserError(f"--probe: two probes would be called {twice[0]!r}, and so would their results; rename a file")
    return tables


def _short_name(file: str) -> str:
    """The name of a file without endings, of letters, digits and underscores."""
    return re.sub(r"\W+", "_", Path(file).name.split(".")[0]).strip("_") or "file"


def _read_own(file: str) -> ClassificationData:
    problem = "it has other labels than one class for each row"
    try:
        data = _read(train_file=file, validation_split=HELD_OUT)
        if data.problem_type == "single_label_classification":
            return data
    except UserError as error:
        problem = str(error)
    raise UserError(
        f"--probe {file}: {problem} (a probe is a table with the columns text and label, or sentence1, sentence2 and "
        "label, with a class for each row; no other flags of run_glue.py are known here)"
    )


def _read(**flags: Any) -> ClassificationData:
    args = GlueArguments(output_dir="", model_name_or_path="-", **flags)
    return divided(load_data(args), args)


def check_unchanged(tables: Tables, begun: Mapping[str, Any]) -> None:
    """Check that a resumed run has the tables with which it began, because one curve is of one table.

    Args:
        begun: what run.json says of the run that is resumed; {} for a new one.

    Raises:
        ValueError: a table has changed.
    """
    then = begun.get("probes") or {}
    for name, data in tables:
        now, earlier = _source_of(data).get("sha256"), then.get(name, {}).get("sha256")
        if earlier not in (None, now):
            raise UserError(
                f"--probe: the table {name!r} has changed since the run began, so that its scores cannot be compared "
                "with the earlier ones; give it as it was, or under another name, or leave it out of --probe"
            )


def _source_of(data: ClassificationData) -> dict[str, Any]:
    facts = data.splits["train"].facts
    return {part: facts[part] for part in ("source", "sha256", "file_sha256") if part in facts}


def tokenised(tables: Tables, tokenizer: PreTrainedTokenizerBase, positions: int = MOST_TOKENS) -> list[Probe]:
    """The probes of these tables; ``positions`` are those of the network."""
    max_length = min(MOST_TOKENS, int(tokenizer.model_max_length), positions)
    return [_probe(name, data, tokenizer, max_length) for name, data in tables]


def _probe(name: str, data: ClassificationData, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Probe:
    train, held_out = data.splits["train"], data.splits["validation"]
    count = len(train) + len(held_out)
    facts = _source_of(data)
    held_out = _spread(held_out, MOST_HELD_OUT)
    train = _spread(train, MOST_ROWS - len(held_out))
    used = replace(data, splits={"train": train, "validation": held_out})
    rows = features(used, tokenizer, max_length)
    inputs = ("input_ids", "token_type_ids")
    columns = {part: [*rows["train"].columns[part], *rows["validation"].columns[part]] for part in inputs}
    labels = np.array([*(train.labels or []), *(held_out.labels or [])])
    facts |= {"rows": count, "used": len(labels), "held_out": len(held_out)}
    probe = Probe(name, Features(columns, rows["train"].pad_token_id), labels, len(train), facts)
    facts["most_frequent_class"] = probe.majority
    return probe


def _spread(examples: Examples, count: int) -> Examples:
    """At most so many of the rows, spread evenly, because tables are often sorted; one of every class is among them."""
    if len(examples) <= count:
        return examples
    labels = np.array(examples.labels)
    rows = np.linspace(0, len(examples) - 1, count).round().astype(int)
    _, first = np.unique(labels, return_index=True)
    if not np.isin(labels[first], labels[rows]).all():
        first = first[:count]
        rest = np.setdiff1d(rows, first)
        spread = np.linspace(0, len(rest) - 1, count - len(first)).round().astype(int)
        rows = np.sort([*first, *rest[spread]])
    return examples.select(rows.tolist())


# --- the scores -----------------------------------------------------------------------------------------------


def record_probes(run: Run[SharedArguments], probes: Sequence[Probe]) -> None:
    """Write the probes' sources and sizes to run.json, and print them.

    Raises:
        ValueError: the encoder is to be divided over the processes, and could not be called apart from its head.
    """
    if probes and run.accelerator.distributed_type == DistributedType.FSDP:
        raise UserError("--probe: the weights are divided over the processes (FSDP), which probes do not support")
    for probe in probes:
        facts = probe.facts
        part = "" if facts["used"] == facts["rows"] else f" of {facts['rows']:,}"
        run.say(
            f"probe {probe.name}: {facts['used']:,} rows{part}, {facts['held_out']:,} held out; the most frequent "
            f"class would have {probe.majority:.1%}"
        )
    if probes:
        run.add_facts(probes={probe.name: probe.facts for probe in probes})


def score_probes(run: Run[SharedArguments], model: torch.nn.Module, probes: Sequence[Probe]) -> dict[str, float]:
    """The accuracies of all probes with the encoder as it is; all processes call it and return the same.

    Args:
        model: as prepared by Accelerate. It is left in evaluation mode.
    """
    encoder = run.accelerator.unwrap_model(model).base_model
    results: dict[str, float] = {}
    for probe in probes:
        vectors = _vectors(run, encoder, probe.rows)
        if run.is_main:
            for view, matrix in vectors.items():
                results[probe_key(probe.name, view)] = _accuracy(matrix, probe.labels, probe.train_rows)
    shared = [results]
    broadcast_object_list(shared)
    return shared[0]


def scores_text(results: Mapping[str, Any], probes: Mapping[str, Mapping[str, Any]]) -> str:
    """The scores with their standard errors: "law, cls 71.0% ± 3.2%; law, mean 74.5% ± 3.1%".

    Args:
        probes: of run.json: name -> facts, with the number of rows held out.
    """
    parts = []
    for key, label in probes_of(results):
        error = standard_error(results[key], probes[label.rpartition(", ")[0]]["held_out"])
        parts.append(f"{label} {results[key]:.1%} ± {error:.1%}")
    return "; ".join(parts)


def _vectors(run: Run[SharedArguments], encoder: torch.nn.Module, rows: Features) -> dict[str, np.ndarray]:
    """view -> (rows, H), float64, in the order of the rows."""
    found: list[tuple[int, np.ndarray]] = []
    size = run.args.per_device_eval_batch_size
    for indices, batch, outputs in outputs_by_length(encoder, rows, size, run.device, run):
        states, mask = outputs["last_hidden_state"].float(), batch["attention_mask"].unsqueeze(2)
        mean = (states * mask).sum(1) / mask.sum(1)
        views = torch.stack([states[:, 0], mean], dim=1).double().cpu().numpy()  # in the order of VIEWS
        found += zip(indices.tolist(), views)
    ordered = np.stack([views for _, views in sorted(gather_object(found), key=lambda pair: pair[0])])
    return {view: ordered[:, number] for number, view in enumerate(VIEWS)}


def _accuracy(vectors: np.ndarray, labels: np.ndarray, train_rows: int) -> float:
    """The accuracy of the regression on the rows that it has not learnt from."""
    from sklearn.linear_model import LogisticRegression  # imported here because that takes almost a second
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Strong regularisation and few iterations: there are about as many dimensions as rows, and the fit takes seconds.
    regression = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
    regression.fit(vectors[:train_rows], labels[:train_rows])
    return float(regression.score(vectors[train_rows:], labels[train_rows:]))
