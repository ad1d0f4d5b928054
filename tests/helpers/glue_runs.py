"""Short runs of run_glue.py on the files of official_files.py."""

import json
from pathlib import Path

import run_glue


def train(folder: Path, model: Path, files: Path, task: str, *more: str) -> dict:
    run_glue.main([
        f"--output_dir={folder}", f"--model_name_or_path={model}", f"--task_name={task}", f"--data_dir={files / task}",
        "--max_seq_length=32", "--per_device_train_batch_size=8", "--save_steps=0", "--logging_steps=1", *more,
    ])  # fmt: skip
    return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
