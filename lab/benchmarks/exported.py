"""What 8 bits are worth: exported networks against torch, on finished fine-tuned folders.

    python lab/benchmarks/exported.py runs/mrpc runs/sst2 runs/squad runs/ner

Every folder is exported in float32 and in 8 bits. Files and torch, which
is transformers' classifier in float32, compute the same texts in turn, one text and 32; medians of rounds are compared.
torch computes 32 texts as one padded batch, and so does a file. The score is that of the validation data
which run.json names. The record is exported.json; a folder that is measured again replaces its row.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))

from bert_deploy.export import milliseconds, open_gate
from bert_deploy.export_record import SMALL, WHOLE
from bert_deploy.onnx_files import OnnxFile, needed_packages, write_onnx
from bert_deploy.onnx_int8 import quantize
from bert_deploy.verify_scores import files_in
from bert_training.files.atomic import make_folder, write_json
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "exported.json"
KINDS = {WHOLE: "none", SMALL: "dynamic"}
MAX_DROP = 0.5
FACTS = ("drop", "changed", "bytes")


def main(argv: list[str] | None = None) -> None:
    """Measure the folders, one after the other, and write each into the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folders", nargs="+", type=Path, help="finished folders of run_glue.py, run_squad.py, run_ner.py"
    )
    parser.add_argument("--data", nargs="+", default=[], help="files of the runs' data, or folders that have them")
    parser.add_argument(
        "--max_drop", type=float, default=MAX_DROP, help=f"points of 100 that 8 bits may cost ({MAX_DROP:g})"
    )
    parser.add_argument(
        "--record", type=Path, default=RECORD, help="the file to write (default: that of the laboratory)"
    )
    args = parser.parse_args(argv)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    needed_packages()
    for folder in args.folders:
        row = measure(folder, files_in(args.data), args.max_drop)
        record = json.loads(args.record.read_text(encoding="utf-8")) if args.record.is_file() else {"results": []}
        others = [one for one in record["results"] if one["task"] != row["task"]]
        facts = provenance("lab/benchmarks/exported.py", argv, "cpu") | {"threads": torch.get_num_threads()}
        write_json(args.record, facts | {"results": sorted([*others, row], key=lambda one: one["task"])})
        print(json.dumps(row, indent=1), flush=True)


def measure(folder: Path, given: list[Path], max_drop: float = MAX_DROP) -> dict[str, Any]:
    """The row of a folder.

    Raises:
        ValueError: its validation data is not at hand.
    """
    gate = open_gate(folder, False, given)
    model, before = gate.model, gate.before
    if before is None:
        raise ValueError(f"{folder}: {gate.validation.missing}")
    bytes_of_torch = 4 * model.network.num_parameters()
    found: dict[str, Any] = {"torch": {"scores": {"validation": before.score}, "bytes": bytes_of_torch}}
    with tempfile.TemporaryDirectory() as place:
        draft = Path(place)
        make_folder((draft / WHOLE).parent)
        write_onnx(model.network, model.outputs, model.batch(model.rows()[:3]), draft / WHOLE)
        model.network.set_attn_implementation("sdpa")
        quantize(draft / WHOLE, draft / SMALL)
        for name in KINDS:
            facts, problem = gate.judge(draft / name, max_drop)
            found[name] = {key: facts.get(key) for key in FACTS} | {"scores": {"validation": facts["score"]}}
            found[name]["refused"] = problem or None
        files = {name: OnnxFile(draft / name) for name in KINDS}
        for name, times in milliseconds(model, files, before.batches).items():
            found[name] |= times
    systems = {KINDS.get(name, name): facts for name, facts in found.items()}
    task = folder.resolve().name
    return {"task": task, "metric": before.metric, "rows": len(before.answers), "systems": systems}


if __name__ == "__main__":
    main()
