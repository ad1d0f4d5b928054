"""Print what a script enters of the project before its first optimiser step: {"files": n, "lines": of functions}.

"listed" is the share of these lines in the files of the reading list of CONTRIBUTING.md.

python tests/programs/entrance.py run_pretraining --output_dir runs/first --max_steps 2
"""

import ast
import importlib
import json
import re
import sys
import threading
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
HOUSES = ("modeling_bert_repro", "tokenization", "bert_training")


class FirstStep(BaseException):
    """The first optimiser step begins."""


@cache
def functions_of(file: str) -> dict[int, int]:
    """First line -> number of lines, of every function of a file."""
    nodes = ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    first = [min([node.lineno, *(one.lineno for one in node.decorator_list)]) for node in functions]
    return {line: (node.end_lineno or 0) - node.lineno + 1 for line, node in zip(first, functions)}


def main(script: str, flags: list[str]) -> None:
    entered: set[tuple[str, int]] = set()
    places = (*(f"{ROOT / house}/" for house in HOUSES), str(ROOT / script))

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(places):
            entered.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    def stop(*_: Any, **__: Any) -> None:
        raise FirstStep

    module = importlib.import_module(script)
    torch.optim.AdamW.step = stop
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        module.main(flags)
    except FirstStep:
        sys.setprofile(None)
    found = {place: functions_of(place[0])[place[1]] for place in entered if place[1] in functions_of(place[0])}
    total = sum(found.values())
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`\w+\.py`\]\(([^)]+)\)", page, re.MULTILINE)
    share = sum(lines for (file, _), lines in found.items() if file.removeprefix(f"{ROOT}/") in listed) / total
    print(json.dumps({"files": len({file for file, _ in found}), "lines": total, "listed": round(share, 3)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
