"""Short runs of run_squad.py, and the official scores of what they predict."""

from bert_training.tasks.squad.metrics import read_numbers, read_predictions, score
from bert_training.tasks.squad.questions import read_squad

LENGTHS = ["--max_seq_length", "24", "--max_query_length", "8", "--doc_stride", "6"]


def squad_flags(checkpoint, files, output_dir, *more: str, negative: bool = False) -> list[str]:
    two = "2" if negative else ""
    return [
        *("--model_name_or_path", str(checkpoint), "--output_dir", str(output_dir), *LENGTHS),
        *("--train_file", str(files / f"train{two}.json"), "--validation_file", str(files / f"dev{two}.json")),
        *("--max_steps", "4", "--per_device_train_batch_size", "8", "--save_steps", "0", "--logging_steps", "1"),
        *(["--version_2_with_negative"] if negative else []),
        *more,
    ]


def official_scores(data, predictions, version_2: bool = False, odds=None, threshold: float | None = None) -> dict:
    """The official scores of a file of predictions."""
    gold = {one.id: [text for text, _ in one.answers] for one in read_squad(data, version_2)}
    return score(gold, read_predictions(predictions), version_2, odds and read_numbers(odds), threshold)
