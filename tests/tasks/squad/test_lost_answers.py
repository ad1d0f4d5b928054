"""bert_training/tasks/squad/lost_answers.py: questions and answers that the lengths lose."""

import json
import random
from types import SimpleNamespace

import pytest

import run_squad
from bert_training.engine.errors import report_errors
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.tasks.squad.lost_answers import Lost, count_lost, report_lost
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.windows import build_windows
from tests.helpers.records import read
from tests.helpers.words import WORDS
from tokenization import build_tokenizer

pytestmark = pytest.mark.usefixtures("no_pictures")
CONTEXT = "the king walked to the old house by the river . the queen opened the letter ."


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return build_tokenizer(vocab)


def question(name: str, *answers: str, text: str = "the queen", context: str = CONTEXT) -> Question:
    return Question(name, text, context, tuple((answer, context.index(answer)) for answer in answers))


def test_worked_by_hand(tokenizer):
    """Windows of 12 tokens: with a question of 2, there are 7 of the context, and each begins 3 after the last."""
    questions = [
        question("short", "the king"),
        question("long", "the king walked to the old house by"),  # 8 words: in no window
        question("both", "the king walked to the old house by", "queen"),
        question("six", "the king walked to the old"),  # in the first window
        question("none"),
        question("asks much", "the king", text="the queen opened the old house ."),  # 7 words, cut after 4
        question("one window", "king", context="the king"),
    ]
    windows = build_windows(questions, tokenizer, 12, 3, 4)
    assert count_lost(questions, windows, 4, 5) == Lost(
        questions=7,
        answerable=6,
        in_no_window=1,
        too_long=2,
        unreachable=2,
        longest=8,
        several_windows=6,
        cut_questions=1,
    )
    # In training, only the first answer counts.
    assert count_lost(questions, windows, 4, 5, first_only=True).in_no_window == 2


def test_a_lost_answer_is_one_that_is_trained_as_no_answer(tokenizer):
    """The independent source are the labels of the windows, which Google's rule gives."""
    generator = random.Random(3)
    for _ in range(30):
        questions = []
        for name in range(8):
            words = generator.choices(WORDS, k=generator.randint(1, 30))
            begin = generator.randrange(len(words))
            end = generator.randint(begin + 1, len(words))
            start = len(" ".join(words[:begin])) + (begin > 0)
            answer = (" ".join(words[begin:end]), start)
            questions.append(Question(str(name), "who ?", " ".join(words), (answer,)))
        windows = build_windows(questions, tokenizer, generator.randint(10, 20), 3, 4, with_answers=True)
        lost = {q for q in range(8) if not windows.start_positions[windows.question == q].any()}
        lost -= {q for q in range(8) if not len(windows.offsets[q])}
        assert count_lost(questions, windows, 4, 30).in_no_window == len(lost)


def report(tokenizer, questions, said, **flags):
    args = SquadArguments(output_dir="x", model_name_or_path="y", max_seq_length=12, doc_stride=3, max_query_length=4,
                          max_answer_length=5, **flags)  # fmt: skip
    run = SimpleNamespace(args=args, say=said.append, add_facts=lambda **facts: said.append(facts))
    windows = build_windows(questions, tokenizer, 12, 3, 4)
    return report_lost(
        run, {"train": questions, "validation": questions}, {"train": windows, "validation": windows}, 64
    )


def test_every_loss_is_said_with_its_share_and_remedy(tokenizer):
    said: list = []
    long = question("long", "the king walked to the old house by", text="the queen opened the old house .")
    report(tokenizer, [long, question("short", "king")], said)
    facts, *lines = said
    assert facts["lost_at_lengths"]["validation"]["in_no_window"] == 1
    assert lines[:4] == [
        "train: 2 of 2 (100.0 %) questions have several windows",
        "warning: train: 1 of 2 (50.0 %) questions are longer than --max_query_length 4 and were cut; raise it",
        "warning: train: 1 of 2 (50.0 %) questions with an answer have no window that holds all of it: they are "
        "trained on as if they had none; raise --max_seq_length (up to 64), lower --doc_stride, or shorten the answers",
        "warning: train: 1 of 2 (50.0 %) questions with an answer have none of up to --max_answer_length 5 tokens: the "
        "model learns them but cannot give them; raise it",
    ]
    assert [line for line in lines if "validation" in line and "no answer to them can be right" in line] == lines[6:]


def test_a_training_without_any_target_is_refused_if_there_are_answers(tokenizer):
    """All windows would be trained on as [CLS], the place of "no answer"."""
    said: list = []
    lost = [question("long", "the king walked to the old house by")]
    told = (
        "train: no answer to any of the 1 questions that have one can be given: 1 have .*, and 1 none that is whole in"
    )
    with pytest.raises(ValueError, match=told):
        report(tokenizer, lost, said)
    for more in ([], [question("none")]):
        with pytest.raises(ValueError, match=told):
            report(tokenizer, lost + more, said, version_2_with_negative=True)
    report(tokenizer, [*lost, question("short", "the king")], said, version_2_with_negative=True)
    assert any("trained on as if they had none" in str(line) for line in said)
    report(tokenizer, [question("none")], said, version_2_with_negative=True)
    with pytest.raises(ValueError, match="no answer to any of the 2 questions"):
        report(tokenizer, lost * 2, said)


def test_a_run_is_refused_before_its_training_and_may_be_given_again(pretrained, tmp_path, capsys):
    answer = {"text": "the king walked to the old house by", "answer_start": 0}
    entry = {"id": "q", "question": "who ?", "answers": [answer]}
    data = {"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [entry]}]}]}
    (tmp_path / "a.json").write_text(json.dumps(data))
    argv = ["--model_name_or_path", str(pretrained), "--train_file", str(tmp_path / "a.json"), "--validation_file",
            str(tmp_path / "a.json"), "--output_dir", str(tmp_path / "run"), "--max_steps=1", "--save_steps=0",
            "--max_query_length=4", "--doc_stride=3"]  # fmt: skip
    assert report_errors(lambda: run_squad.main([*argv, "--max_seq_length=12"])) == 2
    assert "1 none that is whole in a window; raise --max_seq_length (up to 64)" in capsys.readouterr().err
    assert not (tmp_path / "run" / "run.json").exists()
    assert report_errors(lambda: run_squad.main([*argv, "--max_seq_length=16", "--max_answer_length=5"])) == 2
    assert "raise --max_answer_length (the longest answer has 8 tokens)" in capsys.readouterr().err
    run_squad.main([*argv, "--max_seq_length=16", "--max_answer_length=8"])
    assert read(tmp_path / "run", "run.json")["lost_at_lengths"]["train"]["longest"] == 8
