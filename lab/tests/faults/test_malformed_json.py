"""Malformed questions, answers, numbers and predictions: SQuAD's JSON, what `score` reads, and files for GLUE."""

import json
import random

from bert_training.tasks.squad.metrics import read_numbers, read_predictions
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.malformed import judged, require
from lab.tests.helpers.malformed_questions import articles, damaged_document, document, squad_oracle, squad_rows

ROW = "malformed input"


WHOLE = (
    r"expected one JSON object|expected a column|expected rows, got none|: lacks '|: expected an object with '"
    r"|must be of type|whole zip file"
)


@faults(ROW, 300)
def test_squad(seed, tmp_path, record_property):
    draw = random.Random(seed)
    negative = draw.random() < 0.5
    content = damaged_document(draw, articles(draw, negative))
    path = tmp_path / "questions.json"
    path.write_bytes(content)
    read, oracle = (lambda: squad_rows(path, negative)), (lambda: squad_oracle(content, negative))
    record_property("outcome", judged(read, oracle, path.name, WHOLE))


@faults(ROW, 80)
def test_answers_and_odds(seed, tmp_path, record_property):
    draw = random.Random(seed)
    texts = draw.random() < 0.5
    tree = {f"q{number}": f"answer {number}" if texts else number / 7 - 0.5 for number in range(8)}
    content = damaged_document(draw, tree)
    path = tmp_path / "predictions.json"
    path.write_bytes(content)

    def oracle():
        found = document(content)
        kinds = str if texts else int | float
        require(isinstance(found, dict) and not any(isinstance(value, bool) for value in found.values()), "object")
        require(all(isinstance(value, kinds) for value in found.values()), "values")
        require(texts or all(abs(value) < 1.8e308 for value in found.values()), "numbers")
        json.dumps(found, ensure_ascii=False).encode()
        return found

    read = read_predictions if texts else read_numbers
    record_property("outcome", judged(lambda: read(path), oracle, path.name, WHOLE))
