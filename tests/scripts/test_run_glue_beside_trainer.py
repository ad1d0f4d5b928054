"""run_glue.py beside transformers' Trainer, as its run_classification.py sets it up: the same losses and weights.

Without dropout and with all rows in one batch, nothing is left to chance.
"""

import json

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import run_glue

pytestmark = pytest.mark.usefixtures("no_pictures")

ROWS, STEPS, RATE, WARMUP = 12, 6, 2e-3, 2
TEXTS = [f"the {('red', 'blue', 'old')[row % 3]} house{' of the king' * (row % 2)}" for row in range(ROWS)]
TASKS = {
    "single_label_classification": ([("a", "b", "c")[row % 3] for row in range(ROWS)], ("a", "b", "c")),
    "multi_label_classification": ([["a", "c"][: row % 3] for row in range(ROWS)], ("a", "c")),
    "regression": ([row / 4 for row in range(ROWS)], ("LABEL_0",)),
}
CASES = [
    *((problem, (), {}) for problem in TASKS),
    # Trainer takes the rows in one batch here: when it accumulates, it adds this network's means instead of averaging.
    ("single_label_classification", ("--gradient_accumulation_steps", "3"), {}),
]


def as_tensor(problem: str, label, names: tuple[str, ...]):
    if problem == "multi_label_classification":
        return [float(name in label) for name in names]
    return names.index(label) if problem == "single_label_classification" else label


@pytest.mark.parametrize(("problem", "flags", "options"), CASES)
def test_same_losses_and_weights(pretrained, tmp_path, problem, flags, options):
    labels, names = TASKS[problem]
    torch.manual_seed(0)
    config = BertConfig.from_pretrained(pretrained, num_labels=len(names), problem_type=problem)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: number for number, name in enumerate(names)}
    network = BertForSequenceClassification.from_pretrained(pretrained, config=config, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    start = tmp_path / "start"
    network.save_pretrained(start)
    tokenizer.save_pretrained(start)

    table = tmp_path / "rows.jsonl"
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, labels)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    batch = ROWS // 3 if "--gradient_accumulation_steps" in flags else ROWS
    argv = [f"--output_dir={tmp_path / 'own'}", "--train_file", str(table), "--validation_file", str(table)]
    argv += ["--model_name_or_path", str(start), f"--max_steps={STEPS}", f"--per_device_train_batch_size={batch}"]
    argv += [
        f"--learning_rate={RATE}",
        f"--warmup_steps={WARMUP}",
        "--logging_steps=1",
        "--save_steps=0",
        "--max_seq_length=16",
    ]
    argv += ["--problem_type", problem.removesuffix("_classification"), "--eval_steps=100", *flags]
    run_glue.main(argv)

    data = Dataset.from_dict({**tokenizer(TEXTS), "labels": [as_tensor(problem, label, names) for label in labels]})
    trainer = Trainer(
        network,
        TrainingArguments(
            output_dir=str(tmp_path / "theirs"),
            per_device_train_batch_size=ROWS,
            max_steps=STEPS,
            learning_rate=RATE,
            warmup_steps=WARMUP,
            weight_decay=0.01,
            adam_epsilon=1e-6,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            **options,
        ),
        DataCollatorWithPadding(tokenizer),
        data,
    )
    trainer.train()

    theirs = [event["loss"] for event in trainer.state.log_history if "loss" in event]
    events = map(json.loads, (tmp_path / "own" / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    assert [event["loss"] for event in events if event["event"] == "train"] == pytest.approx(theirs, abs=2e-4)
    assert theirs[-1] < theirs[0]
    saved = load_file(tmp_path / "own" / "model.safetensors")
    torch.testing.assert_close(saved, dict(network.state_dict()), rtol=0, atol=2e-5)
