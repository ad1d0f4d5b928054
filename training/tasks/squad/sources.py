"""The sources of run_squad.py's questions: files, the Hub, or the documentation of this Python installation."""

from dataclasses import dataclass
from pathlib import Path

from training.builtin_data import documentation
from training.files.hashing import digest, sha256
from training.flags.fine_tuning import SquadArguments
from training.tasks.squad.squad_data import Question, parse_squad, read_squad

SPLITS = ("train", "validation")


@dataclass
class Data:
    """The questions of a run.

    Attributes:
        name: the name of the data set or of its first file.
        questions: the questions of every split; without "train" if the model is only evaluated.
        facts: the origin of every split, for run.json.
    """

    name: str
    questions: dict[str, list[Question]]
    facts: dict[str, dict]

    def counts(self) -> dict[str, int]:
        """The number of questions by split."""
        return {split: len(part) for split, part in self.questions.items()}

    def describe(self) -> dict:
        """The facts for run.json: sources, counts and hashes."""
        splits = {split: {"examples": len(part)} | self.facts[split] for split, part in self.questions.items()}
        return {"splits": splits}

    def metric_names(self, version_2_with_negative: bool) -> tuple[list[str], str]:
        """The results by which the best model may be chosen, and the one used by default."""
        more = ["eval_exact", "eval_best_f1", "eval_best_exact"] if version_2_with_negative else []
        return ["eval_f1", "eval_exact_match", *more], "eval_f1"

    def baselines(self) -> dict[str, float]:
        """The results of a model that never answers, in per cent."""
        questions = self.questions["validation"]
        none = 100 * sum(not question.answers for question in questions) / len(questions)
        return dict.fromkeys(("eval_exact_match", "eval_f1"), none)

    def summary(self) -> str:
        """One line for the user: the number of questions in every split, and the name of the data."""
        return ", ".join(f"{count:,} {split} questions" for split, count in self.counts().items()) + f", {self.name}"


def load_questions(args: SquadArguments) -> Data:
    """The questions that the flags name; ``--max_train_samples`` and ``--max_eval_samples`` keep the first ones.

    Raises:
        ValueError: flags contradict each other, or the data violates a rule of ``parse_squad``.
    """
    if args.dataset_name and (args.train_file or args.validation_file):
        raise ValueError("give --train_file and --validation_file, or --dataset_name, not both")
    if args.train_file and not args.validation_file:
        raise ValueError("--train_file needs --validation_file, the questions to evaluate on")
    negative = args.version_2_with_negative
    if args.validation_file:
        files = {split: Path(path) for split, path in zip(SPLITS, (args.train_file, args.validation_file)) if path}
        name = next(iter(files.values())).name
        questions = {split: read_squad(path, negative) for split, path in files.items()}
        facts: dict[str, dict] = {split: {"file": path.name, "sha256": sha256(path)} for split, path in files.items()}
    elif args.dataset_name:
        name = args.dataset_name
        questions = {split: read_hub(name, args.dataset_config_name, split, negative) for split in SPLITS}
        facts = {split: {"dataset": name, "config": args.dataset_config_name} for split in SPLITS}
    else:
        name = "the documentation carried by this Python installation"
        documents = {split: documentation.question_answering(split) for split in SPLITS}
        questions = {split: parse_squad(document, name, negative) for split, document in documents.items()}
        facts = {split: {"source": name, "sha256": digest(documents[split])} for split in SPLITS}
    limits = {"train": args.max_train_samples, "validation": args.max_eval_samples}
    questions = {split: part[: limits[split]] for split, part in questions.items()}
    return Data(name, questions, facts)


def read_hub(name: str, config_name: str | None, split: str, version_2_with_negative: bool = False) -> list[Question]:
    """The questions of a data set on the Hub with SQuAD's columns, such as rajpurkar/squad and squad_v2.

    Raises:
        ValueError: it cannot be loaded (no package datasets, no network, no such name), lacks a column, or violates a
            rule of ``parse_squad``.
    """
    try:
        import datasets  # imported here because that is slow, and most runs read files
    except ImportError:
        raise ValueError(
            "--dataset_name needs the package datasets: pip install datasets, or give --train_file and "
            "--validation_file"
        ) from None
    try:
        rows = datasets.load_dataset(name, config_name, split=split)
    except Exception as error:  # the errors of datasets, requests and huggingface_hub have no common type
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"--dataset_name {name}, split {split!r}: cannot be loaded ({reason}); check the name and the "
            "network, or give --train_file and --validation_file"
        ) from error
    missing = {"id", "question", "context", "answers"} - set(rows.column_names)
    if missing:
        raise ValueError(f"--dataset_name {name}: lacks the columns {sorted(missing)}; it has {rows.column_names}")
    paragraphs = []
    for row in rows:
        answers = row["answers"]
        places = zip(answers["text"], answers["answer_start"], strict=True)
        gold = [{"text": text, "answer_start": start} for text, start in places]
        qas = [{"id": row["id"], "question": row["question"], "answers": gold}]
        paragraphs.append({"context": row["context"], "qas": qas})
    document = {"data": [{"title": "", "paragraphs": paragraphs}]}
    return parse_squad(document, f"{name}, split {split!r}", version_2_with_negative)
