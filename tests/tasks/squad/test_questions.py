"""Reading SQuAD files and data sets."""

import copy
import gzip
import json
import lzma

import datasets
import pytest

from bert_training.files.hashing import checksums
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.squad import squad_rows
from bert_training.tasks.squad.questions import Question, read_squad, with_answers
from bert_training.tasks.squad.sources import load_data, read_hub
from tests.helpers.squad_runs import official_scores

CONTEXT = "the old doctor opened a small red house by the river ."


def document(*qas: dict, context: str = CONTEXT) -> dict:
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(qas)}]}]}


def qa(id_: str = "q0", question: str = "what ?", answers=(("small red house", 24),), **more) -> dict:
    return {
        "id": id_,
        "question": question,
        "answers": [{"text": t, "answer_start": s} for t, s in answers],
        **more,
    }


def parsed(document: dict, version_2_with_negative: bool = False) -> list[Question]:
    return with_answers(squad_rows(document["data"], "f"), "f", version_2_with_negative)


def test_plain_and_compressed_files_are_read(tmp_path):
    text = json.dumps(document(qa(), qa("q1", answers=(("river", 47), ("the river", 43))))).encode()
    files = {"a.json": text, "b.json": b"\xef\xbb\xbf" + text, "c.json.xz": lzma.compress(text)}
    files["d.json.gz"] = gzip.compress(text)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert read_squad(tmp_path / name) == [
            Question("q0", "what ?", CONTEXT, (("small red house", 24),), "t"),
            Question("q1", "what ?", CONTEXT, (("river", 47), ("the river", 43)), "t"),
        ]


def test_files_of_version_2_are_read(tmp_path):
    plausible = [{"text": "river", "answer_start": 47}]
    parts = (qa(is_impossible=False), qa("q1", answers=(), is_impossible=True, plausible_answers=plausible))
    questions = parsed(document(*parts, qa("q2", answers=())), version_2_with_negative=True)
    assert [question.answers for question in questions] == [(("small red house", 24),), (), ()]


def broken(change) -> dict:
    content = copy.deepcopy(document(qa(), qa("q1")))
    change(content["data"][0]["paragraphs"][0]["qas"][1])
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "f.json: expected a column 'question'"),
        ({"version": "1.1"}, "f.json, article 0: expected SQuAD's form, .* got KeyError: 'paragraphs'"),
        (broken(lambda q: q.pop("id")), "f.json, question 'q0': .* got KeyError: 'id'"),
        (broken(lambda q: q.update(id="q0")), "f.json, question 'q0': expected an id of its own"),
        (broken(lambda q: q.pop("question")), "f.json, row 2: expected a question, got nothing"),
        (broken(lambda q: q.pop("answers")), "'q1': has no 'answers'; --test_file takes questions without them$"),
        (broken(lambda q: q.update(answers=[], is_impossible=False)), "'is_impossible' is false but there are 0"),
        (broken(lambda q: q["answers"][0].update(answer_start="24")), "f.json, row 2: expected answers as SQuAD"),
        (
            broken(lambda q: q["answers"][0].update(answer_start=23)),
            "'q1': expected answer 'small red house' at character 23, the context has ' small red hous' there; "
            "it occurs at 24; correct 'answer_start'",
        ),
        (broken(lambda q: q["answers"][0].update(text="big house")), "it does not occur in the context"),
        (broken(lambda q: q["answers"][0].update(text="")), "'q1': expected answer '' at character 24"),
        (broken(lambda q: q.update(answers=[])), "'q1': has no answer; .* give --version_2_with_negative"),
    ],
)
def test_bad_content_is_refused(tmp_path, content, message):
    (tmp_path / "f.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        read_squad(tmp_path / "f.json")
    assert str(tmp_path / "f.json") in str(caught.value)


FLAT = {"id": 1, "context": CONTEXT, "question": "q", "answers": {"text": ["old"], "answer_start": [4]}}


def test_rows_of_data_sets_and_lists_of_articles_are_read_too(tmp_path):
    flat = [FLAT, FLAT | {"id": 2}]
    expected = [Question(id_, "q", CONTEXT, (("old", 4),)) for id_ in "12"]
    for name, text in ("list.json", json.dumps(flat)), ("train.json", "\n".join(map(json.dumps, flat))):
        (tmp_path / name).write_text(text)
        assert read_squad(tmp_path / name) == expected
    (tmp_path / "list.json").write_text(json.dumps(document(qa())["data"]))
    assert read_squad(tmp_path / "list.json") == parsed(document(qa()))
    (tmp_path / "list.json").unlink()
    assert read_hub(str(tmp_path), None, "train") == expected


def test_wrong_questions_are_counted():
    wrong = [qa(f"q{number}", answers=(("river", 40 + number),)) for number in range(9)]
    with pytest.raises(
        ValueError, match=r"question 'q0': expected answer 'river' at character 40, .* \(8 of 9 questions"
    ):
        parsed(document(*wrong))
    with pytest.raises(ValueError, match=r"'q0': has no 'answers'; .* \(2 of 3 questions have such mistakes\)$"):
        parsed(document({"id": "q0", "question": "q"}, {"id": "q1", "question": "q"}, qa("q2")))
    with pytest.raises(ValueError, match=r"correct 'answer_start' or the text$"):
        parsed(document(wrong[0], qa("other")))


def test_ids_that_are_numbers_are_ids(tmp_path):
    """As the official script does with numbers in quotes; 7 and "7" are one id."""
    data = document(qa(7), qa(8, answers=(("river", 47),)))
    assert [question.id for question in parsed(data)] == ["7", "8"]
    with pytest.raises(ValueError, match="question '7': expected an id of its own"):
        parsed(document(qa(7), qa("7")))
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "predictions.json").write_text(json.dumps({7: "red house", 8: "river"}))
    # By hand: "red house" has 2 of the 3 words of "small red house", so F1 is 2 x 1 x 2/3 / (1 + 2/3) = 0.8.
    scores = official_scores(tmp_path / "data.json", tmp_path / "predictions.json")
    assert scores == {"exact_match": 50.0, "f1": pytest.approx(90)}


def test_hub_columns_give_the_same_questions(monkeypatch):
    rows = [
        {
            "id": "a",
            "title": "t",
            "context": CONTEXT,
            "question": "q",
            "answers": {"text": ["old"], "answer_start": [4]},
        },
        {"id": "b", "title": "t", "context": CONTEXT, "question": "r", "answers": {"text": [], "answer_start": []}},
    ]
    asked = []

    def load_dataset(name, config_name, split):
        asked.append((name, config_name, split))
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    questions = read_hub("some/squad_v2", None, "train", version_2_with_negative=True)
    assert questions == [Question("a", "q", CONTEXT, (("old", 4),), "t"), Question("b", "r", CONTEXT, (), "t")]
    assert asked == [("some/squad_v2", None, "train")]
    with pytest.raises(ValueError, match="some/squad_v2, split 'train', question 'b': has no answer"):
        read_hub("some/squad_v2", None, "train")
    for answers in (
        [{"text": "old", "answer_start": 4}],
        {"text": ["old"], "answer_start": [4, 9]},
        {"text": None},
    ):
        rows[:] = [{"id": "a", "title": "t", "context": CONTEXT, "question": "q", "answers": answers}]
        with pytest.raises(
            ValueError, match=r"split 'train', row 1: expected answers as SQuAD has them, lists 'text' and"
        ):
            read_hub("some/squad_v2", None, "train")
    rows[:] = [{"text": "x"}]
    with pytest.raises(ValueError, match=r"expected a column 'question'; 'context'; got 'text'"):
        read_hub("some/squad_v2", None, "train")


def test_questions_of_the_hub_are_known_by_their_content(monkeypatch):
    def content(answer: str) -> list[str]:
        row = {"id": "a", "title": "t", "context": CONTEXT, "question": "q"}
        row["answers"] = {"text": [answer], "answer_start": [CONTEXT.index(answer)]}
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list([row]))
        args = parse_arguments(SquadArguments, "--output_dir x --model_name_or_path m --dataset_name a/squad".split())
        return checksums(load_data(args).facts())

    assert content("old") == content("old") != content("house") and len(content("old")) == 2
