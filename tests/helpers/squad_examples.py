"""Questions in the format of SQuAD, and logits for their windows."""

import numpy as np

from bert_training.tasks.squad.questions import Question
from tests.helpers.words import WORDS


def squad_content(count: int, negative: bool = False, longest: int = 30) -> dict:
    """Questions that name a word; the answer is that word and the next one.

    With ``negative``, every third question has no answer.
    """
    rng = np.random.default_rng(count)
    qas, paragraphs = [], []
    for i in range(count):
        words = [str(word) for word in rng.permutation(WORDS)[: rng.integers(8, longest)]]
        place = int(rng.integers(len(words) - 1))
        answer = {"text": " ".join(words[place : place + 2]), "answer_start": len(" ".join(["", *words[:place]]))}
        impossible = negative and i % 3 == 0
        question = "where ?" if impossible else f"{words[place]} ?"
        qas = [{"id": f"q{i}", "question": question, "answers": [] if impossible else [answer]}]
        paragraphs.append({"context": " ".join(words), "qas": qas})
    return {"version": "1.1", "data": [{"title": "words", "paragraphs": paragraphs}]}


def google_words(context: str) -> tuple[list[str], list[int]]:
    """The white-space words of a context, and the number of the word of every character, as Google's reader has them.

    This is a port of a part of read_squad_examples in run_squad.py of google-research/bert.
    """
    words, word_of_character = [], []
    previous_is_white = True
    for character in context:
        if character in " \t\r\n\u202f":
            previous_is_white = True
        else:
            if previous_is_white:
                words.append(character)
            else:
                words[-1] += character
            previous_is_white = False
        word_of_character.append(len(words) - 1)
    return words, word_of_character


def random_questions(rng, words: list[str], count: int, longest: int = 50) -> list[Question]:
    glue = ["", "", "", ",", ".", "\u0301", "\u200d", "'s", "\u2019", "-x", "\u4e2d"]
    questions = []
    for i in range(count):
        pieces = [str(w) + str(rng.choice(glue)) for w in rng.choice(words, rng.integers(1, longest))]
        context = "".join(p + str(rng.choice([" ", "  ", "\n", "\u202f"])) for p in pieces).strip()
        questions.append(Question(f"q{i}", " ".join(rng.choice(words, rng.integers(1, 6))), context))
    return questions


def random_logits(rng, windows) -> tuple[list, list]:
    return tuple([rng.normal(size=len(ids)).astype(np.float32) * 3 for ids in windows.input_ids] for _ in range(2))


def planted(windows, places: dict, floor: float = -9.0) -> tuple[list, list]:
    """Logits that are ``floor`` everywhere except at the places given as {(window, start, end): height}.

    Start 0 and end 0 stand for [CLS].
    """
    start = [np.full(len(ids), floor, dtype=np.float32) for ids in windows.input_ids]
    end = [row.copy() for row in start]
    for (w, first, last), height in places.items():
        start[w][first] = end[w][last] = height
    return start, end
