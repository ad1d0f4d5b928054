"""Malformed files given to the scripts and commands: one line that names the file, and status 2."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

from lab.tests.helpers import malformed_questions as documents
from lab.tests.helpers import malformed_tables as tables
from lab.tests.helpers import malformed_texts as texts
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.malformed import REFUSED
from lab.tests.helpers.mutations import damaged_json, damaged_json_lines, damaged_lines, damaged_table
from tests.helpers.fault_runs import run
from tests.helpers.squad_examples import squad_content
from tests.helpers.tagged_text import CONLL

ROW = "malformed input"
LONGEST = ["--max_seq_length", "24"]
TRAIN = [
    "--max_steps",
    "1",
    "--save_steps",
    "0",
    "--logging_steps",
    "1",
    "--per_device_train_batch_size",
    "4",
    *LONGEST,
]


def refused(damage: Callable[[], bytes], oracle: Callable[[bytes], object]) -> bytes:
    """The content of a malformed file that the oracle refuses; most are."""
    while True:
        content = damage()
        try:
            oracle(content)
        except Exception:
            return content


def malformed(script: str, draw: random.Random) -> tuple[str, bytes]:
    """(name, content) of a malformed file for a script."""
    if script in ("run_pretraining", "plan"):
        if draw.random() < 0.5:
            content = refused(lambda: damaged_lines(draw, texts.TEXT), texts.oracle_of_text)
            return "text.txt", content
        oracle: Callable[[bytes], object] = texts.texts_of_json_lines
        return "text.jsonl", refused(lambda: damaged_json_lines(draw, texts.ROWS), oracle)
    if script == "run_glue":
        kind = draw.choice(sorted(tables.READ))
        oracle = lambda content: tables.own_oracle(tables.READ[kind](content))  # noqa: E731
        return f"own{kind}", refused(lambda: tables.damaged_own(draw, kind), oracle)
    if script in ("run_squad", "score"):
        damage = lambda: damaged_json(draw, squad_content(8))  # noqa: E731
        return "questions.json", refused(damage, lambda content: documents.squad_oracle(content, False))
    if script == "run_ner":
        damage = lambda: damaged_lines(draw, CONLL.encode())  # noqa: E731
        return "words.txt", refused(damage, lambda content: tables.conll_oracle(content, False))
    if script == "run_swag":
        rows = [{"sent1": f"a {n}", "sent2": "b", "ending0": "c", "ending1": "d", "label": n % 2} for n in range(8)]
        damage = lambda: damaged_table(draw, tables.as_csv(rows, "\n"), b",")  # noqa: E731
        return "val.csv", refused(damage, lambda content: tables.swag_oracle(tables.csv_rows(content)))
    if script == "curves":
        events = [{"event": "train", "step": n, "loss": 2.5, "mlm_loss": 2.0} for n in range(4)]
        damage = lambda: damaged_json_lines(draw, events)[: draw.randrange(40, 120)]  # noqa: E731
        return "metrics.jsonl", refused(damage, lambda content: [json.loads(line) for line in content.splitlines()])
    damage = lambda: damaged_lines(draw, texts.TEXT)  # noqa: E731
    return "lines.txt", refused(damage, texts.text_lines)


@faults(ROW, 60)
def test_scripts_end_with_one_line(seed, tmp_path, record_property, pretrained):
    draw = random.Random(seed)
    scripts = ("run_pretraining", "run_glue", "run_squad", "run_ner", "run_swag", "extract_features", "score", "curves")
    script = draw.choice(scripts)
    name, content = malformed(script, draw)
    path = tmp_path / name
    path.write_bytes(content)
    file, model = str(path), ["--model_name_or_path", str(pretrained)]
    given = ["--output_dir", str(tmp_path / "run"), *model, "--train_file", file]
    features = f"--layers -1 --output_file {tmp_path}/out.jsonl --input_file".split()
    flags = {
        "score": ["score", file, file],
        "curves": ["curves", str(tmp_path)],
        "extract_features": [*features, file, *model, *LONGEST],
        "run_pretraining": [*given, *TRAIN],
    }.get(script, [*given, "--validation_file", file, *TRAIN])
    if script == "run_squad":
        flags += "--max_query_length 8 --doc_stride 6".split()
    ended = run("bert_training" if flags[0] in ("score", "curves") else script, flags, tmp_path, seconds=60)
    assert not ended.timed_out and ended.seconds < 30, ended.printed
    assert ended.statuses == [2], ended.printed
    last = ended.printed.rstrip("\n").split("\n")[-1]
    assert "Traceback" not in ended.printed and ended.printed.count("error: ") == 1, ended.printed
    assert re.match(rf"\S.*: error: .*{re.escape(path.name)}", last), ended.printed
    assert not Path(tmp_path / "run" / "model.safetensors").exists()
    record_property("outcome", REFUSED)
