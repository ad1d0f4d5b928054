"""--test_file of run_squad.py: questions without gold answers are answered, others scored."""

import json

import pytest

import run_squad
from bert_training.tasks.squad.metrics import score
from bert_training.tasks.squad.questions import read_new_questions
from tests.helpers import short_runs
from tests.helpers.records import read
from tests.helpers.small_networks import save_random_network, small_config

CONTEXT = "the old house by the river ."
HUB = {"text": ["house"], "answer_start": [8]}
GOLD = [{"text": "house", "answer_start": 8}]


def squad(*answers: object) -> str:
    """A file of one paragraph; None for a question without the field."""
    qas = [
        {"id": f"q{i}", "question": "where ?"} | ({} if a is None else {"answers": a}) for i, a in enumerate(answers)
    ]
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]})


@pytest.mark.parametrize(
    ("name", "text", "version_2", "ids", "scored"),
    [
        ("q.json", squad(None, None), False, ["q0", "q1"], False),
        ("q.json", squad([], []), False, ["q0", "q1"], False),
        ("q.json", squad([], []), True, ["q0", "q1"], False),
        ("q.json", squad([]).replace('"answers"', '"is_impossible": true, "answers"'), True, ["q0"], True),
        ("q.json", squad(GOLD, []), True, ["q0", "q1"], True),
        ("q.json", squad(GOLD), False, ["q0"], True),
        ("q.csv", f"question,context\nwhere ?,{CONTEXT}\nwho ?,{CONTEXT}\n", False, ["0", "1"], False),
        ("q.tsv", f"id\tquestion\tcontext\tanswers\n7\twhere ?\t{CONTEXT}\tx\n", False, ["7"], False),
        ("q.jsonl", json.dumps({"id": 3, "question": "q", "context": CONTEXT}), False, ["3"], False),
        ("q.jsonl", json.dumps({"question": "q", "context": CONTEXT, "answers": HUB}), False, ["0"], True),
    ],
)
def test_files_of_questions(tmp_path, name, text, version_2, ids, scored):
    (tmp_path / name).write_text(text)
    questions, found = read_new_questions(tmp_path / name, version_2)
    assert ([one.id for one in questions], found) == (ids, scored)
    assert all(one.context == CONTEXT and bool(one.answers) <= scored for one in questions)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("q.json", squad(GOLD, None), "question 'q1': expected gold answers as other questions of the file have them"),
        (
            "q.json",
            squad(GOLD, []),
            "question 'q1': expected gold answers as other questions of the file have them, got none, as of 1 of 2",
        ),
        ("q.json", '{"data": []}', "expected SQuAD's form"),
        ("q.csv", "question,text\na,b\n", "expected a column 'context'; got 'question', 'text'"),
        ("q.csv", f"id,question,context\n1,a,{CONTEXT}\n1,b,{CONTEXT}\n", "question '1': expected an id of its own"),
        ("q.jsonl", '{"question": "q", "context": []}', "row 1: expected text as context, got []"),
        ("q.jsonl", '{"question": "q", "context": "c", "answers": "c"}', "row 1: expected answers as SQuAD has them"),
        ("q.txt", "where ?", "expected a file named"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError) as caught:
        read_new_questions(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name)) and expected in str(caught.value)


@pytest.fixture(scope="module")
def model(tmp_path_factory, tokenizer_folder, vocab):
    config = small_config(vocab_size=len(vocab), max_position_embeddings=64)
    return save_random_network(tmp_path_factory.mktemp("model"), tokenizer_folder, config)


def test_from_training_to_answers_of_new_questions(model, short_data, tmp_path, no_pictures, capsys):
    """The answers of a training are those of its folder alone; with gold answers, they get the official score."""
    (tmp_path / "new.json").write_text(squad(None, None))
    (tmp_path / "gold.json").write_text(squad(GOLD, []))
    more = ["--version_2_with_negative", "--test_file", str(tmp_path / "new.json")]
    run_squad.main(short_runs.flags("run_squad", short_data, tmp_path / "run", model, *more))
    assert not [name for name in read(tmp_path / "run", "all_results.json") if name.startswith("test_")]
    said = capsys.readouterr().out
    assert "the best one for the validation data" in said and ", test: predicted" in said
    alone = ["--model_name_or_path", str(tmp_path / "run"), "--output_dir", str(tmp_path / "alone"), "--test_file"]
    run_squad.main([*alone, str(tmp_path / "gold.json")])
    files = ("predictions", "nbest_predictions", "null_odds", "span_predictions")
    assert not (tmp_path / "alone" / "predictions.json").exists()
    for name in files:
        found, again = (read(tmp_path / folder, f"test_{name}.json") for folder in ("run", "alone"))
        assert found.keys() == again.keys() == {"q0", "q1"}
        assert found == (pytest.approx(again, abs=1e-4) if name == "null_odds" else found)
    results, predicted = read(tmp_path / "alone", "all_results.json"), read(tmp_path / "alone", "test_predictions.json")
    assert predicted == read(tmp_path / "run", "test_predictions.json")
    official = score({"q0": ["house"], "q1": []}, predicted, True, dict.fromkeys(predicted, 0.0), 1.0)
    assert results["test_f1"] == official["f1"] and results["test_exact_match"] == official["exact"]
    lines = [json.loads(line) for line in (tmp_path / "alone" / "test_answers.jsonl").read_text().splitlines()]
    assert {line["id"]: line["answer"] for line in lines} == predicted
    assert all(
        0 < line["probability"] <= 1 and CONTEXT[line["start"] : line["end"]] == line["answer"] for line in lines
    )
