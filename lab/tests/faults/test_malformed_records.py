"""Malformed records of runs, as the commands that read them do: run.json, results, summaries and metrics.jsonl."""

import json
import random

from bert_training.cards.curves import curve_of, read_events
from bert_training.engine.finished import read_results
from bert_training.tools.report import read_finished_runs
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.malformed import judged, require
from lab.tests.helpers.mutations import damaged_json, damaged_json_lines, damaged_lines

ROW = "malformed input"
FORM = r"damaged|edited|not in the form|expected|lacks|JSON"


def document(content: bytes) -> object:
    def fields(pairs):
        require(len(dict(pairs)) == len(pairs), "a field twice")
        return dict(pairs)

    return json.loads(content.decode("utf-8-sig"), object_pairs_hook=fields)


def damaged_record(draw: random.Random, tree: object) -> bytes:
    content = json.dumps(tree, indent=1).encode()
    return damaged_json(draw, tree, indent=1) if draw.random() < 0.8 else damaged_lines(draw, content)


@faults(ROW, 80)
def test_records_of_finished_runs(seed, tmp_path, record_property):
    """What `report` reads: the task, the start and the results of a run or of a series."""
    draw = random.Random(seed)
    trees = {
        "run.json": {"script": "run_glue.py", "flags": {"task_name": "cola", "model_name_or_path": "x/m", "seed": 1},
                     "data": {"task": "cola", "splits": {}}, "commit": "0123456789ab", "device": "cpu"},
        "all_results.json": {"eval_matthews_correlation": 0.5, "train_steps": 9, "train_runtime": 1.5},
    }  # fmt: skip
    contents = {name: json.dumps(tree, indent=1).encode() for name, tree in trees.items()}
    name = draw.choice(sorted(trees))
    contents[name] = damaged_record(draw, trees[name])
    for file, content in contents.items():
        (tmp_path / file).write_bytes(content)

    def read():
        (found,) = read_finished_runs(tmp_path)
        return found.task, found.start_label, found.facts, found.results

    def oracle():
        facts, results = document(contents["run.json"]), document(contents["all_results.json"])
        flags, origin = facts["flags"], facts["flags"].get("model_name_or_path")
        require(isinstance(facts, dict) and isinstance(results, dict) and facts["script"].endswith(".py"), "form")
        start = f"from {origin.rpartition('/')[2]}" if origin else "random weights"
        data = facts.get("data")
        task = flags.get("task_name") or (isinstance(data, dict) and data.get("task")) or "own data"
        return {"cola": "CoLA"}.get(task, task), start, facts, results

    record_property("outcome", judged(read, oracle, str(tmp_path), FORM, both=False))


@faults(ROW, 40)
def test_results(seed, tmp_path, record_property):
    draw = random.Random(seed)
    content = damaged_record(draw, {"eval_f1": 0.5, "eval_loss": 1.25, "train_runtime": 3.5, "train_steps": 7})
    path = tmp_path / "all_results.json"
    path.write_bytes(content)

    def oracle():
        results = document(content)
        require(isinstance(results, dict), "object")
        return results

    record_property("outcome", judged(lambda: read_results(tmp_path), oracle, path.name, FORM, both=False))


@faults(ROW, 80)
def test_metrics(seed, tmp_path, record_property):
    draw = random.Random(seed)
    events = [{"event": draw.choice(("train", "eval")), "step": n, "loss": n / 7, "eval_loss": n / 3} for n in range(6)]
    content = damaged_json_lines(draw, events)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(content)

    def read():
        found = read_events(path)
        return found, curve_of(found, "train", "loss"), curve_of(found, "eval", "eval_loss")

    def oracle():
        found = [document(line) for line in content.split(b"\n") if line]
        for event in found:
            require(isinstance(event["event"], str), "event")
            require(event["event"] not in ("train", "eval") or type(event["step"]) is int, "step")
        curves = []
        for kind, key in (("train", "loss"), ("eval", "eval_loss")):
            values = {
                event["step"]: event[key] for event in found if event["event"] == kind and event.get(key) is not None
            }
            require(all(type(value) in (int, float) for value in values.values()), "values")
            curves.append((sorted(values), [values[step] for step in sorted(values)]))
        return found, *curves

    record_property("outcome", judged(read, oracle, path.name, both=False))
