"""The flags of short runs of run_squad.py."""

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
