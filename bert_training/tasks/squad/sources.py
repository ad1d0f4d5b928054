"""The sources of run_squad.py's questions: files, the Hub, or the documentation of this Python installation."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bert_training.builtin_data import documentation
from bert_training.files.hashing import digest, sha256, unchanged
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.inputs.hub_datasets import from_hub, load_dataset
from bert_training.inputs.rows import hub_rows
from bert_training.inputs.squad import QUESTIONS, squad_rows
from bert_training.tasks.squad.questions import Question, read_new_questions, read_squad, with_answers
from bert_training.tasks.task_data import files_or_hub, sample_limit

SPLITS = ("train", "validation")
GIVE_FILES = "give --train_file and --validation_file"


@dataclass
class SquadData:
    """The questions of a run.

    Attributes:
        name: the name of the data set or of its first file.
        splits: the questions of every split; without "train" if the model is only evaluated.
        origins: where every split is from, for run.json.
        version_2_with_negative: whether questions may have no answer, so that version 2 scores them.
        scored_test: whether the questions of the split "test" have gold answers.
        label_names: placeholder names; the two outputs are start and end scores.
    """

    name: str
    splits: dict[str, list[Question]]
    origins: dict[str, dict]
    version_2_with_negative: bool = False
    scored_test: bool = False
    label_names: tuple[str, ...] = ("LABEL_0", "LABEL_1")

    def facts(self) -> dict:
        """The facts for run.json: sources, counts and hashes."""
        splits = {split: {"examples": len(part)} | self.origins[split] for split, part in self.splits.items()}
        return {"splits": splits}

    def texts(self, split: str) -> Iterator[str]:
        """Every question of a split with its context, as one text."""
        return (f"{question.text} {question.context}" for question in self.splits[split])

    def metric_names(self) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        more = ["eval_exact", "eval_best_f1", "eval_best_exact"] if self.version_2_with_negative else []
        return ["eval_f1", "eval_exact_match", *more], "eval_f1"

    def baselines(self) -> dict[str, float]:
        """The results of a model that never answers, in per cent."""
        questions = self.splits.get("validation", [])
        if not questions:
            return {}
        none = 100 * sum(not question.answers for question in questions) / len(questions)
        return dict.fromkeys(("eval_exact_match", "eval_f1"), none)

    def summary(self) -> str:
        """One line for the user: the number of questions in every split, and the name of the data."""
        return ", ".join(f"{len(part):,} {split} questions" for split, part in self.splits.items()) + f", {self.name}"


def load_data(args: SquadArguments) -> SquadData:
    """The questions that the flags name; ``--max_train_samples`` and ``--max_eval_samples`` keep the first ones.

    Raises:
        ValueError: flags contradict each other, or the data violates a rule of ``with_answers``.
    """
    given = files_or_hub(args, GIVE_FILES, "questions")
    negative, scored_test = args.version_2_with_negative, False
    if given:
        files = {split: Path(path) for split, path in given.items()}
        name = next(iter(files.values())).name
        with unchanged(*files.values()):
            splits = {split: read_squad(path, negative) for split, path in files.items() if split != "test"}
            if "test" in files:
                splits["test"], scored_test = read_new_questions(files["test"], negative)
            hashes = {split: sha256(path) for split, path in files.items()}
        origins: dict[str, dict] = {split: {"file": files[split].name, "sha256": hashes[split]} for split in files}
    elif args.dataset_name:
        name = args.dataset_name
        splits = {split: read_hub(name, args.dataset_config_name, split, negative) for split in SPLITS}
        origins = {
            split: {"dataset": name, "config": args.dataset_config_name, "content_sha256": digest([*map(asdict, part)])}
            for split, part in splits.items()
        }
    else:
        name = "the documentation carried by this Python installation"
        documents = {split: documentation.question_answering(split) for split in SPLITS}
        splits = {
            split: with_answers(squad_rows(document["data"], name), name, negative)
            for split, document in documents.items()
        }
        origins = {split: {"source": name, "sha256": digest(documents[split])} for split in SPLITS}
    splits = {split: part[: sample_limit(args, split)] for split, part in splits.items()}
    return SquadData(name, splits, origins, negative, scored_test)


def read_hub(name: str, config_name: str | None, split: str, version_2_with_negative: bool = False) -> list[Question]:
    """The questions of a data set on the Hub with SQuAD's columns, such as rajpurkar/squad and squad_v2.

    Raises:
        UserError: it cannot be loaded, lacks a column, or violates a rule of ``with_answers``.
    """
    source = f"{name}, split {split!r}"
    rows = from_hub(source, GIVE_FILES, lambda datasets: load_dataset(datasets, name, config_name, split=split))
    return with_answers(hub_rows(rows, QUESTIONS, source), source, version_2_with_negative)
