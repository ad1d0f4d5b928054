"""The programs that lab/benchmarks/whole_runs.py starts: python lab/benchmarks/whole_run_programs.py RUN.json.

``stock`` is what a user of transformers writes: its classes, ``datasets``, its Trainer, and batches that are padded to
their longest row. ``ours`` calls a script of this project and notes when its parts are ready. Only the standard library
is imported at the top, so that the time of all other imports is that of the program.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

Run = dict[str, Any]


def mark(run: Run, name: str) -> None:
    """Note the seconds since the program was started; later marks of the same name are ignored."""
    path = Path(run["output"] + ".marks.json")
    marks = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    marks.setdefault(name, round(time.monotonic() - run["started"], 3))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(marks, file)


# --- this project ------------------------------------------------------------------------------------------------


def own_script(run: Run) -> None:
    """The script with its flags; marks imports, data, network and the first optimiser step."""
    script = importlib.import_module(run["script"])
    fine_tuning = importlib.import_module("bert_training.tasks.fine_tuning")
    mark(run, "imports")
    build, steps = script.build_task_network, fine_tuning.training_steps

    def build_task_network(*args: Any, **options: Any) -> Any:
        mark(run, "data")
        network = build(*args, **options)
        mark(run, "network")
        return network

    def training_steps(*args: Any, **options: Any) -> Any:
        for step in steps(*args, **options):
            mark(run, "first step")
            yield step

    script.build_task_network, fine_tuning.training_steps = build_task_network, training_steps
    script.main(run["flags"])


def own_corpus(run: Run) -> None:
    """The corpus of a pre-training: documents, sentences and ids on the disk."""
    from transformers import AutoTokenizer

    from bert_training.pretraining.build_corpus import build_corpus

    build_corpus([Path(run["train"])], AutoTokenizer.from_pretrained(run["model"]), Path(run["output"]))


# --- transformers ------------------------------------------------------------------------------------------------


def stock_classifier(run: Run) -> None:
    """Fine-tune or evaluate a classifier of texts as transformers' run_glue does, with dynamic padding."""
    from datasets import load_dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

    mark(run, "imports")
    files = {split: run[split] for split in ("train", "validation") if run[split]}
    data = load_dataset("json", data_files=files, cache_dir=run["output"] + ".cache")
    tokenizer = AutoTokenizer.from_pretrained(run["model"])
    columns = [name for name in ("sentence1", "sentence2") if name in data["validation"].column_names]
    names = sorted(set(data["validation"]["label"]))

    def encode(rows: dict[str, list]) -> dict[str, list]:
        encoded = tokenizer(*(rows[name] for name in columns), truncation=True, max_length=run["length"])
        return {**encoded, "labels": [names.index(label) for label in rows["label"]]}

    data = data.map(encode, batched=True, remove_columns=data["validation"].column_names)
    mark(run, "data")
    network = AutoModelForSequenceClassification.from_pretrained(run["model"], num_labels=len(names))
    mark(run, "network")
    trainer = make_trainer(run, network, tokenizer, data, DataCollatorWithPadding(tokenizer), accuracy)
    outcome = train_and_predict(run, trainer, tokenizer, data)
    answers = [names[number] for number in outcome.predictions.argmax(-1)]
    finish(run, {"metrics": outcome.metrics, "predictions": answers})


def accuracy(outcome: Any) -> dict[str, float]:
    """The share of correct predictions."""
    return {"accuracy": float((outcome.predictions.argmax(-1) == outcome.label_ids).mean())}


def stock_questions(run: Run) -> None:
    """Fine-tune or evaluate on SQuAD as transformers' run_qa does, with dynamic padding."""
    from datasets import Dataset, DatasetDict
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer, DataCollatorWithPadding

    mark(run, "imports")
    tokenizer = AutoTokenizer.from_pretrained(run["model"])
    raw = {split: squad_rows(run[split]) for split in ("train", "validation") if run[split]}
    windows = DatasetDict()
    for split, rows in raw.items():
        data = Dataset.from_list(rows)
        encode = window_encoder(tokenizer, run["length"], answers=split == "train")
        windows[split] = data.map(encode, batched=True, remove_columns=data.column_names)
    mark(run, "data")
    network = AutoModelForQuestionAnswering.from_pretrained(run["model"])
    mark(run, "network")
    collator, extra = DataCollatorWithPadding(tokenizer), ["example_id", "offset_mapping"]
    shown = DatasetDict(windows) | {"validation": windows["validation"].remove_columns(extra)}
    trainer = make_trainer(run, network, tokenizer, shown, collator, None)
    outcome = train_and_predict(run, trainer, tokenizer, shown)
    finish(run, {"metrics": {}, "predictions": best_answers(raw["validation"], windows["validation"], outcome)})


def squad_rows(path: str) -> list[dict[str, Any]]:
    """The questions of a file in the form of SQuAD."""
    rows = []
    for article in json.loads(Path(path).read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for one in paragraph["qas"]:
                rows.append({"id": one["id"], "question": one["question"], "context": paragraph["context"]})
                rows[-1] |= {name: one["answers"][0][name] for name in ("text", "answer_start")}
    return rows


def window_encoder(tokenizer: Any, length: int, answers: bool) -> Callable[[dict[str, list]], dict[str, list]]:
    """The preparation of questions in run_qa: windows with the positions of the answer, or with what finds its text."""

    def encode(rows: dict[str, list]) -> dict[str, list]:
        windows = tokenizer(
            rows["question"],
            rows["context"],
            truncation="only_second",
            max_length=length,
            stride=min(128, length // 3),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        owners = windows.pop("overflow_to_sample_mapping")
        if not answers:
            kept = [[o if s == 1 else None for o, s in zip(offsets, windows.sequence_ids(number))]
                    for number, offsets in enumerate(windows["offset_mapping"])]  # fmt: skip
            return {**windows, "offset_mapping": kept, "example_id": [rows["id"][owner] for owner in owners]}
        spans = []
        for number, (offsets, owner) in enumerate(zip(windows.pop("offset_mapping"), owners)):
            start = rows["answer_start"][owner]
            stop = start + len(rows["text"][owner])
            inside = [p for p, side in enumerate(windows.sequence_ids(number)) if side == 1]
            first = [p for p in inside if offsets[p][0] <= start < offsets[p][1]]
            last = [p for p in inside if offsets[p][0] < stop <= offsets[p][1]]
            spans.append((first[0], last[0]) if first and last else (0, 0))
        return {**windows, "start_positions": [a for a, _ in spans], "end_positions": [b for _, b in spans]}

    return encode


def best_answers(rows: list[dict], windows: Any, outcome: Any) -> dict[str, str]:
    """The best span of at most 30 tokens for every question, from the 20 best starts and ends, as in run_qa."""
    contexts, best = {row["id"]: row["context"] for row in rows}, {}
    starts, ends = outcome.predictions[:2]
    for window, start, end in zip(windows, starts, ends):
        offsets, name = window["offset_mapping"], window["example_id"]
        for first in start.argsort()[-20:]:
            for last in end.argsort()[-20:]:
                inside = max(first, last) < len(offsets) and offsets[first] and offsets[last]
                if not inside or not first <= last < first + 30:
                    continue
                text = contexts[name][offsets[first][0] : offsets[last][1]]
                best[name] = max(best.get(name, (-1e9, "")), (float(start[first] + end[last]), text))
    return {name: text for name, (_, text) in best.items()}


def make_trainer(run: Run, network: Any, tokenizer: Any, data: Any, collator: Any, metrics: Any) -> Any:
    """A Trainer with the settings of this project's scripts."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Marks(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if not run["marked"]:
                mark(run, "first step")
                run["marked"] = True

    rows = len(data["train"]) if "train" in data else 0
    steps = run["max_steps"] if run["max_steps"] > 0 else -(-rows * run["epochs"] // run["batch"])
    settings = TrainingArguments(
        output_dir=run["output"],
        per_device_train_batch_size=run["batch"],
        per_device_eval_batch_size=64,
        num_train_epochs=run["epochs"],
        max_steps=run["max_steps"],
        learning_rate=run["learning_rate"],
        weight_decay=0.01,
        adam_epsilon=1e-6,
        warmup_steps=round(0.1 * steps),
        eval_strategy="no",
        save_strategy="steps",
        save_steps=500,
        save_total_limit=2,
        logging_steps=50,
        seed=run["seed"],
        report_to="none",
        disable_tqdm=True,
        bf16=run.get("bf16", False),
        use_cpu=not torch.cuda.is_available(),  # otherwise bf16 is refused there
        dataloader_pin_memory=torch.cuda.is_available(),  # Trainer's default, which warns on a CPU
    )
    return Trainer(
        network,
        settings,
        collator,
        data.get("train"),
        data["validation"],
        processing_class=tokenizer,
        compute_metrics=metrics,
        callbacks=[Marks()],
    )


def stock_pretraining(run: Run) -> None:
    """Masked language modelling as transformers' run_mlm does it: packed blocks of tokens, new masks for each epoch."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer, DataCollatorForLanguageModeling

    from lab.benchmarks.contestants import packed_blocks

    mark(run, "imports")
    tokenizer = AutoTokenizer.from_pretrained(run["model"])
    data = {}
    for split in ("train", "validation"):
        lines = Path(run[split]).read_text(encoding="utf-8").splitlines()
        data[split] = packed_blocks(tokenizer, [line for line in lines if line], run["length"])
    mark(run, "data")
    options: Run = {"attn_implementation": run.get("attention", "sdpa")}
    if options["attn_implementation"] == "varlen":
        register_varlen()
    if "dropout" in run:
        options |= {f"{name}_dropout_prob": run["dropout"] for name in ("hidden", "attention_probs")}
    network = AutoModelForMaskedLM.from_pretrained(run["model"], **options)
    mark(run, "network")
    trainer = make_trainer(run, network, tokenizer, data, DataCollatorForLanguageModeling(tokenizer), None)
    trainer.train()
    trainer.save_model()
    tokenizer.save_pretrained(run["output"])
    finish(run, {"metrics": trainer.evaluate()})


def register_varlen() -> None:
    """Let transformers' networks compute attention by torch's kernel for variable lengths, for rows without padding."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register("varlen", varlen_attention)
    AttentionMaskInterface.register("varlen", lambda *_, **__: None)


def varlen_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: None, dropout: float = 0.0, **_: Any
) -> tuple[Any, None]:
    """(B, N, L, D) -> (B, L, N, D), scaled by 1 / sqrt(D)."""
    import torch
    from torch.nn.attention import varlen

    assert attention_mask is None and not dropout
    rows, heads, length, size = query.shape
    limits = torch.arange(0, (rows + 1) * length, length, dtype=torch.int32, device=query.device)
    states = [one.transpose(1, 2).reshape(rows * length, heads, size) for one in (query, key, value)]
    context = varlen.varlen_attn(*states, limits, limits, length, length)
    return context.view(rows, length, heads, size), None


def train_and_predict(run: Run, trainer: Any, tokenizer: Any, data: Any) -> Any:
    """Train if there is training data, save the folder, and predict for the validation data."""
    if run["train"]:
        trainer.train()
        trainer.save_model()
        tokenizer.save_pretrained(run["output"])
    return trainer.predict(data["validation"])


def finish(run: Run, results: dict[str, Any]) -> None:
    """Write the results into the finished folder."""
    Path(run["output"]).mkdir(parents=True, exist_ok=True)
    with open(Path(run["output"], "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file)


def stock_corpus(run: Run) -> None:
    """Tokens on the disk as transformers' run_mlm prepares them: ``datasets``, blocks of 128 tokens."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    data = load_dataset("text", data_files=run["train"], cache_dir=run["output"] + ".cache")["train"]
    tokenizer = AutoTokenizer.from_pretrained(run["model"])
    data = data.map(
        lambda rows: tokenizer(rows["text"], return_special_tokens_mask=True), batched=True, remove_columns=["text"]
    )

    def blocks(rows: dict[str, list]) -> dict[str, list]:
        together = {name: [token for row in column for token in row] for name, column in rows.items()}
        stop = len(together["input_ids"]) // 128 * 128
        return {name: [tokens[i : i + 128] for i in range(0, stop, 128)] for name, tokens in together.items()}

    data.map(blocks, batched=True).save_to_disk(run["output"])


PROGRAMS: dict[str, Callable[[Run], None]] = {
    "own script": own_script,
    "own corpus": own_corpus,
    "stock classifier": stock_classifier,
    "stock questions": stock_questions,
    "stock corpus": stock_corpus,
    "stock pre-training": stock_pretraining,
}


def main(argv: list[str]) -> None:
    """Run the program that the file describes."""
    run = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    PROGRAMS[run["program"]](run | {"marked": False})


if __name__ == "__main__":
    main(sys.argv[1:])
