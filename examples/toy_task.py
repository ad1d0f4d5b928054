"""A task of one's own: has a line of text more than ten words? Its data is new; its network is that of run_glue.py.

python examples/toy_task.py --model_name_or_path runs/first --train_file a.txt --validation_file b.txt --output_dir toy
"""

import sys
from dataclasses import make_dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the checkout is found without being installed

import run_glue as glue
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.scripts import SCRIPTS
from bert_training.tasks.classification.labelled_texts import ClassificationData, Columns, Examples, Task

Arguments = make_dataclass("Arguments", [], bases=(glue.GlueArguments,))
SENTENCE = "A BERT model ({size}) that tells long lines from short ones, fine-tuned {origin}."
SCRIPTS["toy_task.py"] = replace(
    SCRIPTS["run_glue.py"], arguments=Arguments, sentence=SENTENCE, metrics=("eval_accuracy",), place=Path(__file__)
)
TASK = Task(folder="length", text_columns=(), label_columns=(), labels=("short", "long"), metrics=("accuracy",))


def read(path: str) -> Examples:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    labels, index = [int(len(line.split()) > 10) for line in lines], [str(row) for row in range(len(lines))]
    facts = {"source": path, "sha256": sha256(Path(path))}
    return Examples((lines,), labels, index, str, facts, Columns(("text",), None, None))


if __name__ == "__main__":
    args = glue.parse_arguments(Arguments, defaults_for=glue.defaults_of_model)
    files = {"train": args.train_file, "validation": args.validation_file}
    data = ClassificationData("length", TASK, {split: read(path) for split, path in files.items() if path})
    glue.run_alone(args, data=data)
