"""What 8 bits are worth: exported networks against torch, on finished fine-tuned folders.

    python lab/benchmarks/exported.py runs/mrpc runs/sst2 runs/squad runs/ner

Every folder is exported in float32 and, dynamically and statically, in 8 bits, for onnxruntime and (float32 and
statically) for OpenVINO. Files and torch, which is transformers' classifier in float32, compute the same texts in turn,
one text and 32; medians of rounds are compared. torch computes 32 texts as one padded batch, a file in parts of similar
length. The score is that of the validation data which run.json names. The record is exported.json; a folder that is
measured again replaces its row.
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

from bert_training.files.atomic import make_folder, write_json
from bert_training.tools.export import (
    calibration,
    judge,
    leave_in_float,
    milliseconds,
    open_model,
    opened,
    scored_run,
)
from bert_training.tools.export_scores import Validation
from bert_training.tools.exported import OPENVINO, SMALL, WHOLE
from bert_training.tools.onnx_files import FIRST_OPSET, check_installed, write_onnx
from bert_training.tools.onnx_int8 import quantize
from bert_training.tools.openvino_files import check_openvino, quantize_openvino, write_openvino
from bert_training.tools.verify_scores import files_in
from lab.benchmarks.provenance import ROOT, provenance

RECORD = ROOT / "lab" / "records" / "exported.json"
DYNAMIC = "dynamic/model_quantized.onnx"
KINDS = {
    WHOLE: "none",
    DYNAMIC: "dynamic",
    SMALL: "static",
    OPENVINO[0]: "openvino, none",
    OPENVINO[1]: "openvino, static",
}
MAX_DROP = 0.5
FACTS = ("scores", "drop", "agreement", "bytes")


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
    check_installed(FIRST_OPSET)
    check_openvino(True)
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
    model = open_model(folder, False)
    validation = Validation(model.folder, scored_run(model), model.network.state_dict(), given)
    if validation.missing:
        raise ValueError(f"{folder}: {validation.missing}")
    before = validation.evaluate(None)
    batches = calibration(model, validation, None)
    found: dict[str, Any] = {"torch": {"scores": before.scores, "bytes": 4 * model.network.num_parameters()}}
    with tempfile.TemporaryDirectory() as place:
        draft = Path(place)
        for name in (WHOLE, DYNAMIC, OPENVINO[0]):
            make_folder((draft / name).parent)
        write_onnx(model.network, model.outputs, model.batch(model.rows()[:3]), draft / WHOLE, FIRST_OPSET)
        quantize(draft / WHOLE, draft / DYNAMIC)
        quantize(draft / WHOLE, draft / SMALL, batches)
        write_openvino(draft / WHOLE, draft / OPENVINO[0])
        quantize_openvino(draft / OPENVINO[0], draft / OPENVINO[1], batches)
        for name in KINDS:
            facts, problem = judge(model, validation, draft / name, before, max_drop)
            left: list[str] = []
            if problem and name in (SMALL, OPENVINO[1]):
                left, facts, problem = leave_in_float(model, validation, draft / name, batches, before, max_drop)
            found[name] = {key: facts.get(key) for key in FACTS} | {"refused": problem or None, "in_float": left}
        files = {name: opened(draft / name) for name in KINDS}
        for name, (one, many) in milliseconds(model, files, before.rows).items():
            found[name] |= {"ms_one": one, "ms_batch": many}
    systems = {KINDS.get(name, name): facts for name, facts in found.items()}
    task = folder.resolve().name
    return {"task": task, "metric": before.metric, "rows": len(before.rows), "systems": systems}


if __name__ == "__main__":
    main()
