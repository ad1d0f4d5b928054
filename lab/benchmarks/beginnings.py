"""How more positions than a checkpoint has had best begin.

    python lab/benchmarks/beginnings.py --model CHECKPOINT --text novels.txt --work_dir /tmp/beginnings

A checkpoint without a head for masked words, such as one of sentence-transformers, is continued with 1,024 positions:
copies of the first 512, or an interpolation of them. Both ways see the same batches; the record beginnings.json has the
loss of masked words on held-out text at each evaluation. Finished runs in the work folder are not repeated.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_training.files.atomic import write_json
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "beginnings.json"
POSITIONS = 1024
LONG = ["--max_seq_length", "1024", "--per_device_train_batch_size", "8", "--max_steps", "100", "--eval_steps", "25"]
COPIED = ["--max_position_embeddings", str(POSITIONS)]
# Of each run: the checkpoint, "given" or "interpolated", and its flags.
WAYS = {
    "positions, copied": ("given", [*LONG, *COPIED]),
    "positions, interpolated": ("interpolated", LONG),
}


def main(argv: list[str] | None = None) -> None:
    """Run what is missing, and add it to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", required=True, help="the folder of a BERT with real weights, 512 positions and no head"
    )
    parser.add_argument("--text", type=Path, required=True, help="long documents, with an empty line between them")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=[*WAYS], help="these rows alone")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(argv)
    models = {"given": args.model, "interpolated": interpolated(args.model, args.work_dir / "interpolated")}
    for way in args.only or WAYS:
        model, flags = WAYS[way]
        folder = way.replace(", ", "-")
        runs = [losses(args, f"{folder}-{seed}", models[model], flags, seed) for seed in range(args.seeds)]
        record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
        record[way] = provenance("lab/benchmarks/beginnings.py", argv) | {"runs": runs}
        write_json(RECORD, record)
        print(way, runs, flush=True)


def interpolated(model: str, folder: Path) -> Path:
    """The checkpoint with positions that lie evenly between its own. Returns the folder."""
    if not (folder / "config.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        for file in Path(model).glob("*token*"):
            shutil.copyfile(file, folder / file.name)
        weights = load_file(Path(model) / "model.safetensors")
        weights = {name: tensor for name, tensor in weights.items() if not name.endswith("position_ids")}
        table = next(name for name in weights if name.endswith("position_embeddings.weight"))
        rows = weights[table].float().T[None]
        more = torch.nn.functional.interpolate(rows, size=POSITIONS, mode="linear", align_corners=True)
        save_file(weights | {table: more[0].T.contiguous()}, folder / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
        write_json(folder / "config.json", config | {"max_position_embeddings": POSITIONS})
    return folder


def losses(args: argparse.Namespace, name: str, model: str | Path, flags: list[str], seed: int) -> dict[str, float]:
    """The held-out losses of masked words of a run, by the number of the step."""
    folder = args.work_dir / name
    texts = write_texts(args)
    words = ["run_pretraining.py", "--recipe", "adapt", "--model_name_or_path", model, "--output_dir", folder]
    words += ["--train_file", texts[0], "--validation_file", texts[1], "--max_eval_instances", 256]
    words += ["--save_steps", 0, "--seed", seed, "--resume_from_checkpoint", "auto", *flags]
    subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, check=True)
    events: list[dict[str, Any]] = [
        json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return {str(event["step"]): event["eval_mlm_loss"] for event in events if event["event"] == "eval"}


def write_texts(args: argparse.Namespace) -> list[Path]:
    """The files of the training text and of the held-out text, which is every tenth document."""
    files = [args.work_dir / name for name in ("train.txt", "held_out.txt")]
    if not files[1].is_file():
        documents = args.text.read_text(encoding="utf-8").strip().split("\n\n")
        held_out = documents[::10]
        del documents[::10]
        args.work_dir.mkdir(parents=True, exist_ok=True)
        for file, texts in zip(files, (documents, held_out)):
            file.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return files


if __name__ == "__main__":
    main()
