"""The cache of windows gives back the windows that were built, and never anything else."""

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoTokenizer

from bert_training.tasks.squad import window_cache
from bert_training.tasks.squad import windows as windows_module
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.window_cache import (
    ARRAYS,
    cached_windows,
    fingerprint,
    load_windows,
    save_windows,
    shared_windows,
)
from bert_training.tasks.squad.windows import Windows, build_windows
from tests.helpers.words import WORDS
from tokenization import build_tokenizer

LENGTHS = (16, 4, 6)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def some_questions() -> list[Question]:
    rng, questions = np.random.default_rng(0), []
    for i in range(12):
        context = " ".join(rng.choice(WORDS, rng.integers(1, 40)))
        answers = ((context.split()[0], 0),) if i % 3 else ()
        questions += [Question(f"q{i}{n}", f"the {WORDS[n]}", context, answers) for n in range(2)]
    return [*questions, Question("empty", "old", "")]


def same(one: Windows, other: Windows) -> None:
    for name in ("input_ids", "token_type_ids", "offsets"):
        rows, others = getattr(one, name), getattr(other, name)
        assert len(rows) == len(others)
        for row, again in zip(rows, others):
            np.testing.assert_array_equal(row, again, strict=True)
    for name in ARRAYS:
        assert (getattr(one, name) is None) == (getattr(other, name) is None)
        if getattr(one, name) is not None:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


@pytest.mark.parametrize("with_answers", [False, True])
def test_what_is_read_is_what_was_built(tokenizer, tmp_path, monkeypatch, with_answers):
    questions = some_questions()
    expected = build_windows(questions, tokenizer, *LENGTHS, with_answers)
    built, origin = cached_windows(tmp_path / "deep" / "er", questions, tokenizer, *LENGTHS, with_answers)
    assert origin == "built"
    monkeypatch.setattr(window_cache, "build_windows", None)
    again, origin = cached_windows(tmp_path / "deep" / "er", questions, tokenizer, *LENGTHS, with_answers)
    assert origin == "read"
    for windows in (built, again):
        same(windows, expected)
    assert len({id(spans) for spans in again.offsets}) == 13  # 25 questions have 13 contexts, each stored once.


def changed_inputs(tokenizer, vocab) -> dict:
    questions = some_questions()
    first = questions[2]
    assert first.answers
    more = build_tokenizer([*vocab, "more"])
    cased = build_tokenizer(vocab, do_lower_case=False)
    ends_otherwise = build_tokenizer(vocab)
    ends_otherwise.sep_token = "[PAD]"
    return {
        "context": ([*questions[:2], dataclasses.replace(first, context=first.context + " a"), *questions[3:]],),
        "question": ([*questions[:2], dataclasses.replace(first, text="a"), *questions[3:]],),
        "answer": ([*questions[:2], dataclasses.replace(first, answers=((first.context[:1], 0),)), *questions[3:]],),
        "order": (questions[::-1],),
        "fewer": (questions[:-1],),
        "vocabulary": (questions, more),
        "rules": (questions, cased),
        "specials": (questions, ends_otherwise),
        "length": (questions, tokenizer, (17, 4, 6)),
        "stride": (questions, tokenizer, (16, 5, 6)),
        "query": (questions, tokenizer, (16, 4, 5)),
        "no answers": (questions, tokenizer, LENGTHS, False),
    }


def test_every_input_changes_the_name_in_the_cache(tokenizer, vocab):
    changes = changed_inputs(tokenizer, vocab)
    made = {"none": fingerprint(some_questions(), tokenizer, LENGTHS, True)}
    for name, given in changes.items():
        made[name] = fingerprint(*given, *(some_questions(), tokenizer, LENGTHS, True)[len(given) :])
    assert len(set(made.values())) == len(made)


def test_what_does_not_shape_the_windows_does_not_change_the_name(tokenizer, tokenizer_folder):
    """Ids, titles, further answers and the state that an earlier call left in the tokenizer do not matter."""
    questions = some_questions()
    expected = fingerprint(questions, tokenizer, LENGTHS, True)
    other = AutoTokenizer.from_pretrained(tokenizer_folder)
    other("old house", truncation=True, max_length=3, padding="max_length")
    renamed = [dataclasses.replace(q, id=q.id + "x", title="t", answers=q.answers + q.answers[:1]) for q in questions]
    assert fingerprint(renamed, other, LENGTHS, True) == expected


def test_another_version_of_the_code_or_the_library_builds_anew(tokenizer, tmp_path, monkeypatch):
    def made() -> str:
        return fingerprint(some_questions(), tokenizer, LENGTHS, True)

    before = made()
    with monkeypatch.context() as patch:
        patch.setattr(window_cache.tokenizers, "__version__", "0.0")
        assert made() != before
    for module in (windows_module, window_cache):
        (tmp_path / "code.py").write_bytes(Path(module.__file__).read_bytes() + b"\n")
        with monkeypatch.context() as patch:
            patch.setattr(module, "__file__", str(tmp_path / "code.py"))
            assert made() != before
    assert made() == before


@pytest.mark.parametrize("spoil", [lambda b: b[:-30], lambda b: b"", lambda b: b[:300] + b"\xff" * 9 + b[309:]])
def test_a_damaged_file_is_built_again(tokenizer, tmp_path, spoil):
    questions = some_questions()
    cached_windows(tmp_path, questions, tokenizer, *LENGTHS)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(spoil(whole))
    windows, origin = cached_windows(tmp_path, questions, tokenizer, *LENGTHS)
    assert origin.startswith(f"built again, {path} was damaged (")
    same(windows, build_windows(questions, tokenizer, *LENGTHS))
    assert cached_windows(tmp_path, questions, tokenizer, *LENGTHS)[1] == "read"


class Trap:
    """An object whose code pickle would run on reading."""

    def __reduce__(self):
        return pytest.fail, ("a file of the cache was run",)


def test_no_code_in_the_cache_is_ever_run(tokenizer, tmp_path):
    cached_windows(tmp_path, some_questions(), tokenizer, *LENGTHS)
    (path,) = tmp_path.iterdir()
    np.savez(path, question=np.array([Trap()], dtype=object))
    _, origin = cached_windows(tmp_path, some_questions(), tokenizer, *LENGTHS)
    assert "was damaged (Object arrays cannot be loaded" in origin


def test_only_training_windows_know_the_answers(tokenizer, tmp_path):
    """Validation windows do not need them: an answer that the tokenizer drops cannot be learnt, but can be scored."""
    lengths = dict(zip(("max_seq_length", "doc_stride", "max_query_length"), LENGTHS))
    said: list[str] = []
    args = SimpleNamespace(cache_dir=str(tmp_path), **lengths)
    run = SimpleNamespace(args=args, say=said.append, main_first=lambda work: work())
    odd = [Question("q", "old", "old \u200b house", (("\u200b", 4),))]
    windows = shared_windows(run, {"train": some_questions(), "validation": odd}, tokenizer)
    assert windows["train"].start_positions is not None and windows["validation"].start_positions is None
    assert said == [f"{len(windows['train'])} train windows, built", "1 validation windows, built"]


def test_a_writer_that_is_stopped_leaves_no_file(tokenizer, tmp_path, monkeypatch):
    windows = build_windows(some_questions(), tokenizer, *LENGTHS)

    def stop(draft, path):
        assert os.path.getsize(draft) > 1000
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with pytest.raises(KeyboardInterrupt):
            save_windows(tmp_path / "w.npz", windows, "key")
    assert not list(tmp_path.iterdir())
    save_windows(tmp_path / "w.npz", windows, "key")
    assert [path.name for path in tmp_path.iterdir()] == ["w.npz"]
    with pytest.raises(ValueError, match="the windows of other questions"):
        load_windows(tmp_path / "w.npz", "another key")
