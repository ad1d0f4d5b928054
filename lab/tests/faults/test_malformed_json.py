"""Malformed questions, answers, numbers and predictions: SQuAD's JSON, what `score` reads, and files for GLUE."""

import io
import json
import random
import zipfile

from bert_training.tasks.classification import submission
from bert_training.tasks.squad.metrics import read_numbers, read_predictions
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.malformed import judged, require
from lab.tests.helpers.malformed_questions import articles, damaged_document, document, squad_oracle, squad_rows
from lab.tests.helpers.mutations import damaged_bytes, damaged_lines, damaged_table

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


@faults(ROW, 60)
def test_files_for_the_glue_server(seed, tmp_path, record_property, monkeypatch):
    """Whether a file may be submitted, alone or in a zip."""
    draw = random.Random(seed)
    monkeypatch.setattr(submission, "TEST_ROWS", {"CoLA.tsv": 9, "STS-B.tsv": 8, "RTE.tsv": 7})
    spelled = {
        "CoLA.tsv": ["0", "1"],
        "STS-B.tsv": ["0.000", "2.5", "5.000"],
        "RTE.tsv": ["entailment", "not_entailment"],
    }
    contents = {
        name: "".join(["index\tprediction\n", *(f"{row}\t{spelled[name][row % 2]}\n" for row in range(rows))]).encode()
        for name, rows in submission.TEST_ROWS.items()
    }
    name = draw.choice(sorted(contents))
    damage = damaged_lines if draw.random() < 0.4 else lambda rng, content: damaged_table(rng, content, b"\t")
    contents[name] = damage(draw, contents[name])
    path = tmp_path / "submission.zip"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry, content in contents.items():
            archive.writestr(entry, content)
    cut = draw.random() < 0.3
    path.write_bytes(damaged_bytes(draw, buffer.getvalue()) if cut else buffer.getvalue())

    def read():
        problems = [text for text in submission.check(path).values() if text]
        if problems:
            raise OSError(problems[0])  # It counts as a message for the user, wherever it is raised.
        return True

    def oracle():
        with zipfile.ZipFile(path) as archive:
            found = {entry: archive.read(entry) for entry in archive.namelist()}
            require(sorted(archive.namelist()) == sorted(contents), "names")
        for entry, rows in submission.TEST_ROWS.items():
            lines = found[entry].decode().split("\n")
            require(lines[0] == "index\tprediction" and len(lines) in (rows + 1, rows + 2), "rows")
            require(lines[rows + 1 :] in ([], [""]), "end")
            for number, line in enumerate(lines[1 : rows + 1]):
                index, prediction = line.split("\t", 1)
                require(index == str(number), "index")
                if entry == "STS-B.tsv":
                    require(
                        prediction.isascii() and prediction == prediction.strip() and "_" not in prediction, "score"
                    )
                    require(0 <= float(prediction) <= 5, "score")
                else:
                    require(prediction in spelled[entry], "label")
        return True

    record_property(
        "outcome",
        judged(read, oracle, path.name, WHOLE + r"|unexpected entry|expected \S+ once|expected \d predictions, got 0"),
    )
